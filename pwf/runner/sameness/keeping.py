"""Keeping a runner for further runs: the whole check, made after a run, and the reason where it fails.

Owns what the process and the project's modules were like before its first run. Promises: a process stays only if
everything that is looked at is as it was then; a check that fails itself says no.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from pwf.protocol.runner import NOT_KEPT_CHARS_MAX
from pwf.runner.sameness.modules import ProjectState
from pwf.runner.sameness.process import ProcessState


class Keeping:
    """For a process that has loaded its workflow. `project`: as it was after that."""

    def __init__(self, project: ProjectState) -> None:
        self._project = project
        self._process: ProcessState | None = None
        self._runs = 0

    def begin(self) -> None:
        """A run begins, in a process that is as it will be for the next."""
        self._runs += 1
        if self._process is None:
            self._process = ProcessState()

    def heard_audit_hook(self) -> None:
        """One was added. None of them can be taken away, or counted."""
        if self._process is not None:
            self._process.audited += 1

    def has_further(self, runs_max: int) -> bool:
        """Whether it may have another run, if it is as it was."""
        return self._runs < runs_max

    def why_not(self, leave: Callable[[], None]) -> str:
        """What is not as it was; empty when all is.

        `leave`: closes what the runner holds open for the run, once no code of the run is left that could use it.
        """
        gc.collect()  # what the run has left is not to end within the next one. What was loaded is not walked
        assert self._process is not None  # a run has begun
        try:
            differs: str | None = "its threads"
            if not self._process.has_threads():
                leave()
                differs = self._process.differs() or self._project.differs()
        except BaseException as error:  # noqa: BLE001 - user code: properties and metaclasses of the project's objects
            differs = f"it could not be compared: {type(error).__name__}"
        return "" if differs is None else f"not as before: {differs}"[:NOT_KEPT_CHARS_MAX]
