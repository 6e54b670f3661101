"""The daemon's log: one JSON object a line, a constant event name and ids.

Owns the stream it was given. Promises: a line is written whole by one `write`, and a log that can not be
written (disk full, closed terminal) stops nothing. Must never hold payloads, tokens or environments.
"""

from __future__ import annotations

import os
import sys
from typing import Literal

import msgspec

from pwf.clock import Clock
from pwf.values import shortened

Level = Literal["info", "warning", "error"]
TEXT_MAX = 4_000  # characters of one field: a traceback fits, a payload that strayed in does not

_encoder = msgspec.json.Encoder(enc_hook=str)


class Log:
    """Call it: `log("run.admitted", run_id=…)`. `clock` dates the lines; `descriptor` None is stderr."""

    def __init__(self, clock: Clock, descriptor: int | None = None) -> None:
        self._clock = clock
        self._descriptor = sys.stderr.fileno() if descriptor is None else descriptor

    def __call__(self, event: str, *, level: Level = "info", **fields: object) -> None:
        line: dict[str, object] = {"at_ms": self._clock.now().wall_ms, "level": level, "event": event}
        line.update((name, _bounded(value)) for name, value in fields.items() if value is not None)
        try:
            os.write(self._descriptor, _encoder.encode(line) + b"\n")
        except OSError:
            return  # nowhere to say it

    def warning(self, event: str, **fields: object) -> None:
        """Something that a person may want to look at; the daemon goes on."""
        self(event, level="warning", **fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that ended a run's process, a connection or the daemon."""
        self(event, level="error", **fields)


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return shortened(value, TEXT_MAX)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _bounded(str(value))
