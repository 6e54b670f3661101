"""Files and functions stay short enough to be read (style, rule 3)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

SOURCES = sorted(
    path for folder in ("pwf", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_is_short_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    limit = TEST_FILE_LINES_MAX if path.is_relative_to(ROOT / "tests") else FILE_LINES_MAX
    assert len(text.splitlines()) <= limit
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "the module has no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_function_is_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"
