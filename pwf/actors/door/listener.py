"""Listener: the Unix socket, who may connect, and one task per connection.

Owns the socket's path while the daemon serves. Promises: the socket is 0600 in a folder that is 0700 and
ours; a peer of another user is turned away by the kernel's credentials; a path that is taken by something
else than a dead socket is refused, never removed; the socket is made again within `GUARD_S` when somebody
removes it, and when something else stands in its place, as soon as that is gone: meanwhile the log names it, and
whoever is connected is served. A connection that fails ends alone.
In: connections; `say_goodbye`. Out: `Connection` tasks. If it dies, the daemon ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable, Set
from pathlib import Path

import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.socket_stream import SocketStream
from pwf.actors.door.connection import Connection
from pwf.actors.door.unread import Unread
from pwf.actors.operations.caller import Handler
from pwf.errors import AlreadyServing, HomeRefused, PwfError, Unavailable
from pwf.host.identity import Identity
from pwf.ownership import make_folder
from pwf.protocol.frames import ErrorFrame, Hello, encode, error_body

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 4
BACKLOG = 128
CONNECTIONS_MAX = 512
GUARD_S = 5.0  # how long a removed socket stays away
TURN_AWAY_S = 1.0
ACCEPT_PAUSE_S = 0.1  # after running out of descriptors
FLUSH_S = 0.05  # for answers that are on their way when the daemon stops
GOODBYE_S_MAX = 0.5

_NO_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}  # of a file system


# --- messages -------------------------------------------------------------------------------------------------


class SayGoodbye(Message[None], frozen=True, kw_only=True, eq=False):
    """An ordered stop: let nobody more in, and tell who is left why it ends."""


# --- the handle -----------------------------------------------------------------------------------------------


class ListenerHandle:
    """What others hold of it."""

    def __init__(self, inbox: Mailbox[SayGoodbye], connections: Set[Connection]) -> None:
        self._inbox = inbox
        self._connections = connections

    @property
    def clients(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    async def say_goodbye(self) -> None:
        """Accept nobody more, let answers go out, and tell who is left why it ends. Bounded.

        A client that is told does not start the daemon again, as it would after a kill.
        """
        await ask(self._inbox, SayGoodbye())


# --- the actor ------------------------------------------------------------------------------------------------


class Listener:
    """The actor, with one task for each connection. `hello` is what each connection begins with."""

    def __init__(
        self,
        path: Path,
        *,
        handle: Handler,
        hello: Callable[[], Hello],
        peer_uid: Callable[[socket.socket], int],
        peer_process: Callable[[socket.socket], Identity | None],
        log: Log,
    ) -> None:
        self._path = path
        self._serve_request = handle
        self._hello = hello
        self._peer_uid = peer_uid
        self._peer_process = peer_process
        self._log = log
        self._identity: tuple[int, int] | None = None  # device and inode of our socket
        self._numbers = 0
        self._connections: set[Connection] = set()
        self._unread = Unread()
        self._inbox: Mailbox[SayGoodbye] = Mailbox(INBOX_MAX, "the listener")
        self.handle = ListenerHandle(self._inbox, self._connections)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve until cancelled; removes the socket at the end."""
        listening = self._bind()
        task_status.started()
        try:
            with self._inbox.open():
                async with trio.open_nursery() as nursery:
                    while True:
                        accepting = trio.CancelScope()
                        nursery.start_soon(self._accept, listening, nursery, accepting)
                        guarded = await self._guard()
                        accepting.cancel()
                        if isinstance(guarded, SayGoodbye):
                            await self._inbox.answer(guarded, self._handle_goodbye)
                            await trio.sleep_forever()
                        listening = guarded
        finally:
            self._remove()

    async def _guard(self) -> SayGoodbye | trio.socket.SocketType:
        """Wait for a message, or for a new socket that was needed at the path."""
        in_the_way = ""
        while True:
            message = await self._inbox.take_one(trio.current_time() + GUARD_S)
            if message is not None:
                return message
            if _identity(self._path) == self._identity:
                continue
            try:
                made = self._bind()
            except PwfError as error:
                if error.message != in_the_way:
                    in_the_way = error.message
                    self._log.error("socket.in_the_way", message=error.message, hint=error.hint)
            else:
                self._log.warning("socket.made_again", path=str(self._path))
                return made

    async def _handle_goodbye(self, message: SayGoodbye) -> None:
        self._remove()
        await trio.sleep(FLUSH_S)
        with trio.move_on_after(GOODBYE_S_MAX):
            async with trio.open_nursery() as nursery:
                for connection in self._connections:
                    nursery.start_soon(
                        connection.refuse, Unavailable("the daemon was stopped", hint="pwf start")
                    )

    def _bind(self) -> trio.socket.SocketType:
        """A socket at the path. Raises `HomeRefused` or `AlreadyServing`, and changes nothing, where that is taken."""
        claim_path(self._path)
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._identity = _listen_at(raw, self._path)
            raw.setblocking(False)
        except OSError as error:
            raw.close()
            raise HomeRefused(
                f"the socket {self._path} can not be made: {error.strerror}",
                hint=f"check the folder: ls -ld {self._path.parent}",
            ) from error
        return trio.socket.from_stdlib_socket(raw)

    async def _accept(
        self, listening: trio.socket.SocketType, nursery: trio.Nursery, scope: trio.CancelScope
    ) -> None:
        with listening, scope:
            while True:
                try:
                    accepted, _ = await listening.accept()
                except OSError as error:
                    if error.errno in _NO_RESOURCES:
                        self._log.warning("socket.accept_failed", error=error.strerror)
                        await trio.sleep(ACCEPT_PAUSE_S)
                        continue
                    if error.errno == errno.ECONNABORTED:
                        continue
                    raise
                nursery.start_soon(self._serve, accepted)

    async def _serve(self, accepted: trio.socket.SocketType) -> None:
        stream = SocketStream(socket.socket(fileno=accepted.detach()), patient=True)
        self._numbers += 1
        number = self._numbers
        if not self._welcome(stream.socket, number):
            await self._turn_away(stream)
            return
        connection = Connection(
            stream,
            handle=self._serve_request,
            hello=self._hello(),
            log=self._log,
            number=number,
            peer=self._peer(stream.socket),
            unread=self._unread,
        )
        self._connections.add(connection)
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001 - a connection ends alone
            self._log.error("connection.failed", connection=number, error=f"{type(error).__name__}: {error}")
        finally:
            self._connections.discard(connection)

    def _welcome(self, accepted: socket.socket, number: int) -> bool:
        try:
            uid = self._peer_uid(accepted)
        except OSError as error:
            self._log.warning("connection.unknown_peer", connection=number, error=error.strerror)
            return False
        if uid != os.geteuid():
            self._log.warning("connection.foreign_user", connection=number, uid=uid)
            return False
        return len(self._connections) < CONNECTIONS_MAX

    def _peer(self, accepted: socket.socket) -> Identity | None:
        """Looked up at once: later the pid is more likely another's."""
        try:
            return self._peer_process(accepted)
        except OSError:
            return None

    async def _turn_away(self, stream: SocketStream) -> None:
        refused = Unavailable(
            "this connection is not served", hint="it is another user's, or there are too many"
        )
        with trio.move_on_after(TURN_AWAY_S):
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(encode(ErrorFrame(error=error_body(refused))))
        await trio.aclose_forcefully(stream)

    def _remove(self) -> None:
        if self._identity is not None and _identity(self._path) == self._identity:
            self._path.unlink(missing_ok=True)


def _listen_at(raw: socket.socket, path: Path) -> tuple[int, int] | None:
    """Bound beside and linked to the path: that never shows a socket with other rights, or one that nobody listens on,
    and nothing that came there meanwhile is replaced.
    """
    beside = path.with_name(f"~{os.urandom(4).hex()}")
    raw.bind(os.fspath(beside))
    try:
        os.chmod(beside, 0o600)
        raw.listen(BACKLOG)
        try:
            os.link(beside, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(beside, path)  # nothing was there a moment ago
        return _identity(path)
    finally:
        beside.unlink(missing_ok=True)


def claim_path(path: Path) -> None:
    """Make way for the socket, or say who stands in the way: `HomeRefused`, `AlreadyServing`."""
    _check_folder(path.parent)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise HomeRefused(
            f"{path} can not be looked at: {error.strerror}", hint=f"ls -ld {path.parent}"
        ) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise HomeRefused(
            f"{path} is taken by something that is not a socket", hint=f"move it away: mv {path} {path}.old"
        )
    if answers(path):
        raise AlreadyServing(
            f"another process listens on {path}", hint="it may serve another home; pwf status says more"
        )
    path.unlink(missing_ok=True)


def answers(path: Path) -> bool:
    """Whether a process holds the listening end of the socket at `path` (it may be too busy to accept)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # one whose queue is full says so at once
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _check_folder(folder: Path) -> None:
    try:
        make_folder(folder)
        found = folder.lstat()
    except OSError as error:
        raise HomeRefused(
            f"the folder of the socket, {folder}, can not be made: {error.strerror}",
            hint="set PWF_HOME to a folder of yours",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise HomeRefused(f"{folder} is not a folder of yours", hint="set PWF_HOME to a folder of yours")
    if found.st_mode & 0o077:
        raise HomeRefused(
            f"{folder} can be entered by other users (mode {stat.S_IMODE(found.st_mode):o})",
            hint=f"chmod 700 {folder}",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
