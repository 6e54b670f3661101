"""`pwf retry` and `pwf fork`: what is sent, what is said, and what is refused before anything is sent."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.errors import Rejected
from pwf.protocol.operations import Explained
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
def sent(daemon: FakeDaemon) -> list[Any]:
    """The payloads of the forks that were asked for."""
    payloads: list[Any] = []

    def take(request: Any, payload: Any) -> Any:
        payloads.append((request.run_id, request.expected_revision, payload))
        return samples.started(
            run_id="new1", forked_from="k3", node="deploy", took_over=("build", "test#2"), warnings=("look",)
        )

    daemon.on("run.fork", take)
    return payloads


def test_a_retry_says_where_it_goes_on_and_what_was_taken_over(pwf: Pwf, sent: list[Any]) -> None:
    result = pwf("retry", "@last-failed", "--max-steps", "500", "--code", "stored", "--keep-answers")
    assert result.out.startswith("new1")
    assert "goes on at deploy, from run k3" in result.out
    assert "taken over: build, test#2" in result.err
    assert "warning: look" in result.err
    assert "pwf watch new1" in result.err
    ((run_id, _, payload),) = sent
    assert (run_id, payload.node, payload.max_steps, payload.code) == ("@last-failed", None, 500, "stored")
    assert payload.keep_answers
    assert payload.input is None


@pytest.mark.parametrize(
    ("typed", "node", "visit"), [("deploy", "deploy", None), ("deploy#2", "deploy", 2), ("a#10", "a", 10)]
)
def test_a_fork_names_a_step_and_if_need_be_its_visit(
    pwf: Pwf, sent: list[Any], typed: str, node: str, visit: int | None
) -> None:
    assert pwf("fork", "k3", "--from", typed, "--input", '{"n": 1}', "--revision", "7").code == exits.OK
    ((_, revision, payload),) = sent
    assert (revision, payload.node, payload.visit) == (7, node, visit)
    assert bytes(payload.input) == b'{"n":1}'
    assert not payload.repeat_effects


def test_set_changes_a_part_of_the_input_that_the_run_had_read_as_the_new_code_declares_it(
    pwf: Pwf, daemon: FakeDaemon, sent: list[Any]
) -> None:
    schema = {"type": "object", "properties": {"version": {"type": "string"}, "n": {"type": "integer"}}}
    daemon.on("workflow.describe", lambda request, payload: samples.described(input_schema=schema))
    old = samples.run_view(input=samples.value({"version": "1.3", "n": 1, "kept": True}))
    daemon.on("run.view", lambda request, payload: old)
    pwf("fork", "@last", "--from", "deploy", "--set", "version=1.4", "--set", "n=2")
    ((run_id, _, payload),) = sent
    assert run_id == old.summary.run_id, "the run whose input was read, whatever @last means by now"
    assert msgspec.json.decode(payload.input) == {"version": "1.4", "n": 2, "kept": True}
    pwf("fork", "@last", "--from", "deploy", "--code", "stored", "--input", "{}", "--set", "version=1.40")
    assert msgspec.json.decode(sent[-1][2].input) == {"version": "1.40"}


@pytest.mark.parametrize("typed", ["", "#2", "deploy#", "deploy#x", "deploy#0"])
def test_what_names_no_visit_is_refused_before_anything_is_sent(
    pwf: Pwf, sent: list[Any], typed: str
) -> None:
    result = pwf("fork", "k3", "--from", typed)
    assert result.code == exits.USAGE
    assert "NODE#2" in result.err
    assert sent == []


def test_last_is_that_of_the_project_that_one_is_in_and_in_no_project_of_all(
    pwf: Pwf, daemon: FakeDaemon, sent: list[Any], tmp_path: Path
) -> None:
    pwf("retry", "@last")
    (tmp_path / "project/.pwf").mkdir(parents=True)
    (tmp_path / "project/below").mkdir()
    pwf("-C", "project/below", "retry", "@last-failed")
    pwf("-C", "project", "retry", "k3")
    root = os.path.realpath(tmp_path / "project")
    assert [run_id for run_id, *_ in sent] == ["@last", f"@last-failed:{root}", "k3"]
    explained = Explained(summary=samples.summary(), explanation=samples.explanation())
    daemon.on("run.status", lambda request, payload: explained)
    pwf("-C", "project", "explain", "@last")
    assert daemon.of("run.status")[-1].run_id == f"@last:{root}", "a project's folder is no MANAGER/KEY"


def test_a_refusal_says_what_to_type(pwf: Pwf, daemon: FakeDaemon) -> None:
    refusal = Rejected("effects happened", hint="if they may: pwf retry k3 --repeat-effects")
    daemon.on("run.fork", lambda request, payload: refusal)
    result = pwf("retry", "k3")
    assert (result.code, result.err) == (
        exits.REFUSED,
        "pwf: effects happened\nhint: if they may: pwf retry k3 --repeat-effects\n",
    )


def test_lists_and_views_say_what_a_run_is_forked_from_and_what_was_taken_over(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    from pwf.protocol.operations import RunList

    line = samples.summary(run_id="k3", forked_from="k2")
    daemon.on("run.list", lambda request, payload: RunList(runs=(line,)))
    assert "fork of k2" in pwf("ls").out
    retried = samples.summary(run_id="k2", status="failed", reason="a: boom", gone_on_as="k3")
    daemon.on("run.list", lambda request, payload: RunList(runs=(line, retried)))
    assert "gone on as k3; a: boom" in pwf("ls").out
    view = samples.run_view(
        summary=line,
        fork_node="collect",
        fork_visit=2,
        forks=("k4",),
        steps=(samples.step("collect", adopted=5),),
    )
    daemon.on("run.view", lambda request, payload: view)
    shown = " ".join(pwf("show", "k3").out.split())
    assert "fork of k2 (it goes on at collect#2)" in shown
    assert "forked as k4" in shown
    assert "taken over (#5)" in shown
