"""macOS: psutil, kqueue and sysctl. What the system can not do is said by the value returned.

There are no subreapers, so an orphaned descendant is found by its marker alone. Forking without exec is
unsafe once system frameworks are loaded, so runners get a fresh process unless a caller asks otherwise.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from pwf.errors import Unavailable
from pwf.host.identity import Bearer, Identity, Process

assert sys.platform == "darwin"  # a type checker elsewhere skips what follows

SAFE_TO_FORK = False
SAFE_TO_KEEP = False
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_NETWORK_FILESYSTEMS = frozenset(("nfs", "smbfs", "afpfs", "webdav", "ftp", "macfuse", "osxfuse"))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def boot_id() -> str:
    """Names this boot of the machine. Raises `Unavailable` where the system doesn't say."""
    room = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(room))
    if _libc().sysctlbyname(b"kern.bootsessionuuid", room, ctypes.byref(size), None, 0) != 0:
        code = ctypes.get_errno()
        raise Unavailable(f"the boot id of this machine can not be read: {os.strerror(code)}")
    return room.value.decode()


def now_tick() -> int:
    """The tick (microseconds of the wall clock) that a process started at this moment would have."""
    return time.time_ns() // 1_000 + 1


def read_process(pid: int) -> Process | None:
    """The process's row, or None when there is none. A zombie counts as dead."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            tick = round(process.create_time() * 1_000_000)
            identity = Identity(pid=pid, start_tick=tick, boot_id=boot_id(), session=os.getsid(pid))
            return Process(identity, process.ppid(), process.status() == psutil.STATUS_ZOMBIE)
    except (psutil.Error, ProcessLookupError, PermissionError):
        return None


def command_of(pid: int, wait_s: float = 0.0) -> str:
    """The process's command line for people, or its name where it has none; empty when it is gone. Never waits."""
    try:
        process = psutil.Process(pid)
        return shlex.join(process.cmdline()) or str(process.name())
    except psutil.Error:
        return ""


def process_identity(pid: int) -> Identity | None:
    """The identity of the process that has this pid now, or None."""
    process = read_process(pid)
    return process.identity if process is not None else None


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process still executes something."""
    if identity.boot_id != boot_id():
        return False
    process = read_process(identity.pid)
    return process is not None and not process.dead and process.identity.is_same(identity)


def processes(since_tick: int = 0) -> Iterator[Process]:
    """Every process that started at `since_tick` or later."""
    for pid in psutil.pids():
        process = read_process(pid)
        if process is not None and process.identity.start_tick >= since_tick:
            yield process


def find_bearers(variable: str, since_tick: int = 0) -> list[Bearer]:
    """Every living process that started at `since_tick` or later, with its value of `variable`."""
    return [
        Bearer(process.identity, process.parent, read_variable(process.identity.pid, variable))
        for process in processes(since_tick)
        if not process.dead
    ]


def read_variable(pid: int, variable: str) -> str | None:
    """The value that `variable` had when the process last called exec; None for another user's process."""
    try:
        return psutil.Process(pid).environ().get(variable)
    except (psutil.Error, OSError):
        return None


def children(pid: int) -> list[int]:
    """The pids of the process's children."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def own_children() -> list[int]:
    """The pids of this process's children, where it has one thread only."""
    return children(os.getpid())


def descendants(pid: int) -> list[Identity]:
    """Every living process below `pid`."""
    try:
        pids = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
    rows = [read_process(child) for child in pids]
    return [row.identity for row in rows if row is not None and not row.dead]


def has_children() -> bool:
    """Whether this process has any child, one that waits to be reaped included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kernel_threads() -> int:
    """How many threads this process has, as the kernel counts them."""
    return int(psutil.Process().num_threads())


def open_descriptors() -> dict[int, str]:
    """Each open descriptor of this process, and its device and inode."""
    found: dict[int, str] = {}
    for name in os.listdir("/dev/fd"):
        try:
            state = os.fstat(int(name))
        except OSError:
            continue
        found[int(name)] = f"{state.st_mode}:{state.st_dev}:{state.st_ino}"
    return found


def signal_state() -> str:
    """Which signals are blocked. Handlers set by C code can not be seen here."""
    return repr(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def memory_private_bytes(pid: int) -> int:
    """Memory that only this process uses (its unique set size); 0 when it is gone."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return 0


def open_exit(identity: Identity) -> int | None:
    """A descriptor (a kqueue) that gets readable when exactly this process has ended; None when it has.

    The caller closes it.
    """
    queue = select.kqueue()
    event = select.kevent(
        identity.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT
    )
    try:
        queue.control([event], 0, 0)
        return os.dup(queue.fileno()) if is_alive(identity) else None
    except ProcessLookupError:
        return None
    finally:
        queue.close()


def open_child_exit(pid: int) -> int | None:
    """A descriptor that gets readable when this child has ended. None: look whether it has."""
    del pid
    return None


def kill_identity(identity: Identity, signum: int = signal.SIGKILL) -> bool:
    """Signal exactly this process; False when it is gone. The check and the signal are two steps here."""
    if not is_alive(identity):
        return False
    try:
        os.kill(identity.pid, signum)
    except ProcessLookupError:
        return False
    return True


def set_subreaper() -> None:
    """macOS has none: orphans go to launchd and are found by their marker."""


def is_subreaper() -> bool:
    """Never, here."""
    return False


def set_process_name(name: str) -> None:
    """Not offered by the system."""


class ReservedVariable:
    """The start environment can not be written again here; runners are started by exec with their marker."""

    def __init__(self, variable: str) -> None:
        self.room = -1

    def write(self, value: str) -> bool:
        """Always False."""
        return False


def bind_private(sock: socket.socket) -> str:
    """Give a Unix socket a name in a folder that only this user can enter."""
    import tempfile

    path = os.path.join(tempfile.mkdtemp(prefix="pwf-"), "s")
    sock.bind(path)
    return path


def unbind_private(name: str) -> None:
    """Its folder goes."""
    with contextlib.suppress(OSError):
        os.unlink(name)
        os.rmdir(os.path.dirname(name))


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket, by the kernel's word (struct xucred)."""
    data = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    return int(struct.unpack_from("II", data)[1])


def peer_process(sock: socket.socket) -> Identity | None:
    """The process that connected to a Unix socket, by the kernel's word; None when it has ended."""
    return process_identity(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID))


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """The type of the file system that holds `path`, which need not exist yet; "" when it can not be told."""
    wanted = os.path.realpath(path)
    try:
        text = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    best, kind = "", ""
    for line in text.splitlines():
        _, _, rest = line.partition(" on ")
        point, _, options = rest.rpartition(" (")
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, options.split(",")[0].rstrip(")")
    return kind


def is_network_filesystem(path: str | os.PathLike[str]) -> bool:
    """Whether `path` lies where SQLite's locks and WAL can not be trusted."""
    return filesystem_type(path) in _NETWORK_FILESYSTEMS
