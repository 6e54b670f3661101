"""Every example of docs/resources.md is loaded, and does what the page says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pwf.cli.resource_file import read_resources
from pwf.errors import GraphError
from tests.resources.kept import Kept
from tests.workflow.manager_author import load

PAGE = Path(__file__).parents[2] / "docs" / "resources.md"


class Example(NamedTuple):
    kind: str
    wanted: dict[str, Any]
    text: str
    shown: str


def examples() -> list[Example]:
    page = PAGE.read_text()
    pattern = r"<!-- (manager|refused)(.*?) -->\n```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    found = [
        Example(match[1], json.loads(match[2].strip() or "{}"), match[3], match[4] or "")
        for match in re.finditer(pattern, page, re.DOTALL)
    ]
    assert len(found) == page.count("```python"), "each example says what is to be done with it"
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.wanted.get("name", example.kind))
def test_an_example_of_the_page(example: Example, tmp_path: Path) -> None:
    if example.kind == "refused":
        with pytest.raises(GraphError) as caught:
            load(tmp_path, example.text, head="")
        said = caught.value.message.replace(f"{tmp_path}/sample.py", "broken.py")
        assert said == example.shown.rstrip("\n")
        return
    wanted = example.wanted
    spec = {key: str(item).replace("$TMP", str(tmp_path)) for key, item in wanted["spec"].items()}
    kept = Kept(load(tmp_path, example.text, head=""), spec)
    assert kept.manager.name == wanted["name"]

    kept.settle()

    assert kept.status == wanted["status"]
    assert kept.ready[0] == wanted["ready"]
    if "file" in wanted:
        name, text = wanted["file"]
        assert (tmp_path / name).read_text() == text
        (tmp_path / name).unlink()
        kept.settle()
        assert (tmp_path / name).read_text() == text
        kept.deleting = True
        kept.settle()
        assert (not (tmp_path / name).exists(), kept.finalizers) == (True, ())


def test_the_file_of_resources_on_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "r.toml").write_text(text)

    found = read_resources(str(tmp_path / "r.toml"))

    assert [(one.manager, one.key) for one in found] == [("note", "greeting"), ("note", "farewell")]
    assert tomllib.loads(text)["resource"][1]["spec"] == {"path": "/tmp/bye.txt"}
