"""Finding the daemon of this home, and starting it when it does not listen.

The lock file says where the socket is; `pwf.client.peer` says whose it is. A daemon of another home counts as nobody.
A started daemon is detached: a session of its own, no terminal, output to the log file, working folder `/`. Clients
that start at the same moment may each spawn a process; the daemon's kernel lock lets one of them serve, the others
end, and every client finds the one that serves.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pwf.client.peer import CONNECT_S_MAX, dial, greets_as_ours
from pwf.errors import DaemonUnreachable, HomeRefused, PwfError, by_code
from pwf.places import Places, places
from pwf.protocol.lock_record import read_record
from pwf.values import shortened

if TYPE_CHECKING:
    import subprocess

START_S_MAX = 10.0
POLL_S = 0.02
SPAWNS_MAX = 3
ALREADY_SERVING = 4  # exit code of a daemon that found another (docs/operations.md)
LOG_TAIL_LINES = 12
LOG_LINE_MAX = 300  # a traceback is in the log itself
LOG_TAIL_BYTES = 16 * 1024
NO_AUTOSTART = "PWF_NO_AUTOSTART"


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log with which a daemon says why it doesn't serve, or no more."""

    event: str
    pid: int
    code: str
    message: str
    hint: str | None = None


def socket_path(at: Places) -> str:
    """Where to connect: as the lock file says, else where this client would put it."""
    record = read_record(at.lock)
    return record.socket if record is not None and record.socket else str(at.socket)


def autostart_allowed() -> bool:
    """Whether a client may start the daemon (`PWF_NO_AUTOSTART=1` forbids it)."""
    return os.environ.get(NO_AUTOSTART, "") in ("", "0")


def try_connect(at: Places) -> socket.socket | None:
    """A socket that is connected to the daemon of our home, or None when it does not listen. Nothing was sent yet.

    Raises `HomeRefused` for another user's, `DaemonUnreachable` for one that does not speak.
    """
    connection = dial(socket_path(at), wait_s=CONNECT_S_MAX)
    if connection is None:
        return None
    ours = False
    try:
        ours = greets_as_ours(connection, at)
    finally:
        if not ours:
            connection.close()
    if not ours:
        return None
    connection.settimeout(None)
    return connection


def connect_or_start(at: Places, *, autostart: bool) -> socket.socket:
    """A connected socket; starts the daemon when nobody listens and `autostart` is set.

    Blocks at most `START_S_MAX` seconds. Raises `DaemonUnreachable` with the end of the log, or
    `HomeRefused`.
    """
    connection = try_connect(at)
    if connection is not None:
        return connection
    if not autostart:
        raise DaemonUnreachable(f"no daemon serves {at.home}", hint="pwf start")
    before = _sizes(at)
    child = spawn(at)
    spawned = 1
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        connection = try_connect(at)
        if connection is not None:
            return connection
        lost_race = child.poll() == ALREADY_SERVING and _somebody_serves(at, child.pid)
        if child.returncode is not None and not lost_race:
            if spawned == SPAWNS_MAX or not _is_worth_another(child.returncode):
                raise _refusal(at, child.pid, before) or _died(at, child.returncode, before)
            child = spawn(at)
            spawned += 1
        time.sleep(POLL_S)
    raise DaemonUnreachable(
        f"the daemon was started (pid {child.pid}) but did not open its socket within {START_S_MAX:g} s"
        + _tail_text(at, before),
        hint="pwf doctor",
    )


def spawn(at: Places) -> subprocess.Popen[bytes]:
    """Start a detached daemon. Its output goes to the log file; SIGHUP of our terminal does not reach it."""
    import subprocess  # these take their time, and most commands find a daemon
    import threading

    said = _open_last_words(at)
    from pwf.protocol.runner import MARKER_VARIABLE

    environment = dict(os.environ)
    environment.pop(MARKER_VARIABLE, None)  # typed by a step: the daemon is no process of that run
    if "PWF_HOME" in environment or at != places():
        environment["PWF_HOME"] = str(at.home)  # it may be relative, and the daemon works in /
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "pwf.cli.main", "daemon", "--background-child"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            env=environment,
            start_new_session=True,
            close_fds=True,  # our umask stays: runs inherit it, and what the daemon keeps has modes of its own
        )
    except OSError as error:
        raise DaemonUnreachable(f"{sys.executable} can not be started: {error.strerror}") from error
    finally:
        os.close(said)
    # Reaps it when it ends before us, so that no zombie looks like a live daemon.
    threading.Thread(target=child.wait, name="pwf-daemon-reaper", daemon=True).start()
    return child


def log_tail(path: Path, lines: int = LOG_TAIL_LINES, *, after: int = 0) -> list[str]:
    """The last lines of a log file, as text with replacement marks; empty when there is none.

    `after`: only what was written after the file had this size. One that is smaller by now is another file.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(after if after <= size else 0, size - LOG_TAIL_BYTES))
            data = file.read()
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()[-lines:]


def _sizes(at: Places) -> dict[Path, int]:
    """How long the logs are: what an earlier daemon has said there is no word of the one that is started now."""
    found = {}
    for path in (at.log, at.last_words):
        try:
            found[path] = path.stat().st_size
        except OSError:
            found[path] = 0
    return found


def _open_last_words(at: Places) -> int:
    from pwf.host.home import prepare_home
    from pwf.ownership import open_own

    prepare_home(at.home)
    try:
        return open_own(at.last_words, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise HomeRefused(
            f"the state folder {at.home} can not be used: {error.strerror}",
            hint="make it writable, or set PWF_HOME to another folder",
        ) from error


def _is_worth_another(returncode: int) -> bool:
    """Whether the start failed for no fault of its own: killed, or beaten by a daemon that has ended since."""
    return returncode < 0 or returncode == ALREADY_SERVING


def _somebody_serves(at: Places, child_pid: int) -> bool:
    """Whether the lock file names a live process other than our child."""
    record = read_record(at.lock)
    if record is None or record.pid in (0, child_pid):
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _refusal(at: Places, pid: int, before: dict[Path, int]) -> PwfError | None:
    """Why that daemon refused to serve, as it has written it last: a person needs that sentence and not the log."""
    said_now = [line for path in (at.last_words, at.log) for line in log_tail(path, after=before[path])]
    for line in reversed(said_now):
        try:
            said = msgspec.json.decode(line, type=_Refused)
        except msgspec.MsgspecError:
            continue
        if said.event in ("daemon.refused", "daemon.failed") and said.pid == pid:
            return by_code(said.code)(said.message, hint=said.hint)
    return None


def _died(at: Places, returncode: int, before: dict[Path, int]) -> DaemonUnreachable:
    ended = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
    return DaemonUnreachable(
        f"the daemon ended at start ({ended})" + _tail_text(at, before),
        hint="pwf doctor, or pwf daemon to see it start",
    )


def _tail_text(at: Places, before: dict[Path, int]) -> str:
    told = ""
    for path in (at.log, at.last_words):
        if lines := log_tail(path, after=before[path]):
            told += f"; the end of {path}:\n" + "\n".join(
                "  " + shortened(line, LOG_LINE_MAX) for line in lines
            )
    return told
