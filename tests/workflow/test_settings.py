"""Settings as an author declares them: checked when the file loads, seen as their type."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pwf import Workflow
from pwf.errors import GraphError, InvalidArgument, Rejected
from pwf.protocol.settings import PathRule
from pwf.runner.base.judging import judge_settings
from tests.workflow.author import context


class Pace(msgspec.Struct):
    workers: int = 2


def few(value: Pace) -> str | None:
    if value.workers == 13:
        raise RuntimeError("thirteen")
    return "too many" if value.workers > 9 else None


def paced(type_: Any = Pace, initial: Any = None, **more: Any) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("paced")
    flow.settings(type_, Pace() if initial is None else initial, **more)

    @flow.settings_route
    def route(ctx: Any) -> int:
        return int(ctx.settings.workers)

    return flow


def test_settings_are_declared_as_data() -> None:
    flow = paced(paths={"/workers": {"human": ["read", "replace"]}}, check=few)
    spec = flow.to_graph().settings
    assert spec is not None
    assert (json.loads(spec.initial), spec.checks) == ({"workers": 2}, True)
    assert spec.paths == (PathRule(path="/workers", may={"human": ("read", "replace")}),)
    assert spec.schema is not None
    assert paced(None, [1]).to_graph().settings.schema is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"initial": {"workers": "x"}}, "do not fit"),
        ({"initial": Pace(99), "check": few}, "too many"),
        ({"initial": Pace(13), "check": few}, "RuntimeError: thirteen"),
        ({"type_": None, "initial": "x" * 300_000}, "can not be kept"),
        ({"paths": {"workers": {"human": ["read"]}}}, "'workers'"),
        ({"paths": {"/a~b": {"human": ["read"]}}}, "'/a~b'"),
        ({"paths": {"/a~": {"human": ["read"]}}}, "'/a~'"),
        ({"paths": {"": {"robot": ["read"]}}}, "robot"),
        ({"paths": {"": {"human": ["write"]}}}, "write"),
        ({"paths": {"": {"human": "read"}}}, "paths="),
        ({"paths": 3}, "paths=3"),
        ({"check": 3}, "is no function"),
        ({"check": lambda: None}, "check="),
    ],
)
def test_what_is_wrong_with_them_is_named_when_the_file_loads(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError) as caught:
        paced(**wrong).to_graph()
    assert said in caught.value.message
    assert "test_settings.py:" in caught.value.message


def test_a_workflow_has_settings_once_and_a_route_needs_them() -> None:
    flow = paced()
    with pytest.raises(InvalidArgument, match="has settings already, at "):
        flow.settings(Pace, Pace())
    bare: Workflow[Any] = Workflow("bare")
    bare.settings_route(lambda ctx: 1, id="route")  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="routes by settings, and the workflow has none"):
        bare.to_graph()


def test_a_step_sees_them_as_their_type_and_a_copy_each_time() -> None:
    flow = paced()
    ctx = context(flow, settings=(Pace, b'{"workers":7}'))
    assert ctx.settings == Pace(7)
    ctx.settings.workers = 1
    assert ctx.settings == Pace(7)
    with pytest.raises(Rejected, match="has no settings"):
        context(flow).settings  # noqa: B018


def test_an_included_workflow_keeps_its_settings_under_its_mount() -> None:
    flow: Workflow[Any] = Workflow("outer")
    flow.include(paced(), id="inner")
    graph = flow.to_graph()
    assert graph.settings is None
    mount = graph.node("inner").mount
    assert mount is not None
    assert mount.settings == paced().to_graph().settings
    assert flow.scopes["inner"].settings is not None


@pytest.mark.parametrize(
    ("value", "accepted", "reason"),
    [
        (b'{"workers":3}', True, ""),
        (b'{"workers":10}', False, "too many"),
        (b'{"workers":13}', False, "RuntimeError: thirteen"),
        (b'{"workers":"x"}', False, "Expected `int`, got `str` - at `$.workers`"),
    ],
)
def test_a_change_is_judged_by_type_and_check(value: bytes, accepted: bool, reason: str) -> None:
    said = judge_settings(paced(check=few).declared_settings, value)
    assert said.accepted == accepted
    assert reason in said.reason
    assert not judge_settings(None, value).accepted


def test_a_check_that_says_something_else_rejects() -> None:
    flow: Workflow[Any] = Workflow("odd")
    answers = iter([None, 3])
    flow.settings(None, 1, check=lambda value: next(answers))  # type: ignore[arg-type,return-value]
    flow.compute(lambda ctx: 1, id="a")  # type: ignore[call-overload]
    flow.to_graph()
    assert "a value of type int" in judge_settings(flow.declared_settings, b"1").reason
