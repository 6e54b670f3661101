"""`state.verify`: integrity, foreign keys and every cross-table rule; each violation with its run and a fix."""

from __future__ import annotations

import msgspec

from pwf.protocol.operations import VerifyResult
from pwf.protocol.views import Violation
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

REPORTED_MAX = 50  # per rule; a broken rule tends to be broken often

_CANCEL = "pwf cancel {run}, then pwf restart {run}"
_RESTART = "restart the daemon (pwf stop, pwf start): recovery settles it"
_LEFT = f"{_RESTART}; what is left then goes with the run (pwf state prune)"
_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"
_SHOW = "pwf show {run}; " + _REPORT
_RESTORE = "restore the database from a backup (pwf state restore FILE)"

#: query -> (message, fix)
RULES: dict[str, tuple[str, str]] = {
    "ended_open": ("the run has ended, but something is still open for it", _LEFT),
    "running_unowned": ("the run is running, but has no queue row, lease or runner", _RESTART),
    "queued_undue": ("the run is queued, but not due, or somebody owns it", _CANCEL),
    "ready_open": ("the run waits to be admitted, but an attempt of it is still open", _CANCEL),
    "queue_misplaced": ("the run was launched before, but is queued as a new start, or the reverse", _CANCEL),
    "waiting_unasked": ("the run waits, but has no open request, or is queued or owned as well", _CANCEL),
    "held_loose": ("the run is held, but without a reason, or is queued, asked or owned as well", _CANCEL),
    "request_stray": ("a request is open, but its run does not wait for it", _CANCEL),
    "position_miscounted": ("the run's position is not the newest visit of its node", _SHOW),
    "attempts_miscounted": ("the run's attempts are not numbered as counted", _SHOW),
    "history_broken": ("the history has not one event per revision", _SHOW),
    "ambiguous_loose": ("an effect is ambiguous, but its run is not held for it", _CANCEL),
    "step_repeated": ("a committed step ran twice", _SHOW),
    "manual_repeated": ("a manual effect was applied, but not by exactly one completed attempt", _SHOW),
    "effect_unsettled": ("a step completed, but its effect is not settled as applied", _SHOW),
    "active_stray": ("an open attempt is not the run's position", _SHOW),
    "counts_wrong": ("the number of runs with this status is not what is counted", _REPORT),
    "runner_stray": ("a runner of an earlier daemon is not settled", _RESTART),
    "content_incomplete": ("the run refers to a value that is not all there", _SHOW),
}


class Verify(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch`: of the daemon that asks; its own runners are no violation."""

    epoch: int = 0


def verify(tx: Tx, query: Verify) -> VerifyResult:
    """Check everything; an empty list of violations is a clean bill."""
    found = integrity(tx)
    if any(violation.rule == "integrity" for violation in found):
        return VerifyResult(violations=tuple(found), checked={})  # nothing that is read can be trusted
    for rule, (message, fix) in RULES.items():
        sql: str = getattr(Q, rule)
        params = {"epoch": query.epoch} if ":epoch" in sql else None
        for row in tx.all(sql, params)[:REPORTED_MAX]:
            subject = str(row[0])
            run_id = subject.removeprefix("run:")
            about_run = rule != "counts_wrong" and subject != "daemon"
            found.append(
                Violation(
                    rule=rule,
                    message=message if about_run else f"{message}: {subject}",
                    run_id=run_id if about_run else None,
                    fix=fix.replace("{run}", run_id),
                )
            )
    counted = tx.one(Q.row_counts)
    assert counted is not None
    names = ("runs", "attempts", "events", "requests", "effects", "values")
    checked = {"rules": len(RULES) + 2, **dict(zip(names, counted, strict=True))}
    return VerifyResult(violations=tuple(found), checked=checked)


def integrity(tx: Tx) -> list[Violation]:
    """The file's own soundness: SQLite's check of its pages and indexes, and its foreign keys."""
    found = [
        Violation(rule="integrity", message=str(row[0]), fix=_RESTORE)
        for row in tx.all("PRAGMA integrity_check(20)")
        if row[0] != "ok"
    ]
    dangling = dict.fromkeys(
        (table, parent, key) for table, _row, parent, key in tx.all("PRAGMA foreign_key_check")
    )
    for table, parent, key in dangling:
        message = f"a row of {table} refers to a missing row of {parent}"
        for run_id in _runs_that_dangle(tx, table, parent, key):
            found.append(Violation(rule="foreign_key", message=message, run_id=run_id, fix=_RESTORE))
    return found


def _runs_that_dangle(tx: Tx, table: str, parent: str, key: int) -> list[str | None]:
    """The runs whose rows break a foreign key; [None] where the table is not about runs."""
    if "run_id" not in {row[1] for row in tx.all(f"PRAGMA table_info({table})")}:
        return [None]
    pairs = [(row[3], row[4]) for row in tx.all(f"PRAGMA foreign_key_list({table})") if row[0] == key]
    there = " AND ".join(f'p."{theirs}" = c."{ours}"' for ours, theirs in pairs)
    given = " AND ".join(f'c."{ours}" IS NOT NULL' for ours, _ in pairs)
    missing = f"NOT EXISTS (SELECT 1 FROM {parent} p WHERE {there})"
    sql = f"SELECT DISTINCT c.run_id FROM {table} c WHERE {given} AND {missing} LIMIT {REPORTED_MAX}"
    return [str(run_id) for (run_id,) in tx.all(sql)]
