"""Starting a command's process, with streams that are pipes, in a process group of its own.

A plain command is started by `posix_spawn`: it runs in its runner's folder, and nothing open here would be inherited.
Any other is started by `subprocess`, whose import (with `threading`) would cost each fork of a runner some 130 pages.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

STREAMS = 3  # stdin, stdout, stderr
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores
_OPEN = "/proc/self/fd"


def start_process(
    argv: list[str],
    cwd: str | None,
    environment: Mapping[str, str],
    stdin: int | None,
    stdout: int,
    stderr: int,
) -> int:
    """Its pid; whoever calls reaps it. Raises `OSError` or `ValueError`: then nothing has run.

    `stdin`, `stdout`, `stderr`: the child's ends. No `stdin` is an empty one.
    """
    path = _executable(argv[0], environment)
    if path is None or not _is_here(cwd) or not _inherits_nothing():
        return _start_any(argv, cwd, environment, stdin, stdout, stderr)
    first = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
        if stdin is None
        else (os.POSIX_SPAWN_DUP2, stdin, 0)
    )
    actions = (first, (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2))
    try:
        return os.posix_spawn(path, argv, environment, file_actions=actions, setpgroup=0, setsigdef=_DEFAULTS)
    except (FileNotFoundError, NotADirectoryError):  # its interpreter perhaps: the search goes on
        return _start_any(argv, cwd, environment, stdin, stdout, stderr)


def _executable(name: str, environment: Mapping[str, str]) -> str | None:
    """The file that is executed; None where the search for it, or what is wrong with it, is better left to others."""
    if "/" in name:
        return name
    for folder in environment.get("PATH", "").split(os.pathsep):
        if not folder:  # the folder in which it is to run
            return None
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _is_here(cwd: str | None) -> bool:
    """Whether a path means the folder that this process is in."""
    try:
        return cwd is None or os.path.samestat(os.stat(cwd), os.stat("."))
    except OSError:
        return False


def _inherits_nothing() -> bool:
    """Whether each descriptor besides 0, 1 and 2 is closed at exec, and these are all open."""
    try:
        numbers = {int(name) for name in os.listdir(_OPEN)}
    except OSError:  # another system, or /proc is not there
        return False
    return numbers.issuperset(range(STREAMS)) and not any(
        map(_is_inherited, numbers.difference(range(STREAMS)))
    )


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # that of the listing itself
        return False


def _start_any(
    argv: list[str],
    cwd: str | None,
    environment: Mapping[str, str],
    stdin: int | None,
    stdout: int,
    stderr: int,
) -> int:
    import subprocess

    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=environment,
        process_group=0,
    )
    process.returncode = 0  # it is not this object that waits for it
    return process.pid
