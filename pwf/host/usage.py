"""What processes use of the machine: memory and descriptors, for people who want to know.

Imports psutil only when it is asked: most daemons never are. Memory is what is resident, pages that processes share
counted for each; a process that has ended, or is another user's, uses nothing.
"""

from __future__ import annotations

import os

from pwf import host


def own_usage() -> tuple[int, int]:
    """This process: resident bytes, and open descriptors."""
    import psutil

    process = psutil.Process(os.getpid())
    return int(process.memory_info().rss), int(process.num_fds())


def memory_of(pid: int) -> int:
    """Resident bytes of a process and all below it."""
    import psutil

    found = 0
    for one in (pid, *(identity.pid for identity in host.descendants(pid))):
        try:
            found += int(psutil.Process(one).memory_info().rss)
        except psutil.Error:
            continue
    return found
