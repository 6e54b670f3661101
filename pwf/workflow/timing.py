"""Durations as an author writes them, retry, and the time that a wait node answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pwf.errors import InvalidArgument
from pwf.protocol.graph import RetrySpec

DURATION_MAX = timedelta(days=366 * 10_000)  # as far as a datetime reaches

_MILLISECOND = timedelta(milliseconds=1)


def seconds(count: float) -> timedelta:
    """`count` seconds."""
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    """`count` minutes."""
    return timedelta(minutes=count)


def hours(count: float) -> timedelta:
    """`count` hours."""
    return timedelta(hours=count)


def days(count: float) -> timedelta:
    """`count` days of 24 hours."""
    return timedelta(days=count)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try a failed step again, `times` more times at most.

    The n-th further try waits `backoff * factor**(n-1)`, at most `maximum`. Failed and timed-out tries count, and those
    that took their process with them; interruptions (a killed daemon, a reboot) don't. Between tries the run holds
    nothing, and the wait survives a crash.
    """

    times: int
    backoff: timedelta = timedelta(seconds=1)
    factor: float = 2
    maximum: timedelta = timedelta(hours=1)

    def spec(self) -> RetrySpec:
        """The same as data. `InvalidArgument` says which number makes no sense."""
        if not isinstance(self.times, int) or isinstance(self.times, bool) or self.times < 1:
            raise InvalidArgument(f"Retry(times={self.times!r}) must be a whole number from 1")
        if (
            isinstance(self.factor, bool)
            or not isinstance(self.factor, int | float)
            or not 1 <= self.factor <= 1000
        ):
            raise InvalidArgument(f"Retry(factor={self.factor!r}) must be a number from 1 to 1000")
        return RetrySpec(
            times=self.times,
            backoff_ms=0 if self.backoff == timedelta(0) else to_ms(self.backoff, "Retry(backoff=…)"),
            factor=float(self.factor),
            max_ms=to_ms(self.maximum, "Retry(maximum=…)"),
        )


@dataclass(frozen=True, slots=True)
class Due:
    """When a wait ends: relative (`delay_ms` from now) or absolute (`wall_ms` since 1970); exactly one is
    set.
    """

    delay_ms: int | None = None
    wall_ms: int | None = None


def to_ms(duration: object, what: str) -> int:
    """Whole milliseconds of a timedelta above 0 and at most `DURATION_MAX`, rounded up; else `InvalidArgument`."""
    if not isinstance(duration, timedelta):
        raise InvalidArgument(
            f"{what} is {duration!r}, which has no unit",
            hint="write seconds(20), minutes(5), hours(1), days(7) or a datetime.timedelta",
        )
    if duration <= timedelta(0):
        raise InvalidArgument(f"{what} must be longer than nothing, not {duration}")
    if duration > DURATION_MAX:
        raise InvalidArgument(f"{what} must be at most {DURATION_MAX.days:,} days, not {duration}")
    return -(-duration // _MILLISECOND)


def due_of(value: object, node_id: str) -> Due:
    """What the function of a wait node returned, as data. A time that has passed is due at once."""
    if isinstance(value, timedelta):
        if value > DURATION_MAX:
            raise InvalidArgument(
                f"wait node {node_id!r} returned {value}; a wait lasts at most {DURATION_MAX.days:,} days"
            )
        return Due(delay_ms=max(0, -(-value // _MILLISECOND)))
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidArgument(
                f"wait node {node_id!r} returned {value!r}, a time without a time zone",
                hint="make it aware: datetime.now(timezone.utc) + …, or .astimezone()",
            )
        _refuse_gap(value, node_id)
        return Due(wall_ms=int(value.timestamp() * 1000))
    raise InvalidArgument(
        f"wait node {node_id!r} returned {value!r:.80}, which is not a time",
        hint="return seconds(20), minutes(5), a datetime.timedelta, or a datetime with a time zone",
    )


def _refuse_gap(moment: datetime, node_id: str) -> None:
    """Of a time that comes twice, `fold` says which is meant: the first, unless the author has set it."""
    first, second = moment.replace(fold=0), moment.replace(fold=1)
    if first.timestamp() > second.timestamp():  # each is shifted by the clock of the other side
        before, after = (
            one.astimezone(UTC).astimezone(moment.tzinfo).isoformat(timespec="minutes")
            for one in (second, first)
        )
        raise InvalidArgument(
            f"wait node {node_id!r} returned {moment.replace(tzinfo=None)} of {moment.tzinfo}, which does not exist: "
            "the clock is put forward over it",
            hint=f"return {before} (before the change) or {after} (after it)",
        )
