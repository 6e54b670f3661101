"""Included workflows under the engine: a run that is parked at any boundary ends as an undisturbed one."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf import Workflow
from pwf.protocol.runner import Finish
from tests.runner.peer import MemoryRun, memory_run, run_inline

STEPS = 36


def three_levels() -> Workflow[Any]:
    """A loop in the innermost, a loop round the middle, and each of them entered again."""
    inner: Workflow[Any] = Workflow("inner")

    @inner.compute
    def turn(ctx: Any) -> bool:
        assert len(ctx.outputs) == (1 if ctx.visit > 1 else 0)
        return bool(ctx.visit < ctx.input)

    @inner.compute
    def sum_up(ctx: Any) -> dict[str, Any]:
        return {"rounds": ctx.results[turn].visit, "visit": ctx.visit, "input": ctx.input}

    inner.graph(turn.switch(cases={True: turn, False: sum_up}))

    middle: Workflow[Any] = Workflow("middle")
    first = middle.include(inner, input=lambda ctx: ctx.input, id="first")
    second = middle.include(inner, input=lambda ctx: ctx[first]["rounds"] + 1, id="second")

    @middle.compute
    def judge(ctx: Any) -> Literal["enough", "more"]:
        return "enough" if ctx.visit == 2 else "more"

    @middle.compute
    def out(ctx: Any) -> list[Any]:
        return [ctx[first], ctx[second], ctx.results[second].visit]

    middle.graph(first >> second >> judge, judge.switch(enough=out, more=second))

    root: Workflow[Any] = Workflow("root")
    part = root.include(middle, input=lambda ctx: ctx.visit)

    @root.compute
    def again(ctx: Any) -> bool:
        return bool(ctx.results[part].visit < 2)

    @root.compute
    def end(ctx: Any) -> dict[str, Any]:
        return {"last": ctx[part], "seen": list(ctx.outputs)}

    root.graph(part >> again, again.switch(cases={True: part, False: end}))
    return root


EXPECTED = {
    "last": [{"rounds": 2, "visit": 1, "input": 2}, {"rounds": 3, "visit": 1, "input": 3}, 2],
    "seen": ["middle", "again"],
}


def ended(parks: set[int]) -> MemoryRun:
    flow = three_levels()
    run = memory_run(flow)
    run.decide = lambda it: "park" if isinstance(it, Finish) and it.attempt in parks else None
    while run.status in ("running", "parked"):
        run_inline(flow, run)
    return run


@settings(max_examples=25, deadline=None)
@given(parks=st.sets(st.integers(1, STEPS)))
def test_a_run_that_is_parked_anywhere_ends_as_an_undisturbed_one(parks: set[int]) -> None:
    run = ended(parks)
    assert (run.status, run.output, len(run.history)) == ("completed", EXPECTED, STEPS)


@pytest.mark.parametrize("park", [set(), set(range(1, STEPS))])
def test_nowhere_and_everywhere(park: set[int]) -> None:
    run = ended(park)
    assert (run.status, run.output) == ("completed", EXPECTED)
    assert run.history[-2].node == "again"
