"""Whose code is executed: nothing that somebody other than the user and root can change, unless the user trusts it.

Owns what is looked at: the workflow's file; the folder in which it lies and the project's root, from both of which
modules are imported, so that not even a sticky folder will do; the project's `.venv` where it is used; and every folder
above them. Promises: `trusted_folders` counts as it stands in the configuration now. Must never execute anything.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from pwf.config import load_config
from pwf.discovery import BUILTIN_WORKFLOWS, Found
from pwf.errors import Untrusted
from pwf.ownership import Stranger, stranger_on_way


def refuse_strangers(found: Found, interpreter: str, config: Path) -> None:
    """Raise `Untrusted` where others can change what a run of this file would execute; says who, and what to do."""
    for what, path in looked_at(found, interpreter):
        with contextlib.suppress(OSError):  # what is not there is not executed, and whoever needs it says so
            stranger = stranger_on_way(path)
            if stranger is not None:
                stranger = stranger_on_way(path, load_config(config).trusted_folders)
            if stranger is not None:
                folder = found.root if path.is_relative_to(found.root) else found.path.parent
                whose = stranger.why if stranger.path == path else f"{stranger.path}: {stranger.why}"
                raise Untrusted(
                    f"{what} {path} is not trusted: {whose}", hint=_what_to_do(stranger, folder, config)
                )


def looked_at(found: Found, interpreter: str) -> Iterator[tuple[str, Path]]:
    """The files and folders that decide what a run executes, and what each is."""
    if found.path.parent != BUILTIN_WORKFLOWS:  # which are part of pwf
        what = "the manager" if found.path.parent.name == "resources" else "the workflow"
        yield what, found.path
        yield f"{what}'s folder", found.path.parent
    yield "the project", found.root
    venv = found.root / ".venv"
    if interpreter == str(venv / "bin" / "python"):  # what it leads to is the system's
        for path in (venv / "pyvenv.cfg", venv / "bin", *venv.glob("lib*/python3*/site-packages")):
            yield "the project's environment", path


def _what_to_do(stranger: Stranger, folder: Path, config: Path) -> str:
    first = "work in a folder of your own, with the file in it"
    if os.lstat(stranger.path).st_uid == os.geteuid():
        first = f"chmod go-w {quote(str(stranger.path))}"
    return f"{first}; or, if they may run programs as you: trusted_folders = [{json.dumps(str(folder))}] in {config}"
