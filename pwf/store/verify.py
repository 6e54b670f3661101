"""`state.verify`: the file, its rows and values, and every cross-table rule; each violation with its run and a fix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pwf.protocol.operations import VerifyResult
from pwf.protocol.views import Violation
from pwf.store.entity_kinds import EntityKind, Rule
from pwf.store.kinds import KINDS
from pwf.store.queries import load_queries
from pwf.store.run_kind import RUN
from pwf.store.soundness import RESTORE, UNREADABLE, cut, damage, integrity, named_for, shown
from pwf.store.tx import Tx, subject

Q = load_queries(__file__)

CHEAP_ROWS = 2_000  # of one status: more of them are not looked at for a status

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"

#: Of entities of every kind: query -> (message, fix)
RULES: dict[str, tuple[str, str]] = {
    "history_broken": ("the history has not one event per revision", _REPORT),
    "history_stray": ("rows belong to an entity that is not there", _REPORT),
    "custody_unowned": ("a process is of a generation that has not begun", _REPORT),
    "effect_early": ("an effect was begun by a generation that has not begun", _REPORT),
}
#: What is looked for besides the queries here and the rules of each kind.
FURTHER = (
    "integrity",
    "foreign_key",
    "kind_unknown",
    "entity_bare",
    "row_damaged",
    "value_damaged",
    "rule_unchecked",
)


def verify(tx: Tx, epoch: int = 0) -> VerifyResult:
    """Check everything; an empty list of violations is a clean bill. No damage keeps it from ending with an answer.

    `epoch`: of the daemon that asks; its own runners are no violation.
    """
    found = integrity(tx)
    if not found:  # else a rule could be broken by what SQLite itself finds in a wrong place
        found = broken_rules(tx, epoch)
    found += damage(tx)
    return VerifyResult(violations=tuple(found), checked=_counted(tx))


def cheap_violations(tx: Tx, epoch: int) -> tuple[Violation, ...]:
    """What breaks the rules that look at few rows now: for `pwf status`, which must be quick."""
    counts: dict[str, int] = dict(tx.all(Q.status_counts))
    found: list[Violation] = []
    for kind in KINDS.values():
        for name, rule in kind.rules.items():
            if rule.among is not None and counts.get(rule.among, 0) <= CHEAP_ROWS:
                found += cut(_broken(tx, kind, name, rule, epoch))
    return tuple(found)


def _counted(tx: Tx) -> dict[str, int]:
    rules = len(RULES) + len(FURTHER) + sum(len(kind.rules) for kind in KINDS.values())
    try:
        rows = tx.one(Q.row_counts) or ()
    except UNREADABLE:
        rows = ()
    names = ("runs", "attempts", "events", "requests", "effects", "values")
    return {"rules": rules, **dict(zip(names, rows, strict=False))}


def broken_rules(tx: Tx, epoch: int) -> list[Violation]:
    """What breaks each rule of rows, references among them, in a file that SQLite finds sound.

    A rule that can't be checked, for damage that is named as such, keeps no other from it.
    """
    looks: dict[str, Callable[[], list[Violation]]] = {
        rule: partial(_of_every_kind, tx, rule, *said) for rule, said in RULES.items()
    }
    looks["kind_unknown"] = partial(_unknown_kinds, tx)
    for kind in KINDS.values():
        if kind.table is not None:
            looks[f"entity_bare of {kind.name}"] = partial(_bare, tx, kind)
        for rule, checked in kind.rules.items():
            looks[rule] = partial(_broken, tx, kind, rule, checked, epoch)
    found = foreign_keys(tx)
    unchecked: list[str] = []
    for rule, look in looks.items():
        try:
            found += cut(look())
        except UNREADABLE:
            unchecked.append(rule)
    if unchecked:
        message = f"what is damaged keeps these rules from being checked: {', '.join(unchecked)}"
        found.append(Violation(rule="rule_unchecked", message=message, fix=RESTORE))
    return found


def _of_every_kind(tx: Tx, rule: str, message: str, fix: str) -> list[Violation]:
    return [_violation(rule, str(kind), str(name), message, fix) for kind, name in tx.all(getattr(Q, rule))]


def _unknown_kinds(tx: Tx) -> list[Violation]:
    message = "there are entities of the kind {!r}, which this pwf doesn't know"
    unknown = [name for (name,) in tx.all(Q.kinds) if name not in KINDS]
    return [Violation(rule="kind_unknown", message=message.format(name), fix=_REPORT) for name in unknown]


def _bare(tx: Tx, kind: EntityKind) -> list[Violation]:
    sql = (
        "SELECT name FROM entities e WHERE kind = :kind AND NOT EXISTS"
        f" (SELECT 1 FROM {kind.table} t WHERE t.{kind.key} = e.entity_no)"
    )
    message = f"the entity has no row in {kind.table}"
    rows = tx.all(sql, {"kind": kind.name})
    return [_violation("entity_bare", kind.name, str(name), message, _REPORT) for (name,) in rows]


def _broken(tx: Tx, kind: EntityKind, name: str, rule: Rule, epoch: int) -> list[Violation]:
    params = {"epoch": epoch} if ":epoch" in rule.sql else None
    subjects = [str(row[0]) for row in tx.all(rule.sql, params)]
    if not rule.about:
        return [Violation(rule=name, message=f"{rule.message}: {text}", fix=rule.fix) for text in subjects]
    return [_violation(name, kind.name, subject, rule.message, rule.fix) for subject in subjects]


def _violation(rule: str, kind: str, name: str, message: str, fix: str) -> Violation:
    """A run is named in a field of its own, since commands take its id; everything else in the message."""
    if kind == RUN.name:
        return Violation(rule=rule, message=message, run_id=name, fix=fix.replace("{name}", name))
    about = f"{message}: {subject(kind, name)}"
    return Violation(rule=rule, message=about, fix=fix.replace("{name}", name))


def foreign_keys(tx: Tx) -> list[Violation]:
    """What refers to a row that is not there."""
    found: list[Violation] = []
    try:
        dangling = dict.fromkeys(
            (table, parent, key) for table, _row, parent, key in tx.all("PRAGMA foreign_key_check")
        )
        for table, parent, key in dangling:
            message = f"a row of {table} refers to a missing row of {parent}"
            found += cut(list(named_for(_runs_that_dangle(tx, table, parent, key), "foreign_key", message)))
    except UNREADABLE as error:
        message = f"what refers to what can not be read: {shown(error)}"
        found.append(Violation(rule="foreign_key", message=message, fix=RESTORE))
    return found


def _runs_that_dangle(tx: Tx, table: str, parent: str, key: int) -> list[str]:
    """The runs whose rows break a foreign key; none where the table is not about runs."""
    columns = {row[1] for row in tx.all(f"PRAGMA table_info({table})")}
    column = next((name for name in ("run_id", "run_no", "entity_no") if name in columns), None)
    if column is None:
        return []
    pairs = [(row[3], row[4]) for row in tx.all(f"PRAGMA foreign_key_list({table})") if row[0] == key]
    there = " AND ".join(f'p."{theirs}" = c."{ours}"' for ours, theirs in pairs)
    given = " AND ".join(f'c."{ours}" IS NOT NULL' for ours, _ in pairs)
    missing = f"NOT EXISTS (SELECT 1 FROM {parent} p WHERE {there})"
    run_id = "c.run_id" if column == "run_id" else f"(SELECT name FROM entities WHERE entity_no = c.{column})"
    sql = f"SELECT DISTINCT {run_id} FROM {table} c WHERE {given} AND {missing}"
    return [str(run_id) for (run_id,) in tx.all(sql) if run_id is not None]
