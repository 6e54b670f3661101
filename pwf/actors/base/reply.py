"""The one answer to one message: the asker awaits it, the actor gives it once.

Promises: an answer that was given reaches the asker, also one that is being cancelled in that instant; an asker that
is cancelled while it waits has withdrawn, unless the actor has taken the message: then it learns the outcome first.
Owns nothing else. Low-level on purpose: two of these stand in the way of every step.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Withdrawn(Exception):
    """Nobody waits for the answer any more: what makes it may stop."""


class Reply(Generic[T]):
    """One asker, one answer. The asker calls `wait`; everything else is the actor's."""

    __slots__ = ("_error", "_given", "_task", "taken", "withdrawn")

    def __init__(self) -> None:
        self._given: list[T] = []
        self._error: BaseException | None = None
        self._task: trio.lowlevel.Task | None = None
        self.taken = False
        self.withdrawn = False

    async def wait(self) -> T:
        """The answer, or the error that was given. A checkpoint only when it waits. Cancelled: see the module."""
        if not self.settled:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self._error is not None:
            raise self._error
        return self._given[0]

    @property
    def settled(self) -> bool:
        """Whether it was answered."""
        return bool(self._given) or self._error is not None

    def take(self) -> bool:
        """From now on the asker waits for the outcome, even when it is cancelled. False: it has withdrawn."""
        self.taken = not self.withdrawn
        return self.taken

    def check_wanted(self) -> None:
        """Raise `Withdrawn` when the asker has gone. May be called in a thread: it reads one flag."""
        if self.withdrawn:
            raise Withdrawn

    def give(self, value: T) -> bool:
        """Answer. False: the asker has withdrawn, and whatever the value holds is still the actor's."""
        self._given.append(value)
        return self._wake()

    def fail(self, error: BaseException) -> bool:
        """Answer with an error, which `wait` raises. False: the asker has withdrawn."""
        self._error = error
        return self._wake()

    def _wake(self) -> bool:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)
        return not self.withdrawn

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        if self.taken:
            return trio.lowlevel.Abort.FAILED
        self.withdrawn, self._task = True, None
        return trio.lowlevel.Abort.SUCCEEDED
