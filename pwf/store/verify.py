"""`state.verify`: integrity, foreign keys and every cross-table rule; each violation with its run and a fix."""

from __future__ import annotations

import msgspec

from pwf.protocol.operations import VerifyResult
from pwf.protocol.views import Violation
from pwf.store.entity_kinds import EntityKind, Rule
from pwf.store.kinds import KINDS
from pwf.store.queries import load_queries
from pwf.store.run_kind import RUN
from pwf.store.tx import Tx, subject

Q = load_queries(__file__)

REPORTED_MAX = 50  # per rule; a broken rule tends to be broken often

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"
_RESTORE = "restore the database from a backup (pwf state restore FILE)"

#: Of entities of every kind: query -> (message, fix)
RULES: dict[str, tuple[str, str]] = {
    "history_broken": ("the history has not one event per revision", _REPORT),
    "history_stray": ("rows belong to an entity that is not there", _REPORT),
    "custody_unowned": ("a process is of a generation that has not begun", _REPORT),
}


class Verify(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch`: of the daemon that asks; its own runners are no violation."""

    epoch: int = 0


def verify(tx: Tx, query: Verify) -> VerifyResult:
    """Check everything; an empty list of violations is a clean bill."""
    found = integrity(tx)
    if any(violation.rule == "integrity" for violation in found):
        return VerifyResult(violations=tuple(found), checked={})  # nothing that is read can be trusted
    found += _of_every_kind(tx)
    for kind in KINDS.values():
        for rule, checked_rule in kind.rules.items():
            found += _broken(tx, kind, rule, checked_rule, query.epoch)
    counted = tx.one(Q.row_counts)
    assert counted is not None
    names = ("runs", "attempts", "events", "requests", "effects", "values")
    rules = len(RULES) + 4 + sum(len(kind.rules) for kind in KINDS.values())
    checked = {"rules": rules, **dict(zip(names, counted, strict=True))}
    return VerifyResult(violations=tuple(found), checked=checked)


def _of_every_kind(tx: Tx) -> list[Violation]:
    found = []
    for rule, (message, fix) in RULES.items():
        for kind, name in tx.all(getattr(Q, rule))[:REPORTED_MAX]:
            found.append(_violation(rule, str(kind), str(name), message, fix))
    for (name,) in tx.all(Q.kinds):
        if name not in KINDS:
            message = f"there are entities of the kind {name!r}, which this pwf doesn't know"
            found.append(Violation(rule="kind_unknown", message=message, fix=_REPORT))
    for kind in KINDS.values():
        if kind.table is None:
            continue
        bare = (
            "SELECT name FROM entities e WHERE kind = :kind AND NOT EXISTS"
            f" (SELECT 1 FROM {kind.table} t WHERE t.{kind.key} = e.entity_no)"
        )
        for (name,) in tx.all(bare, {"kind": kind.name})[:REPORTED_MAX]:
            message = f"the entity has no row in {kind.table}"
            found.append(_violation("entity_bare", kind.name, str(name), message, _REPORT))
    return found


def _broken(tx: Tx, kind: EntityKind, name: str, rule: Rule, epoch: int) -> list[Violation]:
    params = {"epoch": epoch} if ":epoch" in rule.sql else None
    subjects = [str(row[0]) for row in tx.all(rule.sql, params)[:REPORTED_MAX]]
    if not rule.about:
        return [Violation(rule=name, message=f"{rule.message}: {text}", fix=rule.fix) for text in subjects]
    return [_violation(name, kind.name, subject, rule.message, rule.fix) for subject in subjects]


def _violation(rule: str, kind: str, name: str, message: str, fix: str) -> Violation:
    """A run is named in a field of its own, since commands take its id; everything else in the message."""
    if kind == RUN.name:
        return Violation(rule=rule, message=message, run_id=name, fix=fix.replace("{name}", name))
    about = f"{message}: {subject(kind, name)}"
    return Violation(rule=rule, message=about, fix=fix.replace("{name}", name))


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
