"""Every named query can be prepared against the schema, and none scans a table that grows."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import pwf.store
from pwf.store.database import STATEMENTS_CACHED
from pwf.store.migrate import create_schema
from pwf.store.queries import load_queries

FAMILIES = sorted(
    path for path in Path(pwf.store.__file__).parent.glob("*.sql") if path.stem not in ("schema",)
)

#: Tables and partial indexes whose number of rows does not grow with the number of runs, and why.
SMALL = {
    "channels": "one row per channel that was ever configured",
    "channel_messages_ambiguous": "messages that wait for a person",
    "happenings": "what was not made into messages yet",
    "agent_limits": "a row for each account of the configuration that has met a limit",
    "meta": "a few facts about the home",
    "run_counts": "one row per status",
    "runners": "one row per live process",
    "reconcile_queue_live": "one row per live reconcile",
    "one_active_attempt": "one row per live run or open request",
    "entities_leased": "one row per live run",
    "one_validating": "one row per submission that is being judged",
    "sessions_connected": "one row per session that is attached",
    "submissions_by_age": "one row per submission that is being judged",
    "effects_open": "what is being applied, and what waits for a person",
}

#: Scans that are meant: "family.query" or a whole "family", and why they are harmless.
ALLOWED = {
    "queue.going_on": "in the order of admission, cut off by LIMIT; only runs with a living process are skipped",
    "queue.new_starts": "in the order of admission, cut off by LIMIT; nothing is skipped",
    "restore": "reads everything by purpose, in files that no daemon serves",
    "resource_queue.first_ready": "in the order of admission, cut off by LIMIT; skips those with a living process",
    "resource_queue.ready": "the same",
    "resource_kind.not_gone": "everything that would go on, once, when a database was copied or restored",
    "read_resources.counts": "indexes of what is alive, due or kept back, when a person asks, on the reader",
    "effect_rows.effects_newest": "from the newest on, cut off by LIMIT",
    "resource_rules": "reads everything by purpose, when a person asks, on the reader",
    "channel_kind": "reads everything by purpose, when a person asks, or when a database was copied",
    "fork.answered": "the line of runs that a run was forked from, and no table",
    "fork_effects.going_on": "the same",
    "fork_effects.made": "the same",
    "run_rules": "reads everything by purpose, when a person asks, on the reader",
    "session_rules": "reads everything by purpose, when a person asks, on the reader",
    "submission_kind.lost": "reads everything by purpose, when a person asks, on the reader",
    "soundness": "reads everything by purpose, when a person asks, on the reader",
    "verify": "reads everything by purpose, when a person asks, on the reader",
}


def queries() -> Iterator[tuple[str, str, str]]:
    for path in FAMILIES:
        for name, sql in load_queries(str(path)):
            yield path.stem, name, sql


ALL = list(queries())


@pytest.fixture(scope="module")
def connection():
    opened = apsw.Connection(":memory:")
    create_schema(opened)
    yield opened
    opened.close()


def plan(connection, sql: str) -> list[str]:
    parameters = dict.fromkeys(re.findall(r":([a-z_0-9]+)", sql), 1)
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()]


def test_a_query_fits_the_schema_and_scans_no_growing_table(connection):
    found = {}
    for family, name, sql in ALL:
        steps = plan(connection, sql)
        if not reads_only_the_first_rows(steps, sql):
            found[f"{family}.{name}"] = [step for step in steps if scans(step, sql)]
    listed = [name for name in ALLOWED if "." in name]
    assert not [name for name in listed if not found.get(name)], (
        "scan nothing any more: take them off the list"
    )
    scanning = {name: steps for name, steps in found.items() if steps and name not in ALLOWED}
    assert {name: steps for name, steps in scanning.items() if name.split(".")[0] not in ALLOWED} == {}


def reads_only_the_first_rows(steps: list[str], sql: str) -> bool:
    """A single table in the order of an index, with no condition that could skip rows, cut off by a LIMIT."""
    simple = len(steps) == 1 and "LIMIT" in sql
    return simple and (" WHERE " not in f" {' '.join(sql.split())} " or "USING" in steps[0])


def scans(step: str, sql: str) -> bool:
    """Whether a step of a plan reads a table that grows from end to end."""
    match = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?", step)
    if match is None or match[1] == "CONSTANT" or "VIRTUAL TABLE" in step:
        return False
    alias = re.search(rf"\b(\w+)(?: AS)? {match[1]}\b", sql)
    names = {match[1], match[2], alias[1] if alias else None}
    return not names & SMALL.keys()


def test_every_family_has_its_python_file_with_the_same_stem():
    for path in FAMILIES:
        assert path.with_suffix(".py").exists(), path.name
        importlib.import_module(f"pwf.store.{path.stem}")


def test_every_query_is_used():
    code = "\n".join(path.read_text() for path in Path(pwf.store.__file__).parent.glob("*.py"))
    unused = [f"{family}.{name}" for family, name, _ in ALL if not re.search(rf"\.{name}\b|\"{name}\"", code)]
    assert unused == []


def test_all_queries_fit_into_the_statement_cache():
    assert len(ALL) < STATEMENTS_CACHED * 3 // 4
