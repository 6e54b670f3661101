"""The daemon's log: one JSON object a line, a constant event name and ids.

Owns the stream or file that it was given, and its rotation. Promises: the files are bounded in size and number; a line
is written whole by one `write`, and a log that can not be written (disk full, closed terminal) stops nothing. Must
never hold payloads, tokens or environments.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from pwf.clock import Clock
from pwf.errors import HomeRefused
from pwf.ownership import open_own
from pwf.values import shortened

Level = Literal["info", "warning", "error"]
LOG_BYTES_MAX = 8 * 1024 * 1024  # of one file
LOG_FILES = 4
STDERR = 2
TEXT_MAX = 4_000  # characters of one field: a traceback fits, a payload that strayed in does not

_encoder = msgspec.json.Encoder(enc_hook=str)


class Log:
    """Call it: `log("run.admitted", run_id=…)`. `clock` dates the lines; without a `path` they go to stderr.

    A file that has grown to `LOG_BYTES_MAX` becomes `PATH.1`, that one `PATH.2`, and so on; the oldest goes.
    """

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        self._clock = clock
        self._path = path
        self._descriptor = STDERR
        if path is not None:
            self._open(path)

    def __call__(self, event: str, *, level: Level = "info", **fields: object) -> None:
        line: dict[str, object] = {"at_ms": self._clock.now().wall_ms, "level": level, "event": event}
        line.update((name, _bounded(value)) for name, value in fields.items() if value is not None)
        data = _encoder.encode(line) + b"\n"
        try:
            if self._path is not None:
                self._make_room(self._path, len(data))
            os.write(self._descriptor, data)
        except OSError:
            return  # nowhere to say it

    def _make_room(self, path: Path, size: int) -> None:
        facts = os.fstat(self._descriptor)
        if self._descriptor != STDERR and facts.st_nlink and facts.st_size + size <= LOG_BYTES_MAX:
            return
        if facts.st_nlink:  # else somebody has removed it
            for number in range(LOG_FILES - 1, 0, -1):
                with contextlib.suppress(OSError):
                    os.rename(_numbered(path, number - 1), _numbered(path, number))
        self._open(path)

    def _open(self, path: Path) -> None:
        """What can't be opened now is said on stderr."""
        before = self._descriptor
        try:
            self._descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except (OSError, HomeRefused):
            return
        if before != STDERR:
            os.close(before)

    def warning(self, event: str, **fields: object) -> None:
        """Something that a person may want to look at; the daemon goes on."""
        self(event, level="warning", **fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that ended a run's process, a connection or the daemon."""
        self(event, level="error", **fields)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return shortened(value, TEXT_MAX)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _bounded(str(value))
