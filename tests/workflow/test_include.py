"""Including a workflow: what the child sees, what the parent sees, by which exit it is left, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf import NotCompleted, Workflow, idempotent
from pwf.budgets import Budget
from pwf.errors import GraphError
from pwf.testing import run
from pwf.workflow.load import find_workflow
from tests.workflow.author import load


class Draft(msgspec.Struct):
    text: str
    rounds: int = 1


class Verdict(msgspec.Struct):
    good: bool
    text: str


def reviewing() -> Workflow[Draft]:
    """Goes round `rounds` times by its own visits, then leaves as ready or as broken."""
    flow = Workflow("review", input=Draft)

    @flow.compute
    def lint(ctx: Any) -> Literal["again", "enough"]:
        assert ctx.node == "lint"
        assert ctx.outputs.get("lint") == ("again" if ctx.visit > 1 else None), "it begins with nothing"
        return "enough" if ctx.visit >= ctx.input.rounds else "again"

    @flow.compute
    def judge(ctx: Any) -> Literal["good", "bad"]:
        assert list(ctx.outputs) == ["lint"]
        assert ctx.results["lint"].visit == ctx.input.rounds
        return "bad" if "bad" in ctx.input.text else "good"

    @flow.compute
    def praise(ctx: Any) -> Verdict:
        return Verdict(good=True, text=ctx.input.text.upper())

    @flow.compute
    def blame(ctx: Any) -> Verdict:
        return Verdict(good=False, text=ctx.input.text)

    flow.graph(
        lint.switch(again=lint, enough=judge),
        judge.switch(good=praise, bad=blame),
    )
    flow.exit("ready", praise)
    flow.exit("broken", blame)
    return flow


def test_a_child_gets_its_input_and_its_parent_sees_the_exit_alone() -> None:
    parent = Workflow("parent", input=Draft)

    @parent.compute
    def draft(ctx: Any) -> str:
        return str(ctx.input.text)

    review = parent.include(reviewing(), input=lambda ctx: {"text": ctx[draft], "rounds": 2})

    @parent.compute
    def done(ctx: Any) -> list[Any]:
        assert list(ctx.outputs) == ["draft", "review"]
        assert ctx["review"] == ctx[review] == ctx.outputs["review"]
        assert ctx.results[review].exit == "ready"
        with pytest.raises(Exception, match="not part of this workflow"):
            ctx["review.lint"]
        return [ctx[review].good, ctx[review].text]

    @parent.compute
    def stop(ctx: Any) -> Literal["stopped"]:
        return "stopped"

    parent.graph(draft >> review, review.exit("ready") >> done, review.exit("broken") >> stop)
    good = run(parent, Draft(text="fine"))
    assert good.output == [True, "FINE"]
    assert good.path == [
        "draft",
        "review",
        "review.lint",
        "review.lint",
        "review.judge",
        "review.praise",
        "done",
    ]
    assert good[review] == Verdict(good=True, text="FINE")
    assert run(parent, Draft(text="bad")).output == "stopped"


def test_a_child_that_is_entered_again_begins_with_nothing() -> None:
    parent: Workflow[Any] = Workflow("parent")
    child = reviewing()
    review = parent.include(child, input=lambda ctx: Draft(text="bad" * (3 - ctx.visit), rounds=2))

    @parent.compute
    def count(ctx: Any) -> int:
        assert ctx.results[review].visit == 3
        return int(ctx.results[review].visit)

    parent.graph(review.switch(ready=count, broken=review))
    done = run(parent)
    assert (done.status, done.output) == ("completed", 3)
    assert done.path.count("review.lint") == 6


def test_a_child_stands_at_several_places_and_within_another() -> None:
    child = reviewing()
    middle = Workflow("middle", input=Draft)
    first = middle.include(child, input=lambda ctx: ctx.input, id="first")
    second = middle.include(child, input=lambda ctx: {"text": ctx[first].text}, id="second")
    middle.graph(first >> second)
    root = Workflow("root", input=Draft)
    inner = root.include(middle, input=lambda ctx: ctx.input)

    @root.compute
    def last(ctx: Any) -> list[Any]:
        return [ctx[inner].text, ctx.results[inner].exit]

    root.graph(inner >> last)
    assert middle.exits == {"second": ("second.praise", "second.blame")}
    done = run(root, Draft(text="ok"))
    assert done.output == ["OK", "second"]
    assert "middle.first.lint" in done.path
    assert "middle.second.praise" in done.path
    assert done.left["middle.first"] == Verdict(good=True, text="OK")
    spec = root.to_graph().node("middle.second").mount
    assert spec is not None
    assert spec.exits == {"ready": ("middle.second.praise",), "broken": ("middle.second.blame",)}


def test_an_exit_may_be_that_of_an_included_workflow() -> None:
    outer = Workflow("outer", input=Draft)
    inner = outer.include(reviewing(), input=lambda ctx: ctx.input)

    @outer.compute
    def mend(ctx: Any) -> str:
        return str(ctx[inner].text)

    outer.graph(inner.exit("broken") >> mend)
    outer.exit("fine", inner.exit("ready"))
    outer.exit("mended", mend)
    assert outer.exits == {"fine": ("review.praise",), "mended": ("mend",)}


def test_a_switch_reads_the_output_of_an_exit() -> None:
    parent = Workflow("parent", input=Draft)
    review = parent.include(reviewing(), input=lambda ctx: ctx.input)

    @parent.compute
    def yes(ctx: Any) -> str:
        return "yes"

    @parent.compute
    def no(ctx: Any) -> str:
        return "no"

    parent.graph(
        review.exit("ready").switch(on="good", cases={True: yes, False: no}), review.exit("broken") >> no
    )
    assert run(parent, Draft(text="x")).output == "yes"


def test_what_leads_on_from_all_exits_is_for_those_without_a_way_of_their_own() -> None:
    parent = Workflow("parent", input=Draft)
    review = parent.include(reviewing(), input=lambda ctx: ctx.input)

    @parent.compute
    def other(ctx: Any) -> str:
        return "other"

    @parent.compute
    def broken(ctx: Any) -> str:
        return "broken"

    parent.graph(review >> other, review.exit("broken") >> broken)
    assert run(parent, Draft(text="bad")).output == "broken"
    assert run(parent, Draft(text="fine")).output == "other"


def test_a_step_of_a_child_can_be_faked_by_its_whole_id() -> None:
    child: Workflow[Any] = Workflow("deploy")

    @child.action(effect=idempotent("upload"))
    def upload(ctx: Any) -> str:
        return str(ctx.effect_key)

    parent: Workflow[Any] = Workflow("parent")
    mount = parent.include(child)
    parent.graph(mount)
    assert run(parent, effects={"deploy.upload": "faked"}).output == "faked"
    assert run(parent, real=["deploy.upload"]).output == "tested:deploy.upload:1"


def test_what_is_asked_for_before_a_child_was_left_is_not_there() -> None:
    parent: Workflow[Any] = Workflow("parent")

    @parent.compute
    def before(ctx: Any) -> bool:
        try:
            ctx["review"]
        except NotCompleted:
            return "review" in ctx.outputs
        return True

    review = parent.include(reviewing(), input=lambda ctx: {"text": "x"})
    parent.graph(before >> review)
    assert run(parent)[before] is False


def test_the_limits_of_child_and_root_both_hold() -> None:
    child: Workflow[Any] = Workflow("child", max_steps=3)

    @child.compute
    def spin(ctx: Any) -> bool:
        return bool(ctx.visit < ctx.input)

    @child.compute
    def out(ctx: Any) -> int:
        return int(ctx.visit)

    child.graph(spin.switch(cases={True: spin, False: out}))
    parent: Workflow[Any] = Workflow("parent", max_steps=9)
    mount = parent.include(child, input=lambda ctx: ctx.input)

    @parent.compute
    def again(ctx: Any) -> bool:
        return bool(ctx.visit < 3)

    @parent.compute
    def end(ctx: Any) -> None: ...

    parent.graph(mount >> again, again.switch(cases={True: mount, False: end}))
    assert run(parent, 1).error is not None  # 4 steps a round, and the root may take 9
    two = run(parent, 3)
    assert two.status == "failed"
    assert two.error is not None
    assert "'child'" in two.error.message
    assert two.path == ["child", "child.spin", "child.spin", "child.spin"]


def test_the_input_is_checked_as_that_of_a_start() -> None:
    parent: Workflow[Any] = Workflow("parent")
    parent.graph(parent.include(reviewing(), input={"text": 3}))
    done = run(parent)
    assert done.status == "failed"
    assert done.error is not None
    assert "text" in done.error.message
    assert done.path == ["review"]


def refused(flow: Workflow[Any], *said: str) -> None:
    with pytest.raises(GraphError) as caught:
        flow.check()
    whole = f"{caught.value.message}\n{caught.value.hint}"
    assert [part for part in said if part not in whole] == [], whole


def test_a_circle_of_includes_is_refused_with_the_whole_chain() -> None:
    one: Workflow[Any] = Workflow("one")
    two: Workflow[Any] = Workflow("two")
    three: Workflow[Any] = Workflow("three")
    one.include(two)
    two.include(three)
    three.include(one)
    refused(one, "'one' includes 'two' includes 'three' includes 'one'")


def test_an_exit_that_the_child_does_not_have_is_refused() -> None:
    parent: Workflow[Any] = Workflow("parent")
    review = parent.include(reviewing(), input={"text": "x"})

    @parent.compute
    def end(ctx: Any) -> None: ...

    with pytest.raises(GraphError, match="no exit of 'review'") as caught:
        parent.graph(review.exit("redy") >> end)
    assert "did you mean 'ready'" in str(caught.value.hint)


def test_a_switch_of_a_mount_has_a_case_for_each_exit() -> None:
    parent: Workflow[Any] = Workflow("parent")
    review = parent.include(reviewing(), input={"text": "x"})

    @parent.compute
    def end(ctx: Any) -> None: ...

    with pytest.raises(GraphError, match="has no case for 'broken'"):
        parent.graph(review.switch(ready=end))


def test_where_exits_are_declared_each_end_belongs_to_one() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def choose(ctx: Any) -> bool:
        return True

    @flow.compute
    def one(ctx: Any) -> None: ...

    @flow.compute
    def two(ctx: Any) -> None: ...

    flow.graph(choose.switch(cases={True: one, False: two}))
    flow.exit("one", one)
    refused(flow, "'two'", "belongs to none of its exits", 'flow.exit("two", two)')
    flow.exit("both", one, two)
    refused(flow, "leaves by two exits from 'one'")


def test_a_node_that_leads_on_is_no_exit() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def one(ctx: Any) -> None: ...

    @flow.compute
    def two(ctx: Any) -> None: ...

    flow.graph(one >> two)
    flow.exit("two", two)
    flow.exit("one", one)
    refused(flow, "has an exit at 'one', which leads on")


def test_a_mount_has_no_outcomes() -> None:
    parent: Workflow[Any] = Workflow("parent")
    review = parent.include(reviewing(), input={"text": "x"})
    with pytest.raises(GraphError, match="left by its exits alone"):
        review.on("failed")
    with pytest.raises(GraphError, match="name of another node"):
        parent.include(reviewing())
    with pytest.raises(GraphError, match="not a workflow"):
        parent.include(lambda ctx: 1)  # type: ignore[arg-type]


def test_options_of_a_child_hold_for_the_whole() -> None:
    child: Workflow[Any] = Workflow(
        "child", isolate="spawn", source="verify", files="a/*.md", environment="TOKEN", secrets="key"
    )

    @child.compute
    def step(ctx: Any) -> None: ...

    parent: Workflow[Any] = Workflow("parent", environment=["HOST", "TOKEN"])
    parent.graph(parent.include(child))
    graph = parent.to_graph()
    assert (graph.isolate, graph.source, graph.files) == ("spawn", "verify", ("a/*.md",))
    assert (graph.environment, graph.secrets) == (("HOST", "TOKEN"), ("key",))


def test_a_file_may_have_beside_its_workflow_those_that_it_includes() -> None:
    child = reviewing()
    parent: Workflow[Any] = Workflow("parent")
    parent.graph(parent.include(child, input={"text": "x"}))
    names = {"__file__": __file__, "child": child, "parent": parent}
    assert find_workflow(names) is parent


def looping(**more: Any) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def check(ctx: Any) -> int:
        return len(ctx.outputs)

    @flow.compute
    def decide(ctx: Any) -> Literal["fix", "rest", "look", "done"]:
        return ("fix", "rest", "look", "done")[ctx.visit - 1]

    @flow.compute
    def mend(ctx: Any) -> None: ...

    @flow.compute
    def test(ctx: Any) -> None: ...

    @flow.compute
    def report(ctx: Any) -> Literal["reported"]:
        return "reported"

    routes = {"fix": mend >> test, "rest": test, "look": check, **more}
    flow.graph(check >> decide, flow.loop(decide, check, routes, leave={"done": report}))
    return flow


def test_a_loop_goes_back_by_each_route_until_it_is_left() -> None:
    done = run(looping())
    assert done.output == "reported"
    assert done.path == [
        *("check", "decide", "mend", "test"),
        *("check", "decide", "test"),
        *("check", "decide"),
        *("check", "decide", "report"),
    ]
    with pytest.raises(GraphError, match="'done' in routes and in leave"):
        looping(done=None)


def test_a_name_or_a_path_means_a_file_beside_this_one_in_a_test(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "from pwf import Workflow\nflow = Workflow('child')\n"
        "@flow.compute\ndef step(ctx) -> int:\n    return 7\n"
    )
    text = """
        by_name = flow.include("child", id="one")
        by_path = flow.include("./child.py", id="two")
        ask = flow.include("approve", input={"title": "t", "summary": "s", "mode": "skip"})
        flow.graph(by_name >> by_path >> ask)
    """
    done = run(load(tmp_path, text))
    assert done.left["one"] == done.left["two"] == 7
    assert done.output.exit == "go"
    assert done.path[-2:] == ["approve.begin", "approve.go"]
    with pytest.raises(GraphError, match=r"sample.py:5: includes 'childd': there is no workflow"):
        load(tmp_path, 'flow.include("childd")')
    (tmp_path / "round.py").write_text("from pwf import Workflow\nWorkflow('x').include('./sample.py')")
    with pytest.raises(GraphError, match=r"sample.py includes \S*round.py includes \S*sample.py"):
        load(tmp_path, 'flow.include("round")')


@st.composite
def workflows(draw: st.DrawFn) -> Workflow[Any]:
    """A few pure nodes that lead on, go back by their own visits, and look at all that their code can see."""
    flow: Workflow[Any] = Workflow("child", max_steps=30)

    def step(ctx: Any) -> Any:
        seen = {name: ctx.results[name].visit for name in ctx.outputs}
        go = (len(seen) + ctx.visit + ctx.input) % 3
        return {"go": go, "node": ctx.node, "visit": ctx.visit, "seen": seen, "last": list(ctx.outputs)[-1:]}

    nodes = [flow.compute(id=f"n{number}")(step) for number in range(draw(st.integers(1, 4)))]
    ways: list[Any] = []
    for number, one in enumerate(nodes[:-1]):
        onward = nodes[number + 1]
        targets = (
            [draw(st.sampled_from(nodes)) for _ in range(2)] if draw(st.booleans()) else [onward, onward]
        )
        ways.append(one.switch(on="go", cases={0: onward, 1: targets[0], 2: targets[1]}))
    flow.graph(*ways, start=nodes[0])
    return flow


@settings(max_examples=60, deadline=None)
@given(flow=workflows(), value=st.integers(0, 2), entries=st.integers(1, 3))
def test_a_child_ends_as_it_does_standing_alone_at_each_entry(
    flow: Workflow[Any], value: int, entries: int
) -> None:
    alone = run(flow, value)
    parent: Workflow[Any] = Workflow("parent", max_steps=1000)
    mount = parent.include(flow, input=lambda ctx: ctx.input)

    @parent.compute
    def again(ctx: Any) -> bool:
        return bool(ctx.visit < entries)

    @parent.compute
    def end(ctx: Any) -> Any:
        return ctx[mount]

    parent.graph(mount >> again, again.switch(cases={True: mount, False: end}))
    whole = run(parent, value)
    inside = [(step.node, step.output) for step in whole.steps if step.node.startswith("child.")]
    own = [(f"child.{step.node}", step.output) for step in alone.steps]
    if alone.status == "completed":
        assert (whole.status, whole.output, inside) == ("completed", alone.output, own * entries)
    else:
        assert (whole.status, inside) == ("failed", own), "its own limit ends the whole"


def test_a_budget_of_a_child_bounds_the_run_that_includes_it() -> None:
    child: Workflow[Any] = Workflow("child", budget=Budget(tokens=1_000, minutes=9))

    @child.compute
    def one(ctx: Any) -> int:
        return 1

    def parent(budget: Budget | None) -> Budget | None:
        flow: Workflow[Any] = Workflow("parent", budget=budget)
        flow.include(child, id="part")
        return flow.to_graph().budget

    assert parent(None) == child.to_graph().budget
    assert parent(Budget(tokens=2_000, steps=3, minutes=2)) == Budget(tokens=1_000, steps=3, minutes=2)


def test_a_way_that_is_left_to_no_exit_reaches_nothing() -> None:
    parent = Workflow("parent", input=Draft)
    review = parent.include(reviewing(), input=lambda ctx: ctx.input)

    @parent.compute
    def done(ctx: Any) -> str:
        return "done"

    @parent.compute
    def dead(ctx: Any) -> str:
        return "dead"

    with pytest.raises(GraphError, match="'dead' can not be reached"):
        parent.graph(review.exit("ready") >> done, review.exit("broken") >> done, review >> dead)


def test_bars_of_two_includes_of_a_workflow_are_two() -> None:
    child: Workflow[Any] = Workflow("child")

    @child.action(effect=idempotent("copy"))
    def copy(ctx: Any) -> None:
        ctx.progress(1, 2)
        ctx.progress(1, 2, key="all")
        ctx.publish("note", "one", 1)

    def bars(flow: Workflow[Any], *real: str) -> set[tuple[str, str]]:
        return set(run(flow, real=list(real)).updates)

    assert bars(child, "copy") == {("progress", "copy"), ("progress", "all"), ("note", "one")}
    parent: Workflow[Any] = Workflow("parent")
    parent.graph(parent.include(child, id="m") >> parent.include(child, id="n"))
    assert bars(parent, "m.copy", "n.copy") == {
        ("progress", "m.copy"),
        ("progress", "m.all"),
        ("progress", "n.copy"),
        ("progress", "n.all"),
        ("note", "one"),
    }
