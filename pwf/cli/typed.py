"""What people type: JSON, @files, times and durations. Each mistake says what was expected."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pwf.cli.out import UsageError
from pwf.errors import PwfError, ValueTooLarge
from pwf.values import VALUE_BYTES_MAX, check_size, parse

PAST_MS_MAX = 60_000  # `--at $(date …)` may be a moment late
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
DURATION_MS_MAX = 100 * 365 * 86_400_000


def json_argument(typed: str, what: str) -> Any:
    """The value of `JSON`, `@FILE` or `-` (stdin)."""
    if typed == "-":
        given = f"{what} (stdin)"
        data = sys.stdin.buffer.read(VALUE_BYTES_MAX + 1)
        if len(data) > VALUE_BYTES_MAX:
            raise ValueTooLarge(f"{given} has more than the limit of {VALUE_BYTES_MAX:,} bytes")
        return _parse(data, given, "pass JSON on stdin")
    if typed.startswith("@"):
        path = Path(typed[1:]).expanduser()
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > VALUE_BYTES_MAX:
                    raise ValueTooLarge(
                        f"{what} file {str(path)!r} has {size:,} bytes; the limit is {VALUE_BYTES_MAX:,}"
                    )
                data = file.read(VALUE_BYTES_MAX + 1)
        except OSError as error:
            raise UsageError(
                f"{what} file {str(path)!r} can not be read: {error.strerror}", hint="check the path after @"
            ) from error
        return _parse(data, f"{what} file {str(path)!r}", "fix the file; it must hold one JSON value")
    hint = f"put text in double quotes inside single ones: '{_quoted(typed)}'; or use @FILE"
    return _parse(_encoded(typed, what), what, hint)


def at_ms(typed: str, now_ms: int, note: Callable[[str], object]) -> int:
    """A moment: ISO 8601 (local time when it names no zone), or `+10m`, `2h30m`. `note` gets what was assumed."""
    ahead = _duration(typed.removeprefix("+"))
    if ahead is not None:
        return now_ms + ahead
    hint = "use ISO 8601 (2030-01-31T08:00, 2030-01-31T08:00+02:00) or a distance (+10m, 2h30m)"
    moment = _moment_ms(typed, "--at", hint, note)
    if moment < now_ms - PAST_MS_MAX:
        raise UsageError(
            f"--at {typed!r} is in the past: that was {zoned(moment)}",
            hint="leave --at out to start now, or say +10m",
        )
    return moment


def zoned(at_ms: int) -> str:
    """A moment in local time, with the zone by name and offset."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z (%z)")


def past_ms(typed: str, now_ms: int, option: str, note: Callable[[str], object]) -> int:
    """A moment that has passed: ISO 8601, or a distance back (`30d`, `12h`)."""
    back = _duration(typed)
    if back is not None:
        return now_ms - back
    hint = "use ISO 8601 (2026-01-31, 2026-01-31T08:00+02:00) or a distance back (30d, 12h)"
    moment = _moment_ms(typed, option, hint, note)
    if moment > now_ms:
        raise UsageError(f"{option} {typed!r} is in the future", hint="name a moment that has passed")
    return moment


def _moment_ms(typed: str, option: str, hint: str, note: Callable[[str], object]) -> int:
    """A local time that a change of the clock leaves out is refused; of one that comes twice, the first is taken."""
    try:
        moment = datetime.fromisoformat(typed)
        first, second = (int(moment.replace(fold=fold).timestamp() * 1000) for fold in (0, 1))
        shown = [datetime.fromtimestamp(ms / 1000).isoformat() for ms in (first, second)]
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{option} {typed!r} is not a time", hint=hint) from error
    if first > second:  # each is shifted by the clock of the other side
        raise UsageError(
            f"{option} {typed!r} does not exist: the clock is put forward over it",
            hint=f"say {shown[1]} (before the change), {shown[0]} (after it), or add the offset of a zone",
        )
    if first < second:
        firsts, seconds = (
            datetime.fromtimestamp(ms / 1000).astimezone().isoformat() for ms in (first, second)
        )
        note(
            f"{option} {typed} comes twice, as the clock is put back: the first is taken, {firsts}, not {seconds}"
        )
    return first


def duration_ms(typed: str, option: str) -> int:
    """A length of time: `30s`, `2h30m`, `500ms`; a bare number is seconds."""
    found = _duration(typed if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", typed) else typed + "s")
    if found is None:
        raise UsageError(
            f"{option} {typed!r} is not a length of time", hint=f"for example {option} 30s or 2h30m"
        )
    return found


def _duration(typed: str) -> int | None:
    parts = _DURATION.findall(typed)
    if not parts or "".join(number + unit for number, unit in parts) != typed:
        return None
    total = sum(float(number) * _UNIT_MS[unit] for number, unit in parts)
    return None if total > DURATION_MS_MAX else int(total)


def _parse(data: bytes, what: str, hint: str) -> Any:
    try:
        return parse(check_size(data, limit=VALUE_BYTES_MAX, what=what), what=what)
    except PwfError as error:
        error.hint = error.hint or hint
        raise


def _encoded(typed: str, what: str) -> bytes:
    try:
        return typed.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not UTF-8", hint="put it into a file and use @FILE") from error


def _quoted(typed: str) -> str:
    shown = typed if len(typed) <= 30 else typed[:27] + "..."
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("'", "’") + '"'
