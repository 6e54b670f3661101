"""What scripts lean on: several runs in one command, narrowed lists, and completion that knows what there is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pwf.cli import exits
from pwf.cli.main import main
from pwf.errors import NotFound, Unavailable
from pwf.protocol import operations as ops
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def changing(daemon: FakeDaemon, operation: str) -> None:
    """Every run is changed but `gone`, which there is not."""

    def change(request: Any, payload: Any) -> Any:
        if request.run_id == "gone":
            return NotFound("no run 'gone'", hint="pwf ls")
        return ops.RunChanged(run_id=request.run_id, status="cancelled", revision=4)

    daemon.on(operation, change)


@pytest.mark.parametrize("name", ["cancel", "pause", "resume"])
def test_several_runs_are_changed_whatever_becomes_of_one_of_them(
    pwf: Pwf, daemon: FakeDaemon, name: str
) -> None:
    changing(daemon, f"run.{name}")
    done = pwf(name, "a1", "gone", "b2", "--json")
    assert [json.loads(line)["run_id"] for line in done.out.splitlines()] == ["a1", "b2"]
    assert json.loads(done.err)["error"]["message"] == "gone: no run 'gone'"
    assert done.code == exits.NOT_FOUND


def test_a_daemon_that_can_do_nothing_now_is_not_asked_for_each(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("run.cancel", lambda request, payload: Unavailable("busy"))
    assert pwf("cancel", "a1", "b2").code == exits.UNAVAILABLE
    assert len(daemon.of("run.cancel")) == 1


def test_an_empty_name_among_several_is_refused_before_any_is_changed(pwf: Pwf, daemon: FakeDaemon) -> None:
    changing(daemon, "run.cancel")
    assert pwf("cancel", "a1", "").code == exits.USAGE
    assert daemon.of("run.cancel") == []


def test_a_list_is_narrowed_to_a_time_and_a_title(pwf: Pwf, daemon: FakeDaemon) -> None:
    asked: list[Any] = []

    def runs(request: Any, payload: Any) -> Any:
        asked.append(payload)
        return ops.RunList(runs=())

    daemon.on("run.list", runs)
    done = pwf("ls", "--since", "2026-01-31T08:00+00:00", "--title", "release 1.4")
    assert asked[0].since_ms == 1_769_846_400_000
    assert asked[0].title == "release 1.4"
    assert done.err == "no such runs\n"
    assert pwf("ls", "--since", "tomorrow").code == exits.USAGE


# --- completion ---------------------------------------------------------------------------------------------


def listing(daemon: FakeDaemon) -> None:
    daemon.on("run.list", lambda request, payload: ops.RunList(runs=(samples.summary(run_id="k3v9"),)))
    daemon.on(
        "request.list", lambda request, payload: ops.RequestList(requests=(samples.request(request_id="q7"),))
    )


def project(folder: Path) -> None:
    workflows = folder / ".pwf" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "release.py").write_text("from pwf import Workflow\n")


def test_runs_requests_and_workflows_are_listed_with_what_they_are(
    pwf: Pwf, daemon: FakeDaemon, tmp_path: Path
) -> None:
    listing(daemon)
    project(tmp_path)
    runs = pwf("completion", "--list", "runs").out.splitlines()
    assert [line.split("\t")[0] for line in runs] == ["@last", "@last-failed", "k3v9"]
    assert runs[2].split("\t")[1]
    assert "q7\t" in pwf("completion", "--list", "requests").out
    assert "release\tproject\n" in pwf("completion", "--list", "workflows").out


def test_without_a_daemon_nothing_is_started_and_nothing_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PWF_HOME", str(tmp_path / "none"))
    assert main(["completion", "--list", "runs"]) == exits.OK
    said = capsys.readouterr()
    assert said.out.startswith("@last\t")
    assert said.err == ""
    assert not (tmp_path / "none").exists()


STAND_IN = """
pwf() { [ "$1 $2" = "completion --list" ] && printf '%s\\tof something\\n' "a-$3" "b-$3"; }
"""


def completed(script: str, *words: str) -> set[str]:
    """What bash offers, with a `pwf` that lists two names of each kind."""
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _pwf; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-uc", f"{STAND_IN}\n{script}\n{ask}"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_offers_what_there_is(pwf: Pwf) -> None:
    script = pwf("completion", "bash").out
    assert completed(script, "pwf", "show", "a") == {"a-runs"}
    assert {"a-runs", "b-runs"} <= completed(script, "pwf", "cancel", "a-runs", "")
    assert "b-workflows" in completed(script, "pwf", "run", "b")
    assert completed(script, "pwf", "answer", "b") == {"b-requests"}
    assert completed(script, "pwf", "ls", "--workflow", "") == {"a-workflows", "b-workflows"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_for_what_there_is(pwf: Pwf, shell: str) -> None:
    script = pwf("completion", shell).out
    for kind in ("runs", "requests", "workflows"):
        assert f"--list {kind}" in script or f'kind="{kind}"' in script


def test_zshs_script_has_none_of_the_words_that_mean_something_else_there(pwf: Pwf) -> None:
    script = pwf("completion", "zsh").out
    assert not re.search(r"\blocal\b.*\bpath\b", script)  # zsh's search path: nothing would be found any more
    assert not re.search(r":1:[A-Z]", script)  # a modifier there


def test_completion_without_a_shell_says_what_is_missing(pwf: Pwf) -> None:
    assert "pwf completion bash, zsh or fish" in pwf("completion").err
