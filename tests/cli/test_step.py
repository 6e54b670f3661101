"""`pwf output` and `pwf show RUN NODE`: what a step gave, whole, as a person and as a program reads it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.main import main
from pwf.present.progress import error_lines, plain
from pwf.present.text import headline
from pwf.protocol.graph import NodeSpec
from pwf.protocol.operations import EventPage, StepsPayload
from pwf.protocol.printed import Printed, PrintedPiece, PrintedStep
from pwf.protocol.runner import StepError
from pwf.protocol.views import EventView, StepView
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

ERROR = StepError(
    code="node_failed",
    type="ValueError",
    message="first\nsecond \x1b[2J",
    node="collect",
    traceback='Traceback …\n  File "x.py"\nValueError: first\nsecond \x1b[2J\n',
)


def serve(daemon: FakeDaemon, *steps: StepView, page: int = 100, **changes: Any) -> list[StepsPayload]:
    """A run with these steps of `collect`, given page by page."""
    asked: list[StepsPayload] = []

    def view(request: Any, payload: StepsPayload) -> Any:
        asked.append(payload)
        before = payload.before_attempt or 1_000
        found = [step for step in steps if step.attempt < before][-min(page, payload.limit) :]
        return samples.run_view(steps=tuple(found), **changes)

    daemon.on("run.view", view)
    return asked


def completed(attempt: int, data: Any, **changes: Any) -> StepView:
    return samples.step("collect", attempt, output=samples.value(data), **changes)


def test_output_prints_the_newest_output_of_a_step_and_of_the_run(pwf: Pwf, daemon: FakeDaemon) -> None:
    failed = samples.step("collect", 3, status="failed", error=ERROR)
    asked = serve(daemon, completed(1, "old"), completed(2, {"n": 1}), failed, output=samples.value([1]))
    assert json.loads(pwf("output", "k3", "collect").out) == {"n": 1}
    assert asked[0].node == "collect"
    assert pwf("output", "k3", "--json").out == "[1]\n"
    assert pwf("show", "k3", "--output", "--json").out == "[1]\n"


def test_an_output_is_looked_for_from_page_to_page(pwf: Pwf, daemon: FakeDaemon) -> None:
    failed = [samples.step("collect", number, status="failed") for number in (2, 3, 4)]
    asked = serve(daemon, completed(1, "first"), *failed, page=2)
    assert pwf("output", "k3", "collect").out == '"first"\n'
    assert [one.before_attempt for one in asked] == [None, 3]


def test_raw_prints_a_text_without_quotes_and_escapes(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    serve(daemon, completed(1, "a\n\x1b[2J\N{LATIN SMALL LETTER O WITH DIAERESIS}"))
    assert main(["output", "k3", "collect", "--raw"]) == exits.OK
    assert capfdbinary.readouterr().out == "a\n\x1b[2J\N{LATIN SMALL LETTER O WITH DIAERESIS}".encode()
    serve(daemon, completed(1, {"a": "\n"}))
    main(["output", "k3", "collect", "--raw"])
    assert capfdbinary.readouterr().out == b'{"a":"\\n"}\n'


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("output", "k3"), "has no output: it is running", f"pwf explain {samples.RUN}"),
        (("output", "k3", "colect"), "has no node 'colect'", "did you mean collect?"),
        (("show", "k3", "zz"), "has no node 'zz'", "its nodes are: collect, review, ship, apologise"),
        (("output", "k3", "collect"), "has no output: it is failed", f"pwf show {samples.RUN} collect"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_type(
    pwf: Pwf, daemon: FakeDaemon, words: tuple[str, ...], message: str, hint: str
) -> None:
    serve(daemon, samples.step("collect", 1, status="failed"))
    result = pwf(*words)
    assert result.code == exits.NOT_FOUND
    assert message in result.err
    assert f"hint: {hint}\n" in result.err


def test_show_of_a_step_has_its_attempts_error_effect_and_what_it_printed(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    effect = samples.effect(
        effect_key="k:collect:1", node="collect", type="read", mode="idempotent", status="failed", attempts=2
    )
    steps = (
        samples.step("collect", 1, status="failed", summary="first\nsecond"),
        samples.step("collect", 2, status="failed", tries=2, summary="first\nsecond", error=ERROR),
    )
    serve(daemon, *steps, effects=(effect,))
    facts = {"attempt": 2, "node": "collect", "visit": 1, "tries": 2, "status": "failed", "printed_bytes": 9}
    printed = PrintedStep(**facts, out_bytes=3, err_bytes=6)
    daemon.on(
        "run.printed", lambda request, payload: Printed(run_id=samples.RUN, ended=True, steps=(printed,))
    )
    words = {"out": b"hi\n", "err": b"\x1b[mno\n"}
    daemon.on(
        "run.read_printed", lambda request, payload: PrintedPiece(data=words[payload.stream], next_offset=9)
    )

    shown = pwf("show", "k3", "collect")

    assert shown.code == exits.OK
    assert [line.split()[:4] for line in shown.out.splitlines()[1:3]] == [
        ["1", "1", "1", "failed"],
        ["2", "1", "2", "failed"],
    ]
    assert "first …" in shown.out
    assert "Error\n  collect: ValueError: first  (node_failed)\n  second \\x1b[2J\n" in shown.out
    assert "Effect\n  read  idempotent  failed  2 attempts\n  k:collect:1\n" in shown.out
    assert shown.out.endswith("Stdout\n  hi\n\nStderr\n  \\x1b[mno\n")


def test_json_of_a_step_has_its_attempts_and_effects(pwf: Pwf, daemon: FakeDaemon) -> None:
    serve(daemon, completed(1, 1))
    found = pwf("show", "k3", "collect", "--json").json
    assert (found["run_id"], found["node"], found["effects"]) == (samples.RUN, "collect", [])
    assert [step["attempt"] for step in found["steps"]] == [1]


def test_an_error_is_told_line_by_line_with_its_type_and_once() -> None:
    assert [plain(line) for line in error_lines(ERROR)] == [
        "collect: ValueError: first  (node_failed)",
        "second \\x1b[2J",
        "Traceback …",
        '  File "x.py"',
    ]


def test_a_long_error_is_cut_on_a_runs_page_with_how_to_see_the_whole_and_never_in_json(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    message = "\n".join(["x" * 9_000, *(f"line {n}" for n in range(50))])
    error = StepError(code="node_failed", message=message, node="collect", traceback="Traceback …")
    view = samples.run_view(summary=samples.summary(status="failed"), error=error)
    daemon.on("run.view", lambda request, payload: view)
    shown = pwf("show", samples.RUN).out
    assert "line 10\n" in shown
    assert "line 11" not in shown
    assert max(map(len, shown.splitlines())) < 600
    assert f"the error is cut here; all of it: pwf show {samples.RUN} collect\n" in shown
    assert pwf("show", samples.RUN, "--json").json["error"]["message"] == message
    whole = [plain(line) for line in error_lines(error)]
    assert (len(whole), len(whole[0])) == (52, len("collect: ") + 9_000 + len("  (node_failed)"))
    assert error_lines(ERROR, "k3") == error_lines(ERROR), "what is short is not cut"


def test_a_text_of_several_lines_has_a_headline() -> None:
    assert headline("first\nsecond") == "first …"
    assert headline("one\n") == "one"
    assert headline("") == ""


def test_what_was_rejected_of_an_agents_step_is_shown_also_after_another_submission_was_accepted(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    nodes = (*samples.graph().nodes, NodeSpec(id="write", kind="agent"))
    serve(daemon, completed(1, {"a": 1}), graph=msgspec.structs.replace(samples.graph(), nodes=nodes))

    def rejected(revision: int, node: str, reason: str) -> EventView:
        payload = json.dumps({"request": "q1", "node": node, "reason": reason}).encode()
        return samples.event(revision=revision, kind="submission_rejected", payload=msgspec.Raw(payload))

    daemon.on("run.printed", lambda request, payload: Printed(run_id=samples.RUN, ended=True, steps=()))
    events = (samples.event(), rejected(4, "write", "too \x1b[2J short\nby far"), rejected(5, "other", "no"))
    daemon.on("run.events", lambda request, payload: EventPage(run_id="k3", events=events))
    shown = pwf("show", "k3", "write").out
    assert "Rejected submissions (1)" in shown
    assert "  too \\x1b[2J short\n            by far\n" in shown
    assert "Rejected" not in pwf("show", "k3", "collect").out
