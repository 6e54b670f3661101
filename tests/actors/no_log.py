"""A log that writes nothing."""

from __future__ import annotations

from pwf.actors.base.logging import Level, Log


class NoLog(Log):
    """Remembers the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, *, level: Level = "info", **fields: object) -> None:
        self.events.append((event, {"level": level, **fields}))
