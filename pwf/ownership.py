"""Whose a file or folder is, who else can change it, and files of ours that are opened without following links.

Owns the one meaning of "others can write it": everyone, a group other than the user's private one, or an access list.
The user and root are trusted, and nobody else. Looks at the machine with `lstat` only; never changes what it looks at.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pwf.errors import HomeRefused

ACCESS_LIST = "system.posix_acl_access"
LINKS_MAX = 40  # as Linux


class Stranger(NamedTuple):
    """A path that somebody other than the user and root can change, and how."""

    path: Path
    why: str


def stranger_on_way(path: Path, trusted: Iterable[str] = ()) -> Stranger | None:
    """The first name on the way from the root to `path`, itself included, that others can change; None: nobody can.

    Links are followed: what they stand in is looked at, and what they lead to. What lies in a folder that is `trusted`
    is not looked at, nor is the way to that folder. Raises `OSError` for what is not there.
    """
    steps = list(on_way(path))
    end, _ = steps[-1]
    folders = [os.path.realpath(os.path.expanduser(folder)) for folder in trusted]
    folders = [folder for folder in folders if _lies_in(end, folder)]
    for step, facts in steps:
        if any(_lies_in(step, folder) or _lies_in(folder, step) for folder in folders):
            continue
        why = others_can_write(step, facts)
        # In a sticky folder nobody can replace what belongs to somebody else, and what lies in it is looked at.
        if why is not None and not (step != end and _is_sticky(facts)):
            return Stranger(Path(step), why)
    return None


def on_way(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every name that the system passes from the root to `path`, each link before what it leads to; the end comes last.

    Raises `OSError` for what is not there.
    """
    here, links = "/", 0
    rest = _parts_backward(os.path.abspath(path))
    yield here, os.lstat(here)
    while rest:
        part = rest.pop()
        step = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        facts = os.lstat(step)
        yield step, facts
        if not stat.S_ISLNK(facts.st_mode):
            here = step
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = os.readlink(step)
        rest += _parts_backward(target)
        if target.startswith("/"):
            here = "/"


def _parts_backward(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def others_can_write(path: str | Path, facts: os.stat_result) -> str | None:
    """How somebody other than the user and root can change exactly this file or folder; None: nobody can."""
    if facts.st_uid not in (os.geteuid(), 0):
        return f"it belongs to {user_name(facts.st_uid)}"
    if not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or stat.S_ISLNK(facts.st_mode):
        return None  # the mode of a link says nothing
    mode = stat.S_IMODE(facts.st_mode)
    if mode & stat.S_IWOTH:
        return f"everyone can write it (mode {mode:04o})"
    if not _is_private_group(facts.st_gid):
        return f"group {_group_name(facts.st_gid)} can write it (mode {mode:04o})"
    if _has_access_list(path):
        return "its access list lets others write it"
    return None


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each for the user alone whatever the umask. `OSError`."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def check_own(path: Path) -> bool:
    """Whether a file of the home is there. Raises `HomeRefused` for a link, another user's file or no plain file."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HomeRefused(f"{path} can not be looked at: {error.strerror}") from error
    _refuse_other(path, facts)
    return True


def open_own(path: Path, flags: int) -> int:
    """Open a file of the home, made with 0600 where `flags` say so; the descriptor. Never follows a link.

    Raises `HomeRefused` for a link, another user's file or no plain file, and `OSError` as `os.open` does.
    """
    try:
        # Without O_NONBLOCK a named pipe in its place would keep us waiting; on a plain file it means nothing.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            check_own(path)
        raise
    try:
        _refuse_other(path, os.fstat(descriptor))
    except HomeRefused:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_other(path: Path, facts: os.stat_result) -> None:
    if stat.S_ISLNK(facts.st_mode):
        what = "is a link, and pwf follows none here"
    elif not stat.S_ISREG(facts.st_mode):
        what = "is no plain file"
    elif facts.st_uid not in (os.geteuid(), 0):
        what = f"belongs to {user_name(facts.st_uid)}"
    else:
        return
    raise HomeRefused(f"{path} {what}", hint=f"look at it (ls -l {path}), then move it away")


def user_name(uid: int) -> str:
    """A user as people know them."""
    import pwd  # only needed to word an error

    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_private_group(gid: int) -> bool:
    """Whether it is the group that most systems make for each user: of the user's name, and with nobody else in it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _has_access_list(path: str | Path) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    try:
        return bool(os.getxattr(path, ACCESS_LIST, follow_symlinks=False))
    except OSError:
        return False


def _is_sticky(facts: os.stat_result) -> bool:
    return bool(facts.st_mode & stat.S_ISVTX) and facts.st_uid in (os.geteuid(), 0)
