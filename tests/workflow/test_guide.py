"""Every example of docs/authoring.md, effects.md and decisions.md is executed, and does what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pwf.errors import GraphError
from pwf.workflow.load import find_workflow
from tests.workflow.author import load, namespace_of
from tests.workflow.walk import walk

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "authoring.md"


class Example(NamedTuple):
    """A block of a page: what its comment asks for, its text, and the text block after it."""

    place: str
    kind: str
    wanted: dict[str, Any]
    text: str
    shown: str


def examples(page: Path) -> list[Example]:
    guide = page.read_text()
    pattern = r"<!-- (run|refused|fragment)(.*?) -->\n```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    found = [
        Example(
            f"{page.stem} line {guide.count(chr(10), 0, match.start()) + 1}",
            match[1],
            ast.literal_eval(match[2].strip().replace("null", "None") or "{}"),
            match[3],
            match[4] or "",
        )
        for match in re.finditer(pattern, guide, re.DOTALL)
    ]
    assert len(found) == guide.count("```python"), "each example says what is to be done with it"
    return found


EXAMPLES = [*examples(GUIDE), *examples(DOCS / "effects.md"), *examples(DOCS / "decisions.md")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
def test_an_example_of_the_guide(example: Example, tmp_path: Path) -> None:
    if example.kind == "refused":
        with pytest.raises(GraphError) as caught:
            load(tmp_path, example.text, head="")
        said = (
            f"{caught.value.message}\n    {caught.value.hint}" if caught.value.hint else caught.value.message
        )
        assert said.replace(f"{tmp_path}/sample.py", "broken.py") == example.shown.rstrip("\n")
        return
    namespace = namespace_of(tmp_path, example.text, head="")
    if example.kind == "fragment":
        return
    wanted = example.wanted
    given = wanted["input"]
    if isinstance(given, dict):
        given = {key: str(tmp_path) if item == "$TMP" else item for key, item in given.items()}
    walked = walk(find_workflow(namespace), given, tuple(wanted.get("answers", ())))
    assert not walked.error
    assert walked.output == wanted.get("output", walked.output)
    assert [name for name, _ in walked.steps] == wanted.get("steps", [name for name, _ in walked.steps])
    assert walked.prompts == wanted.get("prompts", walked.prompts)
    assert [list(update) for update in walked.updates] == wanted.get("updates", [])
    assert [waited.total_seconds() for waited in walked.waited] == wanted.get("waited_s", [])


def test_links_within_the_guide_lead_somewhere() -> None:
    guide = GUIDE.read_text()
    titles = re.findall(r"^## (.*)$", guide, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", guide)) <= anchors
