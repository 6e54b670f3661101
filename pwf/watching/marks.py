"""What a file or a folder is like, in one short text: the same text means that nothing in it was changed.

Looks at names and at what `stat` says, never into files. Promises: a change of a file's bytes, a name that comes or
goes, and a file that takes another's place give another text, however long nobody looked. What was written just now may
be written again without its times changing: then the text agrees with no later one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator

ENTRIES_MAX = 50_000  # of one tree; what lies beyond them is not looked at, and the text says so
ABSENT = "absent"
DIGEST_CHARS = 32
SETTLED_NS = 20_000_000  # file systems keep times by the kernel's tick


def mark_of_tree(path: str) -> str:
    """The mark of what the path leads to: a file, a folder with all below it, or `ABSENT`."""
    digest = hashlib.sha256()
    count = youngest = 0
    try:
        for name, found in _entries(path):
            count += 1
            if count > ENTRIES_MAX:
                digest.update(b"more")
                break
            digest.update(os.fsencode(name))
            digest.update(b"\0%d %d %d %d %d\n" % _facts(found))
            youngest = max(youngest, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        if count == 0:
            return ABSENT
        digest.update(b"gone")  # while it was read: the next look gives another text
    if count and youngest > time.time_ns() - SETTLED_NS:
        digest.update(b"young")
    return digest.hexdigest()[:DIGEST_CHARS] if count else ABSENT


def _facts(found: os.stat_result) -> tuple[int, int, int, int, int]:
    """Of a folder only what it is: its names are entries of their own, and its times change with them."""
    if stat.S_ISDIR(found.st_mode):
        return (found.st_mode, found.st_ino, 0, 0, 0)
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _entries(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The path itself, then all below it in the order of names. Links below it are not followed."""
    top = os.stat(path)
    yield "", top
    if not stat.S_ISDIR(top.st_mode):
        return
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            names = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue  # gone, or not ours to read: its own line stands for it
        for entry in names:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield os.path.relpath(entry.path, path), found
            if stat.S_ISDIR(found.st_mode):
                pending.append(entry.path)
