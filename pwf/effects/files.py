"""Writing a file as a whole: it has all of its new bytes or none of them, whatever dies in between.

The new bytes are written and synced beside the file under a name that belongs to the effect's key, and renamed over it.
So the digest of what stands there, and whether the new file is still beside it, tell what happened.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pwf.effects.durable import sync
from pwf.effects.prepared import Request
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

READ_BYTES = 1024 * 1024
ANYTHING: Final = "anything"  # `replaces`: whatever stands there is replaced
NOTHING: Final = "nothing"  # `replaces`: there must be no such file


class FileWritten(msgspec.Struct, frozen=True, kw_only=True):
    """The output: where it stands, and the SHA-256 of its bytes in hex."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class WriteFile(Request[FileWritten]):
    """Write `data` (text as UTF-8) to `path`, relative to the project's root, in a folder that exists.

    `replaces`: the SHA-256 of what must stand there before, `NOTHING`, or `ANYTHING`. With `ANYTHING` you say that
    writing over what another program has put there does no harm: then a file that has other bytes counts as not
    written, and is written again; so does one that has another `mode` than the request names. `NOTHING` needs a file
    system with hard links.
    """

    path: str | os.PathLike[str]
    data: str | bytes
    replaces: str = ANYTHING
    mode: int | None = None  # permissions; None: those of the file that is replaced, else by the umask

    def apply(self, key: str) -> FileWritten:
        """Write it. `NotApplied` when something else stands there, or the new file can't be written or renamed."""
        try:
            beside, place, written = self._beside(key), self._place, self._written
        except (OSError, ValueError) as error:
            raise NotApplied(f"{self.path!r} was not written: {error}") from error
        try:
            before = digest_of(place)
            if self.replaces not in (ANYTHING, before):
                raise FileExistsError(f"it has other bytes than the request wants to replace: {before}")
            self._write(beside)
        except OSError as error:
            raise self._given_up(beside, error) from error
        try:
            if self.replaces == NOTHING:
                os.link(beside, place)  # a rename would write over a file that has come in between
            else:
                os.replace(beside, place)
        except OSError as error:
            if not beside.exists() or _is_same(beside, place):
                raise  # over a network it may have happened all the same
            raise self._given_up(beside, error) from error
        sync(place.parent)
        _drop(beside)
        return written

    def observe(self, key: str) -> Observation:
        """Written: it has these bytes. Not written: the new file still lies beside it, or what was to be replaced."""
        try:
            beside, place = self._beside(key), self._place
            os.stat(place.parent)  # a folder that is gone tells nothing of its files
            found, unfinished = digest_of(place), beside.exists()
            if _is_same(beside, place) or (
                not unfinished and found == self._written.digest and self._has_mode()
            ):
                sync(place.parent)  # who wrote it may have died before that
                _drop(beside)
                return applied(self._written, ref=self._written.digest)
        except OSError:
            return unknown()
        if self.replaces in (ANYTHING, found) or (unfinished and self.replaces != NOTHING):
            return not_applied()
        return unknown()  # it was written and then changed, or changed before it could be written

    @property
    def _place(self) -> Path:
        return Path(os.path.realpath(self.path))  # a link stays a link, what it names is written

    @property
    def _bytes(self) -> bytes:
        return self.data.encode() if isinstance(self.data, str) else self.data

    @property
    def _written(self) -> FileWritten:
        data = self._bytes
        return FileWritten(path=str(self.path), digest=hashlib.sha256(data).hexdigest(), size=len(data))

    def _beside(self, key: str) -> Path:
        path = self._place
        return path.with_name(f".{path.name[:100]}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.new")

    def _has_mode(self) -> bool:
        return self.mode is None or stat.S_IMODE(self._place.stat().st_mode) == self.mode

    def _given_up(self, beside: Path, error: OSError) -> NotApplied:
        _drop(beside)
        return NotApplied(f"{self.path} was not written: {error}")

    def _write(self, beside: Path) -> None:
        beside.unlink(missing_ok=True)
        mode = self.mode
        if mode is None and self._place.exists():
            mode = stat.S_IMODE(self._place.stat().st_mode)
        with open(beside, "xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(self._bytes)
            file.flush()
            os.fsync(file.fileno())


def digest_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes in hex, or `NOTHING` where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while data := file.read(READ_BYTES):
                digest.update(data)
    except FileNotFoundError:
        return NOTHING
    return digest.hexdigest()


def _drop(beside: Path) -> None:
    with suppress(OSError):  # litter changes no outcome
        beside.unlink()


def _is_same(one: Path, other: Path) -> bool:
    """Whether both are names of one file."""
    return one.exists() and other.exists() and one.samefile(other)
