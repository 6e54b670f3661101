"""Which process is the MCP host that has started this one over stdio."""

from __future__ import annotations

import os
from collections.abc import Callable

from pwf import host
from pwf.host.identity import Process

#: What stands between a host and us: it starts one command, and is no agent.
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"))
LAUNCHERS = frozenset(
    ("env", "nice", "nohup", "setsid", "stdbuf", "sudo", "timeout", "uv", "uvx", "pipx", "npx", "xargs")
)


def host_pid(
    pid: int,
    read_process: Callable[[int], Process | None] = host.read_process,
    command_of: Callable[[int], str] = host.command_of,
) -> int | None:
    """The nearest ancestor of a process that is no shell and no launcher; None where there is none but the first."""
    process = read_process(pid)
    while process is not None and process.parent > 1:
        words = command_of(process.parent).split()
        name = os.path.basename(words[0]).lstrip("-") if words else ""
        if name not in SHELLS | LAUNCHERS:
            return process.parent
        process = read_process(process.parent)
    return None
