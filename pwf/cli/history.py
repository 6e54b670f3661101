"""How one entry of a history is printed, a run's or a resource's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.views import EventView


def print_event(event: EventView, out: Out) -> None:
    """One entry of a history."""
    if out.as_json:
        out.emit(event)
        return
    now_ms = out.now_ms()
    payload = text.json_line(bytes(event.payload))
    head = f"{event.revision:>5}  {text.clock_time(event.at_ms, now_ms)}  {text.line(event.kind):<20}"
    actor = out.paint(f"{text.line(event.actor):<8}", "dim")
    out.print(f"{head}  {actor}  {text.cut(payload, max(20, out.width - 50))}".rstrip())
