"""One finding of `pwf doctor`, and what may be said of it."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `fix` can be typed, or says what to do."""

    name: str
    verdict: Literal["ok", "warn", "fail"]
    found: str
    fix: str | None = None


def ok(name: str, found: str) -> Check:
    return Check(name=name, verdict="ok", found=found)


def warn(name: str, found: str, fix: str) -> Check:
    return Check(name=name, verdict="warn", found=found, fix=fix)


def fail(name: str, found: str, fix: str) -> Check:
    return Check(name=name, verdict="fail", found=found, fix=fix)
