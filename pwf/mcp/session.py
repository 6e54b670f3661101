"""The session of one MCP host: the step that it has, and the turn about it.

Such a host reports no turns. So a step that it was given is evidence, and opens the turn; the turn ends with the
verdict on what was submitted. It is lost when the host goes away, or makes no call for `SILENT_S`: then the step is
there for whoever asks next, and that counts as no reminder.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from pwf.client.session import Session, Step, asks
from pwf.errors import Ambiguous, Conflict, NotFound, PwfError, Rejected
from pwf.ids import Ids
from pwf.protocol.operations import Submitted

SILENT_S = 600.0
LOOK_S = 5.0  # how often it is looked whether the host is silent
LEAVE_S_MAX = 2.0
COUNTED_MAX = 1_024  # keys and requests of which it is known how often something was said
#: What the daemon keeps as the answer to its key.
REFUSED = (Rejected, Conflict, NotFound, Ambiguous)
T = TypeVar("T")


class Counts:
    """How often something has happened, by a key; of the keys that came last."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def of(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str) -> None:
        self._counts[key] = self._counts.pop(key, 0) + 1
        while len(self._counts) > COUNTED_MAX:
            self._counts.popitem(last=False)


class HostSession:
    """Around a session of the client library. Several calls may be open at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step: Step | None = None  # that the host has, its turn open
        self._looking = anyio.Lock()  # one call at a time takes what is next
        self._asked = 0  # how often what is next was asked for
        self._calls = 0
        self._heard = time.monotonic()
        self._rejections = Counts()  # that were answered, by request
        self._refusals = Counts()  # by key
        self._process = Ids().new()  # what an earlier process of this session has said is no repeat of ours
        self._noted: dict[str, tuple[object, int]] = {}  # by kind: what was said last, and how much before

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def session(self) -> Session:
        return self._session

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around each call: the host is there."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._heard = time.monotonic()

    async def next(self, patience_s: float) -> Step | None:
        """What is next for the host: the step that it has already, or one that it has from now on; or what it is told.
        None when there is nothing for so long.
        """
        until = time.monotonic() + patience_s
        self._asked += 1
        number = self._asked
        while True:
            async with self._looking:
                if number != self._asked:
                    return None  # its host has given up this call, and asks in another one
                found = await self._look()
            left_s = until - time.monotonic()
            if found is not None or left_s <= 0:
                return found
            with anyio.move_on_after(left_s):
                await self._session.news()

    async def told(self, step: Step) -> None:
        """The host has what asks for nothing: how a run ended, or words. Until then it is next."""
        async with self._looking:
            if not step.message.starts_turn:
                self._session.branch.append(step.message.message_id)
                await self._session.report()
            elif self._step is not None and self._step.message.message_id == step.message.message_id:
                await self._end("ended")

    async def submit(
        self, request_id: str, revision: int, value: object, key: str, *, reply: bool
    ) -> Submitted:
        """Hand in a value, or a reply. `key`: the same for the same call; a value that was rejected is judged anew."""
        key = f"{key}:{self._rejections.of(request_id)}"  # what was wrong may stand elsewhere, and be right by now
        done = await self.once(
            key, lambda key: self._session.submit(request_id, value, revision=revision, reply=reply, key=key)
        )
        if done.verdict == "rejected":
            self._rejections.add(request_id)
        async with self._looking:
            mine = self._step is not None and self._step.message.request_id == done.request_id
            if mine and done.verdict == "accepted":
                await self._end("ended")
            elif mine and done.verdict == "rejected":
                self._step = None
                await self._session.lose()  # not ended: a reminder would follow, and count
        return done

    async def once(self, key: str, act: Callable[[str], Awaitable[T]]) -> T:
        """Do what is done once under a key. A refusal holds for its moment only: after one the key is another."""
        try:
            refused = self._refusals.of(key)
            return await act(f"{key}.{refused}" if refused else key)
        except REFUSED:
            self._refusals.add(key)
            raise

    def noting(self, kind: str, said: object) -> str:
        """What tells this from all else that was said of the kind: the same when the same is said again at once."""
        last, count = self._noted.get(kind, (None, 0))
        count += last != said
        self._noted[kind] = (said, count)
        return f"{self._process}:{count}"

    async def watch(self) -> None:
        """Give the turn up when the host is silent for too long. For ever."""
        while True:
            await anyio.sleep(LOOK_S)
            if self._step is not None and not self._calls and time.monotonic() - self._heard > SILENT_S:
                await self.leave()

    async def leave(self) -> None:
        """The host is gone, or seems to be: its step is there again for whoever asks next."""
        with anyio.move_on_after(LEAVE_S_MAX, shield=True):
            async with self._looking:
                if self._step is not None:
                    self._step = None
                    try:
                        await self._session.lose()
                    except PwfError:
                        return  # the daemon is gone, or another host has the session: it loses the turn by itself

    # --- inside ---------------------------------------------------------------------------------------------

    async def _look(self) -> Step | None:
        while True:
            view = await self._session.view()
            message = view.message
            if not view.reported:
                return None  # the connection is new, and will have reported in a moment
            if self._step is not None:
                own = self._step.message.message_id
                if message is None or message.message_id != own or message.status != "sent":
                    await self._end("aborted")  # it counts for nothing any more
                elif asks(view, message):
                    return self._step
                else:
                    await self._end("ended")  # it was settled: by a person, or by what was judged meanwhile
                continue
            if message is None:
                return None
            step = Step(self._session, view, message)
            if message.status != "pending":
                await self._session.lose()  # an earlier process of this session had it
            elif not message.starts_turn:
                return step
            elif not await self._session.begin(message.message_id):
                await self._session.end("aborted")
            else:
                self._step = step
                return step

    async def _end(self, state: str) -> None:
        self._step = None
        await self._session.end(state)
