"""A row that can't be read keeps neither the daemon from starting nor other runs from going on: its run is `broken`."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
import trio

from pwf.config import Config
from pwf.store.tx import Tx
from tests.actors.test_scheduler import Setting
from tests.store.world import IDEMPOTENT, graph, linear, node

pytestmark = pytest.mark.trio

NO_TEXT = "CAST(x'61ff' AS TEXT)"
#: Of a run that is due, and of one whose runner an earlier daemon left.
HARMS = [
    "UPDATE runs SET visits = x'7b' WHERE run_no = :no",
    "UPDATE runs SET visits = NULL WHERE run_no = :no",
    f"UPDATE runs SET node = {NO_TEXT} WHERE run_no = :no",
    "UPDATE runs SET node = 'nowhere' WHERE run_no = :no",
    f"UPDATE runs SET definition_id = {NO_TEXT} WHERE run_no = :no",
    f"UPDATE runs SET environment_id = {NO_TEXT} WHERE run_no = :no",
    f"UPDATE runs SET run_id = {NO_TEXT} WHERE run_no = :no",
    "UPDATE runs SET attempts = 'many' WHERE run_no = :no",
    "UPDATE definitions SET graph = x'00' WHERE definition_id = (SELECT definition_id FROM runs WHERE run_no = :no)",
    f"UPDATE entities SET name = {NO_TEXT} WHERE entity_no = :no",
    f"UPDATE entities SET kind = {NO_TEXT} WHERE entity_no = :no",
    "UPDATE entities SET kind = 'ghost' WHERE entity_no = :no",
    "UPDATE entities SET generation = 'x' WHERE entity_no = :no",
    "UPDATE entities SET revision = NULL WHERE entity_no = :no",
    "UPDATE run_queue SET priority = 'high' WHERE run_no = :no",
    f"UPDATE run_queue SET due_wall_ms = {NO_TEXT}, due_elapsed_ms = NULL, state = 'later' WHERE run_no = :no",
    "UPDATE run_queue SET due_elapsed_ms = 'soon', state = 'later' WHERE run_no = :no",
    "UPDATE runners SET pid = 'x' WHERE entity_no = :no",
    "UPDATE runners SET start_tick = NULL WHERE entity_no = :no",
    f"UPDATE runners SET boot_id = {NO_TEXT} WHERE entity_no = :no",
    "UPDATE runners SET session = x'00' WHERE entity_no = :no",
    "UPDATE runners SET generation = 'x' WHERE entity_no = :no",
    f"UPDATE attempts SET node = {NO_TEXT} WHERE run_no = :no",
    "UPDATE attempts SET status = 'odd' WHERE run_no = :no",
]


#: Status, hold and queue row: parked, or not harmed at all. Last: due no more where not even that can be written.
WELL = [("held", "broken", None), ("running", None, "live"), ("queued", None, None), ("running", None, None)]


def rows_of(tx: Tx, number: int) -> tuple[Any, ...] | None:
    return tx.one(
        "SELECT status, hold, (SELECT state FROM run_queue q WHERE q.run_no = r.run_no) FROM runs r"
        " WHERE run_no = :no",
        {"no": number},
    )


def harm(setting: Setting, run_id: str, sql: str) -> int:
    """Change a row as damage would: no type and no rule of the schema keeps it from that. Its run's number."""
    ((number,),) = setting.world.sql("SELECT run_no FROM runs WHERE run_id = :run", {"run": run_id})
    connection = sqlite3.connect(setting.world.spec.path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    strict = connection.execute("SELECT sql, name FROM sqlite_schema WHERE type = 'table'").fetchall()
    loose = [(_loose(text), name) for text, name in strict]
    for tables in (loose, strict):
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", tables)
        connection.execute("PRAGMA writable_schema = RESET")
        if tables is loose:
            connection.execute(sql, {"no": number})
    connection.close()
    return int(number)


def _loose(table: str) -> str:
    table = table.replace(") STRICT,", ")").replace(") STRICT", ")")
    for kind in ("TEXT", "INTEGER", "BLOB"):
        table = table.replace(f" {kind} NOT NULL", f" {kind}")
    return table


@pytest.mark.parametrize("state", ["due", "interrupted"])
@pytest.mark.parametrize("sql", HARMS)
async def test_a_row_that_can_not_be_read_parks_its_run_and_keeps_no_other_from_going_on(
    tmp_path: Any, nursery: trio.Nursery, autojump_clock: Any, state: str, sql: str
) -> None:
    setting = Setting(tmp_path)
    setting.config = Config(max_runners=8)
    interrupted = setting.start(linear(2))
    setting.world.launch(interrupted)
    bad = setting.start(graph(node("a", "action", effect=IDEMPOTENT, to="b"), node("b"), name=f"bad_{state}"))
    if state == "interrupted":
        setting.world.launch(bad)
    due = setting.start(linear(2))
    number = harm(setting, bad, sql)

    await setting.begin(nursery)
    await trio.sleep(30)

    assert [(await setting.view(run_id)).summary.status for run_id in (due, interrupted)] == ["running"] * 2
    rows = await setting.store.read(rows_of, number)
    assert rows in WELL, rows
