"""Actors share nothing, as far as a text can show it: no locks, no tasks in another's nursery,
messages that nobody can change, and files that read in one order."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from tests.tidy.texts import tree_of

ROOT = Path(__file__).parents[2] / "pwf" / "actors"
FILES = sorted(ROOT.rglob("*.py"))

LOCKS = {"Lock", "StrictFIFOLock", "Semaphore", "Condition"}
#: Each stands between the tasks of one owner, and its file's docstring says why it is better than a task with an inbox.
MAY_LOCK = {
    (
        "door/connection.py",
        "Semaphore",
    ): "the writer's turn on one client's socket; the bound of its open requests",
    ("processes/link.py", "Lock"): "the writer's turn on one control socket",
}
#: Files whose actor keeps its own nursery in a field, and why.
MAY_KEEP_A_NURSERY: dict[str, str] = {}
ORDER = ("limits", "messages", "the handle", "the actor", "pure functions")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def calls(path: Path) -> list[ast.Call]:
    nodes = ast.walk(tree_of(path))
    return [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]


def test_an_actor_has_no_lock() -> None:
    made = {
        (named(path), call.func.attr)
        for path in FILES
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "trio"
        and call.func.attr in LOCKS
    }
    assert not made - MAY_LOCK.keys(), "give the work to a task with an inbox, or say why that is worse"


def test_what_may_lock_still_does() -> None:
    for file, kind in MAY_LOCK:
        assert f"trio.{kind}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {kind} any more"


def test_a_task_begins_only_in_a_nursery_that_its_starter_was_given() -> None:
    """A nursery in a field is one that other tasks can spawn into."""
    kept = [
        f"{named(path)}: {ast.unparse(call.func)}"
        for path in FILES
        if named(path) not in MAY_KEEP_A_NURSERY
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("start", "start_soon")
        and isinstance(call.func.value, ast.Attribute)
        and "nursery" in call.func.value.attr
    ]
    assert kept == []


def module(path: Path) -> Any:
    return importlib.import_module("pwf.actors." + named(path).removesuffix(".py").replace("/", "."))


def test_what_goes_into_an_inbox_is_a_frozen_struct_by_its_own_type() -> None:
    found = set()
    for path in FILES:
        for inside in re.findall(r"\bMailbox\[([^\]]+)\]", path.read_text(encoding="utf-8")):
            if inside not in ("T", "Any"):
                kind = eval(inside, vars(module(path)))
                found |= {get_origin(one) or one for one in get_args(kind) or (kind,)}
    assert len(found) > 10
    for kind in found:
        assert issubclass(kind, msgspec.Struct), f"{kind.__qualname__} is no struct"
        assert kind.__struct_config__.frozen, f"{kind.__qualname__} is not frozen"


def test_an_actor_file_reads_from_its_docstring_to_its_pure_functions() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        heads = [head for head in re.findall(r"^# --- ([a-z ]+?) -+$", text, re.MULTILINE) if head in ORDER]
        assert heads == sorted(heads, key=ORDER.index), f"{named(path)}: {heads}"
        if "the actor" in heads:
            said = ast.get_docstring(tree_of(path)) or ""
            for word in ("Owns", "romises", "In:", "Out:", "dies"):
                assert word in said, f"{named(path)}'s docstring does not say {word}"
