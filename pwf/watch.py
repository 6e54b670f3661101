"""Whether files are still as they were: the resolver's cached answers, and the sources of `source="verify"`.

Only `stat` and reads; runs nothing of a project. A mark is (mtime_ns, ctime_ns, size, inode).
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pwf.protocol.graph import SourceFile, WorkflowDefinition
from pwf.values import CHUNK_BYTES, canonical, digest

Mark = tuple[int, int, int, int]

#: A file written so shortly before it was read may be written again without its time changing: file systems
#: keep times by the kernel's tick. Its mark is made to agree with nothing, so that the next look reads it
#: afresh.
SETTLED_NS = 20_000_000
_UNSETTLED = -1
DIGEST_SHOWN = 12  # characters of a digest in a message


def mark_of(path: str) -> Mark | None:
    """The mark of what the path leads to, or None where nothing can be reached."""
    try:
        return mark(os.stat(path))
    except (OSError, ValueError):
        return None


def mark(found: os.stat_result) -> Mark:
    """The mark of a stat result."""
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def mark_to_keep(found: os.stat_result) -> Mark:
    """The mark to keep for what was just looked at: one that never agrees, when it is too young to trust."""
    now = time.time_ns()
    if any(abs(now - changed) < SETTLED_NS for changed in (found.st_mtime_ns, found.st_ctime_ns)):
        return (_UNSETTLED, found.st_ctime_ns, found.st_size, found.st_ino)
    return mark(found)


def mark_as_of(path: str, since_ns: int) -> Mark | None:
    """The mark of what was read since then; one that never agrees, where it may have been written meanwhile."""
    kept = mark_of(path)
    if kept is None or max(kept[:2]) < since_ns - SETTLED_NS:
        return kept
    return (_UNSETTLED, *kept[1:])


def mark_to_keep_of(path: str) -> Mark | None:
    """The same for what the path leads to, or None where nothing can be reached."""
    try:
        return mark_to_keep(os.stat(path))
    except (OSError, ValueError):
        return None


def still_valid(watch: Mapping[str, Mark | None]) -> bool:
    """Whether every watched path is as it was, and every absent one still absent."""
    return Watched(watch).hold()


class Watched:
    """Paths that are looked at again and again: as they were, or absent as they were.

    A folder that has not changed since holds no new name. So one `stat` of the folder stands for all the paths that
    were found absent in it (a module may stand in a dozen places), and each present path takes one of its own.
    """

    def __init__(self, marks: Mapping[str, Mark | None]) -> None:
        self._present = {path: tuple(kept) for path, kept in marks.items() if kept is not None}
        self._absent = [path for path, kept in marks.items() if kept is None]
        # Folders as they were before the absent paths below them were looked at, and the paths for which none stands.
        self._spared: tuple[dict[str, Mark], list[str]] | None = None
        self._looked_ns = -1  # when the last look that found everything as it was began

    def __len__(self) -> int:
        return len(self._present) + len(self._absent)

    def hold(self, asked_ns: int | None = None) -> bool:
        """Whether everything is as it was. Blocks on `stat`; threads may call it at once.

        `asked_ns`: by this time (`time.monotonic_ns`) it was asked. A look that began later answers it, too.
        """
        if asked_ns is not None and asked_ns < self._looked_ns:
            return True
        began_ns = time.monotonic_ns()
        if not self._look():
            return False
        self._looked_ns = began_ns
        return True

    def _look(self) -> bool:
        if any(mark_of(path) != kept for path, kept in self._present.items()):
            return False
        if self._spared is not None:
            folders, alone = self._spared
            if all(mark_of(folder) == kept for folder, kept in folders.items()):
                return all(mark_of(path) is None for path in alone)
        return self._look_at_all()

    def _look_at_all(self) -> bool:
        """Look at each absent path, and learn which folders stand for them the next time."""
        missing = {path: _first_missing(path) for path in self._absent}
        marks = {
            folder: _settled_mark(folder) for folder in {os.path.dirname(one) for one in missing.values()}
        }
        folders: dict[str, Mark] = {}
        alone: list[str] = []
        for path, first in missing.items():  # only now that the folders' marks are taken
            if mark_of(path) is not None:
                return False
            kept = marks[os.path.dirname(first)]
            if kept is None or os.path.lexists(first):  # a dangling link: what it leads to may come elsewhere
                alone.append(path)
            else:
                folders[os.path.dirname(first)] = kept
        # A folder may be too young to trust: then all is looked at the next time, too.
        self._spared = None if None in marks.values() else (folders, alone)
        return True


def _first_missing(path: str) -> str:
    """The topmost part of an absent path that is not there, or the path itself."""
    while (folder := os.path.dirname(path)) != path and not os.path.lexists(folder):
        path = folder
    return path


def _settled_mark(path: str) -> Mark | None:
    kept = mark_to_keep_of(path)
    return kept if kept is not None and kept[0] != _UNSETTLED else None


def verify_sources(sources: Iterable[SourceFile], root: str) -> list[str]:
    """The paths of recorded files that are missing or differ from what was recorded (`source="verify"`).

    Data files are recorded relative to `root`; all others by their absolute path. Blocks on disk reads.
    """
    return sorted({changed.path for changed in changed_sources(sources, root)})


class Changed(NamedTuple):
    """A recorded file that differs. Digests are SHA-256; `present` is None where nothing can be read."""

    path: str
    recorded: str
    present: str | None

    def __str__(self) -> str:
        now = "gone" if self.present is None else f"now {self.present[:DIGEST_SHOWN]}"
        return f"{self.path} (recorded {self.recorded[:DIGEST_SHOWN]}, {now})"


def changed_sources(sources: Iterable[SourceFile], root: str) -> list[Changed]:
    """The recorded files that are missing or differ, with what is there now. Blocks on disk reads."""
    return [
        Changed(source.path, source.digest, _present(source, root))
        for source in sources
        if not _unchanged(source, root)
    ]


def same_code(one: WorkflowDefinition, other: WorkflowDefinition) -> bool:
    """Whether two definitions would execute the same texts and read the same pinned data."""
    return _code(one) == _code(other)


def definition_id(definition: WorkflowDefinition) -> str:
    """The digest of everything in the definition but its own id."""
    fields = {name: getattr(definition, name) for name in WorkflowDefinition.__struct_fields__}
    del fields["definition_id"]
    return digest(canonical(msgspec.to_builtins(fields), what="definition"))


def _code(definition: WorkflowDefinition) -> set[tuple[str, str, str, str]]:
    return {(source.kind, source.path, source.module, source.digest) for source in definition.sources}


def _unchanged(source: SourceFile, root: str) -> bool:
    try:
        if os.stat(os.path.join(root, source.path)).st_size != source.size:
            return False
    except (OSError, ValueError):
        return False
    return _present(source, root) == source.digest


def _present(source: SourceFile, root: str) -> str | None:
    """The digest of what stands there now."""
    path = os.path.join(root, source.path)  # an absolute path stands for itself
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        hasher = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                hasher.update(piece)
    except (OSError, ValueError):
        return None
    return hasher.hexdigest()
