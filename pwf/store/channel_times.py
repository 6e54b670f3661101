"""When an audience is shown what: one channel after another, not in its quiet hours, and again while nobody decides."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of an audience. `quiet`: minutes of the local day, from and to."""

    channels: tuple[str, ...]
    escalate_ms: int = 0
    remind_ms: int | None = None
    quiet: tuple[int, int] | None = None

    def first_ms(self, channel: str, asked_ms: int, now_ms: int) -> int:
        """When the channel shows what was asked then: its turn counts from when the first one could."""
        turn = after_quiet(asked_ms, self.quiet) + self.channels.index(channel) * self.escalate_ms
        return after_quiet(max(turn, now_ms), self.quiet)


def after_quiet(at_ms: int, quiet: tuple[int, int] | None) -> int:
    """That time, or the end of the quiet hours that it is in, by the local clock."""
    if quiet is None:
        return at_ms
    at = datetime.fromtimestamp(at_ms / 1_000)
    minute, (begin, end) = at.hour * 60 + at.minute, quiet
    is_quiet = begin <= minute < end if begin <= end else minute >= begin or minute < end
    if not is_quiet:
        return at_ms
    ends = at.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
    if ends <= at:
        ends += timedelta(days=1)
    return round(ends.timestamp() * 1_000)


def minutes_of(text: str) -> tuple[int, int]:
    """Of `22:00-07:00`."""
    begin, _, end = text.partition("-")
    return _minutes(begin), _minutes(end)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)
