"""Writes workflow files as an author would, and loads them as the resolver does; and a context without a runner."""

from __future__ import annotations

import itertools
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.errors import GraphError
from pwf.protocol.runner import PastStep, StepError, Value
from pwf.values import canonical
from pwf.workflow.context import Context
from pwf.workflow.load import find_workflow
from pwf.workflow.scopes import sight
from pwf.workflow.workflow import Workflow

_count = itertools.count()

HEAD = """\
from pwf import *
from typing import *
import enum, msgspec
flow = Workflow("sample")
"""  # four lines: what follows begins on line 5


def namespace_of(folder: Path, text: str, *, head: str = HEAD, name: str = "sample.py") -> dict[str, Any]:
    """Execute a workflow file and return its names."""
    file = folder / name
    file.write_text(head + textwrap.dedent(text))
    return executed(file)


def executed(file: Path) -> dict[str, Any]:
    """Execute a file as a module of its own and return its names."""
    module = types.ModuleType(f"sample_{next(_count)}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # msgspec looks there for the names in annotations
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), vars(module))
    return vars(module)


def load(folder: Path, text: str, *, head: str = HEAD) -> Workflow[Any]:
    """Execute a workflow file and find its checked workflow."""
    return find_workflow(namespace_of(folder, text, head=head))


def assert_refused(folder: Path, text: str, line: int, said: list[str], hinted: list[str]) -> None:
    """Loading the file is one `GraphError` at this line, with these parts in its message and its hint."""
    with pytest.raises(GraphError) as caught:
        load(folder, text)
    message, hint = caught.value.message, caught.value.hint or ""
    assert message.startswith(f"{folder}/sample.py:{line}: "), message
    assert "\n" not in message, "one mistake, one fault"
    assert [part for part in said if part not in message] == [], message
    assert [part for part in hinted if part not in hint] == [], hint


def value(data: object) -> Value:
    """An inline value."""
    return Value(json=msgspec.Raw(canonical(data)))


def inline(found: Value) -> bytes:
    """What an inline value is."""
    assert found.json is not None
    return bytes(found.json)


def completed(node: str, output: object, visit: int = 1) -> PastStep:
    """A step that gave an output."""
    return PastStep(node=node, visit=visit, outcome="completed", output=value(output))


def failed(node: str, message: str, visit: int = 1) -> PastStep:
    """A step that failed."""
    error = StepError(code="node_failed", message=message, node=node)
    return PastStep(node=node, visit=visit, outcome="failed", error=error)


def context(
    flow: Workflow[Any],
    node: str = "",
    *,
    input: object = None,
    past: tuple[PastStep, ...] = (),
    visit: int = 1,
    **more: Any,
) -> Context[Any]:
    """What the function of `node` would get."""
    steps = {step.node: step for step in past}
    at = node or flow.to_graph().start
    seen = sight(flow.scopes, at, visit, entries={}, input=value(input), past=steps, completed=steps)
    return Context(
        run_id="run1",
        node=seen.node,
        visit=seen.visit,
        attempt=1,
        input=seen.input,
        input_type=seen.scope.input_type,
        nodes=seen.scope.names,
        leaves=seen.scope.leaves,
        all_nodes=flow.nodes,
        past=seen.past,
        read_value=inline,
        **more,
    )
