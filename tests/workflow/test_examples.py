"""The example workflows load, and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from pwf.workflow.load import find_workflow
from pwf.workflow.workflow import Workflow
from tests.workflow.author import completed, context
from tests.workflow.walk import walk

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


def example(name: str) -> Workflow[Any]:
    return find_workflow(runpy.run_path(str(EXAMPLES / name)))


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_loads(name: str) -> None:
    graph = example(name).to_graph()
    assert graph.name == name.removesuffix(".py")
    assert graph.doc


def test_hello() -> None:
    flow = example("hello.py")
    assert walk(flow, {}).output == "Hello, world!"
    assert flow.title_of(context(flow, input={"name": "Ada"})) == "hello Ada"


@pytest.fixture
def release(tmp_path: Path) -> dict[str, Any]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("x = 1\n")
    return {"version": "1.0", "source": str(source), "output": str(tmp_path / "out")}


SHIP, AGAIN, STOP = ({"verdict": verdict} for verdict in ("ship", "again", "stop"))


def test_a_release_is_published_after_the_answer(release: dict[str, Any]) -> None:
    walked = walk(example("release.py"), release, (AGAIN, SHIP))
    assert walked.output == {
        "version": "1.0",
        "path": f"{release['output']}/published/1.0.tar.gz",
        "intact": True,
    }
    names = [name for name, _ in walked.steps]
    assert names == ["check", "pack", "approve", "check", "pack", "approve", "publish", "settle", "confirm"]
    assert [prompt["question"] for prompt in walked.prompts] == ["Publish version 1.0?"] * 2
    assert walked.updates[0][:2] == ("progress", "pack")


def test_a_release_that_is_stopped_or_broken_publishes_nothing(release: dict[str, Any]) -> None:
    flow = example("release.py")
    stopped = walk(flow, release, ({"verdict": "stop", "note": "not today"},))
    assert stopped.output == {"published": False, "reason": "not today"}
    (Path(release["source"]) / "b.py").write_text("x =\n")
    broken = walk(flow, release)
    assert broken.steps == [("check", "failed"), ("refused", "completed")]
    assert "SyntaxError" in broken.output["reason"]
    assert not (Path(release["output"]) / "published").exists()


def test_a_version_is_published_once(release: dict[str, Any]) -> None:
    flow = example("release.py")
    walk(flow, release, (SHIP,))
    again = walk(flow, release, (SHIP,))
    assert again.steps[-2:] == [("publish", "failed"), ("refused", "completed")]
    assert again.output["reason"] == "version 1.0 is published already"


def test_observe_tells_whether_a_release_was_published(release: dict[str, Any]) -> None:
    flow = example("release.py")
    publish = flow.nodes["publish"]
    assert publish.observe is not None
    for answer, verdict in ((STOP, "not_applied"), (SHIP, "applied")):
        walk(flow, release, (answer,))
        archive = {"path": f"{release['output']}/built/1.0.tar.gz", "sha256": "", "bytes": 1}
        ctx = context(flow, "publish", input=release, past=(completed("pack", archive),))
        assert publish.observation(publish.observe(ctx)).verdict == verdict
