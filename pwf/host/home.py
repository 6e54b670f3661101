"""The state folder: made, or looked at before anything in it is used. For the daemon and for clients that start one.

Promises: nothing is used, and nothing mended, in a folder that others could have put something into; what is missing is
made for the user alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from shlex import quote

from pwf import host
from pwf.errors import HomeRefused
from pwf.ownership import make_folder, others_can_write, user_name

NAMED_MAX = 8  # files that a refusal names


def prepare_home(home: Path) -> None:
    """Make the state folder, or check the one that is there. Raises `HomeRefused` with what to do."""
    try:
        make_folder(home)
        facts = home.stat()
    except OSError as error:
        raise HomeRefused(
            f"the state folder {home} can not be made: {error.strerror}",
            hint="set PWF_HOME to another folder",
        ) from error
    if not stat.S_ISDIR(facts.st_mode):
        raise HomeRefused(f"{home} is not a folder", hint="set PWF_HOME to a folder")
    if facts.st_uid != os.geteuid():
        raise HomeRefused(
            f"the state folder {home} belongs to {user_name(facts.st_uid)}, and you are {user_name(os.geteuid())}",
            hint="set PWF_HOME to a folder of your own",
        )
    if host.is_network_filesystem(home):
        raise HomeRefused(
            f"the state folder {home} is on a network file system ({host.filesystem_type(home)}), where SQLite's "
            "locks do not hold",
            hint="set PWF_HOME to a folder on a local disk",
        )
    refuse_open_home(home, facts)
    _make_private(home, facts)


def refuse_open_home(home: Path, facts: os.stat_result) -> None:
    """Raise `HomeRefused` where others can write the folder, or have left a file in it, naming what lies there."""
    foreign = []
    try:
        inside = sorted(os.listdir(home))
        for name in inside:
            with contextlib.suppress(FileNotFoundError):  # it went away just now
                if (home / name).lstat().st_uid not in (os.geteuid(), 0):
                    foreign.append(name)
    except OSError as error:
        raise HomeRefused(
            f"the state folder {home} can not be read: {error.strerror}", hint=f"chmod 700 {quote(str(home))}"
        ) from error
    if why := others_can_write(home, facts):
        raise HomeRefused(
            f"others can put files into the state folder {home}: {why}; {what_lies_there(inside)}",
            hint=f"look at each of them (ls -l {quote(str(home))}), remove what is not yours, "
            f"then chmod 700 {quote(str(home))}",
        )
    if foreign:
        raise HomeRefused(
            f"files of other users lie in the state folder {home}: {_named(foreign)}",
            hint="look at each of them, then move it away",
        )


def what_lies_there(names: list[str]) -> str:
    """The names that a folder holds, for a refusal."""
    return f"in it: {_named(sorted(names))}" if names else "it is empty"


def _named(names: list[str]) -> str:
    more = f", and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _make_private(home: Path, facts: os.stat_result) -> None:
    """Who could only look in shall not do that either. What the user took from themselves stays taken."""
    mode = stat.S_IMODE(facts.st_mode)
    try:
        if mode & ~0o700:
            home.chmod(mode & 0o700)
    except OSError as error:
        raise HomeRefused(f"the rights of {home} can not be set: {error.strerror}") from error
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise HomeRefused(
            f"the state folder {home} can not be written", hint="make it writable, or set PWF_HOME to another"
        )
