"""The conformance suite of agents' adapters: whatever an agent does, its step ends, and its output fits."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio
import trio.lowlevel

from pwf.protocol.agents import AgentCommand
from pwf.protocol.own_step import StepAnswer, socket_name
from pwf.protocol.runner import AgentReport, Finish
from pwf.runner.kinds import agent_tool
from pwf.runner.kinds.agent_tool import Tool
from pwf.runner.kinds.capture import Capture
from pwf.runner.kinds.command import Command, run_command
from pwf.runner.kinds.headless import ADAPTERS
from pwf.workflow.timing import Retry, seconds
from pwf.workflow.workflow import Workflow
from tests.runner.peer import memory_run, run_forked, run_inline

pytestmark = pytest.mark.rest  # real processes, many of them

RECORDED = Path(__file__).with_name("transcripts")
PROGRAM = str(Path(__file__).with_name("agent_program.py"))
#: adapter -> the command that plays an agent behind it
PLAYED = {
    "exec": (sys.executable, "-S", PROGRAM),
    "acp": (sys.executable, "-S", PROGRAM, "--acp"),
    "pi-rpc": (sys.executable, "-S", PROGRAM, "--pi"),
}


class Review(msgspec.Struct):
    ship: bool
    why: str = ""


@pytest.fixture(params=PLAYED)
def adapter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_adapter_is_played() -> None:
    assert PLAYED.keys() == ADAPTERS.keys()


@pytest.fixture(autouse=True)
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a letter for each turn."""
    path = tmp_path / "turns"
    monkeypatch.setenv("AGENT_TURNS", str(path))
    return path


def asked(
    adapter: str,
    mode: str,
    *,
    validate: Any = None,
    tools: Any = None,
    timeout_s: float = 60,
    execute: Any = run_inline,
    **limits: Any,
) -> Finish:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=Review, validate=validate, tools=tools, timeout=seconds(timeout_s))
    def review(ctx: Any) -> str:
        return f"{mode}\nReview it."

    configured = AgentCommand(name="coder", adapter=adapter, command=PLAYED[adapter])  # type: ignore[arg-type]
    finish: Finish = execute(flow, memory_run(flow, agent=configured, root=os.getcwd(), **limits)).last
    return finish


def output(finish: Finish) -> Any:
    assert finish.outcome == "completed", finish.error
    assert finish.output is not None
    return finish.output


@pytest.mark.parametrize("mode", ["good", "fenced", "stderr"])
def test_what_fits_is_the_output(adapter: str, mode: str) -> None:
    value = output(asked(adapter, mode))
    assert msgspec.json.decode(value.json) == {"ship": True, "why": "ok"}


def test_a_choice_is_one_of_its_texts_and_decides_the_way(adapter: str) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.choose("ship", "fix")
    def route(ctx: Any) -> str:
        return "good then picks\nShip it?"

    @flow.compute
    def ship(ctx: Any) -> Any:
        return ctx[route]

    @flow.compute
    def fix(ctx: Any) -> Any:
        raise AssertionError

    flow.graph(route.switch(ship=ship, fix=fix))
    configured = AgentCommand(name="coder", adapter=adapter, command=PLAYED[adapter])  # type: ignore[arg-type]
    run = run_inline(flow, memory_run(flow, agent=configured, root=os.getcwd()))
    assert (run.status, run.output) == ("completed", "ship")


def test_an_answer_of_five_megabytes_in_one_line_is_taken_whole(adapter: str) -> None:
    assert output(asked(adapter, "long", output_bytes_max=8 << 20)).size > 5_000_000


def test_an_answer_over_the_limit_fails_and_names_it(adapter: str) -> None:
    finish = asked(adapter, "long")
    assert finish.error is not None
    assert (finish.error.code, "4,194,304 bytes" in finish.error.message) == ("agent_failed", True)


@pytest.mark.parametrize("first", ["wrong", "garbage", "silent", "blank"])
def test_what_does_not_fit_is_told_to_the_agent_which_may_correct_it(
    adapter: str, first: str, turns: Path
) -> None:
    output(asked(adapter, f"{first} then good"))
    assert turns.read_text() == "xx"


def test_what_the_workflow_rejects_is_told_with_its_reason(adapter: str, turns: Path) -> None:
    def validate(ctx: Any, review: Review) -> str | None:
        return None if review.why else "say why"

    output(asked(adapter, "unsaid then good", validate=validate))
    finish = asked(adapter, "unsaid", validate=validate)
    assert finish.error is not None
    assert finish.error.code == "submission_rejected"
    assert "say why" in finish.error.message


@pytest.mark.parametrize("reason", ["", "say why"])
def test_time_that_validate_has_used_up_is_over_and_starts_no_further_agent(
    adapter: str, reason: str, turns: Path
) -> None:
    async def overruns(ctx: Any, review: Review) -> None:
        await trio.sleep_forever()

    def is_late(ctx: Any, review: Review) -> str:
        time.sleep(1)  # the step had no more than that, and began before
        return reason

    finish = asked(adapter, "unsaid", validate=is_late if reason else overruns, timeout_s=1)
    assert finish.error is not None
    assert (finish.outcome, finish.error.code) == ("timed_out", "timed_out")
    assert turns.read_text() == "x"


@pytest.mark.parametrize("mode", ["silent", "progress", "garbage"])
def test_after_two_reminders_a_step_without_a_submission_fails_with_the_end_of_what_was_said(
    adapter: str, mode: str, turns: Path
) -> None:
    finish = asked(adapter, mode)
    assert finish.error is not None
    assert (finish.outcome, finish.error.code) == ("failed", "missing_submission")
    assert turns.read_text() == "xxx"
    assert mode != "progress" or "working ..." in finish.error.message


GOOD, WRONG, OTHER = '{"ship":true,"why":"ok"}', '{"ship":"perhaps"}', '{"ship":false,"why":"no"}'


def test_what_an_agent_hands_in_while_it_works_is_the_output_whatever_it_says_last(
    adapter: str, turns: Path
) -> None:
    value = output(asked(adapter, f"hands {WRONG} {WRONG} {GOOD} {GOOD} {OTHER}"))
    assert msgspec.json.decode(value.json) == {"ship": True, "why": "ok"}
    assert turns.read_text() == "x"


@pytest.mark.parametrize("how", ["dies", "hangs"])
@pytest.mark.parametrize("has_little_time", [False, True])
def test_a_result_that_was_accepted_stays_it_and_its_agent_has_a_bounded_time_to_end(
    adapter: str, how: str, has_little_time: bool, turns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_tool, "ACCEPTED_S", 60 if has_little_time else 0.2)
    begun = time.monotonic()
    value = output(asked(adapter, f"hands-and-{how}", timeout_s=3 if has_little_time else 60))
    assert msgspec.json.decode(value.json) == {"ship": True, "why": "ok"}
    assert time.monotonic() - begun < 50
    assert played(turns) == []


def test_what_the_tool_rejects_is_told_with_the_next_prompt_and_counts(adapter: str, turns: Path) -> None:
    output(asked(adapter, f"hands {WRONG} then hands {WRONG} then good"))
    assert turns.read_text() == "xxx"  # that such a turn ends without an answer is no further rejection
    turns.unlink()
    finish = asked(adapter, f"hands {WRONG} {WRONG} {WRONG} {GOOD}")
    assert finish.error is not None
    assert (finish.error.code, turns.read_text()) == ("submission_rejected", "x")


def test_validate_judges_what_is_handed_in_async_too_and_is_bounded_by_the_steps_time(adapter: str) -> None:
    async def validate(ctx: Any, review: Review) -> str | None:
        await trio.lowlevel.checkpoint()
        return None if review.why == "ok" else "say ok"

    async def overruns(ctx: Any, review: Review) -> None:
        await trio.sleep_forever()

    output(asked(adapter, f"hands {OTHER} {GOOD}", validate=validate))
    assert asked(adapter, f"hands {GOOD}", validate=overruns, timeout_s=2).outcome == "timed_out"


def test_an_agent_that_runs_commands_types_pwf_submit(adapter: str, turns: Path) -> None:
    value = output(asked(adapter, f"types {GOOD}"))
    assert (msgspec.json.decode(value.json), turns.read_text()) == ({"ship": True, "why": "ok"}, "x")
    finish = asked(adapter, f"types {WRONG}")
    assert finish.error is not None
    assert "ship" in finish.error.message


def test_an_agent_of_acp_is_told_of_an_mcp_server_whose_one_tool_hands_in(turns: Path) -> None:
    value = output(asked("acp", f"calls {WRONG} {GOOD} {OTHER}"))
    assert (msgspec.json.decode(value.json), turns.read_text()) == ({"ship": True, "why": "ok"}, "x")


@pytest.mark.parametrize(
    ("tools", "asks", "is_allowed"),
    [
        (None, "execute rm -rf build", True),
        (("read", "search"), "read a file", True),
        (("read", "search"), "execute pwf submit", False),
        (("read", "search"), "other mcp__pwf__submit", True),
        (("read", "search"), "other submit (pwf MCP Server)", True),
        (("read", "search"), "other Tool: pwf/submit", True),
        (("read", "search"), "other curl example.org/pwf --data submit", False),
        (("read", "search"), "other mcp__pwf__submit && rm -rf build", False),
        (("read", "search"), "other mcp__other__pwf_submit", False),
        ((), "think about it", True),
        ((), "fetch a page", False),
    ],
)
def test_what_an_agent_of_acp_asks_leave_for_is_answered_by_the_steps_tools(
    tools: Any, asks: str, is_allowed: bool
) -> None:
    value = output(asked("acp", f"may {asks}", tools=tools))
    said = msgspec.json.decode(value.json)
    assert said["ship"] is is_allowed
    assert ("tools" in said["why"]) is (tools is not None)


@pytest.mark.parametrize("discarded", [64 << 20, 0])
def test_a_result_of_megabytes_over_the_limit_is_rejected_with_the_limit(
    discarded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_tool, "DISCARDED_BYTES_MAX", discarded)
    says = (
        "from pwf.client.own_step import submit_step; said = submit_step(b'\"' + b'x' * 5_000_000 + b'\"'); "
        "print(said.verdict, said.reason)"
    )
    heard = Capture(1_000)
    tool = Tool(lambda value: StepAnswer(verdict="accepted"), msgspec.Raw(b"{}"), 1_000)
    try:
        command = Command(
            argv=[sys.executable, "-c", says],
            cwd=None,
            environment=tool.environment(),
            stdin=None,
            stdout=heard,
            stderr=heard,
            timeout_s=60,
            grace_s=0,
        )
        run_command(command, tool.serve)
    finally:
        tool.close()
    assert bytes(heard.kept).decode() == "rejected it is larger than the limit of a value, 1,000 bytes\n"


def test_a_process_that_is_none_of_the_steps_is_not_heard() -> None:
    heard: list[bytes] = []

    def judge(value: bytes) -> StepAnswer:
        heard.append(value)
        return StepAnswer(verdict="accepted")

    tool = Tool(judge, msgspec.Raw(b"{}"), 1_000)
    try:
        with socket.socket(socket.AF_UNIX) as stranger:  # this process itself is not below it
            stranger.connect(socket_name(tool.address))
            run_command(
                Command(
                    argv=["sleep", "0.2"],
                    cwd=None,
                    environment=tool.environment(),
                    stdin=None,
                    stdout=Capture(0),
                    stderr=Capture(0),
                    timeout_s=5,
                    grace_s=0,
                ),
                tool.serve,
            )
            assert stranger.recv(1) == b""
    finally:
        tool.close()
    assert heard == []


SPOKEN = ("acp", "pi-rpc")  # with which a turn is not a process


@pytest.mark.parametrize("adapter", SPOKEN)
@pytest.mark.parametrize(
    ("mode", "said"),
    [("left", "exit code 3"), ("deaf", "has closed its output"), ("errs", "the provider is down")],
)
def test_a_turn_that_nobody_can_answer_any_more_fails_at_once_and_leaves_nothing(
    adapter: str, mode: str, said: str, turns: Path
) -> None:
    finish = asked(adapter, mode, execute=run_forked)
    assert finish.error is not None
    assert (finish.outcome, finish.error.code) == ("failed", "agent_failed")
    assert said in finish.error.message
    assert played(turns) == []


@pytest.mark.parametrize(("mode", "said"), [("fails", "exit code 3:\nno credit left"), ("dies", "signal 9")])
def test_an_agent_that_fails_fails_the_attempt_with_how_and_what_it_said(
    adapter: str, mode: str, said: str
) -> None:
    finish = asked(adapter, mode)
    assert finish.error is not None
    assert (finish.outcome, finish.error.code) == ("failed", "agent_failed")
    assert said in finish.error.message


def test_an_agent_that_is_silent_for_too_long_is_ended_and_timed_out(adapter: str, turns: Path) -> None:
    finish = asked(adapter, "hangs", timeout_s=1)
    assert finish.outcome == "timed_out"
    assert played(turns) == []


def test_a_child_that_keeps_the_pipe_open_holds_nothing_up_and_is_ended(adapter: str, turns: Path) -> None:
    begun = time.monotonic()
    finish = asked(adapter, "pipe", execute=run_forked)
    output(finish)
    assert time.monotonic() - begun < 60
    assert played(turns) == []


def test_an_agent_that_can_not_be_started_says_so(adapter: str) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=Review, retry=Retry(1))
    def review(ctx: Any) -> str:
        return "x"

    for command, code in ((("no-such-agent",), "agent_failed"), ((), "agent_missing")):
        run = run_inline(
            flow, memory_run(flow, agent=AgentCommand(name="coder", adapter=adapter, command=command))
        )  # type: ignore[arg-type]
        assert run.last.error is not None
        assert run.last.error.code == code
        assert "coder" in run.last.error.message


@pytest.mark.parametrize("adapter", SPOKEN)
def test_a_conversation_is_told_at_once_and_what_is_used_with_it(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_CONVERSATIONS", str(tmp_path))
    told = reports(adapter, "wrong then good")
    assert told[0].conversation
    assert told[0].input_tokens == 0
    assert (told[-1].input_tokens, told[-1].output_tokens) == (200, 40)
    assert (adapter == "pi-rpc") == (told[-1].cost_micros == 500_000)


@pytest.mark.parametrize("adapter", SPOKEN)
@pytest.mark.parametrize("gone", [False, True])
def test_an_earlier_attempts_conversation_goes_on_or_a_fresh_one_says_why(
    adapter: str, gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_CONVERSATIONS", str(tmp_path))
    earlier = tmp_path / "earlier"
    if not gone:
        earlier.touch()
    name = str(earlier) if adapter == "pi-rpc" else "earlier"
    told = reports(adapter, "good", conversation=name)
    assert (told[0].conversation == name) is not gone
    assert bool(told[0].afresh) is gone
    assert not gone or name in told[0].afresh


@pytest.mark.parametrize(
    ("adapter", "used"), [("acp", (0, 0, 0)), ("pi-rpc", (200, 40, 280))], ids=["pi-acp 0.0.23", "pi 0.74.2"]
)
def test_what_a_real_program_has_said_is_understood(adapter: str, used: tuple[int, int, int]) -> None:
    command = (sys.executable, "-S", str(RECORDED / "player.py"), str(RECORDED / f"{adapter}.jsonl"))
    told = reports(adapter, "Review it.", command=command)
    assert "01a22d" in (told[0].conversation or "")
    assert (told[-1].input_tokens, told[-1].output_tokens, told[-1].cost_micros) == used


def reports(adapter: str, mode: str, *, command: tuple[str, ...] = (), **options: Any) -> list[AgentReport]:
    """What was told of the agent's work, in order, by a step that it completed."""
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=Review)
    def review(ctx: Any) -> str:
        return mode

    configured = AgentCommand(name="coder", adapter=adapter, command=command or PLAYED[adapter])  # type: ignore[arg-type]
    run = run_inline(flow, memory_run(flow, agent=configured, root=os.getcwd(), **options))
    output(run.last)
    return [one for one in run.received if isinstance(one, AgentReport)]


def played(turns: Path) -> list[psutil.Process]:
    """Programs that still play an agent of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("AGENT_TURNS") == str(turns) and PROGRAM in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found
