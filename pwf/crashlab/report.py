"""What a lab found, as data: `pwf crashlab --json` prints it as it stands."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["fault", "person", "note"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something to know. `fault`: work would be lost or repeated. `person`: a run would wait for somebody.

    `after` says in words which crashes showed it, at most a few of them; `crashes` is how many did.
    """

    severity: Severity
    code: str
    node: str
    message: str
    hint: str = ""
    after: tuple[str, ...] = ()
    crashes: int = 0


class StepReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a path. The counts are crashes: how many were tried, and after how many it was so."""

    path: int
    node: str
    visit: int
    kind: str
    effect: str  # idempotent, manual, or nothing
    crashes: int
    ran_again: int
    effect_again: int
    needs_person: int


class StoodIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step whose effect was not done: a stand-in took its place, and that of its `observe` where it has one."""

    node: str
    mode: str  # idempotent, manual
    observe: bool


class PathReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way through the graph, and how it ends when nothing is killed."""

    status: str
    nodes: tuple[str, ...]
    answers: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole result. `verdict`: `passed`, `needs_person` (safe, but a run would wait for one), or `faults`.

    It says nothing of what was not run: `stood_in`.
    """

    workflow: str  # or the resource manager
    manager: bool = False  # it is one: then paths and steps are empty
    effects: Literal["stand-in", "real"]
    input: msgspec.Raw
    seconds: float
    runs: int
    runner_crashes: int
    daemon_crashes: int
    crashes_left_out: int
    paths_left_out: int
    paths: tuple[PathReport, ...]
    steps: tuple[StepReport, ...]
    stood_in: tuple[StoodIn, ...] = ()
    findings: tuple[Finding, ...]
    verdict: Literal["passed", "needs_person", "faults"]


class Findings:
    """Gathers findings; the same one after several crashes is one."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Finding] = {}

    def add(
        self,
        severity: Severity,
        code: str,
        node: str,
        message: str,
        *,
        same: str = "",
        hint: str = "",
        after: str = "",
    ) -> None:
        """`same`: what tells this one from others of its code; else its message does. The first one's words stay."""
        key = (code, same or message)
        old = self._found.get(key)
        before = old.after if old is not None else ()
        self._found[key] = Finding(
            severity=severity,
            code=code,
            node=node if old is None else old.node,
            message=message if old is None else old.message,
            hint=hint,
            after=before if not after or len(before) >= AFTER_MAX else (*before, after),
            crashes=(old.crashes if old is not None else 0) + bool(after),
        )

    def all(self) -> tuple[Finding, ...]:
        """Faults first."""
        order = {"fault": 0, "person": 1, "note": 2}
        return tuple(sorted(self._found.values(), key=lambda one: order[one.severity]))

    @property
    def verdict(self) -> Literal["passed", "needs_person", "faults"]:
        found = {one.severity for one in self._found.values()}
        if "fault" in found:
            return "faults"
        return "needs_person" if "person" in found else "passed"


AFTER_MAX = 4
