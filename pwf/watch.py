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


def still_valid(watch: Mapping[str, Mark | None]) -> bool:
    """Whether every watched path is as it was, and every absent one still absent. One `stat` a path."""
    return all(mark_of(path) == (None if kept is None else tuple(kept)) for path, kept in watch.items())


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
