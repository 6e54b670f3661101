"""The children of a spawner: which it knows, which ended, and the orphans that came to it.

A spawner is the subreaper of everything below it, and each runner is the subreaper of its own descendants. So once
a runner has ended, what it left is a child of the spawner that the spawner did not fork: it is ended at once, even
where it has no marker any more (`env -i`), and `Exited.clean` then says that the kernel knows of nothing more.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from pwf import host
from pwf.host import Identity
from pwf.protocol.spawn import Exited
from pwf.protocol.survivors import SURVIVORS_MAX, Survivor, name_all

SWEEP_ROUNDS_MAX = 200  # each waits 1 ms for what was killed; then the daemon's own proof has to do it


class Children:
    """`spares(pid)` says whether a child that was not forked here must be left alone."""

    def __init__(self, spares: Callable[[int], bool] = lambda pid: False) -> None:
        self._known: dict[int, Identity] = {}
        self._spares = spares

    def add(self, *pids: int) -> tuple[Identity, ...]:
        """Take note of children that were just forked and not reaped since. Forked processes lead their session."""
        added: list[Identity] = []
        for pid in pids:
            found = host.process_identity(pid)
            if found is None:
                continue
            if found.session != pid:  # it has not come to that yet
                found = Identity(pid=pid, start_tick=found.start_tick, boot_id=found.boot_id, session=pid)
            self._known[pid] = found
            added.append(found)
        return tuple(added)

    def knows(self, pid: int) -> bool:
        """Whether this is a child that was forked here and not reaped yet."""
        return pid in self._known

    def reap(self) -> list[Exited]:
        """Reap what has ended, end the orphans that this left, and report those that had an identity."""
        ended: list[tuple[Identity, int, bool]] = []
        childless = self._collect(ended)
        if not ended:
            return []
        left: list[Survivor] = []
        clean = childless or self._sweep(ended, left)
        if sum(was_known for _, _, was_known in ended) != 1:
            left.clear()  # nobody can say whose they were
        return [
            Exited(
                pid=identity.pid,
                start_tick=identity.start_tick,
                status=status,
                clean=clean and was_known,
                survivors=tuple(left[:SURVIVORS_MAX]) if was_known else (),
            )
            for identity, status, was_known in ended
        ]

    def kill_all(self, rounds: int) -> bool:
        """End every descendant, known or not. Whether none is left, after `rounds` times 10 ms at most."""
        for _ in range(rounds):
            kill_each(host.descendants(os.getpid()))
            if self._collect([]):
                return True
            time.sleep(0.01)
        return False

    def _collect(self, ended: list[tuple[Identity, int, bool]]) -> bool:
        """Reap what has ended; whether no child at all is left."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if found is None:
                return False
            pid = found.si_pid
            known = self._known.pop(pid, None)
            identity = known or host.process_identity(pid)  # still there: it is reaped only below
            _, status = os.waitpid(pid, 0)
            if identity is not None:
                ended.append((identity, os.waitstatus_to_exitcode(status), known is not None))

    def _sweep(self, ended: list[tuple[Identity, int, bool]], left: list[Survivor]) -> bool:
        """End the orphans, and name them; whether none is left."""
        for _ in range(SWEEP_ROUNDS_MAX):
            orphans = self._orphans()
            if not orphans:
                return True
            for orphan in orphans:
                identity = host.process_identity(orphan)
                found = [*host.descendants(orphan), *([identity] if identity is not None else [])]
                known = {one.pid for one in left}  # what was killed a round ago has lost its words by now
                left += name_all(one for one in found if one.pid not in known)
                kill_each(found)
            time.sleep(0.001)
            if self._collect(ended):
                return True
        return False

    def _orphans(self) -> list[int]:
        seen: list[int] | None = None
        while True:  # the kernel's list may skip a child while another one ends: believe it when it repeats
            found = host.own_children()
            if found == seen:
                break
            seen = found
        return [pid for pid in found if pid not in self._known and not self._spares(pid)]


def kill_each(identities: Iterable[Identity]) -> None:
    """SIGKILL to exactly these processes; those of other users stay (the daemon's proof will say so)."""
    for identity in identities:
        with contextlib.suppress(OSError):
            host.kill_identity(identity)


def kill_descendants(rounds: int = 100) -> bool:
    """End everything below this process, which has started nothing that it wants to keep."""
    return Children().kill_all(rounds)
