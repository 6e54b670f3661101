"""The port to the operating system: everything in which Linux and macOS differ stands behind these names.

A scan of the process table takes milliseconds and never waits; callers in an event loop run it in a thread.
"""

from __future__ import annotations

import os
import resource
import sys

from pwf.errors import Unavailable
from pwf.host.identity import Bearer, Identity, Process

if sys.platform == "darwin":
    from pwf.host.macos import (
        SAFE_TO_FORK,
        SAFE_TO_KEEP,
        ReservedVariable,
        bind_private,
        boot_id,
        children,
        command_of,
        descendants,
        filesystem_type,
        find_bearers,
        has_children,
        is_alive,
        is_network_filesystem,
        is_subreaper,
        kernel_threads,
        kill_identity,
        memory_private_bytes,
        now_tick,
        open_child_exit,
        open_descriptors,
        open_exit,
        own_children,
        peer_process,
        peer_uid,
        process_identity,
        processes,
        read_process,
        read_variable,
        set_process_name,
        set_subreaper,
        signal_state,
        unbind_private,
    )
else:
    from pwf.host.linux import (
        SAFE_TO_FORK,
        SAFE_TO_KEEP,
        bind_private,
        boot_id,
        children,
        command_of,
        descendants,
        filesystem_type,
        find_bearers,
        has_children,
        is_alive,
        is_network_filesystem,
        is_subreaper,
        kernel_threads,
        kill_identity,
        memory_private_bytes,
        now_tick,
        open_child_exit,
        open_descriptors,
        open_exit,
        own_children,
        peer_process,
        peer_uid,
        process_identity,
        processes,
        read_process,
        set_process_name,
        set_subreaper,
        signal_state,
        unbind_private,
    )
    from pwf.host.linux_environ import ReservedVariable, read_variable


def own_identity() -> Identity:
    """What names this process. Raises `Unavailable` where the system doesn't say."""
    try:
        found = process_identity(os.getpid())
    except (OSError, ValueError, IndexError):
        found = None
    if found is None:
        raise Unavailable(
            f"the start time of this process (pid {os.getpid()}) can not be read: pwf could not be told from a later "
            "process with its number",
            hint="is /proc mounted, and may you read it? ls -l /proc/self/stat",
        )
    return found


def raise_open_files(wanted: int = 65_536) -> int:
    """Raise the soft limit of open files to `wanted`, or as far as the hard limit goes. Gives the new one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return soft


__all__ = [
    "SAFE_TO_FORK",
    "SAFE_TO_KEEP",
    "Bearer",
    "Identity",
    "Process",
    "ReservedVariable",
    "bind_private",
    "boot_id",
    "children",
    "command_of",
    "descendants",
    "filesystem_type",
    "find_bearers",
    "has_children",
    "is_alive",
    "is_network_filesystem",
    "is_subreaper",
    "kernel_threads",
    "kill_identity",
    "memory_private_bytes",
    "now_tick",
    "open_child_exit",
    "open_descriptors",
    "open_exit",
    "own_children",
    "own_identity",
    "peer_process",
    "peer_uid",
    "process_identity",
    "processes",
    "raise_open_files",
    "read_process",
    "read_variable",
    "set_process_name",
    "set_subreaper",
    "signal_state",
    "unbind_private",
]
