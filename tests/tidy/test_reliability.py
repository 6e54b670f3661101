"""docs/reliability.md names, for each scenario, what shows it; and all that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from benchmarks.questions import NAMES
from tests.tidy.texts import tree_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## How each promise is tested")[1].split("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")]
SCENARIOS = [
    *(
        f"{letter}{number}"
        for letter, last in {"R": 8, "T": 4, "S": 6, "O": 4}.items()
        for number in range(1, last + 1)
    ),
    *("C1", "C2", *(f"P{number}" for number in range(1, 7))),
]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", SECTION)))


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = tree_of(ROOT / "tests" / file)
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_a_test_that_the_page_names_exists() -> None:
    missing = [f"tests/{file}::{name}" for file, name in NAMED if name not in functions_of(file)]
    assert not missing, f"docs/reliability.md names what is not there: {missing}"


def test_every_scenario_has_its_row_with_what_shows_it() -> None:
    rows = {row[0]: row[-1] for row in ROWS}
    assert [name for name in rows if name in SCENARIOS] == SCENARIOS
    for name in SCENARIOS:
        assert "::" in rows[name] or rows[name].startswith("not yet"), name


def test_no_row_is_without_something_that_shows_it() -> None:
    assert [row[0] for row in ROWS if "`" not in row[-1] and "not yet" not in row[-1]] == [
        "what happens",
        "---",
        "what else is promised",
        "---",
    ]


def test_commands_and_benchmarks_that_the_page_names_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", PAGE)) <= targets
    assert set(re.findall(r"benchmark `(\w+)`", PAGE)) <= set(NAMES)
    for module in re.findall(r"`python -m ([\w.]+)", PAGE):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    for file in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (ROOT / file).exists(), file
