"""Whom a client speaks to: the daemon of its own user and home, and nobody else gets a byte of what it is given."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path

import anyio
import pytest

from pwf import host
from pwf.client import connect, connect_sync
from pwf.client.peer import dial
from pwf.client.starting import try_connect
from pwf.errors import DaemonUnreachable, HomeRefused
from pwf.places import Places, places
from pwf.protocol.frames import PROTOCOL, Hello, encode
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

BACKENDS = ("blocking", "trio", "asyncio")


def start(at: Places, backend: str) -> None:
    """Start a run with an input."""
    if backend == "blocking":
        with connect_sync(at, autostart=False) as client:
            client.start("flow", {"password": "secret"})
        return

    async def main() -> None:
        async with connect(at, autostart=False) as client:
            await client.start("flow", {"password": "secret"})

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_daemon_of_another_home_at_the_sockets_path_gets_nothing(daemon: FakeDaemon, backend: str) -> None:
    daemon.serves = daemon.places.home.parent

    with pytest.raises(DaemonUnreachable, match="no daemon serves") as caught:
        start(daemon.places, backend)

    assert caught.value.hint == "pwf start"
    assert not daemon.received


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copied_home_does_not_reach_the_daemon_of_the_first(
    daemon: FakeDaemon, home: Path, backend: str
) -> None:
    copy = home.with_name("copy")
    copy.mkdir(mode=0o700)
    shutil.copy(daemon.places.lock, copy)  # it names the first one's socket

    with pytest.raises(DaemonUnreachable, match=r"no daemon serves .*copy"):
        start(Places(copy, copy / "config.toml", copy / "pwf.sock"), backend)

    assert not daemon.received


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_daemon_that_does_not_say_which_home_it_serves_gets_nothing(
    daemon: FakeDaemon, backend: str
) -> None:
    daemon.greeting = encode(Hello(protocol=PROTOCOL, version="0.0", pid=123))

    with pytest.raises(DaemonUnreachable, match="does not say which home") as caught:
        start(daemon.places, backend)

    assert caught.value.hint == "end it, and run the command again: kill 123"
    assert not daemon.received


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_users_process_at_the_sockets_path_gets_nothing(
    daemon: FakeDaemon, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "peer_uid", lambda _socket: os.geteuid() + 1)

    with pytest.raises(HomeRefused, match=r"listens .* belongs to") as caught:
        start(daemon.places, backend)

    assert caught.value.hint == "set PWF_HOME to a folder of your own"
    assert not daemon.received


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_socket_in_a_folder_that_others_can_write_is_not_connected_to(
    daemon: FakeDaemon, backend: str
) -> None:
    daemon.places.home.chmod(0o777)

    with pytest.raises(HomeRefused, match="others can put a socket") as caught:
        start(daemon.places, backend)

    home = daemon.places.home
    assert "daemon.lock, pwf.sock" in caught.value.message
    assert (
        caught.value.hint == f"look at each (ls -l {home}), remove what is not yours, then chmod 700 {home}"
    )
    assert daemon.connections == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_socket_in_another_users_folder_is_not_connected_to(daemon: FakeDaemon, backend: str) -> None:
    os.chown(daemon.places.home, 65534, -1)

    with pytest.raises(HomeRefused, match="the folder of the socket"):
        start(daemon.places, backend)

    assert daemon.connections == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_waits_for_an_answer_is_not_sent_again_to_another_homes_daemon(
    daemon: FakeDaemon, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.client.sync.RECONNECT_S_MAX", 0.2)
    monkeypatch.setattr("pwf.client.aio.RECONNECT_S_MAX", 0.2)

    def die_and_be_followed(request: object, payload: object) -> None:
        daemon.serves = daemon.places.home.parent
        daemon.received.clear()
        daemon.drop()

    daemon.on("run.start", die_and_be_followed)

    with pytest.raises(DaemonUnreachable, match="no daemon serves"):
        start(daemon.places, backend)

    assert not daemon.received


def test_a_home_is_the_same_by_every_name(daemon: FakeDaemon, home: Path) -> None:
    link = home.with_name("link")
    link.symlink_to(home)
    daemon.on("daemon.status", lambda request, payload: samples.status())

    with connect_sync(Places(link, link / "config.toml", link / "pwf.sock"), autostart=False) as client:
        assert client.call("daemon.status") == samples.status()


def test_a_home_that_is_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "state").symlink_to("real")

    by_name = places({"PWF_HOME": str(tmp_path / "link")})
    by_xdg = places({"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})

    assert by_name.home == tmp_path / "real"
    assert by_xdg.home == tmp_path / "real" / "pwf"


def test_a_greeting_that_comes_in_pieces_is_waited_for(daemon: FakeDaemon, home: Path) -> None:
    with FakeDaemon(home.with_name("other")) as other:
        whole = encode(Hello(protocol=PROTOCOL, version="0", home_identity="no:where", pid=1))
        daemon.greeting = whole[:10]
        other.greeting = whole
        threading.Timer(0.05, lambda: daemon._live[0].sendall(whole[10:])).start()
        assert try_connect(daemon.places) is None
        assert try_connect(other.places) is None


def test_where_nobody_listens_there_is_no_connection(home: Path) -> None:
    home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / "dead.sock"))
    assert dial(str(home / "dead.sock")) is None
    assert dial(str(home / "nothing.sock")) is None
    assert dial(str(home / "no folder" / "nothing.sock")) is None
