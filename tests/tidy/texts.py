"""The texts of the repository as trees, each parsed once for all the rules that a process looks at."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """All imports of a file, wherever they stand."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
