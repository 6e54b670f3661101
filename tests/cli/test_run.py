"""`pwf run`, `watch` and `wait` away from a terminal: a line per change, JSON, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.follow import PlainScreen
from pwf.cli.out import Out
from pwf.cli.patience import Followed, Patience
from pwf.errors import LoadFailed, NotFound
from pwf.present.outline import outline
from pwf.present.progress import plain
from pwf.present.tree import tree
from pwf.protocol.graph import NodeSpec, RetrySpec, Way, WorkflowGraph
from pwf.protocol.operations import Explained, Nothing, RunList, StartPayload, WaitPayload, WaitResult
from pwf.protocol.runner import StepError, Value
from pwf.protocol.views import NEEDS_PERSON, Explanation, RunView, UpdateView
from tests.cli.conftest import Pwf, script_run
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def ended(status: Any = "completed", **changes: Any) -> Any:
    head = samples.summary(status=status, node=None, ended_ms=samples.NOW)
    steps = changes.pop("steps", (samples.step("collect"),))
    return samples.run_view(summary=head, steps=steps, **changes)


def started_with(daemon: FakeDaemon) -> StartPayload:
    return msgspec.json.decode(daemon.of("run.start")[-1].payload, type=StartPayload)


def lines_of(capsys: pytest.CaptureFixture[str], *views: Any) -> list[str]:
    screen = PlainScreen(Out(as_json=False))
    for view in views:
        screen.show(view, samples.NOW)
    return capsys.readouterr().out.splitlines()


def test_each_change_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    update = UpdateView(
        kind="progress",
        key="files",
        data=msgspec.Raw(b'{"label":"files","completed":3,"total":4,"unit":"files"}'),
        updated_ms=samples.NOW,
    )
    asked = samples.step("review", 2, status="active", ended_ms=None, summary="")
    waiting = samples.run_view(
        summary=samples.summary(status="waiting", node="review"),
        steps=(samples.step("collect"), asked),
        request=samples.request(),
        updates=(update,),
    )
    assert lines_of(capsys, samples.run_view(), waiting, waiting, ended()) == [
        "▶ collect: started",
        '✓ collect: completed in 1.0s  {"exit_code":0}',
        "▶ review: started",
        f"  files  {'━' * 18}{'─' * 6}  3/4 files  75%",
        "? review asks: Ship it?",
        "  takes  any JSON, or text",
        "  type   pwf answer q1w2e3r4t5y6 'any text, or JSON'",
    ]


def test_a_run_is_followed_to_its_output(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, samples.run_view(), ended(output=samples.value({"tag": "v1.2"})))
    result = pwf("run", "release", "--set", "version=1.2")
    assert result.code == exits.OK
    assert result.out.startswith(f"run {samples.RUN}\n")
    assert "✓ completed in 4.0s\n" in result.out
    assert json.loads(result.out[result.out.index("{\n") :]) == {"tag": "v1.2"}
    assert bytes(started_with(daemon).input) == b'{"version":1.2}'


def test_the_moment_of_a_later_start_is_echoed_with_its_zone(
    pwf: Pwf, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_run(daemon)
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    said = pwf("run", "release", "--at", "2099-01-31T08:00", "--detach").err
    monkeypatch.undo()
    time.tzset()
    assert said.startswith("it starts at 2099-01-31 08:00:00 CET (+0100), due in ")


def test_a_set_text_is_read_as_the_workflow_declares_it(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon)
    schema = {"type": "object", "properties": {"version": {"type": "string"}}}
    daemon.on("workflow.describe", lambda request, payload: samples.described(input_schema=schema))
    pwf("run", "release", "--set", "version=1.40", "--detach")
    assert bytes(started_with(daemon).input) == b'{"version":"1.40"}'


def test_a_start_without_set_asks_for_no_description(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon)
    pwf("run", "release", "--input", "1", "--detach")
    assert [request.operation for request in daemon.requests] == ["run.start"]


def test_where_the_file_does_not_load_the_start_says_so(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("workflow.describe", lambda request, payload: LoadFailed("x.py:1: SyntaxError"))
    daemon.on("run.start", lambda request, payload: LoadFailed("x.py:1: SyntaxError", hint="fix it"))
    result = pwf("run", "release", "--set", "version=1")
    assert (result.code, result.err) == (exits.UNSOUND, "pwf: x.py:1: SyntaxError\nhint: fix it\n")


def test_input_id_key_and_time_reach_the_daemon(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon)
    pwf(
        "run",
        "release",
        "--input",
        '{"b": 1, "a": 2}',
        "--id",
        "mine",
        "--key",
        "k 1",
        "--at",
        "2030-01-31T08:00Z",
        "--max-steps",
        "500",
        "--detach",
    )
    payload = started_with(daemon)
    assert payload.max_steps == 500
    assert bytes(payload.input) == b'{"a":2,"b":1}'
    assert (payload.run_id, payload.at_ms) == ("mine", 1_896_076_800_000)
    assert daemon.of("run.start")[-1].idempotency_key == "k 1"


@pytest.mark.parametrize(
    "words",
    [
        ("-C", "other", "run", "tag", "--detach"),
        ("run", "-C", "other", "tag", "--detach"),
        ("run", "tag", "--detach", "--folder", "other"),
    ],
)
def test_a_command_can_be_typed_as_if_in_another_folder(
    pwf: Pwf, daemon: FakeDaemon, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "other").mkdir()
    script_run(daemon, [])
    (tmp_path / "other" / "input.json").write_text('"from there"')

    assert pwf(*words, "--input", "@input.json").code == exits.OK

    given = started_with(daemon)
    assert (given.origin.cwd, bytes(given.input)) == (str(tmp_path / "other"), b'"from there"')
    assert Path.cwd() == tmp_path


def test_a_folder_to_type_in_that_is_not_there_is_refused(pwf: Pwf, daemon: FakeDaemon) -> None:
    result = pwf("-C", "nowhere", "run", "tag")
    assert result.code == exits.USAGE
    assert result.err.startswith("pwf: -C nowhere: there is no such folder\nhint: ")
    assert pwf("-C", "nowhere", "rnu").err.startswith("pwf: there is no command 'rnu'")
    assert daemon.requests == []


def test_detach_returns_at_once(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon)
    assert pwf("run", "release", "--detach").out == f"{samples.RUN}\n"
    found = pwf("run", "release", "--detach", "--json").json
    assert (found["run_id"], found["adopted"]) == (samples.RUN, False)
    assert daemon.of("view.subscribe") == []


def test_an_adopted_run_is_said_to_be_one(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on(
        "run.start", lambda request, payload: samples.started(code_is_older=True, warnings=("x shadows y",))
    )
    pwf("run", "release", "--detach", "--key", "k")
    again = pwf("run", "release", "--detach", "--key", "k")
    assert "adopted" in again.err
    assert "older than the file" in again.err
    assert "warning: x shadows y" in again.err


@pytest.mark.parametrize(
    ("status", "code"),
    [("completed", exits.OK), ("failed", exits.NO), ("timed_out", exits.NO), ("cancelled", exits.CANCELLED)],
)
def test_the_exit_code_tells_how_the_run_ended(pwf: Pwf, daemon: FakeDaemon, status: Any, code: int) -> None:
    script_run(daemon, ended(status))
    assert pwf("run", "release").code == code
    assert pwf("watch", samples.RUN).code == code


def test_json_prints_the_run_id_first_and_the_last_view_at_the_end(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, samples.run_view(), ended("failed"))
    result = pwf("run", "release", "--json")
    first, last = result.out.splitlines()
    assert result.code == exits.NO
    assert json.loads(first) == {
        "run_id": samples.RUN,
        "status": "queued",
        "revision": 1,
        "adopted": False,
        "code_is_older": False,
        "warnings": [],
    }
    assert msgspec.json.decode(last, type=RunView).summary.status == "failed"


def waiting() -> RunView:
    why = Explanation(
        code="request_open",
        reason="node 'review' asked",
        changes_when="when it is answered",
        commands=("pwf answer q1w2e3r4t5y6", f"pwf cancel {samples.RUN}"),
    )
    head = samples.summary(status="waiting", node="review", request_id="q1w2e3r4t5y6")
    return samples.run_view(summary=head, request=samples.request(), explanation=why)


def test_with_nobody_at_stdin_run_ends_where_a_person_is_needed_and_says_what_to_type(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    script_run(daemon, samples.run_view(), waiting())
    for words in (("run", "release"), ("watch", samples.RUN)):
        result = pwf(*words)
        assert result.code == exits.NEEDS_PERSON
        assert result.err == (
            "the run needs a person: node 'review' asked; type one of\n"
            f"  pwf answer q1w2e3r4t5y6 'any text, or JSON'\n  pwf cancel {samples.RUN}\n"
            f"and follow it again with:  pwf watch {samples.RUN}\n"
        )
    lines = pwf("run", "release", "--json").out.splitlines()
    assert json.loads(lines[0])["run_id"] == samples.RUN
    assert json.loads(lines[-1])["explanation"]["commands"][0] == "pwf answer q1w2e3r4t5y6"


@pytest.mark.parametrize("status", sorted(NEEDS_PERSON))
def test_until_parked_ends_at_every_standstill_that_only_a_person_ends(
    pwf: Pwf, daemon: FakeDaemon, status: Any
) -> None:
    script_run(daemon, samples.run_view(summary=samples.summary(status=status)))
    assert pwf("run", "release", "--until", "parked").code == exits.NEEDS_PERSON


def test_until_ended_waits_on_where_a_person_is_needed(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, waiting(), ended())
    assert pwf("run", "release", "--until", "ended").code == exits.OK
    assert pwf("watch", samples.RUN, "--until", "ended", "--json").code == exits.OK


def test_a_run_that_is_not_over_in_time_is_left_with_what_to_type(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, samples.run_view())
    result = pwf("run", "release", "--timeout", "100ms")
    assert result.code == exits.TIME_OUT
    assert result.err == f"the time ran out; the run goes on; come back with:  pwf watch {samples.RUN}\n"
    result = pwf("watch", samples.RUN, "--timeout", "100ms", "--json")
    assert (result.code, json.loads(result.out)["summary"]["status"]) == (exits.TIME_OUT, "running")


def test_the_time_of_a_run_that_is_followed_begins_when_it_has_started(
    pwf: Pwf, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0

    def start(request: Any, payload: Any) -> Any:
        nonlocal now_s
        now_s += 60.0  # the daemon is busy
        return samples.started()

    def follow(client: Any, run_id: str, out: Any, patience: Patience, **more: Any) -> Followed:
        assert patience.left_s() == 5.0
        return Followed(ended(), done=True)

    script_run(daemon)
    daemon.on("run.start", start)
    monkeypatch.setattr("pwf.cli.patience.time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr("pwf.cli.follow.follow", follow)
    assert pwf("run", "release", "--timeout", "5s").code == exits.OK


def test_what_does_not_wait_takes_no_patience(pwf: Pwf, daemon: FakeDaemon) -> None:
    assert pwf("run", "release", "--detach", "--timeout", "1s").code == exits.USAGE
    assert pwf("watch", "--until", "parked").code == exits.USAGE
    assert daemon.requests == []


def test_a_failed_run_shows_error_and_traceback_made_safe(pwf: Pwf, daemon: FakeDaemon) -> None:
    error = StepError(
        code="node_failed", message="boom \x1b[2J", node="collect", traceback='File "x.py"\n  \x9bevil'
    )
    step = samples.step("collect", status="failed", summary="boom\x07")
    script_run(daemon, ended("failed", error=error, steps=(step,)))
    out = pwf("run", "release").out
    assert "collect: boom \\x1b[2J" in out
    assert "  \\x9bevil" in out
    assert "✗ collect: failed in 1.0s  boom\\x07" in out
    assert not {"\x1b", "\x9b", "\x07"} & set(out)


def test_a_large_output_is_named_not_printed(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, ended(output=Value(digest="0" * 64, size=3_000_000)))
    assert f"2.9 MiB; see it with:  pwf output {samples.RUN}" in pwf("run", "release").out


def test_a_timer_and_a_hold_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    due = samples.summary(status="queued", node="pause", due_ms=samples.NOW + 60_000)
    held = samples.summary(status="held", node="ship", hold="load_failed")
    first, again = samples.run_view(summary=due), samples.run_view(summary=due, interpreter="/other")
    out = "\n".join(lines_of(capsys, first, again, samples.run_view(summary=held), ended()))
    assert out.count("◷ pause: due in 1m00s") == 1
    assert out.count(f"type: pwf cancel {samples.RUN}") == 1


def test_interrupting_leaves_the_run_going_and_says_how_to_come_back(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    import os
    import signal

    script_run(daemon, samples.run_view())
    env = {**os.environ, "PWF_HOME": str(daemon.places.home), "PWF_NO_AUTOSTART": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "pwf.cli.main", "run", "release"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=tmp_path,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == f"run {samples.RUN}\n"
    assert "collect: started" in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == exits.INTERRUPTED
    assert f"pwf watch {samples.RUN}" in err
    assert daemon.of("run.cancel") == []


# --- watch and wait -----------------------------------------------------------------------------------------


def test_watch_json_streams_states(pwf: Pwf, daemon: FakeDaemon) -> None:
    script_run(daemon, samples.run_view(), ended())
    lines = pwf("watch", "@last", "--json").out.splitlines()
    assert json.loads(lines[-1])["summary"]["status"] == "completed"


def test_watching_an_unknown_run_is_not_found(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("view.subscribe", lambda request, payload: NotFound("no run 'zz'", hint="pwf ls"))
    result = pwf("watch", "zz")
    assert result.code == exits.NOT_FOUND
    assert "no run 'zz'" in result.err


def test_watch_without_a_run_prints_each_change_of_any_run_once(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("view.subscribe", lambda request, payload: Nothing())
    one, two = samples.summary(run_id="one"), samples.summary(run_id="two", title=None)

    def push(request: Any, payload: Any) -> None:
        daemon.push(payload.id, "snapshot", 1, RunList(runs=(one,)))
        daemon.push(payload.id, "snapshot", 2, RunList(runs=(two, one)))
        daemon.push(payload.id, "end", 3, {})

    daemon.on("after:view.subscribe", push)
    result = pwf("watch")
    assert result.code == exits.UNAVAILABLE
    assert sorted(line.split()[0] for line in result.out.splitlines()) == ["one", "two"]


def answers(daemon: FakeDaemon, **statuses: Any) -> None:
    def wait(request: Any, payload: WaitPayload) -> Any:
        status = statuses[request.run_id]
        summary = samples.summary(run_id=request.run_id, status=status)
        return WaitResult(summary=summary, done=status != "running")

    daemon.on("run.wait", wait)
    daemon.on(
        "run.status",
        lambda request, payload: (
            Explained(summary=samples.summary(run_id=request.run_id), explanation=samples.explanation())
            if request.run_id in statuses
            else NotFound(f"no run {request.run_id!r}")
        ),
    )


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ({"a": "completed", "b": "completed"}, exits.OK),
        ({"a": "completed", "b": "failed"}, exits.NO),
        ({"a": "timed_out", "b": "cancelled"}, exits.NO),
        ({"a": "cancelled", "b": "completed"}, exits.CANCELLED),
        ({"a": "waiting", "b": "completed"}, exits.NEEDS_PERSON),
        ({"a": "running", "b": "completed"}, exits.TIME_OUT),
    ],
)
def test_wait_for_several_tells_the_worst(pwf: Pwf, daemon: FakeDaemon, statuses: Any, code: int) -> None:
    answers(daemon, **statuses)
    result = pwf("wait", *statuses, "--until", "parked", "--timeout", "5s", "--json")
    assert result.code == code
    assert [run["summary"]["status"] for run in result.json["runs"]] == list(statuses.values())


def test_wait_knows_all_runs_before_it_waits_for_any(pwf: Pwf, daemon: FakeDaemon) -> None:
    answers(daemon, a="completed")
    assert pwf("wait", "a", "zz").code == exits.NOT_FOUND
    assert daemon.of("run.wait") == []


def test_one_time_limit_holds_for_all_runs(pwf: Pwf, daemon: FakeDaemon) -> None:
    answers(daemon, a="completed", b="running")
    pwf("wait", "a", "b", "--timeout", "5s")
    limits = [msgspec.json.decode(one.payload, type=WaitPayload).timeout_ms for one in daemon.of("run.wait")]
    assert all(limit is not None and limit <= 5_000 for limit in limits)


def test_a_try_is_told_with_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = (NodeSpec(id="collect", kind="shell", retry=RetrySpec(times=5)),)
    graph = WorkflowGraph(name="again", start="collect", nodes=nodes)
    trying = samples.step("collect", 2, status="active", tries=2, ended_ms=None, summary="")
    view = samples.run_view(graph=graph, steps=(trying,))
    assert lines_of(capsys, view) == ["▶ collect (try 2 of 6): started"]
    assert "(try 2 of 6)" in plain(tree(view, outline(graph), {"collect": trying}, samples.NOW, 80, 24)[1])

    later = samples.summary(status="queued", node="collect", due_ms=samples.NOW + 5_000)
    failed = samples.step("collect", 2, status="failed", tries=2)
    view = samples.run_view(graph=graph, summary=later, steps=(failed,))
    shown = plain(tree(view, outline(graph), {"collect": failed}, samples.NOW, 80, 24)[1])
    assert "try 3 of 6 due in 5.0s" in shown


def test_an_observation_is_told_as_one_and_not_as_a_second_try(capsys: pytest.CaptureFixture[str]) -> None:
    looking = samples.step("collect", status="active", ended_ms=None, tries=2, observed=True, summary="")
    found = samples.step("collect", tries=2, observed=True)
    assert lines_of(capsys, samples.run_view(steps=(looking,))) == ["▶ collect (it observes): started"]
    (said,) = lines_of(capsys, samples.run_view(steps=(found,)))
    assert said.startswith("✓ collect (observed): completed")
    ended = samples.run_view(summary=samples.summary(status="completed", node=None), steps=(found,))
    line = tree(ended, outline(ended.graph), {"collect": found}, samples.NOW, 80, 24)[1]
    assert "observed, " in plain(line)


def test_what_was_taken_over_is_told_without_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    taken = samples.step("collect", adopted=3)
    assert lines_of(capsys, samples.run_view(steps=(taken,))) == ["✓ collect: taken over"]


def test_the_tree_fits_the_terminal_and_keeps_the_current_node_in_sight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"step_{number}" for number in range(60)]
    nodes = tuple(
        NodeSpec(id=name, kind="compute", ways=(Way(outcome="completed", target=after),))
        for name, after in pairwise(names)
    )
    graph = WorkflowGraph(name="long", start=names[0], nodes=(*nodes, NodeSpec(id=names[-1], kind="compute")))
    view = samples.run_view(graph=graph, summary=samples.summary(node="step_40"), steps=())
    lines = [plain(line) for line in tree(view, outline(graph), {}, samples.NOW, 80, 24)]
    assert len(lines) <= 24
    assert any("step_40" in line for line in lines)
    assert lines[-1].startswith("… and ")


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400", "many", ""])
def test_a_budget_that_is_no_number_is_a_mistake_in_what_was_typed(pwf: Pwf, number: str) -> None:
    for key in ("tokens", "money"):
        done = pwf("run", "release", "--budget", f"{key}={number}")
        assert done.code == exits.USAGE
        assert f"--budget {key}={number} is no budget" in done.err
