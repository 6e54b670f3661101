"""The auditor's model of effects: how a row of the ledger may change, and what each status says of the world outside.

`applied`: it happened. `rejected` and `cancelled`: it did not happen, and will not. `failed`: an idempotent one, which
may have happened. `ambiguous`: a manual one, which only a person's word settles. `abandoned`: one that a person gave
up. `applying`: begun, and not settled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

HAPPENED = frozenset({"applied"})
NOT_HAPPENED = frozenset({"rejected", "cancelled"})
UNDER_WAY = frozenset({"applying", "ambiguous"})
OF_MODE = {"failed": "idempotent", "ambiguous": "manual", "rejected": "manual", "abandoned": "manual"}
#: status -> what it may become while the effect is not begun anew
SETTLES = {
    "applying": frozenset({"applied", "rejected", "failed", "ambiguous", "cancelled"}),
    "ambiguous": frozenset({"applied", "rejected", "applying", "cancelled", "abandoned"}),
}

_OF_RUN = """SELECT e.node, e.visit, e.mode, e.status, e.attempts FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE r.run_id = ?"""
_ALL = """SELECT r.run_id || ':' || e.node || ':' || e.visit, e.status FROM effects e
JOIN runs r ON r.run_no = e.entity_no"""


class Effect(NamedTuple):
    """A row as the auditor saw it. `seen`: at which commit it got this status."""

    mode: str
    status: str
    begun: int
    seen: int


class Ledger:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, outside: Any) -> None:
        self._auditor = auditor
        self._outside = outside
        self._effects: dict[str, Effect] = {}

    def look(self, run_id: str, *, ended: bool) -> bool:
        """After a commit that changed the run. Whether an effect of it is ambiguous."""
        ambiguous = False
        for node, visit, mode, status, begun in self._auditor.rows(_OF_RUN, run_id):
            key = f"{run_id}:{node}:{visit}"
            old = self._effects.get(key)
            seen = self._auditor.commits
            if old is not None and (old.status, old.begun) == (status, begun):
                seen = old.seen
            new = self._effects[key] = Effect(mode, status, begun, seen)
            self._one(key, old, new, run_id)
            self._auditor.check(
                not (ended and status == "applying"), f"an ended run applies nothing: {key} is {new}"
            )
            ambiguous = ambiguous or status == "ambiguous"
        return ambiguous

    def _one(self, key: str, old: Effect | None, new: Effect, run_id: str) -> None:
        check = self._auditor.check
        fits = OF_MODE.get(new.status, new.mode) == new.mode
        check(fits, f"no {new.mode} effect is {new.status}: {key}")
        self._true(key, new.status)
        if old is None or (old.status, old.begun) == (new.status, new.begun):
            return
        if old.status == "ambiguous":
            told = self._auditor.steering.might(run_id, "effect.resolve", old.seen)
            told = told or (new.status == "cancelled" and self._auditor.steering.might(run_id, "run.cancel"))
            check(told, f"only a person's word settles an ambiguous effect: {key} {old} -> {new}")
        stays = old.status not in ("applied", "abandoned")
        check(stays, f"what was applied or given up stays so: {key} {old} -> {new}")
        check(new.begun >= old.begun, f"an effect is never begun less often: {key} {old} -> {new}")
        again = new.begun > old.begun or new.status in SETTLES.get(old.status, ())
        check(again, f"a settled effect changes only when it is begun anew: {key} {old} -> {new}")

    def _true(self, key: str, status: str) -> None:
        happened = self._outside.happened(key)
        if status in HAPPENED:
            self._auditor.check(happened, f"{key} is told as {status}, and happened")
        if status in NOT_HAPPENED:
            self._auditor.check(not happened, f"{key} is told as {status}, and did not happen")

    def applies(self, key: str, mode: str | None, *, ended: bool) -> None:
        """A process is about to do it."""
        known = self._effects.get(key)
        check = self._auditor.check
        check(known is not None, f"effect {key} is reserved before it is applied")
        assert known is not None
        fine = known.status in UNDER_WAY or (ended and known.status == "failed")
        check(fine, f"no process applies {key}, which is {known.status} already")
        if mode == "manual":
            check(not self._outside.happened(key), f"manual effect {key} happens once")

    def gone(self, run_id: str) -> None:
        """Its run was removed: everything must have been settled."""
        for key in [key for key in self._effects if key.startswith(run_id + ":")]:
            effect = self._effects.pop(key)
            self._auditor.check(effect.status not in UNDER_WAY, f"no run goes whose {key} is {effect.status}")

    def hold(self) -> None:
        """Every row still says the truth."""
        for key, status in self._auditor.rows(_ALL):
            self._true(key, status)
