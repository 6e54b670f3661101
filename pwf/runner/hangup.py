"""The hang-up watcher: when the daemon is gone, every process of the run ends, whatever the step is doing.

A thread polls the messages socket for hang-up, without reading, and ticks while somebody wants it to. It must not
touch anything of the interpreter's that a step could hold: it lists and kills descendants, then the process itself.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import socket
from collections.abc import Callable

from pwf.runner.base import descendants

TICK_MS = 2

_HANG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class HangUpWatcher:
    """Calls `end` once when the other side of `connection` closes, unless it was stopped before.

    `tick` is called every few milliseconds until it says no.
    """

    def __init__(
        self, connection: socket.socket, end: Callable[[], None], tick: Callable[[], bool] = lambda: False
    ) -> None:
        self._end = end
        self._tick = tick
        self._stopped = False
        # A bare thread: starting one costs a third of threading.Thread, and a step's code doesn't see it.
        _thread.start_new_thread(self._watch, (connection.fileno(),))

    def stop(self) -> None:
        """Ignore what happens from now on. The thread itself ends with the process."""
        self._stopped = True

    def _watch(self, descriptor: int) -> None:
        poll = select.poll()
        poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
        wait: int | None = TICK_MS
        while not any(event & _HANG_UP for _, event in poll.poll(wait)):
            if self._stopped:
                return
            if wait is not None and not self._tick():
                wait = None
        if not self._stopped:
            self._end()


def end_process() -> None:
    """Kill every descendant, then this process, in a way that nothing can hold up."""
    try:
        descendants.kill_family()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
