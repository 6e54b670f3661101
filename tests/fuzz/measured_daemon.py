"""`python measured_daemon.py FILE daemon`: `pwf daemon`, whose loop writes down each callback that took long.

A line of FILE is `MS TASK`: the processor time of one step of a task, in the loop's thread, from `NOTED_MS` on; and
where a second thread has seen it.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import trio
from trio.abc import Instrument

NOTED_MS = 10.0
LOOKED_S = 0.01
STACK_LINES = 6


class Steps(Instrument):
    """Measures each step by the thread's own clock, which stands while others have the processor."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._begun = 0.0
        self._number = 0
        self._where = ""
        loop = threading.get_ident()
        threading.Thread(target=self._look, args=(loop,), daemon=True).start()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._number += 1
        self._where = ""
        self._begun = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        ms = (time.thread_time() - self._begun) * 1000
        if ms >= NOTED_MS:
            self._file.write(f"{ms:.1f} {task.name}{self._where}\n")
        self._number += 1

    def _look(self, loop: int) -> None:
        """Where the loop is, when it is in the same step as at the last look."""
        seen = 0
        while True:
            time.sleep(LOOKED_S)
            number = self._number
            if number == seen and number % 2 and (frame := sys._current_frames().get(loop)) is not None:
                lines = traceback.extract_stack(frame)[-STACK_LINES:]
                self._where = "".join(f" < {line.name}:{line.lineno}" for line in reversed(lines))
            seen = number


def measure(file: Path) -> None:
    """From here on `trio.run` is measured."""
    run = trio.run

    def measured(*args: Any, **options: Any) -> Any:
        return run(*args, instruments=[Steps(file)], **options)

    trio.run = measured


if __name__ == "__main__":
    from pwf.cli.main import main

    measure(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
