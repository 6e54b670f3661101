"""What an attack is: a function that tries something, and returns what it saw when pwf has held."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.e2e.home import Home


class Broken(Exception):
    """The attack has succeeded."""


class LeftOut(Exception):
    """This machine can't show it; the text says what is missing."""


class Attack(NamedTuple):
    """`section`: what of docs/security.md it is about."""

    name: str
    section: str
    does: str
    act: Callable[[Home], str]


ATTACKS: dict[str, Attack] = {}
PARTS = ("files", "users", "steps", "sockets", "hosts", "web")


def load() -> None:
    """Fill `ATTACKS`."""
    for part in PARTS:
        importlib.import_module(f"tests.attack.{part}")


def attack(section: str) -> Callable[[Callable[[Home], str]], Callable[[Home], str]]:
    """Register a function as an attack; its docstring says what it tries."""

    def register(act: Callable[[Home], str]) -> Callable[[Home], str]:
        name = act.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, section, (act.__doc__ or "").strip().splitlines()[0], act)
        return act

    return register


def held(condition: object, otherwise: str) -> None:
    """`Broken` when the condition does not hold."""
    if not condition:
        raise Broken(otherwise)


def refused(home: Home, *words: str, saying: str) -> str:
    """Type a command that must be refused in words, without a traceback; what it said."""
    done = home.run(*words, code=None)
    said = done.stdout + done.stderr
    held(done.returncode not in (0, None), f"pwf {' '.join(words)} was not refused: {said[-400:]}")
    held("Traceback" not in said, f"pwf {' '.join(words)} shows a traceback: {said[-800:]}")
    held(saying in said, f"pwf {' '.join(words)} does not say {saying!r}: {said[-400:]}")
    return said


def contains(folder: Path, secret: bytes) -> list[Path]:
    """The files of a folder that hold these bytes."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and secret in path.read_bytes()
    ]
