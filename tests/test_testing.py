"""`pwf.testing`: what a workflow does in a test is what it does in a run, without a daemon, a timer or an effect."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf import NotApplied, Retry, Workflow, idempotent, manual, parts
from pwf.errors import InvalidAnswer, InvalidInput, InvalidValue, NotFound, Rejected
from pwf.testing import NO_ANSWER, Unfaked, each, run

PAGE = (Path(__file__).parents[1] / "docs/python.md").read_text("utf-8")


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    (text,) = re.findall(r"<!-- test -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, str(tmp_path / "test_release.py"), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()


class Input(msgspec.Struct):
    count: int = 2


def test_input_and_outputs_have_their_types() -> None:
    flow = Workflow("w", input=Input)

    @flow.compute
    def double(ctx: Any) -> Input:
        return Input(count=ctx.input.count * 2)

    assert run(flow).output == Input(count=4)
    assert run(flow, Input(count=5))[double] == Input(count=10)
    with pytest.raises(InvalidInput):
        run(flow, {"count": "x"})


def test_a_step_whose_output_has_another_type_fails_as_in_a_run() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> int: ...  # type: ignore[empty-body]

    done = run(flow, effects={"act": "text"})
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "invalid_value"


def test_a_loop_ends_with_its_steps() -> None:
    flow: Workflow[Any] = Workflow("w", max_steps=5)

    @flow.compute
    def again(ctx: Any) -> bool:
        return True

    @flow.compute
    def over(ctx: Any) -> None: ...

    flow.graph(again.switch(cases={True: again, False: over}))
    done = run(flow)
    assert (done.status, len(done.steps)) == ("failed", 5)
    assert done.error is not None
    assert done.error.code == "max_steps"


def test_a_manual_effect_that_did_not_happen_takes_its_way_and_another_leaves_it_unknown() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=manual("deploy"))
    def deploy(ctx: Any) -> None: ...

    @flow.compute
    def apologise(ctx: Any) -> str:
        return ctx.results[deploy].error.message  # type: ignore[no-any-return]

    flow.graph(deploy, deploy.on("failed") >> apologise)
    assert run(flow, effects={"deploy": NotApplied("refused")}).output == "refused"
    assert run(flow, effects={"deploy": RuntimeError("lost")}).status == "ambiguous"
    assert run(flow, effects={"deploy": None}).status == "completed"


def test_parts_are_faked_one_by_one_and_each_key_is_made_once() -> None:
    flow: Workflow[Any] = Workflow("w")
    made: list[str] = []

    @flow.action(effect=parts("deploy"), retry=Retry(times=1))
    def deploy(ctx: Any) -> list[str]:
        def apply(request: Any, effect_key: str) -> str:
            made.append(effect_key)
            return f"real {request}"

        found = [ctx.effect(region, region, apply=apply) for region in ("eu", "us")]
        if ctx.tries == 1:
            raise RuntimeError("after both")
        return found

    fakes = {"deploy/eu": lambda request: f"fake {request}"}
    assert run(flow, effects={**fakes, "deploy/us": "u"}).output == ["fake eu", "u"]
    with pytest.raises(Unfaked, match="deploy/us"):
        run(flow, effects=fakes)
    assert run(flow, effects=fakes, real=["deploy"]).output == ["fake eu", "real us"]
    assert made == ["tested:deploy:1/us"]


def test_a_command_runs_where_it_is_asked_for_by_name(tmp_path: Path) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.shell(effect=idempotent("echo"), parse="lines")
    def echo(ctx: Any) -> list[str]:
        return ["printf", "%s\\n", "a", "b"]

    assert run(flow, real=["echo"], root=tmp_path)[echo].parsed == ["a", "b"]
    with pytest.raises(Unfaked, match="real=\\['echo'\\]"):
        run(flow)


def test_secrets_are_given_and_masked_and_updates_are_kept() -> None:
    flow: Workflow[Any] = Workflow("w", secrets=["TOKEN"])

    @flow.action(effect=idempotent("call"))
    def call(ctx: Any) -> str:
        with pytest.raises(Rejected):
            ctx.secret("OTHER")
        ctx.publish("note", "half", {"token": ctx.secret("TOKEN")})
        return f"used {ctx.secret('TOKEN')}"

    done = run(flow, real=["call"], secrets={"TOKEN": "abcd-1234"})
    assert done.output == "used ***"
    assert done.updates == {("note", "half"): {"token": "***"}}


def test_timers_with_a_date_move_the_clock_there_and_never_back() -> None:
    flow: Workflow[Any] = Workflow("w")
    day = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)

    @flow.wait
    def until(ctx: Any) -> datetime.datetime:
        return day

    assert run(flow).waited == datetime.timedelta(days=1)
    late = run(flow, begins=day + datetime.timedelta(days=3))
    assert late.waited == datetime.timedelta(0)


def test_an_answer_of_another_type_and_a_name_that_no_node_has_are_the_tests_mistakes() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.checkpoint(returns=int)
    def ask(ctx: Any) -> str:
        return "how many?"

    with pytest.raises(InvalidAnswer, match="'ask'"):
        run(flow, answers={"ask": "many"})
    with pytest.raises(NotFound, match="no such node"):
        run(flow, answers={"aks": 1})
    assert run(flow, answers={"ask": each(1, 2)}).output == 1
    assert run(flow, answers={"ask": len}).output == len("how many?")


async def _nothing() -> None: ...


def test_async_nodes_run_too() -> None:
    flow: Workflow[Any] = Workflow("w", title=lambda ctx: "a title")

    @flow.compute
    async def calm(ctx: Any) -> int:
        await _nothing()
        return 1

    done = run(flow)
    assert (done.output, done.title) == (1, "a title")


def test_a_question_that_nobody_answers_ends_with_its_deadline() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.checkpoint(returns=bool, timeout=datetime.timedelta(days=2), default=False)
    def ask(ctx: Any) -> str:
        return "ship?"

    done = run(flow, answers={"ask": NO_ANSWER})
    assert (done.status, done.output) == ("completed", False)
    assert done.waited == datetime.timedelta(days=2)
    assert run(flow).status == "waiting"


def test_what_is_submitted_for_an_agent_is_judged_by_its_validate() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=int, validate=lambda ctx, value: None if value > 0 else "more than none, please")
    def count(ctx: Any) -> str:
        return "how many?"

    assert run(flow, answers={"count": 3}).output == 3
    with pytest.raises(InvalidAnswer, match="more than none"):
        run(flow, answers={"count": 0})


class Pace(msgspec.Struct):
    workers: int = 2


def paced() -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("w")
    flow.settings(Pace, Pace(), check=lambda value: "too many" if value.workers > 9 else None)

    @flow.compute
    def first(ctx: Any) -> int:
        found: int = ctx.settings.workers
        return found

    @flow.compute
    def second(ctx: Any) -> list[int]:
        return [ctx[first], ctx.settings.workers]

    flow.graph(first >> second)
    return flow


@pytest.mark.parametrize(
    ("given", "seen"), [(None, [2, 2]), (Pace(3), [3, 3]), (each({"workers": 4}, Pace(5)), [4, 5])]
)
def test_settings_are_the_initial_ones_or_what_the_test_says_for_each_step(
    given: Any, seen: list[int]
) -> None:
    assert run(paced(), settings=given).output == seen


@pytest.mark.parametrize(("given", "said"), [({"workers": "x"}, "workers"), (Pace(10), "too many")])
def test_settings_that_no_run_could_have_are_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        run(paced(), settings=given)
    bare: Workflow[Any] = Workflow("bare")
    bare.compute(id="one")(lambda ctx: 1)
    with pytest.raises(NotFound, match="has none"):
        run(bare, settings=Pace())
