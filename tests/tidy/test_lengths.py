"""Files and functions stay short enough to be read (style, rule 3)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.texts import tree_of

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

SOURCES = sorted(
    path for folder in ("pwf", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_file_is_short_and_says_what_it_owns() -> None:
    wrong = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        limit = TEST_FILE_LINES_MAX if path.is_relative_to(ROOT / "tests") else FILE_LINES_MAX
        if (lines := len(text.splitlines())) > limit:
            wrong.append(f"{name(path)} has {lines} lines; the limit is {limit}")
        if text.strip() and not ast.get_docstring(tree_of(path)):
            wrong.append(f"{name(path)} has no docstring")
    assert not wrong, wrong


def test_a_function_is_short() -> None:
    wrong = []
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    wrong.append(f"{node.name} in {name(path)} has {length} lines")
    assert not wrong, wrong
