"""The auditor's model of effects: how a row of the ledger may change, and what each status says of the world outside.

`applied`: it happened. `rejected` and `cancelled`: it did not happen, and will not. `failed`: an idempotent one, which
may have happened. `ambiguous`: a manual one, which only a person's word settles. `abandoned`: one that a person gave
up. `applying`: begun, and not settled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.sim.model import ENDS, RunModel

HAPPENED = frozenset({"applied"})
NOT_HAPPENED = frozenset({"rejected", "cancelled"})
UNDER_WAY = frozenset({"applying", "ambiguous"})
OF_MODE = {"failed": "idempotent", "ambiguous": "manual", "rejected": "manual", "abandoned": "manual"}
#: status -> what it may become while the effect is not begun anew
SETTLES = {
    "applying": frozenset({"applied", "rejected", "failed", "ambiguous", "cancelled"}),
    "ambiguous": frozenset({"applied", "rejected", "applying", "cancelled", "abandoned"}),
}

_KEY = "r.run_id || ':' || e.node || ':' || e.visit || iif(e.part = '', '', '/' || e.part)"
_OF_RUN = f"""SELECT {_KEY}, e.node, e.visit, e.part, e.mode, e.status, e.attempts FROM effects e
JOIN runs r ON r.run_no = e.entity_no WHERE r.run_id = ?"""
_GENERATION = f"SELECT e.generation FROM effects e JOIN runs r ON r.run_no = e.entity_no WHERE {_KEY} = ?"
#: manual parts that may have happened at a position where no attempt is open, and how the last one there has ended.
#: A try owes the reason that its own process gave: one that was merely interrupted has none.
_LEFT = f"""SELECT {_KEY}, e.observable, e.status, e.error IS NOT NULL,
  e.generation = a.generation AND a.status IN ('failed', 'unknown')
  AND json_extract(CAST(a.error AS TEXT), '$.code') NOT IN ('runner_crashed', 'runner_timed_out', 'protocol_rejected'),
  a.status
FROM effects e JOIN runs r ON r.run_no = e.entity_no
JOIN attempts a ON a.run_no = r.run_no AND a.attempt = r.attempts AND a.node = e.node AND a.visit = e.visit
WHERE r.run_id = ? AND e.part <> '' AND e.mode = 'manual' AND e.status IN ('applying', 'ambiguous')
  AND a.status <> 'active'"""
_ALL = f"SELECT {_KEY}, e.status FROM effects e JOIN runs r ON r.run_no = e.entity_no"


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
        self._held: set[str] = set()  # runs that are held for an effect
        self._told: set[str] = set()  # parts that a step was told are applied

    def look(self, run: RunModel) -> bool:
        """After a commit that changed the run. Whether an effect of it is ambiguous."""
        ambiguous, run_id, ended, may_be_left = False, run.run_id, run.status in ENDS, False
        open_parts: set[str] = set()
        for key, node, visit, part, mode, status, begun in self._auditor.rows(_OF_RUN, run_id):
            old = self._effects.get(key)
            seen = self._auditor.commits
            if old is not None and (old.status, old.begun) == (status, begun):
                seen = old.seen
            new = self._effects[key] = Effect(mode, status, begun, seen)
            self._one(key, old, new, run_id)
            self._auditor.check(
                not (ended and status == "applying"), f"an ended run applies nothing: {key} is {new}"
            )
            here = (node, visit) == (run.node, run.visit)
            over = ended or here or status not in UNDER_WAY
            self._auditor.check(
                over, f"a node is over when each of its effects is settled: {key} {new} {run}"
            )
            ambiguous = ambiguous or status == "ambiguous"
            if part and mode == "manual" and status in UNDER_WAY:
                may_be_left = True
                if status == "applying":
                    open_parts.add(key)
        self._look_at_hold(run, open_parts)
        if may_be_left and not ended:
            self._look_at_left(run)
        return ambiguous

    def _look_at_hold(self, run: RunModel, open_parts: set[str]) -> None:
        """What is unknown when a run is held, it lists; one that is to be observed again has a person's word for it."""
        is_held = run.hold == "effect_ambiguous"
        if is_held and run.run_id not in self._held:
            self._auditor.check(not open_parts, f"a hold lists all that is unknown, {open_parts} too: {run}")
        (self._held.add if is_held else self._held.discard)(run.run_id)

    def _look_at_left(self, run: RunModel) -> None:
        """What an attempt has left open knows why, and waits for an observer only where it has one."""
        check = self._auditor.check
        for key, observable, status, has_error, owes_error, how in self._auditor.rows(_LEFT, run.run_id):
            check(has_error or not owes_error, f"{key} is {status} after {how}, and does not say why: {run}")
            asked = observable or status != "applying"
            check(asked, f"a person is asked for {key}, which nobody can observe: {how} {run}")
            goes_on = status == "ambiguous" and run.hold is None
            check(not goes_on, f"a run waits until {key} is settled: {run}")

    # --- what a step is told ------------------------------------------------------------------------------

    def knows(self, key: str) -> bool:
        """Whether there is such a row."""
        return key in self._effects

    def answered(self, key: str, answer: Any, generation: int, *, strange: bool) -> None:
        """A step has asked for a part. `strange`: with another request than the one that is stored.

        `generation`: of its process. One that is stale by now may find what a later one has begun.
        """
        check = self._auditor.check
        check((answer.verdict == "conflict") == strange, f"another request is a conflict: {key} {answer}")
        if answer.verdict == "applied":
            check(self._outside.happened(key), f"{key} is told as applied, and happened")
        if answer.verdict == "apply":
            known = self._effects.get(key)
            check(known is not None, f"{key} has its row before it is applied")
            begun_by = self._auditor.rows(_GENERATION, key)
            check(all(by >= generation for (by,) in begun_by), f"{key} was begun by {generation}: {begun_by}")

    def settled(self, key: str) -> None:
        """A step was told that it is settled as applied, which no crash takes back."""
        self._told.add(key)

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
            self._told.discard(key)
            self._auditor.check(effect.status not in UNDER_WAY, f"no run goes whose {key} is {effect.status}")

    def hold(self) -> None:
        """Every row still says the truth."""
        rows = dict(self._auditor.rows(_ALL))
        for key, status in rows.items():
            self._true(key, status)
        for key in self._told & rows.keys():
            self._auditor.check(rows[key] == "applied", f"{key} was told to be applied, and is {rows[key]}")
