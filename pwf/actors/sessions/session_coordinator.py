"""SessionCoordinator: acts for one attached session, as long as its connection holds it.

Owns the session's epoch. Promises: what it does is done in order, and each command is fenced by the epoch, so nothing
of a connection counts after another one has attached the same session; when the connection ends, however that comes,
the session is let go. While the model works, its time is sampled; a sample that another daemon's claim refuses ends
this daemon.
In: what the session says. Out: transactions; who is attached now is published. If it dies: its connection ends, and
the session attaches again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.errors import ClaimLost, OutcomeUnknown, PwfError, Unavailable
from pwf.host.identity import Identity
from pwf.store.session_clock import Sample, sample
from pwf.store.sessions import SessionFence, detach
from pwf.store.tx import Tx

R = TypeVar("R")
C = TypeVar("C")

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 16
SAMPLE_S = 5.0  # of active time, at most, is lost with a daemon
DETACH_S_MAX = 2.0  # what is not told by then, the next daemon finds out


# --- messages -------------------------------------------------------------------------------------------------


class Do(Message[Any], frozen=True, kw_only=True, eq=False):
    """What the session says: a command of the store."""

    handler: Callable[[Tx, Any], Any]
    command: Any


# --- the handle -----------------------------------------------------------------------------------------------


class SessionHandle:
    """What its connection holds of it. `fence` never changes; `is_fenced` is published."""

    def __init__(self, inbox: Mailbox[Do], fence: SessionFence) -> None:
        self._inbox = inbox
        self.fence = fence
        self.is_fenced = False  # another connection has attached the session since

    @property
    def session_id(self) -> str:
        return self.fence.session_id

    def check(self) -> None:
        """Raise `ClaimLost` when the session is another connection's by now."""
        if self.is_fenced:
            raise ClaimLost(
                f"session {self.session_id!r} was attached by another connection",
                hint="attach it again; only one connection acts for a session",
            )

    async def do(self, handler: Callable[[Tx, C], R], command: C) -> R:
        """Have a command done for the session, after all that it has said before."""
        self.check()
        result: R = await ask(self._inbox, Do(handler=handler, command=command))
        return result


class Attachment(NamedTuple):
    """A session that is attached. `agent`: the process that it is of; `by`: the one that has attached it."""

    session_id: str
    agent: Identity
    by: Identity


class Attached:
    """Which sessions are attached now, of which process and by which. Each coordinator keeps its own entry."""

    def __init__(self) -> None:
        self._handles: dict[str, tuple[SessionHandle, Attachment | None]] = {}

    @property
    def count(self) -> int:
        return len(self._handles)

    def processes(self) -> list[Attachment]:
        """Of each whose processes are known."""
        return [attachment for _, attachment in list(self._handles.values()) if attachment is not None]

    def begin(self, handle: SessionHandle, attachment: Attachment | None) -> None:
        """This one holds the session from now on, unless a later epoch does already."""
        before = self._handles.get(handle.session_id)
        if before is not None and before[0].fence.epoch > handle.fence.epoch:
            handle.is_fenced = True
            return
        if before is not None:
            before[0].is_fenced = True
        self._handles[handle.session_id] = (handle, attachment)

    def end(self, handle: SessionHandle) -> None:
        """It does not any more."""
        held = self._handles.get(handle.session_id)
        if held is not None and held[0] is handle:
            del self._handles[handle.session_id]


# --- the actor ------------------------------------------------------------------------------------------------


class SessionCoordinator:
    """The actor. `attachment`: where the processes are known that stand behind the connection."""

    def __init__(
        self,
        store: StoreHandle,
        fence: SessionFence,
        attached: Attached,
        attachment: Attachment | None,
        daemon_epoch: int,
        log: Log,
    ) -> None:
        self._store = store
        self._fence = fence
        self._attached = attached
        self._log = log
        self._sample = Sample(session_no=fence.session_no, daemon_epoch=daemon_epoch)
        self._sample_at = math.inf  # while the model may be at work
        self._inbox: Mailbox[Do] = Mailbox(INBOX_MAX, "the coordinator of the session")
        self.handle = SessionHandle(self._inbox, fence)
        attached.begin(self.handle, attachment)

    async def run(self) -> None:
        """Serve until the connection ends."""
        try:
            with self._inbox.open():
                while True:
                    message = await self._inbox.take_one(self._sample_at)
                    if message is None:
                        await self._handle_sample()
                    else:
                        await self._inbox.answer(message, self._handle_do)
                        self._sample_at = min(
                            self._sample_at, _next_sample()
                        )  # what is said puts off no sample
        finally:
            self._attached.end(self.handle)
            await self._let_go()

    # --- handlers ---

    async def _handle_do(self, message: Do) -> Any:
        return await self._store.write(message.handler, message.command)

    async def _handle_sample(self) -> None:
        counts = True
        try:
            counts = await self._store.write(sample, self._sample)
        except Unavailable as error:
            if isinstance(error, OutcomeUnknown):
                raise
            self._log.warning("session.not_sampled", code=error.code)
        self._sample_at = _next_sample() if counts else math.inf

    async def _let_go(self) -> None:
        with trio.move_on_after(DETACH_S_MAX, shield=True):
            try:
                await self._store.write(detach, self._fence)
            except PwfError as error:  # a store that has stopped: every session is let go with its daemon
                self._log.warning("session.not_detached", code=error.code)


# --- pure functions -------------------------------------------------------------------------------------------


def _next_sample() -> float:
    return trio.current_time() + SAMPLE_S
