"""What the Scheduler needs of whoever supervises a reconcile: that room stands above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pwf.actors.runs.launching import Launchable, Supervision
from pwf.store.resource_queue import AdmittedReconcile


class ReconcileHandle(Protocol):
    """What is published of one reconcile. The same as `SupervisorHandle`."""

    is_over: bool  # the supervisor has ended
    has_failed: bool  # by a fault of our own
    launched_from: Launchable | None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is there of the process any more."""
        ...

    def stop(self) -> None:
        """End the process now. May be called more than once, and too late."""


class Reconciler(Protocol):
    """The supervisor of one reconcile: a task."""

    @property
    def handle(self) -> ReconcileHandle:
        """For the Scheduler."""
        ...

    async def run(self) -> None:
        """One reconcile, to its end."""


MakeReconciler = Callable[[AdmittedReconcile, Supervision, Launchable | None], Reconciler]
