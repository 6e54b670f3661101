"""Every mistake in a graph is one error when it loads, which names the node, the line and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwf.errors import GraphError
from tests.workflow.author import assert_refused, load, namespace_of

TWO = """\
@flow.compute
def first(ctx): return 1
@flow.compute
def second(ctx): return 2
"""  # lines 5 to 8

DECIDE = """\
class Review(msgspec.Struct):
    verdict: Literal["ship", "fix"]
    note: str = ""
@flow.compute
def decide(ctx) -> Review: ...
@flow.compute
def ship(ctx): ...
@flow.compute
def fix(ctx): ...
"""  # lines 5 to 13

# the file's text after HEAD, the line that is named, what the message says, what the hint says
CASES: dict[str, tuple[str, int, list[str], list[str]]] = {
    "a function that is not a node": (
        TWO + "def plain(ctx): ...\nflow.graph(first >> second >> plain)",
        10,
        ["function 'plain'", "sample.py:9", "not a node"],
        ["@flow.compute"],
    ),
    "a function that leads to a node": (
        TWO + "def plain(ctx): ...\nflow.graph(plain >> first, first >> second)",
        10,
        ["function 'plain'"],
        ["@flow.compute"],
    ),
    "a node's name in quotes": (
        TWO + "flow.graph(first >> 'second')",
        9,
        ["the text 'second'"],
        ["second, without quotes"],
    ),
    "a node's name, mistyped": (
        TWO + "flow.graph(first >> 'secnd')",
        9,
        ["the text 'secnd'"],
        ["did you mean 'second'?"],
    ),
    "another workflow's node": (
        TWO + "other = Workflow('other')\n@other.compute\ndef alien(ctx): ...\nflow.graph(first >> alien)",
        12,
        ["'alien'", "another workflow, 'other'", "sample.py:10"],
        ["under a decorator of this workflow"],
    ),
    "nothing as the end": (
        TWO + "flow.graph(first >> second >> None)",
        9,
        ["None", "not a node"],
        ["a node without a way out ends"],
    ),
    "an outcome without a target in the middle": (
        TWO + "flow.graph(first >> second.on('failed'))",
        9,
        ["second.on(…)", "not a node"],
        ["an entry of its own"],
    ),
    "an outcome without a target": (
        TWO + "flow.graph(first >> second, first.on('failed'))",
        9,
        ["first.on(…) without >>"],
        ["a >> b"],
    ),
    "something else as a way": (TWO + "flow.graph([first >> second])", 9, ["not a way"], ["a >> b"]),
    "a mistyped outcome": (
        TWO + "flow.graph(first.on('timedout') >> second)",
        9,
        ["'timedout'", "no outcome"],
        ["did you mean 'timed_out'?"],
    ),
    "no outcome": (TWO + "flow.graph(first.on() >> second)", 9, [".on()"], ['.on("failed")']),
    "two targets at once": (
        TWO + "flow.graph(first >> (first, second))",
        9,
        ["not a node"],
        ["a node leads to one node"],
    ),
    "a list of outcomes": (
        TWO + "flow.graph(first >> second, first.on(['failed']) >> second)",
        9,
        ["['failed']", "no outcome"],
        ['.on("failed", "timed_out")'],
    ),
    "an unreachable node": (
        TWO + "@flow.compute\ndef lost(ctx): ...\nflow.graph(first >> second)",
        9,
        ["compute node 'lost'", "can not be reached from the start, 'first'"],
        ["first >> lost"],
    ),
    "two ways out for one outcome": (
        TWO + "flow.graph(\n  first >> second,\n  first >> first,\n)",
        11,
        ["'first'", "second way out for 'completed'", "sample.py:10"],
        ["switch"],
    ),
    "a switch beside a way out": (
        DECIDE + "flow.graph(decide >> ship, decide.switch(on='verdict', ship=ship, fix=fix))",
        14,
        ["'decide'", "second way out for 'completed'"],
        ["switch"],
    ),
    "several nodes and no graph": (
        TWO,
        4,
        ["2 nodes (first, second)", "no graph"],
        ["flow.graph(first >> second"],
    ),
    "no nodes": ("", 4, ["no nodes"], ["@flow.compute"]),
    "a second graph": (
        TWO + "flow.graph(first >> second)\nflow.graph(second >> first)",
        10,
        ["has a graph already", "sample.py:9"],
        ["one call"],
    ),
    "a node after the graph": (
        TWO + "flow.graph(first >> second)\n@flow.compute\ndef late(ctx): ...",
        10,
        ["'late'", "comes after flow.graph"],
        ["the file's end"],
    ),
    "a start that is no node": (
        TWO + "flow.graph(first >> second, start=3)",
        9,
        ["start=3"],
        ["first, second"],
    ),
    "something after a switch": (
        DECIDE + "flow.graph(decide.switch(on='verdict', ship=ship, fix=fix) >> ship)",
        14,
        ["nothing can follow"],
        ["lines of their own"],
    ),
    "something after a switch in a chain": (
        DECIDE + "flow.graph(ship >> decide.switch(on='verdict', ship=ship, fix=fix) >> ship)",
        14,
        ["nothing can follow"],
        ["lines of their own"],
    ),
    # --- switches
    "a missing case": (
        DECIDE + "flow.graph(decide.switch(on='verdict', ship=ship), ship >> fix)",
        14,
        ["field 'verdict' of 'decide'", "no case for 'fix'"],
        ["decide.switch(fix=node"],
    ),
    "an extra case": (
        DECIDE + "flow.graph(decide.switch(on='verdict', ship=ship, fix=fix, fixx=fix))",
        14,
        ["a case for 'fixx', which never comes"],
        ["did you mean 'fix'?"],
    ),
    "an extra case of another type": (
        DECIDE + "flow.graph(decide.switch(on='verdict', cases={'ship': ship, 'fix': fix, 1: fix}))",
        14,
        ["a case for 1, which never comes"],
        ["'fix', 'ship'"],
    ),
    "a field that is not there": (
        DECIDE + "flow.graph(decide.switch(on='verdct', ship=ship, fix=fix))",
        14,
        ["field 'verdct' of 'decide'"],
        ["did you mean 'verdict'?"],
    ),
    "a switch on a whole object": (
        DECIDE + "flow.graph(decide.switch(ship=ship, fix=fix))",
        14,
        ["an object or a list"],
        ["'note', 'verdict'"],
    ),
    "a field of something without fields": (
        TWO.replace("first(ctx)", "first(ctx) -> str") + "flow.graph(first.switch(on='a', b=second))",
        9,
        ["field 'a' of 'first'"],
        ["there are none"],
    ),
    "a field of an object that may be null": (
        DECIDE.replace("-> Review", "-> Review | None")
        + "flow.graph(decide.switch(on='verdict', ship=ship, fix=fix))",
        14,
        ["does not have in every case"],
        [],
    ),
    "a field that may be left out": (
        "class Part(TypedDict, total=False):\n    go: bool\n@flow.compute\ndef decide(ctx) -> Part: ...\n"
        "@flow.compute\ndef end(ctx): ...\nflow.graph(decide.switch(on='go', cases={True: end, False: end}))",
        11,
        ["field 'go' of 'decide'", "may be missing"],
        ["required"],
    ),
    "a field that its struct omits at its default": (
        DECIDE.replace("(msgspec.Struct)", "(msgspec.Struct, omit_defaults=True)")
        + "flow.graph(decide.switch(on='note', a=ship, b=fix))",
        14,
        ["may be missing"],
        ["required"],
    ),
    "a missing case of a boolean": (
        TWO.replace("first(ctx)", "first(ctx) -> bool") + "flow.graph(first.switch(cases={True: second}))",
        9,
        ["the output of 'first'", "no case for False"],
        ["cases={False: node}"],
    ),
    "numbers as cases of a boolean": (
        TWO.replace("first(ctx)", "first(ctx) -> bool")
        + "flow.graph(first.switch(cases={1: second, 0: second}))",
        9,
        ["no case for False, True", "a case for 0, 1"],
        ["False, True"],
    ),
    "a missing exit code": (
        "@flow.shell(effect=idempotent('x'), ok_exit_codes=(0, 1))\ndef run(ctx): ...\n"
        "@flow.compute\ndef end(ctx): ...\nflow.graph(run.switch(on='exit_code', cases={0: end}))",
        9,
        ["field 'exit_code' of 'run'", "no case for 1"],
        ["cases={1: node}"],
    ),
    "a missing member of an enum": (
        "class Colour(enum.Enum):\n    RED = 'red'\n    BLUE = 'blue'\n@flow.compute\n"
        "def pick(ctx) -> Colour: ...\n@flow.compute\ndef end(ctx): ...\n"
        "flow.graph(pick.switch(cases={Colour.RED: end}))",
        12,
        ["no case for 'blue'"],
        ["blue=node"],
    ),
    "a missing case of a checkpoint's answer": (
        "@flow.checkpoint(returns=Literal['yes', 'no'])\ndef ask(ctx): ...\n"
        "@flow.compute\ndef end(ctx): ...\nflow.graph(ask.switch(yes=end))",
        9,
        ["no case for 'no'"],
        [],
    ),
    "a missing case by a JSON Schema": (
        "@flow.checkpoint(returns={'type': 'object', 'properties': {'a': {'enum': [1, 2]}}, 'required': ['a']})\n"
        "def ask(ctx): ...\n@flow.compute\ndef end(ctx): ...\nflow.graph(ask.switch(on='a', cases={1: end}))",
        9,
        ["no case for 2"],
        [],
    ),
    "a switch without cases": (TWO + "flow.graph(first.switch())", 9, ["without cases"], ["first.switch("]),
    "a case twice": (
        TWO + "flow.graph(first.switch(cases={'a': first}, a=second))",
        9,
        ["the case 'a' twice"],
        ["remove one"],
    ),
    "a list as a case": (TWO + "flow.graph(first.switch(cases={(1, 2): second}))", 9, ["(1, 2)"], ["a text"]),
    "NaN as a case": (TWO + "flow.graph(first.switch(cases={float('nan'): second}))", 9, ["nan"], []),
    "a huge number as a case": (
        TWO + "flow.graph(first.switch(cases={2**64: second}))",
        9,
        ["18446"],
        ["2**63"],
    ),
    "a case named on": (
        TWO + "flow.graph(first.switch(on=second, off=second))",
        9,
        ["on=<compute node 'second'", "not a field's name"],
        ['cases={"on": node}'],
    ),
    "a case that leads nowhere": (
        TWO + "flow.graph(first.switch(a=second, b=None))",
        9,
        ["None", "not a node"],
        ["a node without a way out"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_with_its_line_and_its_fix(name: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, *CASES[name])


WORKFLOWS: dict[str, tuple[str, list[str], list[str]]] = {
    "a name with a space": ("'my flow'", ["the name 'my flow'"], ["letters"]),
    "no steps": ("'s', max_steps=0", ["max_steps=0"], ["whole number"]),
    "a mistyped isolation": ("'s', isolate='spwan'", ["isolate='spwan'"], ["'spawn'"]),
    "a kept process whose files are compared": (
        "'s', isolate='keep', source='verify'",
        ["isolate='keep' and source='verify'"],
        ["leave one"],
    ),
    "a mistyped source rule": ("'s', source='verified'", ["source='verified'"], ["'verify'"]),
    "a variable with a value": (
        "'s', environment=['A=1']",
        ["'A=1'", "environment="],
        ['environment=["GITHUB_TOKEN"]'],
    ),
    "a secret without a name": ("'s', secrets=['']", ["''", "secrets="], ['secrets=["GITHUB_TOKEN"]']),
    "an absolute glob": ("'s', files=['/etc/*']", ["'/etc/*'"], ["below the project root"]),
    "a glob that climbs": ("'s', files=['../x']", ["'../x'"], ["below the project root"]),
    "an input without JSON": ("'s', input=object", ["object has no form in JSON"], ["msgspec Struct"]),
    "an input schema that is none": ("'s', input={'type': 3}", ["JSON Schema is not valid"], []),
    "a title that is text": ("'s', title='x'", ["title='x'"], ["lambda ctx"]),
    "a title of nothing": ("'s', title=lambda: 'x'", ["title="], ["ctx"]),
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_mistake_in_the_workflow_itself_is_named(name: str, tmp_path: Path) -> None:
    arguments, said, hinted = WORKFLOWS[name]
    head = f"from pwf import *\n\n\nflow = Workflow({arguments})\n"
    with pytest.raises(GraphError) as caught:
        load(tmp_path, "@flow.compute\ndef x(ctx): ...", head=head)
    assert caught.value.message.startswith(f"{tmp_path}/sample.py:4: workflow ")
    for part in said:
        assert part in caught.value.message
    for part in hinted:
        assert part in (caught.value.hint or "")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = DECIDE + "flow.graph(decide.switch(on='verdict', ship=ship), ship.on('faild') >> fix)"
    with pytest.raises(GraphError) as caught:
        load(tmp_path, text)
    message = caught.value.message
    assert message.startswith("the graph has 2 faults:")
    assert "no case for 'fix'" in message
    assert "did you mean 'failed'?" in message
    assert isinstance(caught.value.details, list)
    assert len(caught.value.details) == 2


def test_loops_are_fine(tmp_path: Path) -> None:
    flow = load(tmp_path, TWO + "flow.graph(first >> second >> first, second.on('failed') >> second)")
    assert [node.id for node in flow.to_graph().nodes] == ["first", "second"]


def test_a_fault_in_the_file_leaves_no_checked_graph(tmp_path: Path) -> None:
    namespace = namespace_of(tmp_path, TWO)
    for _ in range(2):
        with pytest.raises(GraphError):
            namespace["flow"].to_graph()
