"""Dependencies point one way, and short commands import nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pwf
from tests.tidy.texts import import_statements, tree_of

ROOT = Path(__file__).parents[2] / "pwf"
FILES = sorted(ROOT.rglob("*.py"))

#: Where /proc says what the engine must know, psutil is for people who ask, and imported then.
PSUTIL = {"psutil"} if sys.platform == "linux" else set()
BASE = {"budgets", "errors", "ids", "clock", "values", "places", "ownership", "http_taken"}
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "config": BASE | {"audiences", "config_faults"},
    "config_faults": {"errors"},
    "audiences": set(),
    "version": set(),
    "secrets": BASE | {"config", "protocol"},
    "host": BASE,
    "watch": BASE | {"protocol"},
    "watching": BASE | {"protocol"},
    "discovery": BASE | {"protocol", "host", "watch"},
    "protocol": BASE | {"host"},
    "store": BASE | {"protocol"},
    "workflow": BASE | {"protocol"},
    "effects": BASE | {"protocol", "workflow"},
    "builtin_workflows": set(pwf.__all__),  # written as anybody's
    "runner": BASE | {"protocol", "workflow", "host", "discovery", "watch", "watching", "version"},
    "actors": BASE | {"protocol", "store", "host", "config", "secrets", "discovery", "watch", "version"},
    "channels": BASE | {"protocol", "host", "config", "secrets"},
    "client": BASE | {"protocol", "host", "config", "discovery", "watch", "version"},
    "crashlab": BASE | {"protocol", "client", "config", "host", "discovery"},
    "present": BASE | {"protocol"},
    "mcp": BASE | {"protocol", "client", "host", "config", "secrets"},
    "testing": BASE | {"protocol", "workflow", "runner"},
    "web": BASE | {"protocol", "client", "present", "config"},
    "__main__": {"cli"},
    "cli": BASE
    | {
        "protocol",
        "client",
        "present",
        "mcp",
        "web",
        "crashlab",
        "config",
        "host",
        "discovery",
        "watch",
        "version",
    },
}
#: The rooms of a part in order of rank: a room uses itself and those before it. Names without a folder are files that
#: stand beside the rooms.
RANKS = {
    "actors": (
        "base",
        "code",
        "processes",
        "claim",
        "runs",
        "resources",
        "sessions",
        "decisions",
        "pages",
        "channels",
        "upkeep",
        "operations",
        "door",
        "wiring",
        "daemon",
    ),
    "runner": (
        "base",
        "sameness",
        "kinds",
        "hangup",
        "engine",
        "lab",
        "generation",
        "reconcile",
        "load",
        "spawn",
    ),
}
#: Only `pwf daemon` starts the actors, and `pwf state restore` works on a home that no daemon serves.
EXCEPTIONS = {("cli/daemon.py", "actors"), ("cli/commands.py", "actors"), ("cli/state.py", "actors")}


def imports(path: Path) -> set[str]:
    """The parts of pwf that a module imports anywhere in its text, type checking aside."""
    found = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module == "pwf":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pwf."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pwf.")}
    return found


def test_a_module_imports_only_what_its_part_may() -> None:
    wrong = []
    for path in FILES:
        relative = str(path.relative_to(ROOT))
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            excepted = {name for file, name in EXCEPTIONS if relative == file}
            found = imports(path) - MAY_IMPORT[part] - {part} - excepted
            wrong += [f"pwf/{relative} must not import {name}" for name in sorted(found)]
    assert wrong == []


def modules_named(path: Path) -> set[str]:
    """The full dotted names of our modules, and of what is taken from them, that a text imports."""
    found = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pwf":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "pwf"}
    return found


def test_a_room_uses_only_the_rooms_before_it() -> None:
    for path in FILES:
        part, *rest = path.relative_to(ROOT).parts
        room = rest[0].removesuffix(".py") if rest else "__init__"
        if part in RANKS and room != "__init__":
            wrong = [name for name in modules_named(path) if not may_use(name, part, room)]
            assert not wrong, f"{path.relative_to(ROOT)} ({room}) must not import {wrong}"


def may_use(name: str, part: str, room: str) -> bool:
    """Whether a module of this room may import that name: it is another part's, or of a room before it."""
    ranks, words = RANKS[part], name.split(".")
    if len(words) <= 2 or words[1] != part:
        return True
    return words[2] in ranks and ranks.index(words[2]) <= ranks.index(room)


def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    names = {module_of(path): path for path in FILES}
    edges = {
        name: {
            target
            for wanted in modules_named(path)
            if (target := resolved(wanted, names)) not in (None, name)
        }
        for name, path in names.items()
    }
    while edges:
        leaves = {name for name, targets in edges.items() if not targets & edges.keys()}
        if not leaves:
            break
        for name in leaves:
            del edges[name]
    used = set().union(*edges.values()) if edges else set()
    circle = sorted(name for name in edges if name in used)
    assert not circle, f"these import each other: {circle}"


def module_of(path: Path) -> str:
    """The dotted name of a module of ours."""
    words = ("pwf", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def resolved(wanted: str, names: dict[str, Path]) -> str | None:
    """The module that an imported name comes from."""
    return wanted if wanted in names else next((n for n in (wanted.rpartition(".")[0],) if n in names), None)


def test_every_room_says_what_it_owns_and_knows() -> None:
    rooms = [
        folder for part in RANKS for folder in (ROOT / part).iterdir() if (folder / "__init__.py").exists()
    ]
    for room in rooms:
        said = ast.get_docstring(tree_of(room / "__init__.py")) or ""
        assert "Know" in said or "Extends" in said, (
            f"{room.relative_to(ROOT)}/__init__.py says nothing of its duty"
        )
        assert room.name in RANKS[room.parent.name]


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import pwf", {"trio", "anyio", "rich", "apsw"}),
        ("from pwf import Workflow", {"trio", "anyio", "rich", "apsw", "asyncio"}),
        ("import pwf.client.sync", {"trio", "anyio", "rich", "apsw", "asyncio"} | PSUTIL),
        (
            "import pwf.runner.spawn.zygote, pwf.runner.spawn.template, pwf.runner.kinds.command",
            {"apsw", "rich", "jsonschema_rs", "trio"},
        ),
        (
            "import pwf.runner.spawn.template, pwf.runner.base.updates, pwf.runner.kinds.command",
            {"threading", "logging", "random", "subprocess"},  # which have work to do in each fork
        ),
        (  # what a short command needs before it has spoken to the daemon
            "import pwf.client.sync; from pwf.cli.main import build_parser; build_parser('status')",
            {"trio", "anyio", "rich", "apsw", "asyncio", "ctypes", "hashlib", "shutil", "pwf.cli.run"}
            | PSUTIL,
        ),
        (  # what `pwf --help` and a mistyped command need
            "from pwf.cli.main import build_parser; build_parser()",
            {"pwf.config", "subprocess", "tempfile", "shutil", "getpass", "tomllib", "importlib.util"},
        ),
        ("import pwf.actors.daemon", {"pwf.workflow", "pwf.runner", "rich"} | PSUTIL),
    ],
)
def test_an_import_stays_light(statement: str, forbidden: set[str]) -> None:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not forbidden & set(done.stdout.split())
