"""What a function that must be pure does outside: seen through the interpreter's audit events.

Only Python's own acts are seen: what a C library does by itself is not. Reading is no fault; writing a file,
starting a process and opening a connection are. One watch per process, since an audit hook can't be taken away.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pwf.values import shortened

Seen = Callable[[str], None]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS = ("/dev/", "/proc/")

#: Event -> how to say it; the first argument that is a text follows.
_ACTS = {
    "os.remove": "removes",
    "os.rename": "renames",
    "os.mkdir": "makes the folder",
    "os.rmdir": "removes the folder",
    "os.link": "links",
    "os.symlink": "links",
    "os.truncate": "cuts",
    "os.chmod": "changes the mode of",
    "os.chown": "changes the owner of",
    "os.utime": "changes the times of",
    "subprocess.Popen": "starts the process",
    "os.system": "runs the command",
    "os.posix_spawn": "starts the process",
    "os.exec": "becomes",
    "os.fork": "forks",
    "socket.connect": "connects to",
    "socket.sendto": "sends to",
    "sqlite3.connect": "opens the database",
}


class Watch:
    """Installed once; watches while `over` is entered. `refuse`: what it sees is not done, but raises instead."""

    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse
        self._seen: Seen | None = None
        self._spared = os.path.realpath(tempfile.gettempdir()) if os.environ.get("TMPDIR") else None
        sys.addaudithook(self._hook)

    @contextmanager
    def over(self, seen: Seen | None) -> Iterator[None]:
        """Tell `seen` what is done outside meanwhile. None: whatever it is, nobody minds."""
        before, self._seen = self._seen, seen
        try:
            yield
        finally:
            self._seen = before

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        seen = self._seen
        if seen is None:
            return
        what = self._what(event, arguments)
        if what is None:
            return
        self._seen = None  # writing it down is our own act
        try:
            seen(what)
        finally:
            self._seen = seen
        if self._refuse:
            raise PermissionError(f"crashlab: a function that must be pure {what}")

    def _what(self, event: str, arguments: tuple[object, ...]) -> str | None:
        if event == "open":
            path, _, flags = (*arguments, None, None, None)[:3]
            if not isinstance(flags, int) or not flags & _WRITING or not self._counts(path):
                return None
            return f"writes {_text(path)}"
        act = _ACTS.get(event)
        if act is None:
            return None
        if event == "sqlite3.connect" and str(arguments[0]) in (":memory:", ""):
            return None
        if event.startswith("socket."):
            return f"{act} {_text(arguments[1])}"
        if event.startswith("os.") and arguments and not self._counts(arguments[0]):
            return None
        return f"{act} {_text(arguments[0])}" if arguments else act

    def _counts(self, path: object) -> bool:
        """Whether a path is a place outside. A descriptor is open already; bytecode and scratch files are nobody's."""
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return not isinstance(path, int)
        text = os.fsdecode(path)
        if text.startswith(_HARMLESS) or "__pycache__" in text:
            return False
        whole = os.path.realpath(text)
        return self._spared is None or not whole.startswith(self._spared + os.sep)


def _text(value: object) -> str:
    if isinstance(value, str | bytes | os.PathLike):
        return os.fsdecode(value)
    return shortened(repr(value), 200)
