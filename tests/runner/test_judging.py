"""What a workflow's `validate=` says of a submission: None accepts it, a text or an exception says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pwf.protocol.runner import REASON_CHARS_MAX, Judged, Value
from pwf.runner.base.wire import ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.workflow.workflow import Workflow
from tests.runner.peer import memory_run, pairs


class Review(msgspec.Struct):
    ship: bool
    why: str = ""


def judged(validate: Callable[..., Any], value: bytes = b'{"ship":true}') -> Judged:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=Review, validate=validate)
    def review(ctx: Any) -> str:
        return "Look."

    launch = memory_run(flow, input={"limit": 3}).launch()
    with pairs() as (_, _, theirs, their_values):
        engine = Engine(Wire(theirs), ValueReader(their_values), flow, launch)
        return engine.judge(Value(json=msgspec.Raw(value), size=len(value)))


def test_none_accepts_and_the_function_sees_the_run_and_the_typed_value() -> None:
    seen = []

    def validate(ctx: Any, value: Review) -> None:
        seen.append((ctx.input["limit"], ctx.node, value))

    assert judged(validate) == Judged(accepted=True)
    assert seen == [(3, "review", Review(ship=True))]


def test_an_async_function_is_awaited() -> None:
    async def validate(ctx: Any, value: Review) -> str | None:
        return None if value.why else "say why"

    assert judged(validate) == Judged(accepted=False, reason="say why")
    assert judged(validate, b'{"ship":true,"why":"x"}').accepted


def test_what_is_raised_is_the_reason() -> None:
    def refuses(ctx: Any, value: Review) -> None:
        raise ValueError("name the tests")

    def breaks(ctx: Any, value: Review) -> None:
        raise KeyError("x")

    def ends(ctx: Any, value: Review) -> None:
        raise SystemExit(0)

    assert judged(refuses) == Judged(accepted=False, reason="name the tests")
    assert judged(breaks).reason == "KeyError: 'x'"
    assert judged(ends).reason == "SystemExit: 0"


@pytest.mark.parametrize("said", [True, False, 0, "", "  ", {"ok": True}])
def test_anything_else_accepts_nothing_and_says_what_to_return(said: object) -> None:
    found = judged(lambda ctx, value: said)
    assert not found.accepted
    assert "must return None, or a text" in found.reason


def test_a_long_reason_is_cut_and_says_so() -> None:
    found = judged(lambda ctx, value: "x" * 100_000)
    assert len(found.reason) <= REASON_CHARS_MAX
    assert "left out" in found.reason
