"""Checked by mypy in test_typing.py, never run: what an author's editor knows about a workflow."""

from typing import Literal, TypedDict, assert_type

import msgspec

from pwf import (
    Choice,
    Chosen,
    Context,
    Node,
    Presentation,
    Retry,
    Section,
    ShellResult,
    Text,
    Waited,
    Workflow,
    idempotent,
    minutes,
    seconds,
)


class Input(msgspec.Struct):
    version: str


class Review(msgspec.Struct):
    verdict: Literal["ship", "fix"]


class Count(TypedDict):
    lines: int


flow = Workflow("typed", input=Input, title=lambda ctx: f"release {ctx.input.version.upper()}")


@flow.shell(effect=idempotent("tests"), timeout=minutes(20), parse="lines")
def test(ctx: Context[Input]) -> list[str]:
    assert_type(ctx.input, Input)
    return ["make", "test", ctx.input.version]


@flow.compute
def review(ctx: Context[Input]) -> Review:
    assert_type(ctx[test], ShellResult)
    assert_type(ctx[test].stdout, str)
    return Review("ship")


@flow.compute(timeout=None, retry=Retry(2))
async def count(ctx: Context[Input]) -> Count:
    assert_type(ctx[review].verdict, Literal["ship", "fix"])
    assert_type(ctx.outputs.get(review), Review | None)
    return {"lines": 3}


@flow.action(effect=idempotent("write"))
def write(ctx: Context[Input]) -> int:
    assert_type(ctx[count], Count)
    return ctx[count]["lines"]


@flow.wait
def pause(ctx: Context[Input]):  # type: ignore[no-untyped-def]  # an author without annotations
    return seconds(ctx[write])


@flow.checkpoint(returns=bool, timeout=minutes(5), default=False)
def ask(ctx: Context[Input]) -> str:
    assert_type(ctx[pause], Waited)
    return "Ship?"


@flow.agent(returns=Review)
def judge(ctx: Context[Input]) -> str:
    return f"Judge {ctx[ask]}"


@flow.choose("ship", "fix", timeout=minutes(5))
async def pick(ctx: Context[Input]) -> str:
    return "Ship it?"


@flow.decision(audience="operator", choices=[Choice("a", "A", text=Text("Why?"))], timeout=None)
def approve(ctx: Context[Input]) -> Presentation:
    return ctx.present("Ship?", Section("Why"), "words", fields={"n": 1}, subject={"commit": "abc"})


assert_type(approve, Node[Chosen])


@flow.compute(returns=Review)
def late(ctx: Context[Input]) -> object:
    assert_type(ctx[ask], bool)
    return {"verdict": "fix"}


assert_type(test, Node[ShellResult])
assert_type(review, Node[Review])
assert_type(count, Node[Count])
assert_type(write, Node[int])
assert_type(pause, Node[Waited])
assert_type(ask, Node[bool])
assert_type(judge, Node[Review])
assert_type(pick, Node[str])
assert_type(late, Node[Review])

flow.graph(
    test >> review,
    test.on("failed", "timed_out") >> late,
    review.switch(on="verdict", ship=count, fix=late),
    count >> write >> pause >> ask,
    ask.switch(cases={True: judge, False: count}),
    judge >> pick,
    pick.switch(ship=late, fix=late),
)
