"""The adapter's end of the port, and what each kind of adapter is.

Owns the socket. Promises: what is to be sent is done one at a time; an answer is told to the daemon, and its verdict
comes after the commit; the process ends when the daemon does. An adapter says `done`, `refused` only where it surely
was not sent, and `unknown` in every other case.
"""

from __future__ import annotations

import hashlib
import os
import queue
import socket
import sys
import threading
import traceback
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from pwf.errors import SecretMissing
from pwf.host.identity import Identity
from pwf.protocol.channel_port import (
    LINE_BYTES_MAX,
    RETRY_AFTER_S_MAX,
    Answered,
    Begin,
    ChannelMessage,
    Close,
    Ready,
    Sent,
    Show,
    Trouble,
    Verdict,
    line_of,
    to_adapter,
)
from pwf.protocol.frames import FrameSplitter
from pwf.secrets import how_to_give, resolve

RECEIVE_BYTES = 64 * 1024
EXIT_FAILED = 70
FAILURES_TOLD = 5  # in a row, with back-off: half a minute and more
STEADY = 3

S = TypeVar("S", bound=msgspec.Struct)


class Outcome(NamedTuple):
    """What came of one thing, as `Sent` has it."""

    outcome: str
    ref: str | None = None
    why: str | None = None
    final: bool = False
    early: bool = False
    retry_after_s: float | None = None


def done(ref: str | None = None) -> Outcome:
    """It arrived; `ref`: what the service calls it."""
    return Outcome("done", ref)


def refused(why: str, *, final: bool = False) -> Outcome:
    """It was surely not sent. `final`: it never will be."""
    return Outcome("refused", None, why, final)


def early(why: str, *, retry_after_s: float | None = None) -> Outcome:
    """It was surely not sent: nobody was reached, or the service takes nothing for now, until then."""
    after_s = None if retry_after_s is None else min(max(retry_after_s, 0.0), RETRY_AFTER_S_MAX)
    return Outcome("refused", None, why, early=True, retry_after_s=after_s)


def unknown(why: str) -> Outcome:
    """It may have been sent."""
    return Outcome("unknown", None, why)


class Port:
    """The daemon, as an adapter sees it. `say` and `answer` are for any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._splitter = FrameSplitter(LINE_BYTES_MAX)
        self._lines: list[bytes] = []
        self._writing = threading.Lock()
        self._verdicts: dict[int, queue.SimpleQueue[Verdict]] = {}
        self._number = 0
        self.epoch = 0

    def begin(self) -> Begin:
        """The first word of the daemon."""
        said = self._next()
        if not isinstance(said, Begin):
            raise SystemExit(EXIT_FAILED)
        self.epoch = said.epoch
        return said

    def read_into(self, work: queue.SimpleQueue[Show | Close], stop: Callable[[], None]) -> None:
        """Hand out what the daemon says until it is gone; then the process ends, after `stop`."""
        code = EXIT_FAILED
        try:
            self._read(work)
            stop()
            code = 0
        except BaseException as error:  # noqa: BLE001 - a process that hears nothing would seem to work
            print(f"the daemon can not be heard: {nameless(error)}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def _read(self, work: queue.SimpleQueue[Show | Close]) -> None:
        while (said := self._next()) is not None:
            if isinstance(said, Verdict):
                waiting = self._verdicts.pop(said.number, None)
                if waiting is not None:
                    waiting.put(said)
            elif isinstance(said, Show | Close):
                work.put(said)

    def answer(
        self,
        *,
        token: str = "",
        choice: str = "",
        number: int | None = None,
        text: str | None = None,
        with_text: bool = False,
        who: str = "",
        cursor: str | None = None,
        peer: Identity | None = None,
    ) -> Verdict:
        """Tell a person's answer, or only how far is read, and wait for the commit."""
        waiting: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        with self._writing:
            self._number += 1
            said_no = self._number
            self._verdicts[said_no] = waiting
            said = Answered(
                epoch=self.epoch,
                number=said_no,
                token=token,
                choice=choice,
                choice_no=number,
                text=text,
                with_text=with_text,
                who=who,
                cursor=cursor,
                peer=peer,
            )
            self._connection.sendall(line_of(said))
        return waiting.get()

    def may_answer(self, peer: Identity) -> bool:
        """Whether this process is one by which a person may answer."""
        return not self.answer(peer=peer).said

    def say(self, said: msgspec.Struct) -> None:
        """Tell the daemon."""
        with self._writing:
            self._connection.sendall(line_of(said))

    def trouble(self, why: str | None, what_to_do: str | None = None) -> None:
        """Something keeps it from its work, or no more."""
        self.say(Trouble(epoch=self.epoch, why=why, what_to_do=what_to_do))

    def _next(self) -> Any:
        while not self._lines:
            try:
                data = self._connection.recv(RECEIVE_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._lines += [bytes(line) for line in self._splitter.feed(data)]
        return to_adapter.decode(self._lines.pop(0))


class Reading:
    """Whether what people send can be read: told once when it can't, and once when it steadily can again."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._failed = 0  # in a row
        self._fine = 0  # in a row
        self._told = False

    def failed(self, why: str, what_to_do: str | None = None, *, at_once: bool = False) -> None:
        """It was tried, and not read. `at_once`: the service has said why, so that it is no passing thing."""
        self._failed, self._fine = self._failed + 1, 0
        if not self._told and (at_once or self._failed >= FAILURES_TOLD):
            self._told = True
            self._port.trouble(why, what_to_do)

    def fine(self) -> None:
        """It was read. With two readers it fails and works by turns: that is no end of the trouble."""
        self._failed, self._fine = 0, self._fine + 1
        if self._told and self._fine >= STEADY:
            self._told = False
            self._port.trouble(None)


class Adapter(Generic[S]):
    """One kind of channel. `settings`: its section. `listens`: people answer through it."""

    listens = False

    def __init__(self, port: Port, begin: Begin, settings: S) -> None:
        self.port = port
        self.begin = begin
        self.settings = settings
        self.reading = Reading(port)
        self._secrets: list[str] = []

    def secret(self, name: str) -> str:
        """The value, which no word to the daemon has in it. Raises `PwfError`.

        One with a control character would be refused deep inside a library, whose error would say the value.
        """
        value = resolve(name, Path(self.begin.config)).strip()
        if not value or any(unicodedata.category(one) == "Cc" for one in value):
            raise SecretMissing(
                f"the secret {name} is empty, or has a newline or another control character in it",
                hint=f"store its one line again: {how_to_give(name, Path(self.begin.config))}",
            )
        self._secrets.append(value)
        return value

    def masked(self, words: str | None) -> str | None:
        """Without any secret."""
        for value in self._secrets:
            words = None if words is None else words.replace(value, "***")
        return words

    def read_from(self, *source: str) -> str | None:
        """How far an earlier process has read this source; None: nothing of it. Another one has other numbers."""
        self._source = hashlib.sha256("\0".join(source).encode()).hexdigest()[:16]
        stored, _, cursor = (self.begin.cursor or "").partition(":")
        return cursor if stored == self._source else None

    def cursor(self, read: str) -> str:
        """How far the source is read, as it is stored."""
        return f"{self._source}:{read}"

    def start(self) -> None:
        """Get what it needs, its secrets among that. Raises `PwfError`, which people read."""

    def show(self, message: ChannelMessage) -> Outcome:
        """Send it."""
        raise NotImplementedError

    def close(self, close: Close) -> Outcome:
        """Show of what was sent that it is settled. Safe to repeat."""
        return done(close.ref)

    def stop(self) -> None:
        """The daemon is gone: end what was started. Called in a thread of its own."""

    def listen(self) -> None:
        """Bring answers, for ever, in a thread of its own."""


def work_for(port: Port, adapter: Adapter[Any]) -> None:
    """Serve until the daemon is gone."""
    work: queue.SimpleQueue[Show | Close] = queue.SimpleQueue()
    threading.Thread(target=port.read_into, args=(work, adapter.stop), daemon=True).start()
    if adapter.listens:
        threading.Thread(target=_listen, args=(adapter,), daemon=True).start()
    port.say(Ready(epoch=port.epoch))
    while True:
        said = work.get()
        message_id = said.message.message_id if isinstance(said, Show) else said.message_id
        came = outcome_of(adapter, said)
        port.say(
            Sent(
                epoch=port.epoch,
                attempt=said.attempt,
                message_id=message_id,
                outcome=came.outcome,  # type: ignore[arg-type]
                ref=came.ref,
                why=adapter.masked(came.why),
                final=came.final,
                early=came.early,
                retry_after_s=came.retry_after_s,
            )
        )


def outcome_of(adapter: Adapter[Any], said: Show | Close) -> Outcome:
    """What comes of one thing. Of what an adapter did before an error of its own nobody knows."""
    try:
        return adapter.show(said.message) if isinstance(said, Show) else adapter.close(said)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next message is another matter
        return unknown(f"a fault of the adapter: {nameless(error)}")


def nameless(error: BaseException) -> str:
    """Which error it is and where, and never its words: they may hold a secret, as it is or quoted."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return type(error).__name__ + "".join(f" at {Path(one.filename).name}:{one.lineno}" for one in last)


def _listen(adapter: Adapter[Any]) -> None:
    """An error of the listener ends the process: the daemon says why, and starts another."""
    try:
        adapter.listen()
    except BaseException as error:  # noqa: BLE001 - the process ends of it
        print(f"the adapter's listener has ended: {nameless(error)}", file=sys.stderr, flush=True)
        os._exit(EXIT_FAILED)
