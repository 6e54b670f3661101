"""Whose a file or folder is, who else can change it, and files of ours that are opened without following links.

Owns the one meaning of "others can write it": everyone, a group other than the user's private one, or an access list.
The user and root are trusted, and nobody else. Looks at the machine with `lstat` only; never changes what it looks at.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from pwf.errors import HomeRefused

ACCESS_LIST = "system.posix_acl_access"


class Stranger(NamedTuple):
    """A path that somebody other than the user and root can change, and how."""

    path: Path
    why: str


def stranger_on_way(path: Path) -> Stranger | None:
    """The first of `path` and the folders above it, up to the root, that others can change; None: nobody can.

    Links are followed: what they stand in is looked at, and what they lead to. Raises `OSError` for what is not there.
    """
    absolute = Path(os.path.abspath(path))
    for end in dict.fromkeys((absolute, Path(os.path.realpath(absolute)))):
        for step in (end, *end.parents):
            facts = step.lstat()
            why = others_can_write(step, facts)
            # In a sticky folder nobody can replace what belongs to somebody else, and what lies in it was looked at.
            if why is not None and not (step != end and _is_sticky(facts)):
                return Stranger(step, why)
    return None


def others_can_write(path: Path, facts: os.stat_result) -> str | None:
    """How somebody other than the user and root can change exactly this file or folder; None: nobody can."""
    if facts.st_uid not in (os.geteuid(), 0):
        return f"it belongs to {user_name(facts.st_uid)}"
    mode = stat.S_IMODE(facts.st_mode)
    if stat.S_ISLNK(facts.st_mode):
        return None  # the mode of a link says nothing
    if mode & stat.S_IWOTH:
        return f"everyone can write it (mode {mode:04o})"
    if mode & stat.S_IWGRP and not _is_private_group(facts.st_gid):
        return f"group {_group_name(facts.st_gid)} can write it (mode {mode:04o})"
    if mode & stat.S_IWGRP and _has_access_list(path):
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


def _has_access_list(path: Path) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    try:
        return bool(os.getxattr(path, ACCESS_LIST, follow_symlinks=False))
    except OSError:
        return False


def _is_sticky(facts: os.stat_result) -> bool:
    return bool(facts.st_mode & stat.S_ISVTX) and facts.st_uid in (os.geteuid(), 0)
