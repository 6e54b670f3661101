"""Linux: /proc, pidfds, prctl. Nothing here waits, and only exactly the process that is meant is signalled.

Sources: proc(5), prctl(2), pidfd_open(2), pidfd_send_signal(2), unix(7).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import shlex
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pwf.errors import Unavailable
from pwf.host.identity import Bearer, Identity, Process
from pwf.host.linux_environ import read_variable, stat_fields

if TYPE_CHECKING:
    import ctypes

SAFE_TO_FORK = True
SAFE_TO_KEEP = True  # a process after a run: what the run has left in it can be seen
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PR_SET_NAME = 15
_SO_PEERPIDFD = 77
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_STAT_STATE, _STAT_PARENT, _STAT_SESSION, _STAT_THREADS, _STAT_START = 0, 1, 3, 17, 19  # after "pid (comm) "
_STAT_FLAGS = 6
_EXITING = 0x4  # PF_EXITING of the kernel's include/linux/sched.h
_EXEC_POLL_S = 0.0005
_LIBC_SIGNALS = (
    1 << 31 | 1 << 32
)  # 32 and 33, which the C library catches for itself once a thread is started
_NETWORK_NAMES = """
9p afs beegfs ceph cifs coda fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs glusterfs gpfs lustre ncpfs
nfs nfs3 nfs4 ocfs2 orangefs pvfs2 smb2 smb3 smbfs
"""
_NETWORK_FILESYSTEMS = frozenset(_NETWORK_NAMES.split())


@functools.cache
def boot_id() -> str:
    """Names this boot of the machine. Raises `Unavailable` where the system doesn't say."""
    try:
        found = Path(_BOOT_ID).read_text().strip()
        why = "it is empty"
    except (OSError, ValueError) as error:
        found, why = "", str(error)
    if not found:
        raise Unavailable(
            f"the boot id of this machine can not be read: {why}", hint=f"is /proc mounted? cat {_BOOT_ID}"
        )
    return found


@functools.cache
def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def now_tick() -> int:
    """The tick that a process started at this moment would have at the latest."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _ticks_per_second()) + 1


# --- looking at processes ---------------------------------------------------------------------------------


def read_process(pid: int) -> Process | None:
    """The process's row, or None when there is none.

    A zombie counts as dead: it executes nothing. A leader that ended while its other threads go on does not.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or hidden from us
        return None
    try:
        text = os.read(fd, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    fields = stat_fields(text)
    state = fields[_STAT_STATE]
    identity = Identity(
        pid=pid,
        start_tick=int(fields[_STAT_START]),
        boot_id=boot_id(),
        session=int(fields[_STAT_SESSION]),
    )
    dead = state in b"Xx" or (state == b"Z" and int(fields[_STAT_THREADS]) <= 1)
    return Process(identity, int(fields[_STAT_PARENT]), dead)


def command_of(pid: int, wait_s: float = 0.0) -> str:
    """The process's command line for people, or its name where it has none; empty when it is gone.

    `wait_s`: how long to wait for the words of one that is becoming another program. For that moment it has none.
    """
    deadline = time.monotonic() + wait_s
    try:
        while not (line := Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")):
            flags = int(stat_fields(Path(f"/proc/{pid}/stat").read_bytes())[_STAT_FLAGS])
            if flags & _EXITING or time.monotonic() >= deadline:
                line = Path(f"/proc/{pid}/comm").read_bytes()
                break
            time.sleep(_EXEC_POLL_S)
    except OSError:
        return ""
    return shlex.join(line.decode("utf-8", "replace").strip().split("\0"))


def process_identity(pid: int) -> Identity | None:
    """The identity of the process that has this pid now (one that waits to be reaped included), or None."""
    process = read_process(pid)
    return process.identity if process is not None else None


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process still executes something."""
    if identity.boot_id != boot_id():
        return False
    process = read_process(identity.pid)
    return process is not None and not process.dead and process.identity.is_same(identity)


def processes(since_tick: int = 0) -> Iterator[Process]:
    """Every process that started at `since_tick` or later. One that starts during the scan may be missed."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None and process.identity.start_tick >= since_tick:
                yield process


def find_bearers(variable: str, since_tick: int = 0) -> list[Bearer]:
    """Every living process that started at `since_tick` or later, with its value of `variable`.

    One pass serves the proofs of many runs. An environment that can not be read gives None.
    """
    return [
        Bearer(process.identity, process.parent, read_variable(process.identity.pid, variable))
        for process in processes(since_tick)
        if not process.dead
    ]


def children(pid: int) -> list[int]:
    """The pids of the process's children (zombies included), as the kernel lists them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += _children_of_thread(f"/proc/{pid}/task/{thread}/children")
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def own_children() -> list[int]:
    """The pids of this process's children (zombies included), where it has one thread only."""
    try:
        return _children_of_thread("/proc/thread-self/children")
    except FileNotFoundError:  # a kernel without these lists
        return []


def _children_of_thread(path: str) -> list[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(fd, 4096):
            text += piece
    finally:
        os.close(fd)
    return [int(pid) for pid in text.split()]


def descendants(pid: int) -> list[Identity]:
    """Every living process below `pid`, parents before children. New ones may start meanwhile: ask again."""
    found: list[Identity] = []
    todo = children(pid)
    seen: set[int] = set()
    while todo:
        child = todo.pop()
        process = read_process(child) if child not in seen else None
        seen.add(child)
        if process is not None:
            if not process.dead:
                found.append(process.identity)
            todo += children(child)
    return found


def has_children() -> bool:
    """Whether this process has any child, one that waits to be reaped included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kernel_threads() -> int:
    """How many threads this process has, as the kernel counts them."""
    return os.stat("/proc/self/task").st_nlink - 2  # a folder for each, its own and its parent's


def open_descriptors() -> dict[int, str]:
    """Each open descriptor of this process, and what it is open on."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def signal_state() -> str:
    """Which signals are blocked, ignored and caught, as the kernel has it (handlers of C code included)."""
    with io.FileIO("/proc/self/status") as file:
        text = file.read()
    _, blocked, _, ignored, _, caught = text[text.index(b"SigBlk:") :].split(maxsplit=6)[:6]  # in this order
    return f"{int(blocked, 16):x} {int(ignored, 16):x} {int(caught, 16) & ~_LIBC_SIGNALS:x}"


def memory_private_bytes(pid: int) -> int:
    """Memory that only this process uses (no pages shared with its fork parent); 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))


# --- acting on processes ----------------------------------------------------------------------------------


def open_exit(identity: Identity) -> int | None:
    """A descriptor that gets readable when exactly this process has ended; None when it has ended already.

    The caller closes it.
    """
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    kept = False
    try:
        kept = is_alive(identity)  # read after opening: the descriptor means this process and no later one
    finally:  # reading fails when this was the last descriptor to be had
        if not kept:
            os.close(fd)
    return fd if kept else None


def open_child_exit(pid: int) -> int | None:
    """A descriptor that gets readable when this child, which is not reaped yet, has ended; None where there is none.

    The caller closes it.
    """
    try:
        return os.pidfd_open(pid)
    except OSError:  # no descriptor is left, or a sandbox refuses the call
        return None


def kill_identity(identity: Identity, signum: int = signal.SIGKILL) -> bool:
    """Signal exactly this process; False when it is gone. `PermissionError` when it is another user's."""
    fd = open_exit(identity)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


@functools.cache
def _libc() -> ctypes.CDLL:
    import ctypes  # it takes its time to load, and commands need none of this

    return ctypes.CDLL(None, use_errno=True)


def set_subreaper() -> None:
    """From now on orphaned descendants of this process become its children."""
    if _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        import ctypes

        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def is_subreaper() -> bool:
    """Whether orphaned descendants come to this process."""
    import ctypes

    value = ctypes.c_int(0)
    return _libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0 and value.value == 1


def set_process_name(name: str) -> None:
    """What `ps` and `top` show (15 bytes)."""
    _libc().prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


# --- sockets and files ------------------------------------------------------------------------------------


def bind_private(sock: socket.socket) -> str:
    """Give a Unix socket a name that leaves nothing behind, and which nobody guesses; a first `@` stands for its NUL.

    No file's rights guard it: who listens asks who has connected.
    """
    name = f"pwf-{os.urandom(16).hex()}"
    sock.bind(f"\0{name}")
    return f"@{name}"


def unbind_private(name: str) -> None:
    """Nothing: the name has gone with its socket."""


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket, by the kernel's word."""
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def peer_process(sock: socket.socket) -> Identity | None:
    """The process that connected to a Unix socket, by the kernel's word; None when it has ended or is not to be seen.

    The pid alone may be another's by now. Where the kernel has a descriptor for the process itself (since 6.5), that
    proves that the pid was still the same when it was looked up.
    """
    pid = int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    if pid <= 0:  # of another pid namespace
        return None
    try:
        proof = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return process_identity(pid) if error.errno == errno.ENOPROTOOPT else None
    try:
        found = process_identity(pid)
        signal.pidfd_send_signal(proof, 0)
    except ProcessLookupError:
        return None
    finally:
        os.close(proof)
    return found


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """The type of the file system that holds `path`, which need not exist yet; "" when it can not be told."""
    wanted = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES):
            return ""
        raise
    for line in lines:
        fields = line.split()
        point = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))  # \040 stands for a space
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point the later one counts
            best, kind = point, os.fsdecode(fields[fields.index(b"-") + 1])
    return kind


def is_network_filesystem(path: str | os.PathLike[str]) -> bool:
    """Whether `path` lies where SQLite's locks and WAL can not be trusted."""
    return filesystem_type(path) in _NETWORK_FILESYSTEMS
