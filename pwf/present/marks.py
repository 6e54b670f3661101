"""The mark and the colour of each status, the same wherever it is shown."""

from __future__ import annotations

STATUS_STYLE = {
    "queued": "cyan",
    "running": "blue",
    "waiting": "yellow",
    "paused": "yellow",
    "ambiguous": "magenta",
    "held": "magenta",
    "completed": "green",
    "failed": "red",
    "timed_out": "red",
    "cancelled": "dim",
}
STATUS_MARK = {
    "queued": "○",
    "running": "▶",
    "waiting": "?",
    "paused": "‖",
    "ambiguous": "!",
    "held": "■",
    "completed": "✓",
    "failed": "✗",
    "timed_out": "✗",
    "cancelled": "-",
}
