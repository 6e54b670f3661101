"""Three workflows, each in the next, with a loop, a settings route, a decision and progress: all crashes end alike."""

import pytest

from pwf.cli import exits
from tests.crashlab.conftest import Lab

THREE = """
inner = Workflow("inner", input=dict)
inner.settings(dict, {"rounds": 2}, paths={"": {"human": ["read", "replace"]}})

@inner.action(effect=manual("copy", observe=lambda ctx: applied(ctx.visit) if done_at(ctx).exists() else not_applied()))
def copy(ctx) -> int:
    ctx.progress(0, 1, "files")
    with open(done_at(ctx), "a") as file:
        file.write("once")
    ctx.progress(1, 1, "files")
    return ctx.visit

def done_at(ctx):
    return Path(ctx.input["folder"]) / f"copy-{ctx.input['entry']}-{ctx.visit}"

@inner.settings_route
def again(ctx) -> Literal["round", "out"]:
    return "out" if ctx.visit >= ctx.settings["rounds"] else "round"

@inner.compute
def summed(ctx) -> int:
    return ctx[copy]

inner.graph(copy >> again, again.switch(round=copy, out=summed))

middle = Workflow("middle", input=str)

def work_of(ctx):
    return {"folder": ctx.input, "entry": 1 + len(ctx.outputs)}

rounds = middle.include(inner, input=work_of, id="rounds")

@middle.decision(audience="operator", choices=[Choice("more", "More"), Choice("enough", "Enough")], timeout=None)
def approve(ctx):
    return ctx.present(f"{ctx[rounds]} rounds: go on, for the {ctx.visit}. time?")

@middle.compute
def told(ctx) -> list[int]:
    return [ctx.results["approve"].visit, ctx[rounds]]

middle.graph(rounds >> approve, approve.switch(more=rounds, enough=told))

flow = Workflow("flow", input=str)
outer = flow.include(middle, input=lambda ctx: ctx.input, id="outer")

@flow.compute
def end(ctx):
    return {"told": ctx[outer], "input": "x"}

flow.graph(outer >> end)
"""


@pytest.mark.rest
def test_three_levels_end_the_same_whatever_is_killed(lab: Lab) -> None:
    found = lab(
        THREE,
        "--effects",
        "real",
        "--input",
        '"{scratch}"',
        "--crashes",
        "200",
        "--paths",
        "1",
        "--answer",
        'outer.approve={"choice": "more"}',
        "--answer",
        'outer.approve={"choice": "enough"}',
    )
    assert found.report["findings"] == []
    assert found.code == exits.OK, found.report
    assert found.report["crashes_left_out"] == 0, "every boundary is one"
    (path,) = found.report["paths"]
    assert path["status"] == "completed"
    steps = {(step["node"], step["visit"]) for step in found.report["steps"]}
    assert steps >= {("outer.rounds.copy", 4), ("outer.rounds.again", 4), ("outer.approve", 2), ("end", 1)}
