"""`pwf service`: what is written, what the service manager is asked, and what is said."""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pwf.cli import exits
from pwf.host import service
from pwf.protocol.operations import StopResult
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon

SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in
  "--user show pwf"*) printf '%s\\n' ActiveState=active SubState=running UnitFileState=enabled "MainPID=$MAIN_PID";;
  *"show-user"*) echo Linger=no;;
esac
"""


class Manager:
    """A systemctl and a loginctl that write down what they are asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.units = folder / "config" / "systemd" / "user"
        self._asked = folder / "asked"
        self._asked.touch()
        for name in ("systemctl", "loginctl"):
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(SYSTEMCTL)
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        monkeypatch.setenv("ASKED", str(self._asked))
        monkeypatch.setenv("MAIN_PID", "0")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setattr(sys, "platform", "linux")

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines()

    @property
    def unit(self) -> Path:
        (found,) = self.units.iterdir()
        return found


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    return Manager(tmp_path, monkeypatch)


@pytest.fixture
def stopping(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon that says it stops, and is another process that has ended by then."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    daemon.on("daemon.stop", lambda request, payload: StopResult(pid=ended.pid))
    return daemon


def test_install_writes_a_unit_says_where_stops_the_daemon_that_serves_and_starts_the_service(
    pwf: Pwf, manager: Manager, stopping: FakeDaemon
) -> None:
    done = pwf("service", "install")
    assert done.code == exits.OK
    assert f"wrote {manager.unit}" in done.out
    assert "has stopped" in done.out
    assert "loginctl enable-linger" in done.err
    assert manager.asked == [
        "--user show-environment",
        "--user daemon-reload",
        f"--user enable --now {manager.unit.name}",
        f"show-user {os.getuid()} --property=Linger",
    ]
    text = manager.unit.read_text()
    assert f'ExecStart="{sys.executable}" "-m" "pwf.cli.main" "daemon"' in text
    assert f'Environment="PWF_HOME={stopping.places.home}"' in text
    for line in ("Restart=on-failure", "KillMode=mixed", "OOMPolicy=continue", "TimeoutStopSec=40"):
        assert line in text.splitlines()


def test_print_writes_nothing_and_asks_nobody(pwf: Pwf, manager: Manager) -> None:
    done = pwf("service", "install", "--print")
    assert "ExecStart=" in done.out
    assert not manager.units.exists()
    assert manager.asked == []


def test_a_unit_that_pwf_did_not_write_is_neither_replaced_nor_removed(
    pwf: Pwf, manager: Manager, stopping: FakeDaemon
) -> None:
    pwf("service", "install")
    manager.unit.write_text("[Service]\n")
    assert pwf("service", "install").code == exits.REFUSED
    assert pwf("service", "uninstall").code == exits.REFUSED
    assert manager.unit.read_text() == "[Service]\n"
    assert not any("disable" in words for words in manager.asked)


def test_uninstall_stops_it_removes_the_file_and_says_what_starts_the_daemon_now(
    pwf: Pwf, manager: Manager, stopping: FakeDaemon
) -> None:
    pwf("service", "install")
    path = manager.unit
    done = pwf("service", "uninstall")
    assert done.out == f"removed {path}\n"
    assert "pwf start" in done.err
    assert not path.exists()
    assert manager.asked[-2:] == [f"--user disable --now {path.name}", "--user daemon-reload"]
    assert pwf("service", "uninstall").out == f"there is no {path}\n"


def test_status_tells_the_services_daemon_from_another(
    pwf: Pwf, manager: Manager, stopping: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pwf("service", "status")
    assert before.code == exits.NO
    assert "pwf service install" in before.err
    pwf("service", "install")

    another = pwf("service", "status")
    serving = json.loads(pwf("service", "status", "--json").out)["daemon_pid"]
    monkeypatch.setenv("MAIN_PID", str(serving))
    ours = pwf("service", "status")

    assert another.code == exits.NO
    assert "pwf stop" in another.err
    assert ours.code == exits.OK
    assert f"pid {serving}, the service" in ours.out


def test_status_says_that_the_file_is_out_of_date(pwf: Pwf, manager: Manager, stopping: FakeDaemon) -> None:
    pwf("service", "install")
    manager.unit.write_text(manager.unit.read_text().replace("TimeoutStopSec=40", "TimeoutStopSec=9"))
    assert "not what would be written now" in pwf("service", "status").err


def test_without_a_manager_the_refusal_says_how_to_see_the_unit(
    pwf: Pwf, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = pwf("service", "install")
    assert done.code == exits.UNAVAILABLE
    assert "--print" in done.err
    assert not manager.units.exists()


def test_what_a_unit_would_expand_is_written_so_that_it_stays(manager: Manager, daemon: FakeDaemon) -> None:
    assert service._quoted('a b"c\\d%e') == '"a b\\"c\\\\d%%e"'


def test_on_macos_it_is_an_agent_that_launchd_can_read(
    manager: Manager, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    made = service.service_of(daemon.places, 10.0)
    found: dict[str, Any] = plistlib.loads(made.text.encode())
    assert found["ProgramArguments"] == [sys.executable, "-m", "pwf.cli.main", "daemon"]
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["EnvironmentVariables"]["PWF_HOME"] == str(daemon.places.home)
    assert found["Label"] == made.name
    assert made.path.name == f"{made.name}.plist"
