"""A disk that can lose power, fill up and fail: a VFS for SQLite over files in a folder.

Each file has a durable image (what was synced) and the writes since. A process that dies leaves what it wrote; a
machine that loses power leaves the durable image and any part of the later writes, pages torn. The entry of a new file
in its folder is durable from its first sync on, and the removal of one whenever SQLite asks for that. One `Mount` per
daemon: what a dead daemon's connections still do while they are closed never happened.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import apsw

_numbers = itertools.count()
TRACKED = ("pwf.db", "pwf.db-wal")


class PowerFails(Exception):
    """The machine goes off within this call."""


class PagesDropped(Exception):
    """This sync fails, and what it should have written will never be: the kernel takes it for clean from here on."""


class ShortRead(Exception):
    """This read brings a part only."""


class _Image:
    """One file: `durable` bytes and what was written after the last sync, in order."""

    def __init__(self, content: bytes, *, listed: bool) -> None:
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, data), or (size, None) for a truncation
        self.listed = listed  # its entry in the folder is durable

    def sync(self) -> None:
        for offset, data in self.pending:
            _put(self.durable, offset, data)
        self.pending.clear()
        self.listed = True

    def after_power_loss(self, chance: random.Random) -> bytes:
        """What the platter holds: each later write came whole, in part, or not at all."""
        lost, torn = chance.choice([(1.0, 0.0), (0.5, 0.3), (0.1, 0.1)])
        for offset, data in self.pending:
            if chance.random() < lost:
                continue
            if data is not None and chance.random() < torn:
                cut = chance.randrange(len(data) + 1)
                offset, data = (offset, data[:cut]) if chance.random() < 0.5 else (offset + cut, data[cut:])
            _put(self.durable, offset, data)
        self.pending.clear()
        return bytes(self.durable)


def _put(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """The files in `folder`."""

    def __init__(self, folder: Path, chance: random.Random, *, loses_power: bool = True) -> None:
        self.folder = folder
        self.images: dict[str, _Image] = {}
        self.removed: dict[str, bytes] = {}  # files whose removal is not durable yet
        self.losses = self.entries_lost = 0
        self._chance = chance
        self._loses_power = loses_power

    def mount(self, *, fails: bool = True) -> Mount:
        """A view for one daemon. `fails`: whether some of its calls will."""
        return Mount(self, fails=fails)

    def image(self, path: str) -> _Image | None:
        """The tracked file at `path`; made at its first use."""
        if not self._loses_power or Path(path).name not in TRACKED:
            return None
        found = self.images.get(path)
        if found is None:
            file = Path(path)
            listed = file.exists()
            found = self.images[path] = _Image(file.read_bytes() if listed else b"", listed=listed)
        return found

    def remove(self, path: str, *, durable: bool) -> None:
        """A file is removed."""
        image = self.images.pop(path, None)
        if durable:
            self.removed.clear()
        elif image is not None and image.listed:
            self.removed[path] = bytes(image.durable)

    def lose_power(self) -> None:
        """Put the files into the state after a power loss. No connection may be open."""
        assert self._loses_power
        self.losses += 1
        for path, image in list(self.images.items()):
            content = image.after_power_loss(self._chance)
            if not image.listed and self._chance.random() < 0.5:
                self.entries_lost += 1
                del self.images[path]
                Path(path).unlink(missing_ok=True)
            elif Path(path).exists():
                Path(path).write_bytes(content)
                image.listed = True
        for path, content in self.removed.items():
            if not Path(path).exists() and self._chance.random() < 0.5:
                self.entries_lost += 1
                Path(path).write_bytes(content)
        self.removed.clear()
        (self.folder / "pwf.db-shm").unlink(missing_ok=True)


class Mount(apsw.VFS):
    """One daemon's file system. `fail` is asked at every call and raises what should happen."""

    def __init__(self, disk: Disk, *, fails: bool = True) -> None:
        self.disk = disk
        self._file = _FailingFile if fails else _File
        self.mount_name = f"sim-disk-{next(_numbers)}"
        self.dead = False
        self.fail: Callable[[str, str], None] = _no_failure
        super().__init__(self.mount_name, "")

    def xOpen(self, name, flags):
        return self._file(self, name, flags)

    def xDelete(self, filename, syncdir):
        if self.dead:
            return
        self.touch("delete", filename)
        self.disk.remove(filename, durable=bool(syncdir))
        super().xDelete(filename, syncdir)

    def close_all(self) -> None:
        """Its process has ended: what it left open is closed, or SQLite would share the dead one's index of the WAL."""
        for connection in apsw.connections():
            if connection.open_vfs == self.mount_name:
                connection.close(True)

    def touch(self, act: str, file: str) -> None:
        """Let what should happen at this call happen."""
        try:
            self.fail(act, file)
        except PowerFails:
            self.dead = True
            raise apsw.IOError("the power has failed") from None

    def excepthook(self, kind, error, trace):
        """The fault is ours; apsw would print it."""


class _File(apsw.VFSFile):
    def __init__(self, mount: Mount, name, flags) -> None:
        self._mount = mount
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        mount.touch("open", self._name)
        self._image = mount.disk.image(self._name)
        super().__init__("", name, flags)

    def excepthook(self, kind, error, trace):
        """The fault is ours; apsw would print it."""

    def xWrite(self, data, offset):
        if self._mount.dead:
            return
        try:
            self._mount.touch("write", self._name)
        except apsw.IOError:
            if self._mount.dead and self._image is not None:
                self._image.pending.append(
                    (offset, bytes(data))
                )  # it may have come to the platter, or a part of it
            raise
        if self._image is not None:
            self._image.pending.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size):
        if self._mount.dead:
            return
        self._mount.touch("truncate", self._name)
        if self._image is not None:
            self._image.pending.append((size, None))
        super().xTruncate(size)

    def xSync(self, flags):
        if self._mount.dead:
            return
        try:
            self._mount.touch("sync", self._name)
        except PagesDropped:
            if self._image is not None:
                self._image.pending.clear()
            raise apsw.IOError("sync failed") from None
        if self._image is not None:
            listed = self._image.listed
            self._image.sync()
            if not listed:
                self._mount.disk.removed.clear()  # SQLite syncs the folder with a new file


class _FailingFile(_File):
    """Reads are asked for, too. They are many, so this costs something."""

    def xRead(self, amount, offset):
        try:
            self._mount.touch("read", self._name)
        except ShortRead:
            return super().xRead(amount, offset)[: amount // 2]
        return super().xRead(amount, offset)


def _no_failure(act: str, file: str) -> None:
    return None
