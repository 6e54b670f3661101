"""The hang-up watcher: when the daemon is gone, every process of the run ends, whatever the step is doing.

A thread polls the messages socket for hang-up, without reading, and ticks while somebody wants it to. It reads what the
step prints, too. It must not touch anything of the interpreter's that a step could hold: it lists and kills
descendants, then the process itself.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from pwf.runner.base import descendants
from pwf.runner.base.printed import Printed

TICK_MS = 2

_HANG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class HangUpWatcher:
    """Calls `end` once when the other side of `connection` closes, unless it was stopped before.

    `tick` is called every few milliseconds until it says no, and again from `wake` on.
    """

    def __init__(
        self,
        connection: socket.socket,
        end: Callable[[], None],
        tick: Callable[[], bool] = lambda: False,
        printed: Printed | None = None,
        *,
        wakes: bool = False,
    ) -> None:
        self._end = end
        self._tick = tick
        self._printed = printed
        self._stopped = False
        self._wake = os.eventfd(0) if wakes else -1
        # A bare thread: starting one costs a third of threading.Thread, and a step's code doesn't see it.
        _thread.start_new_thread(self._watch, (connection.fileno(),))

    def stop(self) -> None:
        """Ignore what happens from now on. The thread itself ends with the process."""
        self._stopped = True

    def wake(self) -> None:
        """Tick again."""
        os.eventfd_write(self._wake, 1)

    def _watch(self, descriptor: int) -> None:
        poll = select.poll()
        if self._wake >= 0:
            poll.register(self._wake, select.POLLIN)
        poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
        for end in self._printed.ends if self._printed is not None else ():
            poll.register(end, select.POLLIN)
        wait: int | None = TICK_MS
        while True:
            found = poll.poll(wait)
            if any(event & _HANG_UP for ready, event in found if ready == descriptor):
                break
            if self._stopped:
                return
            for ready, _ in found:
                if ready == self._wake:
                    os.eventfd_read(ready)
                    wait = TICK_MS
                elif not self._take(ready):
                    poll.unregister(ready)
            if wait is not None and not self._tick():
                wait = None
        if not self._stopped:
            self._end()

    def _take(self, end: int) -> bool:
        try:
            return self._printed is None or self._printed.take(end)
        except MemoryError:  # the step has taken all there is: it stays in the pipe
            time.sleep(TICK_MS / 1_000)
            return True


def end_process() -> None:
    """Kill every descendant, then this process, in a way that nothing can hold up."""
    try:
        descendants.kill_family()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
