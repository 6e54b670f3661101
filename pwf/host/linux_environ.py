"""Linux: the environment that a process was started with, as others see it in /proc.

It is how a process bears a marker, and two things about it need care: within exec there is none to be seen for an
instant, and a forked process that never calls exec shows its parent's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

ENVIRON_BYTES_MAX = 4 * 1024 * 1024  # the kernel's own limit for arguments and environment is near 6 MiB
EXEC_MAX_S = 2.0  # exec takes well under a millisecond, unless another process has the processor meanwhile
_EXEC_PAUSE_S = 0.0005
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD
_STAT_STATE, _STAT_FLAGS, _STAT_THREADS, _STAT_START_CODE = 0, 6, 17, 23
_STAT_ENV_START, _STAT_ENV_END = 47, 48


def stat_fields(text: bytes) -> list[bytes]:
    """What follows "pid (comm) " in a stat file, where the name may hold anything."""
    return text[text.rindex(b")") + 2 :].split()


def read_variable(pid: int, variable: str) -> str | None:
    """The value that `variable` had when the process last called exec (or that it wrote there itself)."""
    give_up_at: float | None = None
    while True:
        data = _environment(f"/proc/{pid}/environ")
        if data or not _has_environment(pid):
            return _value_in(data, variable)
        if data := _environment_of_threads(pid):
            return _value_in(data, variable)
        now = time.monotonic()
        give_up_at = give_up_at or now + EXEC_MAX_S
        if now > give_up_at:
            return None
        time.sleep(_EXEC_PAUSE_S)


def _environment(path: str) -> bytes:
    """The start environment; empty when there is none or it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while len(data) < ENVIRON_BYTES_MAX and (piece := os.read(fd, 64 * 1024)):
            data += piece
    except OSError:
        return b""
    finally:
        os.close(fd)
    return data


def _environment_of_threads(pid: int) -> bytes:
    """What any thread shows: a leader that has ended shows none, and its process goes on until the last one ends."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return b""
    return next(filter(None, (_environment(f"/proc/{pid}/task/{thread}/environ") for thread in threads)), b"")


def _has_environment(pid: int) -> bool:
    """Whether a process that showed no environment has one: within exec there is none to show for an instant.

    Taken at its word then, it would be no bearer of the marker that it shows again right after.
    """
    fields = _stat(f"/proc/{pid}/stat")
    if fields is None or fields[_STAT_STATE] in b"Xx" or int(fields[_STAT_FLAGS]) & _KERNEL_THREAD:
        return False
    if fields[_STAT_STATE] != b"Z":
        return _may_show_one(fields)
    if int(fields[_STAT_THREADS]) <= 1 or not _may_look_into(pid):
        return False
    # A killed runner is so for an instant, until its other threads are gone too and its children have left it.
    try:
        threads = [_stat(f"/proc/{pid}/task/{thread}/stat") for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return False
    alive = [thread for thread in threads if thread is not None and thread[_STAT_STATE] not in b"ZXx"]
    return not alive or any(map(_may_show_one, alive))


def _may_look_into(pid: int) -> bool:
    """Whether the process is ours; no other is waited for. (Once a leader has ended, its own files are root's.)"""
    try:
        return os.geteuid() in (0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return False


def _stat(path: str) -> list[bytes] | None:
    try:
        return stat_fields(Path(path).read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _may_show_one(fields: list[bytes]) -> bool:
    code = int(fields[_STAT_START_CODE])
    if code == 1:  # the kernel's word for a process that this one may not look into
        return False
    # Exec sets these three in this order: the environment's bounds to the same place, its end, the code's start.
    start, end = int(fields[_STAT_ENV_START]), int(fields[_STAT_ENV_END])
    return code == 0 or end == 0 or end > start  # else: truly empty


def _value_in(environment: bytes, variable: str) -> str | None:
    data = b"\0" + environment
    head = b"\0" + os.fsencode(variable) + b"="
    start = data.find(head)
    if start < 0:
        return None
    start += len(head)
    end = data.find(b"\0", start)
    return os.fsdecode(data[start : end if end >= 0 else len(data)])


class ReservedVariable:
    """Room in the environment that this process was started with, to be written again after a fork.

    A forked child that calls no exec would otherwise show its parent's start environment in /proc for ever,
    and so would its own forked children: they could not be found by a marker.
    """

    def __init__(self, variable: str) -> None:
        self._address, self._room = self._find(os.fsencode(variable) + b"=")

    @property
    def room(self) -> int:
        """How many bytes a value may have; -1 when the variable was not there at the start."""
        return self._room

    def write(self, value: str) -> bool:
        """Show `value` from now on; False when there is no room for it."""
        data = os.fsencode(value)
        if len(data) > self._room:
            return False
        import ctypes

        ctypes.memmove(self._address, data.ljust(self._room, b"\0"), self._room)
        return True

    @staticmethod
    def _find(head: bytes) -> tuple[int, int]:
        text = Path("/proc/self/stat").read_bytes()
        fields = stat_fields(text)
        start, end = int(fields[_STAT_ENV_START]), int(fields[_STAT_ENV_END])
        import ctypes  # as in `linux`: commands need none of this

        data = b"\0" + ctypes.string_at(start, end - start) if start and end > start else b""
        found = data.find(b"\0" + head)
        if found < 0:
            return 0, -1
        value = found + len(head) + 1
        return start + value - 1, data.index(b"\0", value) - value
