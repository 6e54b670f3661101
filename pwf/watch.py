"""Whether files are still as they were: the resolver's cached answers, and the sources of `source="verify"`.

Only `stat` and reads; runs nothing of a project. A mark is (mtime_ns, ctime_ns, size, inode).
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping

import msgspec

from pwf.protocol.graph import SourceFile, WorkflowDefinition
from pwf.values import CHUNK_BYTES, canonical, digest

Mark = tuple[int, int, int, int]

#: A file written so shortly before it was read may be written again without its time changing: file systems
#: keep times by the kernel's tick. Its mark is made to agree with nothing, so that the next look reads it
#: afresh.
SETTLED_NS = 20_000_000
_UNSETTLED = -1


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


def still_valid(watch: Mapping[str, Mark | None]) -> bool:
    """Whether every watched path is as it was, and every absent one still absent. One `stat` a path."""
    return all(mark_of(path) == (None if kept is None else tuple(kept)) for path, kept in watch.items())


def verify_sources(sources: Iterable[SourceFile], root: str) -> list[str]:
    """The paths of recorded files that are missing or differ from what was recorded (`source="verify"`).

    Data files are recorded relative to `root`; all others by their absolute path. Blocks on disk reads.
    """
    changed = {source.path for source in sources if not _unchanged(source, root)}
    return sorted(changed)


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
    path = os.path.join(root, source.path)  # an absolute path stands for itself
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != source.size:
            return False
        hasher = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                hasher.update(piece)
    except (OSError, ValueError):
        return False
    return hasher.hexdigest() == source.digest
