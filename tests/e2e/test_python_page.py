"""The client's examples of docs/python.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.world import World

GREET = """
flow = Workflow("greet", title=lambda ctx: "greet " + ctx.input["name"])

@flow.compute
def greet(ctx):
    return {"text": "Hello, " + ctx.input["name"] + "!"}

@flow.compute
def shout(ctx):
    return ctx[greet]["text"].split()[0].strip(",").upper()

@flow.compute
def end(ctx):
    return ctx[greet]

flow.graph(greet >> shout >> end)
"""
PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"<!-- client -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=["blocking", "asynchronous"])
def test_an_example_of_the_page_runs(world: World, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    world.home.workflow("greet", GREET)
    monkeypatch.chdir(world.home.project)
    for name in ("PWF_HOME", "PATH"):
        monkeypatch.setenv(name, world.home.environment[name])
    exec(compile(text, "python.md", "exec"), {"__name__": "example"})
