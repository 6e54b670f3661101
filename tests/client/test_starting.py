"""Starting the real daemon on demand: detached, once, with the reason when it can not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from pwf import host
from pwf.actors.base.supervise import Deaths
from pwf.actors.upkeep.restoring import begin_anew
from pwf.client import connect, connect_sync
from pwf.client.starting import connect_or_start, log_tail, socket_path, spawn, try_connect
from pwf.clock import SystemClock
from pwf.errors import ConfigError, DaemonUnreachable, HomeRefused
from pwf.places import Places
from pwf.protocol.lock_record import read_record

pytestmark = pytest.mark.rest  # real processes, many of them

WAIT_S = 15.0


@pytest.fixture
def at(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A home; whatever daemon it got is ended afterwards."""
    monkeypatch.setenv("PWF_HOME", str(home))
    monkeypatch.delenv("PWF_NO_AUTOSTART", raising=False)
    found = Places(home, home / "config.toml", home / "pwf.sock")
    yield found
    # A daemon that lost the race may still be on its way to finding out, and would serve an orphaned home.
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        bearers = [one for one in host.find_bearers("PWF_HOME") if one.marker == str(home)]
        if not bearers:
            return
        for one in bearers:
            end(one.identity.pid)
        time.sleep(0.05)
    pytest.fail(f"processes of {home} do not end")


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def ended(pid: int) -> bool:
    """Whether the process is gone within the bound."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def cli(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pwf.cli.main", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )


def test_a_started_daemon_is_detached_and_private(at: Places) -> None:
    with connect_sync(at, autostart=True) as client:
        pid = client.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    session, terminal = int(fields[3]), int(fields[4])
    assert (session, terminal) == (pid, 0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert os.readlink(f"/proc/{pid}/fd/2") == str(at.last_words)
    assert at.home.stat().st_mode & 0o777 == 0o700
    assert at.log.stat().st_mode & 0o777 == 0o600


def test_files_of_runs_get_the_rights_of_whoever_started_the_daemon_and_its_own_are_private(
    at: Places,
) -> None:
    before = os.umask(0o022)
    try:
        with connect_sync(at, autostart=True) as client:
            pid = client.pid
            client.call("daemon.status")
        Deaths(at.home, SystemClock(host.boot_id())).note(ValueError("an error"))
    finally:
        os.umask(before)
    assert "Umask:\t0022\n" in Path(f"/proc/{pid}/status").read_text()
    modes = {path.name: path.stat().st_mode & 0o777 for path in at.home.iterdir()}
    assert {"pwf.db", "pwf.db-wal", "daemon.log", "daemon.err", "deaths.json"} <= modes.keys()
    assert modes == {name: 0o700 if (at.home / name).is_dir() else 0o600 for name in modes}


def test_a_hang_up_does_not_end_it_and_stop_does(at: Places) -> None:
    with connect_sync(at, autostart=True) as client:
        pid = client.pid
    os.kill(pid, signal.SIGHUP)
    with connect_sync(at, autostart=False) as client:
        assert client.call("daemon.status").pid == pid
    done = cli("stop")
    assert (done.returncode, done.stdout) == (0, "stopped\n")
    assert ended(pid)
    assert cli("status").returncode == 5


def test_clients_that_start_at_once_end_with_one_daemon(at: Places) -> None:
    words = [sys.executable, "-m", "pwf.cli.main", "start", "--json"]
    clients = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    pids = {json.loads(client.communicate(timeout=60)[0])["pid"] for client in clients}
    assert len(pids) == 1
    assert [client.returncode for client in clients] == [0, 0, 0]


def test_a_killed_daemon_is_started_again_by_the_next_command(at: Places) -> None:
    with connect_sync(at, autostart=True) as client:
        first = client.pid
        end(first)
        assert ended(first)
        again = client.call("daemon.status")
    assert again.pid != first
    assert again.state == "serving"


def test_a_daemon_that_refuses_at_start_is_reported_in_its_own_words(at: Places) -> None:
    at.home.mkdir(mode=0o700)
    at.config.write_text("max_runners = 0\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: max_runners is 0") as caught:
        connect_or_start(at, autostart=True)
    assert caught.value.hint == "change or remove max_runners"


def test_a_database_that_turns_out_to_be_damaged_is_one_plain_sentence_and_no_traceback(at: Places) -> None:
    with connect_sync(at, autostart=True) as client:
        client.call("daemon.status")
    assert cli("stop").returncode == 0
    data = bytearray(at.database.read_bytes())
    for page in range(8, len(data) // 4096):  # past the schema: what opening looks at is sound
        data[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    at.database.write_bytes(bytes(data))
    done = cli("ls")
    assert done.returncode != 0
    assert "is damaged" in done.stderr
    assert f"pwf state verify {at.database}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_that_dies_at_start_is_reported_with_what_it_said_and_no_earlier_one(
    at: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.home.mkdir(mode=0o700)
    dies = at.home / "dies"
    dies.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    dies.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dies))
    # What another daemon has refused long ago is not why this one died.
    at.log.write_text('{"event":"daemon.refused","pid":1,"code":"config_error","message":"old"}\n')
    with pytest.raises(DaemonUnreachable, match=r"(?s)ended at start \(exit code 1\).*no room") as caught:
        connect_or_start(at, autostart=True)
    assert "old" not in caught.value.message


def test_a_home_that_is_a_link_is_served_by_its_real_path(
    at: Places, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = home.with_name("link")
    link.symlink_to(home)
    monkeypatch.setenv("PWF_HOME", str(link))
    with connect_sync(autostart=True) as client:
        assert client.call("daemon.status").home == str(home)
    with connect_sync(at, autostart=False) as client:
        assert client.call("daemon.status").home == str(home)


def test_a_copied_home_gets_a_daemon_of_its_own(
    at: Places, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_sync(at, autostart=True) as client:
        first = client.call("daemon.status")
    copy = home / "copy"  # inside, so that its daemon is ended with the others
    copy.mkdir(mode=0o700)
    shutil.copy(at.lock, copy)
    monkeypatch.setenv("PWF_HOME", str(copy))
    begin_anew()
    with connect_sync(autostart=True) as client:
        second = client.call("daemon.status")
    end(second.pid)
    assert (second.home, second.pid != first.pid) == (str(copy), True)
    assert ended(second.pid)


def test_autostart_can_be_forbidden(at: Places) -> None:
    done = cli("ls", PWF_NO_AUTOSTART="1")
    assert done.returncode == 5
    assert "hint: pwf start" in done.stderr
    assert not at.home.exists()


def test_a_home_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "home"
    with pytest.raises(HomeRefused, match="can not be made"):
        spawn(Places(inside, inside / "config.toml", inside / "pwf.sock"))


def test_the_lock_file_names_daemon_and_home_and_keeps_the_home_when_nobody_serves(at: Places) -> None:
    with connect_sync(at, autostart=True) as client:
        pid, home_id = client.pid, client.call("state.status").home_id
    record = read_record(at.lock)
    assert record is not None
    assert (record.pid, record.socket, record.home_id) == (pid, str(at.socket), home_id)
    assert cli("stop").returncode == 0
    record = read_record(at.lock)
    assert record is not None
    assert (record.pid, record.home_id) == (0, home_id)


def test_the_lock_file_says_where_the_socket_is(tmp_path: Path) -> None:
    at = Places(tmp_path, tmp_path / "config.toml", tmp_path / "pwf.sock")
    assert socket_path(at) == str(tmp_path / "pwf.sock")
    at.lock.write_text('   {"pid": 1, "socket": "/elsewhere.sock", "later": true}\n')
    assert socket_path(at) == "/elsewhere.sock"
    at.lock.write_text("{half")
    assert socket_path(at) == str(tmp_path / "pwf.sock")
    assert try_connect(at) is None


def test_the_tail_of_a_log_is_bounded_and_readable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100_000 + b"\n" + b"\xff line\n" * 30)
    assert log_tail(log, 3) == ["\ufffd line"] * 3
    assert log_tail(tmp_path / "none") == []


def test_what_an_earlier_daemon_has_said_is_no_word_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    assert log_tail(log, after=4) == []
    log.write_text("old\nnew\n")
    assert log_tail(log, after=4) == ["new"]
    log.write_text("a\n")
    assert log_tail(log, after=4) == ["a"]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_asynchronous_client_starts_it_too(at: Places, backend: str) -> None:
    async def ask() -> str:
        async with connect(at, autostart=True) as client:
            status = await client.call("daemon.status")
            return str(status.state)

    assert anyio.run(ask, backend=backend) == "serving"
