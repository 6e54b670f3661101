"""What a step raises or returns wrongly, and what becomes of a manual effect."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import msgspec
import psutil
import pytest
import trio

from pwf.protocol.runner import Finish, StepError
from pwf.workflow.effects import (
    NotApplied,
    applied,
    idempotent,
    manual,
    not_applied,
    unknown,
)
from pwf.workflow.timing import Retry, seconds
from pwf.workflow.workflow import Workflow
from tests.runner.peer import memory_run, run_forked, run_inline


def one_step(fn: Any, **options: Any) -> Finish:
    """Run a workflow of this one compute node; its transition. A timeout ends all children, so it gets a fork."""
    flow: Workflow[Any] = Workflow("w")
    flow.compute(**options)(fn)
    runs = run_forked if "timeout" in options else run_inline
    return runs(flow, memory_run(flow)).last


def one_action(fn: Any, effect: Any, launch: dict[str, Any] | None = None, **options: Any) -> Finish:
    flow: Workflow[Any] = Workflow("w")
    flow.action(effect=effect, **options)(fn)
    runs = run_forked if "timeout" in options else run_inline
    return runs(flow, memory_run(flow, **(launch or {}))).last


# --- exceptions -------------------------------------------------------------------------------------------


def test_an_exception_fails_the_step_with_type_message_and_the_authors_frames() -> None:
    def step(ctx: Any) -> None:
        raise KeyError("colour")

    finish = one_step(step)
    assert finish.outcome == "failed"
    error = finish.error
    assert error is not None
    assert (error.code, error.type, error.message, error.node) == (
        "node_failed",
        "KeyError",
        "'colour'",
        "step",
    )
    assert 'raise KeyError("colour")' in error.traceback
    assert "pwf/runner/" not in error.traceback


def test_sys_exit_and_keyboard_interrupt_are_failed_steps() -> None:
    def leave(ctx: Any) -> None:
        raise SystemExit(3)

    def interrupt(ctx: Any) -> None:
        raise KeyboardInterrupt

    for fn, name in ((leave, "SystemExit"), (interrupt, "KeyboardInterrupt")):
        finish = one_step(fn)
        assert finish.outcome == "failed"
        assert finish.error is not None
        assert finish.error.type == name


def test_a_giant_exception_text_is_bounded_and_says_what_is_left_out() -> None:
    def step(ctx: Any) -> None:
        raise ValueError("x" * 5_000_000)

    error = one_step(step).error
    assert error is not None
    assert len(msgspec.json.encode(error)) <= 64 * 1024
    assert "bytes left out" in error.message


def test_an_exception_whose_text_can_not_be_made_is_still_reported() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def step(ctx: Any) -> None:
        raise Odd

    error = one_step(step).error
    assert error is not None
    assert "Odd" in error.message


def test_lone_surrogates_in_an_exception_do_not_break_the_frame() -> None:
    def step(ctx: Any) -> None:
        raise ValueError("bad \ud800 text")

    error = one_step(step).error
    assert error is not None
    assert "\\ud800" in error.message


def test_a_group_of_one_exception_is_reported_as_that_exception() -> None:
    async def step(ctx: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 60)
            raise ValueError("inner")

    error = one_step(step).error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "inner")


# --- outputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "JSON has no such number"),
        (b"bytes", "bytes"),
        ({1: "x"}, "not a string"),
        ("\ud800", "lone surrogate"),
        (object(), "can not be written as JSON"),
        ((n for n in ()), "generator"),
    ],
)
def test_what_is_not_json_fails_the_step_and_says_why(value: Any, words: str) -> None:
    finish = one_step(lambda ctx: value, id="step")
    assert finish.outcome == "failed"
    assert finish.error is not None
    assert finish.error.code == "invalid_value"
    assert "'step'" in finish.error.message
    assert words in finish.error.message


def test_a_coroutine_that_was_not_awaited_is_explained() -> None:
    async def helper() -> int:
        return 1

    error = one_step(lambda ctx: helper(), id="step").error
    assert error is not None
    assert "await it" in error.message


def test_a_cycle_is_an_error_not_a_hang() -> None:
    def step(ctx: Any) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    assert one_step(step).outcome == "failed"


def test_the_declared_type_is_checked_and_the_error_says_where() -> None:
    class Point(msgspec.Struct):
        x: int

    def step(ctx: Any) -> Any:
        return {"x": "seven"}

    error = one_step(step, returns=Point).error
    assert error is not None
    assert "$.x" in error.message


def test_an_output_over_the_limit_names_step_size_and_limit() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def step(ctx: Any) -> Any:
        return ["x" * 1_000] * 100

    error = run_inline(flow, memory_run(flow, value_bytes_max=50_000)).last.error
    assert error is not None
    assert error.code == "value_too_large"
    assert "'step'" in error.message
    assert "50,000" in error.message


@pytest.mark.parametrize("copies", [3, 30])
def test_a_gigantic_output_is_refused_without_being_copied(copies: int) -> None:
    """S5: 300 MB, and 3 GB through one shared text: refused by the estimate, in bounded memory."""
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def step(ctx: Any) -> Any:
        return ["x" * 100_000_000] * copies

    memory = psutil.Process().memory_info()  # the fork begins with all that this process has
    here = getattr(memory, "data", memory.vms)
    run = run_forked(flow, memory_run(flow, memory_bytes_max=here + 150_000_000))
    assert run.last.error is not None
    assert run.last.error.code == "value_too_large"
    assert "67,108,864" in run.last.error.message


def test_going_over_the_memory_limit_is_a_failed_step() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def step(ctx: Any) -> Any:
        return len(bytearray(2_000_000_000))

    run = run_forked(flow, memory_run(flow, memory_bytes_max=500_000_000))
    assert run.last.error is not None
    assert run.last.error.code == "memory_limit"
    assert "500,000,000" in run.last.error.message


# --- async and timeouts -----------------------------------------------------------------------------------


def test_an_async_node_runs_under_trio() -> None:
    async def step(ctx: Any) -> str:
        await trio.lowlevel.checkpoint()
        return "slept"

    assert one_step(step).outcome == "completed"


def test_an_async_node_that_takes_too_long_is_timed_out() -> None:
    async def step(ctx: Any) -> None:
        await trio.sleep(60)

    finish = one_step(step, timeout=seconds(0.05))
    assert finish.outcome == "timed_out"
    assert finish.error is not None
    assert (finish.error.code, finish.error.node) == ("timed_out", "step")
    assert "0.05 s" in finish.error.message


def test_a_timeout_of_the_authors_own_is_a_failure_not_a_time_out() -> None:
    async def step(ctx: Any) -> None:
        with trio.fail_after(0.01):
            await trio.sleep(60)

    finish = one_step(step, timeout=seconds(30))
    assert finish.outcome == "failed"
    assert finish.error is not None
    assert finish.error.type == "trio.TooSlowError"


def test_a_clean_up_that_raises_after_the_timeout_is_still_timed_out() -> None:
    async def step(ctx: Any) -> None:
        try:
            await trio.sleep(60)
        finally:
            raise ValueError("while cleaning")

    finish = one_step(step, timeout=seconds(0.05))
    assert finish.outcome == "timed_out"
    assert finish.error is not None
    assert "ValueError" in finish.error.traceback


def test_asyncio_code_in_a_trio_step_is_told_how_to_call_it() -> None:
    import asyncio

    async def step(ctx: Any) -> None:
        await asyncio.sleep(0.01)

    error = one_step(step).error
    assert error is not None
    assert "run_asyncio" in error.message


# --- effects ----------------------------------------------------------------------------------------------


def test_an_idempotent_effect_that_raises_is_a_plain_failure() -> None:
    def act(ctx: Any) -> None:
        raise ValueError

    finish = one_action(act, idempotent("x"))
    assert (finish.outcome, finish.settled) == ("failed", None)


@pytest.mark.parametrize(
    ("raised", "settled"),
    [
        (None, "applied"),
        (NotApplied("refused by the bank"), "rejected"),
        (ValueError("hm"), "unknown"),
        (SystemExit(1), "unknown"),
        (ExceptionGroup("g", [NotApplied("a"), NotApplied("b")]), "rejected"),
        (ExceptionGroup("g", [NotApplied("a"), ValueError("b")]), "unknown"),
    ],
)
def test_a_manual_effect_is_settled_by_how_its_function_ends(
    raised: BaseException | None, settled: str
) -> None:
    def act(ctx: Any) -> str:
        if raised is not None:
            raise raised
        return "sent"

    finish = one_action(act, manual("mail"))
    assert finish.settled == settled
    assert finish.outcome == ("completed" if raised is None else "failed")


def test_a_manual_effect_that_returned_is_applied_even_if_its_value_can_not_be_stored() -> None:
    finish = one_action(lambda ctx: object(), manual("mail"), id="act")
    assert (finish.outcome, finish.settled, finish.next) == ("failed", "applied", None)


def test_a_manual_effect_that_timed_out_is_unknown_and_has_no_way_out() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=manual("mail", observe=lambda ctx: unknown()), timeout=seconds(0.05))
    async def act(ctx: Any) -> None:
        await trio.sleep(60)

    @flow.compute
    def late(ctx: Any) -> None: ...

    flow.graph(act.on("timed_out") >> late)
    finish = run_forked(flow, memory_run(flow)).last
    assert (finish.outcome, finish.settled, finish.next) == ("timed_out", "unknown", None)


@pytest.mark.parametrize(("outside_name", "leads"), [(None, "run1"), ("run1.k3q", "run1.k3q")])
def test_the_effect_key_is_the_same_in_every_attempt_of_a_visit_and_led_by_the_runs_name_outside(
    outside_name: str | None, leads: str
) -> None:
    keys: list[str] = []
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def first(ctx: Any) -> None:
        assert ctx.effect_key is None

    @flow.action(effect=idempotent("x"), retry=Retry(times=2))
    def act(ctx: Any) -> None:
        keys.append(ctx.effect_key)
        if len(keys) < 3:
            raise ValueError

    flow.graph(first >> act)
    run = memory_run(flow, outside_name=outside_name)
    for _ in range(3):
        run_inline(flow, run)
    assert run.status == "completed"
    assert keys == [f"{leads}:act:1"] * 3


OBSERVE = {"observe": True}
NO_ANSWER = StepError(code="node_failed", message="no answer", node="act")


@pytest.mark.parametrize("is_async", [False, True])
def test_observe_that_finds_the_effect_completes_the_node_without_running_it(is_async: bool) -> None:
    def look(ctx: Any) -> Any:
        return applied({"id": 7}, ref="mail-7")

    async def look_async(ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return applied({"id": 7}, ref="mail-7")

    def act(ctx: Any) -> Any:
        raise AssertionError("must not run")

    finish = one_action(act, manual("mail", observe=look_async if is_async else look), OBSERVE)
    assert (finish.outcome, finish.settled, finish.observed) == ("completed", "applied", True)
    assert finish.effect_ref == "mail-7"
    assert finish.output is not None
    assert finish.output.json == msgspec.Raw(b'{"id":7}')


def test_not_applied_after_an_interruption_runs_the_node() -> None:
    finish = one_action(
        lambda ctx: "sent", manual("mail", observe=lambda ctx: not_applied()), OBSERVE, id="act"
    )
    assert (finish.outcome, finish.settled, finish.observed) == ("completed", "applied", False)


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
def test_not_applied_after_a_failed_attempt_reports_that_outcome(outcome: str) -> None:
    def act(ctx: Any) -> Any:
        raise AssertionError("must not run")

    launch = OBSERVE | {"observe_then": outcome, "observe_error": NO_ANSWER}
    finish = one_action(act, manual("mail", observe=lambda ctx: not_applied()), launch)
    assert (finish.outcome, finish.settled, finish.observed) == (outcome, "rejected", True)
    assert finish.error == NO_ANSWER, "the one that the attempt ended with"


def test_the_step_after_a_failed_attempt_that_was_observed_sees_its_error() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=manual("mail", observe=lambda ctx: not_applied()))
    def act(ctx: Any) -> None:
        raise AssertionError("must not run")

    @flow.compute
    def report(ctx: Any) -> str:
        return f"mail: {ctx.results[act].error.message}"

    flow.graph(act.on("failed") >> report)
    launch = OBSERVE | {"observe_then": "failed", "observe_error": NO_ANSWER}
    assert run_inline(flow, memory_run(flow, **launch)).output == "mail: no answer"


@pytest.mark.parametrize("answer", ["unknown", "raises", "wrong", "late"])
def test_an_observe_without_a_clear_answer_leaves_the_effect_unknown(answer: str) -> None:
    async def look(ctx: Any) -> Any:
        if answer == "raises":
            raise OSError("no network")
        if answer == "late":
            await trio.sleep(60)
        return unknown() if answer == "unknown" else "yes"

    def act(ctx: Any) -> Any:
        raise AssertionError("must not run")

    finish = one_action(act, manual("mail", observe=look), OBSERVE, timeout=seconds(0.2))
    assert (finish.outcome, finish.settled, finish.observed) == ("failed", "unknown", True)
    assert finish.next is None


def test_an_effect_node_after_an_observed_one_runs_as_usual() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=manual("mail", observe=lambda ctx: applied("seen")))
    def act(ctx: Any) -> str:
        return "sent"

    @flow.action(effect=manual("mail", observe=lambda ctx: applied("wrong")))
    def second(ctx: Any) -> str:
        return f"after {ctx[act]}"

    flow.graph(act >> second)
    run = run_inline(flow, memory_run(flow, **OBSERVE))
    assert run.output == "after seen"


def test_a_fork_that_returns_from_a_step_does_not_speak_for_the_run() -> None:
    def step(ctx: Any) -> int:
        return os.fork()

    flow: Workflow[Any] = Workflow("w")
    flow.compute(step)
    run = run_forked(flow, memory_run(flow))
    assert len(run.finishes) == 1
    assert run.output > 0


def test_a_process_that_a_timed_out_step_left_is_dead_when_the_outcome_is_sent() -> None:
    """R7."""
    flow: Workflow[Any] = Workflow("w")

    def start_sleeper() -> int:
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    @flow.action(effect=idempotent("x"), timeout=seconds(0.1))
    async def act(ctx: Any) -> None:
        pid = await trio.to_thread.run_sync(start_sleeper)
        ctx.publish("pid", "child", pid)
        await trio.sleep(60)

    alive: list[int] = []

    def decide(message: Any) -> None:
        if isinstance(message, Finish):
            [(_, _, pid)] = run.updates
            alive.extend([pid] if os.path.exists(f"/proc/{pid}") else [])

    run = memory_run(flow, decide=decide)
    run_forked(flow, run)
    assert (run.last.outcome, alive) == ("timed_out", [])


def test_a_title_that_exits_does_not_end_the_runner() -> None:
    flow: Workflow[Any] = Workflow("w", title=lambda ctx: exit(1))
    flow.compute(id="step")(lambda ctx: 1)
    assert run_inline(flow, memory_run(flow)).status == "completed"


def test_an_update_with_a_broken_name_is_an_error_of_the_step() -> None:
    finish = one_action(lambda ctx: ctx.publish("kind", "\ud800", 1), idempotent("x"), id="act")
    assert finish.outcome == "failed"
    assert finish.error is not None
    assert "lone surrogate" in finish.error.message


def test_active_time_is_measured() -> None:
    def step(ctx: Any) -> None:
        time.sleep(0.03)

    assert 25 <= one_step(step).active_ms < 5_000
