"""The runner's own descendants: listed, reaped, ended.

A runner is a child subreaper: a process whose parent died becomes the runner's child, however it left its
group or session. So "no child" means that nothing the run started is left. Without a subreaper (macOS)
nothing here claims that, and the daemon proves it by other means.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from pwf import host
from pwf.host import Identity

END_BOUND_S = 2.0
POLL_S = 0.002

#: Which processes: pid and start tick. Not whole identities, for a process may change its session.
Names = frozenset[tuple[int, int]]


def living(beside: Names = frozenset()) -> list[Identity]:
    """The descendants that still execute, without those in `beside`."""
    return [child for child in host.descendants(os.getpid()) if (child.pid, child.start_tick) not in beside]


def snapshot() -> Names:
    """The descendants of now: what an earlier step left behind, which is not the next step's."""
    return frozenset() if reap() else frozenset((child.pid, child.start_tick) for child in living())


def signal_all(targets: list[Identity], number: signal.Signals) -> None:
    """Signal each of these very processes; those that are gone by now are skipped."""
    for target in targets:
        with contextlib.suppress(PermissionError):  # another user's by now (sudo): the daemon holds the run
            host.kill_identity(target, number)


def reap() -> bool:
    """Collect every child that has ended. True when the kernel says that no child is left at all.

    Must not be called while a `Popen` waits for a child of its own.
    """
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False


def end_all(bound_s: float = END_BOUND_S) -> bool:
    """Kill every descendant and wait for its end. True when it is sure that none is left."""
    deadline = time.monotonic() + bound_s
    while not reap():
        if time.monotonic() >= deadline:
            return False
        signal_all(living(), signal.SIGKILL)
        time.sleep(POLL_S)
    return host.is_subreaper()


def kill_family() -> None:
    """Kill every descendant without reaping: for a thread that is about to kill this process too."""
    deadline = time.monotonic() + END_BOUND_S
    with contextlib.suppress(OSError):
        while (targets := living()) and time.monotonic() < deadline:
            signal_all(targets, signal.SIGKILL)
            time.sleep(POLL_S)
