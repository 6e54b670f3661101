"""Every mistake in a manager's file is one error when it loads, which names the manager, the line and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwf.errors import GraphError, NoWorkflow
from tests.workflow.author import namespace_of
from tests.workflow.manager_author import HEAD, load

GOOD = "manager = ResourceManager('sample', spec=Spec, status=Status)\n"
FUNCTION = "@manager.reconcile\ndef reconcile(ctx, resource): return ctx.settled()\n"


def made(options: str) -> str:
    return f"manager = ResourceManager('sample', spec=Spec, {options})\n{FUNCTION}"


# the file's text after HEAD, the line that is named, what the message says, what the hint says
CASES: dict[str, tuple[str, int, list[str], list[str]]] = {
    "no function": (GOOD, 5, ["'sample'", "no reconcile function"], ["@manager.reconcile"]),
    "two functions": (GOOD + FUNCTION + FUNCTION, 8, ["already", "sample.py:6"], ["remove one"]),
    "a function of one": (
        GOOD + "@manager.reconcile\ndef reconcile(ctx): ...",
        6,
        ["too many positional"],
        ["ctx and resource"],
    ),
    "a generator": (GOOD + "@manager.reconcile\ndef r(ctx, resource): yield 1", 6, ["yields"], ["settled"]),
    "no function at all": (GOOD + "manager.reconcile(3)", 6, ["not a function"], ["above def"]),
    "a bad name": (
        f"manager = ResourceManager('a b', spec=Spec)\n{FUNCTION}",
        5,
        ["'a b'", "not allowed"],
        ["letters"],
    ),
    "a spec that is a number": (
        f"manager = ResourceManager('sample', spec=int)\n{FUNCTION}",
        5,
        ["spec", "no object"],
        ["Struct"],
    ),
    "a spec without a form in JSON": (
        f"manager = ResourceManager('sample', spec=object)\n{FUNCTION}",
        5,
        ["spec that can not be used"],
        ["Struct"],
    ),
    "a status that can not begin": (
        f"class Late(msgspec.Struct): at: int\n{made('status=Late')}",
        6,
        ["no initial_status", "`at`"],
        ["default", "initial_status="],
    ),
    "an initial status of another type": (
        made("status=Status, initial_status={'made': 'x'}"),
        5,
        ["initial_status", "none of its status"],
        ["status type"],
    ),
    "an initial status that is no object": (
        made("initial_status=[1]"),
        5,
        ["initial_status=[1]"],
        ["object"],
    ),
    "a number as interval": (made("every=5"), 5, ["every= is 5", "no unit"], ["minutes(5)"]),
    "an interval of nothing": (made("every=seconds(0)"), 5, ["longer than nothing"], []),
    "an endless deadline": (made("deadline=days(2)"), 5, ["deadline of 2 days"], ["child run"]),
    "an async watch": ("async def w(spec): ...\n" + made("watch=w"), 6, ["async watch="], ["plain"]),
    "a watch of two": (made("watch=lambda a, b: []"), 5, ["watch= that"], ["the spec"]),
    "a watch of numbers": (made("watch=[3]"), 5, ["watch=[3]"], ["path"]),
    "an isolation of runs only": (made("isolate='keep'"), 5, ["isolate='keep'"], ["fork"]),
    "a glob out of the project": (made("files=['../x']"), 5, ["'../x'"], ["below the project"]),
    "two managers": (
        GOOD + FUNCTION + "more = ResourceManager('x', spec=Spec)",
        0,
        ["2 resource managers"],
        [],
    ),
    "a workflow beside it": (
        GOOD + FUNCTION + "flow = Workflow('x')",
        0,
        ["a workflow and a"],
        ["workflows"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_in_a_managers_file_is_one_error_that_names_line_and_fix(tmp_path: Path, name: str) -> None:
    text, line, said, hinted = CASES[name]

    with pytest.raises(GraphError) as caught:
        load(tmp_path, text)

    message, hint = caught.value.message, caught.value.hint or ""
    assert message.startswith(f"{tmp_path}/sample.py:{line}: " if line else f"{tmp_path}/sample.py"), message
    assert "\n" not in message, "one mistake, one fault"
    assert [part for part in said if part not in message] == [], message
    assert [part for part in hinted if part not in hint] == [], hint


def test_several_mistakes_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="the manager has 2 faults"):
        load(tmp_path, "manager = ResourceManager('sample', spec=int)\n")


def test_a_file_of_helpers_among_the_managers_has_no_manager(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()

    with pytest.raises(NoWorkflow, match="defines no resource manager"):
        load(folder, "x = 1\n")


def test_what_a_manager_declares_is_data(tmp_path: Path) -> None:
    text = "manager = ResourceManager('sample', spec=Spec, status=Status, every=minutes(5), watch=['a'])\n"

    graph = load(tmp_path, text + FUNCTION, head='"""Keeps samples."""\n' + HEAD).to_graph()

    facts = graph.manager
    assert facts is not None
    assert (graph.name, graph.doc, graph.nodes, graph.start) == ("sample", "Keeps samples.", (), "")
    assert (facts.every_ms, facts.deadline_ms, facts.watches) == (300_000, 60_000, True)
    assert facts.initial_status == '{"made":0}'  # null and absent are the same to a status
    assert facts.spec_schema is not None
    assert "additionalProperties" in str(facts.spec_schema)


def test_a_manager_may_take_schemas_in_place_of_types(tmp_path: Path) -> None:
    text = f"manager = ResourceManager('sample', spec={{'type': 'object'}})\n{FUNCTION}"

    facts = load(tmp_path, text).to_graph().manager

    assert facts is not None
    assert (facts.spec_schema, facts.initial_status) == ({"type": "object"}, "{}")


def test_the_functions_of_an_author_stay_functions(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, GOOD + FUNCTION, head=HEAD)

    assert namespace["reconcile"] is namespace["manager"].fn
