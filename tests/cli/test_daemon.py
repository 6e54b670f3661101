"""`start`, `stop`, `logs`, `doctor`, completion scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pwf.cli import exits
from pwf.cli.main import main
from pwf.client import diagnosis, reaching_people
from pwf.places import Places
from pwf.protocol.database_file import APPLICATION_ID
from pwf.protocol.operations import RunList, StopPayload, StopResult
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
def quiet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A home that no daemon serves."""
    home = tmp_path / "home"
    monkeypatch.setenv("PWF_HOME", str(home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    return Places(home, home / "config.toml", home / "pwf.sock")


# --- stop ---------------------------------------------------------------------------------------------------


def stopping(daemon: FakeDaemon, seconds: float, *applying: str) -> subprocess.Popen[bytes]:
    """A process that ends so long after it was asked, standing for the daemon's."""
    child = subprocess.Popen(
        [sys.executable, "-c", f"import time; input(); time.sleep({seconds})"], stdin=subprocess.PIPE
    )

    def stop(request: Any, payload: Any) -> StopResult:
        assert child.stdin is not None
        child.stdin.close()
        return StopResult(pid=child.pid, applying=applying)

    daemon.on("daemon.stop", stop)
    return child


def test_stop_waits_for_the_process_and_names_effects_that_are_still_applying(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    child = stopping(daemon, 0.2, "k3v9: ship (deploy)")
    result = pwf("stop")
    assert (result.code, result.out) == (exits.OK, "stopped\n")
    assert "still applying: k3v9: ship (deploy)" in result.err
    assert child.wait(10) == 0 or child.returncode == 1


def test_stop_passes_the_drain_time_and_says_so_when_the_process_stays(pwf: Pwf, daemon: FakeDaemon) -> None:
    seen: list[Any] = []

    def stop(request: Any, payload: StopPayload) -> StopResult:
        seen.append(payload.drain_ms)
        return StopResult(pid=os.getpid())

    daemon.on("daemon.stop", stop)
    from pwf.cli import daemon as commands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "STOP_MARGIN_S", 0.2)
        result = pwf("stop", "--drain", "0s")
    assert seen == [0]
    assert result.code == exits.UNAVAILABLE
    assert "still stopping" in result.err


def test_stopping_nothing_is_fine(quiet_home: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop"]) == exits.OK
    assert capsys.readouterr().out == "no daemon is running\n"


def test_start_says_when_one_runs_already(pwf: Pwf, daemon: FakeDaemon) -> None:
    assert "runs already" in pwf("start").out
    assert pwf("start", "--json").json["started"] is False


# --- logs ---------------------------------------------------------------------------------------------------


def test_logs_words_structured_lines_and_makes_others_safe(pwf: Pwf, daemon: FakeDaemon) -> None:
    lines = [
        '{"at_ms":1700000000000,"level":"info","event":"daemon.serving","epoch":3}',
        '{"at_ms":1700000000000,"level":"error","event":"run.broken","run":"k3","error":"a\\nb\\u001b"}',
        "Traceback \x1b[31m",
        '{"half',
    ]
    daemon.places.log.write_text("\n".join(["old", *lines]) + "\n")
    out = pwf("logs", "--lines", "4").out
    assert "old" not in out
    assert "daemon.serving  epoch=3" in out
    assert "error    run.broken  run=k3  error=a\nb\\x1b" in out
    assert "Traceback \\x1b[31m" in out
    assert '{"half' in out
    as_json = pwf("logs", "--json", "--lines", "4").out.splitlines()
    assert json.loads(as_json[0])["epoch"] == 3


def test_logs_follow_shows_lines_as_they_are_written(daemon: FakeDaemon) -> None:
    daemon.places.log.write_text("first\n")
    env = {**os.environ, "PWF_HOME": str(daemon.places.home)}
    words = [sys.executable, "-m", "pwf.cli.main", "logs", "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "first\n"
        with daemon.places.log.open("a") as log:
            log.write("second\n")
        assert child.stdout.readline() == "second\n"
        child.terminate()


def test_logs_follow_goes_on_in_the_next_file_when_one_is_full(daemon: FakeDaemon) -> None:
    log = daemon.places.log
    log.write_text("first\n")
    env = {**os.environ, "PWF_HOME": str(daemon.places.home)}
    words = [sys.executable, "-m", "pwf.cli.main", "logs", "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "first\n"
        with log.open("a") as full:
            log.rename(log.with_name("daemon.log.1"))
            full.write("last of it\n")
        log.write_text("second\n")
        assert child.stdout.readline() == "last of it\n"
        assert child.stdout.readline() == "second\n"
        child.terminate()


def test_logs_takes_older_files_where_the_newest_has_too_little(pwf: Pwf, daemon: FakeDaemon) -> None:
    for name, text in (("daemon.log.2", "a\nb\n"), ("daemon.log.1", "c\n"), ("daemon.log", "d\n")):
        daemon.places.log.with_name(name).write_text(text)
    assert pwf("logs", "--lines", "3").out == "b\nc\nd\n"
    assert pwf("logs", "--lines", "1").out == "d\n"


def test_no_log_yet_is_said(quiet_home: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"]) == exits.OK
    assert "there is no log yet" in capsys.readouterr().err


# --- doctor -------------------------------------------------------------------------------------------------


def verdicts(at: Places) -> dict[str, diagnosis.Check]:
    return {check.name: check for check in diagnosis.checks(at)}


def test_doctor_finds_nothing_wrong_with_a_served_home(pwf: Pwf, daemon: FakeDaemon) -> None:
    from pwf.client.version import version

    daemon.on("daemon.status", lambda request, payload: samples.status(version=version()))
    daemon.places.socket.chmod(0o600)
    daemon.places.lock.chmod(0o600)
    daemon.places.database.touch(mode=0o600)
    header = b"SQLite format 3\0".ljust(68, b"\0") + APPLICATION_ID.to_bytes(4, "big")
    daemon.places.database.write_bytes(header.ljust(4096, b"\0"))
    result = pwf("doctor", "--json")
    found = {check["name"]: check["verdict"] for check in result.json["checks"]}
    assert {name for name, verdict in found.items() if verdict == "fail"} == set()
    assert found["daemon"] == found["home"] == found["socket"] == "ok"
    assert result.code == exits.OK
    assert "ok    daemon" in pwf("doctor").out


def test_doctor_changes_nothing_where_nothing_is(quiet_home: Places) -> None:
    assert main(["doctor"]) == exits.OK
    assert not quiet_home.home.exists()


def test_every_finding_that_is_not_ok_has_a_fix(quiet_home: Places) -> None:
    quiet_home.home.mkdir(mode=0o755)
    quiet_home.home.chmod(0o755)
    quiet_home.config.write_text("max_runners = 0\n")
    quiet_home.socket.write_text("not a socket")
    quiet_home.lock.write_text(json.dumps({"pid": os.getpid(), "home_id": "h"}))
    found = verdicts(quiet_home)
    assert {name for name, check in found.items() if check.verdict == "fail"} == {
        "config",
        "socket",
        "daemon",
        "database",
    }
    assert found["home"].verdict == "warn"
    assert found["home"].fix == f"chmod 700 {quiet_home.home}"
    assert "config.toml:1: max_runners" in found["config"].found
    assert all(check.fix for check in found.values() if check.verdict != "ok")
    assert main(["doctor"]) == exits.NO


def test_doctor_sees_a_home_that_is_a_file(quiet_home: Places) -> None:
    quiet_home.home.write_text("")
    assert verdicts(quiet_home)["home"].verdict == "fail"


def test_doctor_sees_a_database_that_is_none(quiet_home: Places) -> None:
    quiet_home.home.mkdir(mode=0o700)
    for garbage in (b"", b"root:x:0:0", os.urandom(4096)):
        quiet_home.database.write_bytes(garbage)
        found = verdicts(quiet_home)["database"]
        assert (found.verdict, found.found) == ("fail", f"{quiet_home.database} is not a pwf database")
        assert "pwf state restore FILE" in (found.fix or "")


def test_doctor_names_a_package_that_is_missing(quiet_home: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {re.split("[<>=]", one)[0] for one in project["dependencies"]} == set(diagnosis.PACKAGES)
    assert verdicts(quiet_home)["packages"].verdict == "ok"
    monkeypatch.setitem(diagnosis.PACKAGES, "new-one", "no_such_module_here")
    found = verdicts(quiet_home)["packages"]
    assert (found.verdict, found.found) == ("fail", "missing: new-one")
    assert (found.fix or "").endswith("-m pip install new-one; then pwf stop")


@pytest.mark.parametrize(
    ("section", "found", "fix"),
    [
        (
            'kind = "command"\ncommand = ["no-such-program"]',
            "desk: there is no program no-such-program",
            "reload",
        ),
        (
            'kind = "slack"\ntoken = "a"\napp_token = "b"\nchannel = "C1"\nusers = ["U1"]',
            "desk needs the package websockets",
            "pip install 'pwf-workflows[slack]'",
        ),
    ],
)
def test_doctor_looks_at_what_configured_channels_need(
    quiet_home: Places, monkeypatch: pytest.MonkeyPatch, section: str, found: str, fix: str
) -> None:
    quiet_home.home.mkdir(mode=0o700)
    assert verdicts(quiet_home)["channels"].found == "none"
    monkeypatch.setattr(reaching_people, "find_spec", lambda name: None)
    quiet_home.config.write_text(f"[channels.desk]\n{section}\n")
    check = verdicts(quiet_home)["channels"]
    assert (check.verdict, check.found) == ("fail", found)
    assert fix in (check.fix or "")
    quiet_home.config.write_text('[channels.desk]\nkind = "command"\ncommand = ["sh"]\n')
    assert verdicts(quiet_home)["channels"].verdict == "ok"


def test_doctor_sees_an_interpreter_that_is_gone(quiet_home: Places) -> None:
    quiet_home.home.mkdir(mode=0o700)
    quiet_home.config.write_text('interpreter = "/no/such/python"\n')
    found = verdicts(quiet_home)["interpreter"]
    assert found.verdict == "fail"
    assert "/no/such/python does not exist" in found.found


def test_doctor_names_the_run_whose_interpreter_is_gone(pwf: Pwf, daemon: FakeDaemon) -> None:
    held = samples.summary(status="held", hold="environment_missing")
    daemon.on("daemon.status", lambda request, payload: samples.status(held={"environment_missing": 1}))
    daemon.on("run.list", lambda request, payload: RunList(runs=(held,)))
    daemon.on("run.view", lambda request, payload: samples.run_view(summary=held))
    found = {check["name"]: check for check in pwf("doctor", "--json").json["checks"]}
    assert found["interpreter"]["verdict"] == "fail"
    assert samples.RUN in found["interpreter"]["found"]
    assert found["interpreter"]["fix"].endswith(f"pwf resume {samples.RUN}")


def test_doctor_sees_processes_left_over_from_runs(quiet_home: Places) -> None:
    quiet_home.home.mkdir(mode=0o700)
    quiet_home.lock.write_text(json.dumps({"pid": 0, "home_id": "home-of-this-test"}))
    env = {**os.environ, "PWF_RUN_MARKER": "home-of-this-test:run1:1"}
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env)
    try:
        found = verdicts(quiet_home)["leftovers"]
    finally:
        child.communicate(b"\n")
    assert found.verdict == "warn"
    assert str(child.pid) in found.found


def test_doctor_sees_a_clock_that_has_stepped_back(quiet_home: Places) -> None:
    quiet_home.home.mkdir(mode=0o700)
    quiet_home.database.touch()
    ahead = quiet_home.database.stat().st_mtime + 86_400
    os.utime(quiet_home.database, (ahead, ahead))
    assert verdicts(quiet_home)["clock"].verdict == "warn"


def test_doctor_sees_a_daemon_that_accepts_but_never_answers(
    quiet_home: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.client.peer.GREETING_S_MAX", 0.1)
    quiet_home.home.mkdir(mode=0o700)
    folder = os.open(quiet_home.home, os.O_RDONLY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"/proc/self/fd/{folder}/pwf.sock")
        listener.listen()
        assert verdicts(quiet_home)["daemon"].verdict == "fail"
    finally:
        listener.close()
        os.close(folder)


# --- completion ---------------------------------------------------------------------------------------------


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == exits.OK
    return capsys.readouterr().out


def bash_completes(text: str, *words: str) -> set[str]:
    typed = " ".join(f"'{word}'" for word in words)
    last = len(words) - 1
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={last}; _pwf; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-euc", f"{text}\n{ask}"], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert {"run", "status", "state"} <= bash_completes(text, "pwf", "")
    assert bash_completes(text, "pwf", "re") == {
        "resume",
        "restart",
        "retry",
        "resource",
        "requests",
        "recover",
    }
    assert bash_completes(text, "pwf", "state", "") >= {"status", "verify"}
    assert bash_completes(text, "pwf", "effects", "") >= {"show", "resolve", "--ambiguous"}
    assert bash_completes(text, "pwf", "effects", "resolve", "x:y:1", "") >= {"happened", "give-up"}
    assert "--detach" in bash_completes(text, "pwf", "run", "x", "--d")
    assert bash_completes(text, "pwf", "graph", "w", "--format", "") == {"text", "mermaid", "svg"}
    assert {"held", "paused"} <= bash_completes(text, "pwf", "ls", "--status", "")
    assert "--background-child" not in bash_completes(text, "pwf", "daemon", "--")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command_and_parse_their_script(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = script(shell, capsys)
    for word in ("run", "explain", "mermaid", "detach"):
        assert word in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        done = subprocess.run(
            [shell, "-n", str(tmp_path / "script")], capture_output=True, timeout=20, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == main(["--version"]) == exits.OK
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert first.startswith("pwf ")
