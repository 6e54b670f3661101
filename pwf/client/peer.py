"""Who is at the other end of a socket: nothing is sent before it is known.

Input, environment and answers are for the daemon of this user and of this home. Three things are asked: the folder of
the socket is ours and nobody else can write in it; the kernel says that our own user listens; and the daemon's
greeting, which it sends first, names the folder that we mean by device and inode, since paths differ by links and
mounts, and a copied home still names the first one's socket.
"""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path
from shlex import quote

from pwf import host
from pwf.errors import DaemonUnreachable, HomeRefused, PwfError
from pwf.host.home import what_lies_there
from pwf.ownership import others_can_write, user_name
from pwf.places import Places, identity_of
from pwf.protocol.frames import FRAME_BYTES_MAX, PROTOCOL, Hello, decode_daemon_frame

CONNECT_S_MAX = 5.0
GREETING_S_MAX = 10.0
PEEK_AGAIN_S = 0.005  # of a greeting, half has arrived


def dial(path: str, *, wait_s: float = 0.0) -> socket.socket | None:
    """A socket that is connected to a process of our own user, or None when nobody listens. Sends nothing.

    Raises `HomeRefused` where another user's process could stand, or stands.
    """
    _check_folder(os.path.dirname(path))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected = False
    try:
        connection.settimeout(wait_s)
        connection.connect(path)
        user = host.peer_uid(connection)
        if user != os.geteuid():
            raise HomeRefused(
                f"the process that listens on {path} belongs to {user_name(user)}",
                hint="set PWF_HOME to a folder of your own",
            )
        connected = True
    except OSError:
        return None
    finally:
        if not connected:
            connection.close()
    return connection


def serves(hello: Hello, at: Places) -> bool:
    """Whether this is the daemon of our home. Raises `DaemonUnreachable` when it does not say whose it is."""
    if not hello.home_identity:
        raise DaemonUnreachable(
            f"the daemon (pid {hello.pid}, pwf {hello.version}) does not say which home it serves: it is older",
            hint=f"end it, and run the command again: kill {hello.pid}",
        )
    return hello.home_identity == identity_of(at.home)


def greets_as_ours(connection: socket.socket, at: Places) -> bool:
    """Wait for the greeting and look at it, leaving it to be read. False when it is another home's.

    True also for an end, or a refusal, in its place: who reads it learns that, and has sent nothing yet.
    Raises `DaemonUnreachable` when none comes within `GREETING_S_MAX`.
    """
    deadline = time.monotonic() + GREETING_S_MAX
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(left * 1000):
            continue
        try:
            data = connection.recv(FRAME_BYTES_MAX, socket.MSG_PEEK)
            line, whole, _ = data.partition(b"\n")
            if not data or whole:
                frame = decode_daemon_frame(line)
                if isinstance(frame, Hello) and frame.protocol == PROTOCOL:
                    return serves(frame, at)
                return True
        except DaemonUnreachable:
            raise
        except (OSError, PwfError):
            return True
        time.sleep(PEEK_AGAIN_S)
    raise DaemonUnreachable(
        f"the daemon accepts connections but has not answered for {GREETING_S_MAX:g} s", hint="pwf doctor"
    )


def _check_folder(folder: str) -> None:
    try:
        found = os.stat(folder)
    except OSError:
        return  # then nobody listens there
    if found.st_uid != os.geteuid():
        raise HomeRefused(
            f"the folder of the socket, {folder}, belongs to {user_name(found.st_uid)}",
            hint="set PWF_HOME to a folder of your own, with a short path",
        )
    if why := others_can_write(Path(folder), found):
        raise HomeRefused(
            f"others can put a socket of their own into {folder}: {why}; {what_lies_there(_names(folder))}",
            hint=f"look at each (ls -l {quote(folder)}), remove what is not yours, then chmod 700 {quote(folder)}",
        )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
