"""Pins the data that a workflow declares with `files=[globs]`.

A pattern is relative to the project's root, uses `/`, and is Python's `glob` with `**`; hidden files match
only a pattern that names the dot. A file is recorded under its path relative to the root, which is its name
for `ctx.file(name)`. A pattern without wildcards must name a file; one with wildcards may match nothing,
with a warning.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence

from pwf.errors import GraphError, LoadFailed
from pwf.runner.load.snapshot import Snapshot, read_settled
from pwf.values import VALUE_BYTES_MAX

DATA_BYTES_MAX = 64 * 1024 * 1024
DATA_FILES_MAX = 10_000


def pin_data(snapshot: Snapshot, patterns: Sequence[str], file: str) -> tuple[dict[str, bytes], list[str]]:
    """Read the files that the patterns name: {path relative to the root: bytes}, and warnings.

    Raises `GraphError` for a bad pattern, `LoadFailed` for what can't be read or is too much. `file` is
    named in the errors.
    """
    names: set[str] = set()
    warnings = []
    for pattern in patterns:
        _check(pattern, file)
        found = _match(snapshot, pattern)
        if not found and not glob.has_magic(pattern):
            raise LoadFailed(
                f"{file}: files= names {pattern!r}, and {snapshot.tree.root} has no such file",
                hint="the path is relative to the project's root",
            )
        if not found:
            warnings.append(f"{file}: files= has the pattern {pattern!r}, which matches no file")
        names.update(found)
    return _read_all(snapshot, sorted(names), file), warnings


def _check(pattern: str, file: str) -> None:
    parts = pattern.split("/")
    if not pattern or "\0" in pattern or os.path.isabs(pattern) or ".." in parts:
        raise GraphError(
            f"{file}: files= has the pattern {pattern!r}, which does not stay in the project's root",
            hint="write a path or glob relative to the root, such as 'data/*.json'",
        )


def _match(snapshot: Snapshot, pattern: str) -> list[str]:
    root = snapshot.tree.root
    _watch_folders(snapshot, pattern)
    if not glob.has_magic(pattern):
        snapshot.look_at(os.path.join(root, pattern))
    found = glob.glob(pattern, root_dir=root, recursive=True)
    return [os.path.normpath(name) for name in found if _is_file(snapshot, os.path.join(root, name))]


def _is_file(snapshot: Snapshot, path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and not _in_environment(snapshot, path)
    except OSError:
        return False


def _in_environment(snapshot: Snapshot, path: str) -> bool:
    """Whether the file stands in a virtual environment or among installed packages below the root."""
    folder = os.path.dirname(path)
    while len(folder) > len(snapshot.tree.root):
        if os.path.basename(folder) == "site-packages" or os.path.exists(os.path.join(folder, "pyvenv.cfg")):
            return True
        folder = os.path.dirname(folder)
    return False


def _watch_folders(snapshot: Snapshot, pattern: str) -> None:
    """Watch every folder whose list of entries decides what the pattern matches."""
    parts = pattern.split("/")[:-1]
    tops = [snapshot.tree.root]
    for part in parts:
        if part == "**":  # what follows is anywhere below
            _watch_below(snapshot, tops)
            return
        if glob.has_magic(part):
            for top in tops:
                snapshot.look_at(top)
            tops = [
                at
                for top in tops
                for at in glob.glob(os.path.join(glob.escape(top), part))
                if os.path.isdir(at)
            ]
        else:
            tops = [os.path.join(top, part) for top in tops]
    for top in tops:
        snapshot.look_at(top)


def _watch_below(snapshot: Snapshot, tops: list[str]) -> None:
    for top in tops:
        for folder, below, _ in os.walk(top):
            below[:] = [name for name in below if not name.startswith(".")]
            snapshot.look_at(folder)


def _read_all(snapshot: Snapshot, names: list[str], file: str) -> dict[str, bytes]:
    if len(names) > DATA_FILES_MAX:
        raise LoadFailed(f"{file}: files= matches {len(names):,} files; the limit is {DATA_FILES_MAX:,}")
    data: dict[str, bytes] = {}
    total = 0
    for name in names:
        path = os.path.join(snapshot.tree.root, name)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise LoadFailed(f"{file}: files= matches {name!r}, whose name is not UTF-8") from error
        total += os.path.getsize(path)
        if total > DATA_BYTES_MAX:
            raise LoadFailed(
                f"{file}: files= matches more than {DATA_BYTES_MAX:,} bytes (at {name!r}, {total:,} so far)",
                hint="name fewer files, or let a step read the large ones as they are",
            )
        data[name], kept = read_settled(path, limit=VALUE_BYTES_MAX)
        snapshot.watch.setdefault(path, kept)
    return data
