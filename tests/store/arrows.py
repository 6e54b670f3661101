"""The arrows between the standings of a run: those that docs/states.md draws, and those that a store sees taken.

SQLite itself writes down what is taken, by triggers that live on the writer's connection only. So every handler is
seen, whoever calls it, and the file is as it was. An arrow bears the name of its event in the run's history.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pwf.store.tx import Tx

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
BEGIN = "[*]"
_DRAWN = re.compile(r"^ *(\S+) --> (\S+): (.+)$", re.MULTILINE)


class Arrow(NamedTuple):
    """A run goes from one standing to another, and its history calls that `event`."""

    before: str
    after: str
    event: str


@cache
def drawn() -> frozenset[Arrow]:
    """The arrows of the diagram. One that bears several names is as many arrows."""
    diagram = PAGE.read_text(encoding="utf-8").split("```mermaid\n")[1].split("```")[0]
    return frozenset(
        Arrow(before, after, event)
        for before, after, events in _DRAWN.findall(diagram)
        for event in events.split(", ")
    )


# --- what a store sees -----------------------------------------------------------------------------------------


def _standing(row: str) -> str:
    return (
        f"CASE WHEN {row}.status = 'waiting' AND {row}.hold IS NOT NULL THEN 'waiting_held'"
        f" WHEN {row}.status IN ('completed', 'failed', 'timed_out') THEN 'ended' ELSE {row}.status END"
    )


def _trigger(name: str, when: str, revision: str, before: str) -> str:
    """A move that is saved in two statements is one: between two events of a run it stands nowhere else."""
    return f"""
    CREATE TEMP TRIGGER {name} AFTER {when} ON main.runs BEGIN
      INSERT INTO moves
        SELECT new.run_no, {revision}, {before}, {_standing("new")} WHERE true
        ON CONFLICT DO UPDATE SET after = excluded.after;
    END
    """


_REVISION = "SELECT revision FROM main.entities WHERE entity_no = new.run_no"
_RECORD = (
    "CREATE TEMP TABLE moves(no INTEGER, revision INTEGER, before TEXT, after TEXT, UNIQUE (no, revision))",
    "CREATE TEMP TABLE told(no INTEGER, revision INTEGER, event TEXT)",
    _trigger("run_begins", "INSERT", "1", f"'{BEGIN}'"),
    _trigger("run_moves", "UPDATE OF status, hold", f"({_REVISION})", _standing("old")),
    """
    CREATE TEMP TRIGGER event_told AFTER INSERT ON main.events BEGIN
      INSERT INTO told VALUES (new.entity_no, new.revision, new.kind);
    END
    """,
)
# The event of a move has the move's revision; or the next one, where a row can't be read and is parked unfenced.
_TAKEN = """
SELECT DISTINCT before, after, (
  SELECT event FROM temp.told WHERE told.no = moves.no AND told.revision >= moves.revision ORDER BY revision LIMIT 1
) FROM temp.moves WHERE before <> after
"""


def record(tx: Tx, _: object = None) -> None:
    """Begin to write down what all runs do on this connection."""
    for statement in _RECORD:
        tx.run(statement)


def take(tx: Tx, _: object = None) -> set[Arrow]:
    """The arrows since the last call. Ask after each command: else the event of one may pass for another's."""
    found = {Arrow(*row) for row in tx.all(_TAKEN)}
    tx.run("DELETE FROM temp.moves")
    tx.run("DELETE FROM temp.told")
    return found
