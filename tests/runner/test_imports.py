"""What a text names, found without running it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pwf.runner.load.imports import absolute, findings


def names(text: str, *, module: str = "pack.mod", is_package: bool = False) -> list[str]:
    """The module names in a text."""
    found = findings(text.encode(), "x.py", module=module, is_package=is_package)
    return [named.name for named in found.modules]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a, b.c as d", ["a", "b.c"]),
        ("from a import b, c", ["a", "a.b", "a.c"]),
        ("from a import *", ["a"]),
        ("from . import b", ["pack", "pack.b"]),
        ("from .b import c", ["pack.b", "pack.b.c"]),
        ("from .. import b", []),
        ("importlib.import_module('a.b')", ["a.b"]),
        ("import_module('.b', package='other')", ["other.b"]),
        ("import_module('.b', __package__)", ["pack.b"]),
        ("import_module(name='a')", []),
        ("__import__('a')", ["a"]),
        ("def f():\n async def g():\n  class C:\n   import deep", ["deep"]),
        ("try:\n import a\nexcept ImportError:\n import b", ["a", "b"]),
        ("'import a'  # import b", []),
    ],
)
def test_names_are_found_wherever_they_stand(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_relative_names_start_at_a_packages_own_name() -> None:
    assert names("from . import b", module="pack.sub", is_package=True) == ["pack.sub", "pack.sub.b"]
    assert names("from .. import b", module="pack.sub", is_package=True) == ["pack", "pack.b"]
    assert absolute("x", 3, "a.b") is None
    assert absolute("x", 1, "") is None


@pytest.mark.parametrize(
    "text", ["import_module(name)", "importlib.import_module(f'a.{x}')", "__import__(*a)"]
)
def test_computed_imports_are_told_with_their_line(text: str) -> None:
    assert findings(b"\n" + text.encode(), "x.py", module="m", is_package=False).computed == (2,)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("open('a.txt')", "a.txt"),
        ("open('a.txt', 'rb')", "a.txt"),
        ("open('a.txt', mode='r')", "a.txt"),
        ("Path('a.txt').read_text()", "a.txt"),
        ("pathlib.Path('a.txt').read_bytes()", "a.txt"),
        ("Path('a.txt').open()", "a.txt"),
        ("open('a.txt', 'w')", None),
        ("open('a.txt', mode='r+')", None),
        ("open(name)", None),
        ("Path('a.txt').write_text('x')", None),
        ("Path('a.txt').open('wb')", None),
        ("gzip.open('a.txt')", None),
    ],
)
def test_reads_by_a_literal_path_are_told_and_writes_are_not(text: str, read: str | None) -> None:
    found = findings(text.encode(), "x.py", module="m", is_package=False).reads

    assert found == (() if read is None else ((1, read),))


def test_loading_code_brings_neither_trio_nor_the_database_with_it() -> None:
    program = (
        "import sys, pwf.runner.load.resolve, pwf.runner.load.pinned\n"
        "print([name for name in ('trio', 'apsw', 'anyio', 'asyncio', 'pwf.actors') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"


def test_what_executes_a_record_brings_neither_a_look_for_workflows_nor_another_agents_loop_with_it() -> None:
    program = (
        "import sys, pwf.runner.spawn.fresh, pwf.runner.kinds.headless\n"
        "print([name for name in ('pwf.discovery', 'pwf.places', 'difflib', 'asyncio') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"
