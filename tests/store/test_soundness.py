"""Damage of every kind is named with its row and its run, and none keeps `state verify` from giving an answer."""

import random
import sqlite3

import apsw
import pytest

from pwf.errors import Rejected, StoreRefused
from pwf.store import soundness
from pwf.store.backup import plain_tx
from pwf.store.database import open_reader
from pwf.store.soundness import ENCODED, UNREADABLE, tables
from pwf.store.verify import FURTHER, verify
from pwf.values import CHUNK_BYTES
from tests.store.support import HandClock
from tests.store.test_control import ambiguous, waiting
from tests.store.test_verify import PLANTED, ended, restarted
from tests.store.world import World, graph, linear, node

BIG = "x" * (2 * CHUNK_BYTES + 1_000)


def full(world):
    """A run that has something in every encoded column, and another of its definition."""
    ask = graph(node("a", to="q"), node("q", "checkpoint", returns={"type": "object"}, to="z"), node("z"))
    run_id = world.start(ask, input={"n": 1})
    runner = world.launch(run_id)
    runner.finish({"a": 1}, to="q")
    runner.ask()
    runner.leave()
    world.answer(run_id, {"yes": True})
    again = world.launch(run_id)
    again.fail()
    again.leave()
    return run_id


def found(world):
    return world.do(verify, world.epoch).violations


def harm(world, sql, params=None):
    """Change something behind everybody's back; whatever the schema forbids is allowed."""
    world.checked = False
    connection = world.writer.tx._connection
    for pragma in ("foreign_keys = OFF", "ignore_check_constraints = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    world.sql(sql, params)


# --- large values ---------------------------------------------------------------------------------------------

CHUNK = "WHERE digest = (SELECT input_digest FROM runs WHERE run_id = :run)"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"DELETE FROM content_chunks {CHUNK} AND chunk = 1", "it has 2 of 3 chunks"),
        (f"DELETE FROM content_chunks {CHUNK}", "it has 0 of 3 chunks"),
        (f"UPDATE content_chunks SET chunk = 7 {CHUNK} AND chunk = 2", "it has 3 of 3 chunks"),
        (
            f"UPDATE content_chunks SET data = 'y' || substr(data, 2) {CHUNK} AND chunk = 1",
            "chunk 2 of 3 is not what was stored",
        ),
        (f"UPDATE content_chunks SET crc32 = crc32 + 1 {CHUNK} AND chunk = 0", "chunk 1 of 3 is not"),
        (f"UPDATE contents SET size = size - 1 {CHUNK}", "it has"),
        (f"UPDATE contents SET size = size * 2 {CHUNK}", "it has 3 of 5 chunks"),
    ],
)
def test_a_chunk_that_is_gone_or_flipped_is_named_with_its_run_and_what_to_do(world, sql, said):
    run_id = world.start(linear(1), input=BIG)
    sql = sql.replace("'y' || substr(data, 2)", "CAST('y' || substr(CAST(data AS TEXT), 2) AS BLOB)")
    harm(world, sql, {"run": run_id})
    (violation,) = found(world)
    assert (violation.rule, violation.run_id) == ("value_damaged", run_id)
    assert said in violation.message
    assert "(its input)" in violation.message
    assert "pwf state restore" in violation.fix
    assert f"pwf cancel {run_id}" in violation.fix


def test_a_value_whose_checksums_were_written_anew_still_has_another_digest(world):
    import zlib

    run_id = world.start(linear(1), input=BIG)
    other = b"y" * 1_002
    harm(
        world,
        f"UPDATE content_chunks SET data = :data, crc32 = :crc32 {CHUNK} AND chunk = 2",
        {"run": run_id, "data": other, "crc32": zlib.crc32(other)},
    )
    (violation,) = found(world)
    assert "not those of its digest" in violation.message


def test_every_run_that_shares_a_damaged_value_is_named(world):
    runs = {world.start(linear(1), input=BIG) for _ in range(3)}
    harm(world, "UPDATE content_chunks SET data = x'00' WHERE chunk = 1")
    assert {(violation.rule, violation.run_id) for violation in found(world)} == {
        ("value_damaged", run_id) for run_id in runs
    }


def test_an_upload_that_goes_on_is_no_damage(world):
    run_id = world.start(linear(1), input=BIG)
    harm(world, "INSERT INTO contents VALUES (:digest, 0, 0, 1)", {"digest": "0" * 64})
    assert found(world) == ()
    assert run_id


def test_an_environment_that_is_not_what_was_stored_is_named_with_its_runs(world):
    run_id = world.start(linear(1))
    harm(world, "UPDATE environments SET body = CAST(replace(CAST(body AS TEXT), '3.11', '3.99') AS BLOB)")
    assert [(violation.rule, violation.run_id) for violation in found(world)] == [("value_damaged", run_id)]


# --- rows -----------------------------------------------------------------------------------------------------


OF_NO_RUN = {
    "resources",
    "reconcile_queue",
    "former_children",
    "channels",
}  # whose rows are no run's: see `test_resource_rules`, `test_channels`


@pytest.mark.parametrize(("table", "column"), sorted(one for one in ENCODED if one[0] not in OF_NO_RUN))
def test_a_column_that_does_not_decode_is_named_with_its_row_and_run(world, table, column):
    run_id = full(world)
    world.sql("INSERT INTO updates VALUES (:run, 'k', 'x', x'7b7d', 1, 1, NULL)", {"run": run_id})
    world.sql(
        "INSERT INTO receipts VALUES (1, 'k', 'run.start', 'd', 'accepted', x'7b7d', :run, 1)",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO submissions(submission_no, run_id, request_id, status, value, value_crc32, submitted_by, reason,"
        " created_wall_ms, judged_wall_ms) SELECT run_no, :run, request_id, 'rejected', x'31', 2212294583, 'x', 'x', 1,"
        " 1"
        " FROM runs JOIN requests USING (run_id) WHERE run_id = :run",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO effects(entity_no, node, visit, part, type, mode, status, attempts, request, request_crc32,"
        " fingerprint, output, output_crc32, reserved_wall_ms, settled_wall_ms) SELECT run_no, 'a', 1, 'p', 't',"
        " 'manual', 'applied', 1, x'31', 2212294583, 'f', x'31', 2212294583, 1, 1 FROM runs WHERE run_id = :run",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO decisions SELECT request_id, 't', 'a', x'31', 2212294583, x'5b5d', NULL, :digest, NULL"
        " FROM requests WHERE run_id = :run",
        {"run": run_id, "digest": "d" * 64},
    )
    world.sql("INSERT INTO entities(entity_no, kind, name, revision) VALUES (900, 'session', 's', 1)")
    world.sql(
        "INSERT INTO sessions(session_no, session_id, client, connected, created_wall_ms, seen_wall_ms)"
        " VALUES (900, 's', 'c', 0, 1, 1)"
    )
    world.sql(
        "INSERT INTO messages(message_id, session_no, run_no, kind, body, body_crc32, status, is_over, created_wall_ms)"
        " SELECT 'm', 900, run_no, 'notification', x'31', 2212294583, 'pending', 0, 1 FROM runs WHERE run_id = :run",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO session_entries(run_no, segment, number, kind, body, body_crc32, recorded_wall_ms)"
        " SELECT run_no, 'main', 0, 'said', x'31', 2212294583, 1 FROM runs WHERE run_id = :run",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO settings SELECT run_no, 'm', 1, 1, x'31', 1, 'm.a', 1, 0, x'31' FROM runs WHERE run_id = :run",
        {"run": run_id},
    )
    world.sql(
        "INSERT INTO run_budgets(run_no, at_start, raised) SELECT run_no, x'7b7d', x'7b7d' FROM runs"
        " WHERE run_id = :run",
        {"run": run_id},
    )
    harm(world, f"UPDATE {table} SET {column} = x'7b22ff'")
    violations = [violation for violation in found(world) if violation.rule == "row_damaged"]
    named = {(violation.run_id, violation.fix) for violation in violations}
    assert run_id in {run for run, _ in named}, violations
    assert all(f"of {table} (" in v.message and column in v.message for v in violations)
    assert all("pwf state restore" in fix for _, fix in named)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("runs", "input"),
        ("runs", "output"),
        ("attempts", "output"),
        ("requests", "prompt"),
        ("requests", "answer"),
    ],
)
def test_a_value_in_its_row_that_is_another_one_by_now_is_named(world, table, column):
    run_id = full(world)
    if (table, column) == ("runs", "output"):
        run_id = ended(world)
    harm(
        world, f"UPDATE {table} SET {column} = x'37' WHERE {column} IS NOT NULL"
    )  # JSON, but not what was stored
    named = [v for v in found(world) if v.run_id == run_id]
    assert any(f"{column} is not what was stored" in v.message for v in named), named


def test_every_encoded_column_of_the_schema_is_decoded():
    blobs = {
        (table.name, column.name) for table in tables() for column in table.columns if column.type is bytes
    }
    assert blobs == set(ENCODED)


def test_a_struct_of_another_form_is_named_with_what_is_wrong_in_it(world):
    run_id = world.start(linear(1))
    harm(
        world,
        "UPDATE runs SET visits = :visits WHERE run_id = :run",
        {"run": run_id, "visits": b'{"a":"one"}'},
    )
    assert any("Expected `int`, got `str`" in violation.message for violation in found(world))


def test_json_of_any_size_of_number_is_no_damage(world):
    run_id = world.start(linear(1), input={"n": 10**400})
    world.check()
    assert run_id


@pytest.mark.parametrize("text", ["CAST(x'61ff' AS TEXT)", "CAST(x'610062' AS TEXT)"])
def test_a_name_that_is_no_text_is_named_and_the_rest_is_looked_at(world, text):
    good, bad = ended(world), world.start(linear(1))
    harm(world, f"UPDATE runs SET node = {text} WHERE run_id = :run", {"run": bad})
    harm(world, "UPDATE runs SET visits = x'7b' WHERE run_id = :run", {"run": good})
    rows = {(violation.run_id) for violation in found(world) if violation.rule == "row_damaged"}
    assert rows == {bad, good}


def test_a_run_whose_id_is_no_utf_8_is_named_by_its_number_and_its_bytes(world):
    world.start(linear(1))
    harm(world, "UPDATE runs SET run_id = CAST(x'61ff' AS TEXT), steps = 7")
    violations = found(world)
    assert "rule_unchecked" in {violation.rule for violation in violations}
    (row,) = [v for v in violations if v.rule == "row_damaged" and "run_id is no UTF-8" in v.message]
    assert (row.run_id, "run_no 1" in row.message) == ("a\\xff", True)


@pytest.mark.parametrize(("value", "kind"), [("'text'", "str"), ("x'00'", "bytes"), ("1.5", "float")])
def test_a_value_of_the_wrong_type_is_named_with_its_row_and_run(tmp_path, value, kind):
    world = World(tmp_path)
    run_id = ended(world)
    world.close()
    # A table without STRICT takes any type, as a row does whose header was damaged.
    connection = sqlite3.connect(world.spec.path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ') STRICT,', ')') WHERE name = 'attempts'"
    )
    connection.execute("PRAGMA writable_schema = RESET")
    connection.execute(f"UPDATE attempts SET active_ms = {value} WHERE attempt = 2")
    connection.close()
    violations = look(world.spec.path)
    assert [(v.rule, v.run_id) for v in violations] == [("row_damaged", run_id)]
    assert f"active_ms is of type {kind}, not int" in violations[0].message


@pytest.mark.parametrize("visits", [b"{", b'{"a":"one"}', b""])
def test_a_run_whose_visits_are_damaged_can_be_ended_and_nothing_else(world, visits):
    runner = world.run(linear(3))
    runner.finish(1, to="b")
    world.checked = False
    harm(world, "UPDATE runs SET visits = :visits", {"visits": visits})
    with pytest.raises(Rejected, match="is damaged") as caught:
        world.pause(runner.run_id)
    assert f"pwf cancel {runner.run_id}" in caught.value.hint
    world.cancel(runner.run_id)
    runner.gone()
    assert found(world) == ()


# --- pages ----------------------------------------------------------------------------------------------------


def look(path):
    try:
        reader = open_reader(path)
    except StoreRefused:
        return ()  # without the page of the schema nothing is a table, and opening says so
    try:
        return verify(plain_tx(reader, HandClock().now()), 1).violations
    finally:
        reader.close()


@pytest.fixture(scope="module")
def some_pages(tmp_path_factory):
    """The bytes of a database with something in most tables, and of its run ids."""
    folder = tmp_path_factory.mktemp("pages")
    made = World(folder)
    for state in (ended, restarted, waiting, ambiguous, full):
        for _ in range(4):
            state(made)
    made.start(linear(1), input="x" * 6_000)
    made.close()
    return (folder / "pwf.db").read_bytes()


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_flipped_in_the_file_verify_gives_an_answer(some_pages, tmp_path, seed):
    rng = random.Random(seed)
    data = bytearray(some_pages)
    page = rng.randrange(1, len(data) // 4096) * 4096  # the first has the header, which opening looks at
    size = rng.choice([1, 4, 64, 1_000, 4_096])
    start = page + rng.randrange(4_096)
    for place in range(start, min(start + size, len(data))):
        data[place] = rng.randrange(256)
    path = tmp_path / "pwf.db"
    path.write_bytes(bytes(data))
    violations = look(path)
    assert all(violation.fix and violation.message.isprintable() for violation in violations), violations


def test_the_runs_of_a_page_that_can_not_be_read_are_named(tmp_path):
    world = World(tmp_path)
    world.checked = False
    for _ in range(60):
        runner = world.run(linear(1))
        runner.finish("y" * 200)
        runner.leave()
    ((root,),) = world.sql("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'")
    world.close()
    data = bytearray(world.spec.path.read_bytes())
    child = int.from_bytes(data[(root - 1) * 4096 + 8 : (root - 1) * 4096 + 12], "big")  # its rightmost page
    data[(child - 1) * 4096 : child * 4096] = bytes(4096)
    world.spec.path.write_bytes(bytes(data))
    violations = look(world.spec.path)
    assert any(v.rule == "integrity" and "table attempts" in v.message for v in violations), violations
    named = {v.run_id for v in violations if v.rule == "row_damaged"}
    assert 0 < len(named) < 60
    assert None not in named


def test_rows_that_lead_in_a_circle_end_the_walk(world, monkeypatch):
    for _ in range(3):
        world.start(linear(1))
    world.checked = False
    real = soundness._page
    monkeypatch.setattr(soundness, "PAGE_ROWS", 2)
    monkeypatch.setattr(soundness, "_page", lambda tx, table, tail, params: real(tx, table, "LIMIT 2", None))
    assert any("out of order" in violation.message for violation in found(world))


def test_of_many_violations_of_one_kind_the_rest_is_counted(world, monkeypatch):
    monkeypatch.setattr(soundness, "NAMED_MAX", 2)
    for _ in range(5):
        world.start(linear(1))
    harm(world, "UPDATE runs SET visits = x'7b'")
    rows = [violation for violation in found(world) if violation.rule == "row_damaged"]
    assert [violation.run_id is None for violation in rows] == [False, False, True]
    assert rows[-1].message.startswith("and 3 more of the kind: a row of runs")


def test_giving_up_is_no_damage():
    assert not issubclass(apsw.InterruptError, UNREADABLE)
    assert not issubclass(apsw.BusyError, UNREADABLE)


def test_every_kind_of_damage_has_a_planted_violation():
    here = {"row_damaged", "value_damaged", "rule_unchecked", "integrity"}
    assert {rule for rule, _, _ in PLANTED} | here >= set(FURTHER)
