"""Whether what is stored is what was stored: every row is read, every encoded column decoded, every value compared.

Promises: survives any damage, and names the row, the run that it belongs to, and what is wrong with it. What can't be
read keeps nothing else from being looked at. Reads a page of rows at a time, and changes nothing.

A value that stands in its row has a checksum there. Numbers, names and what pwf itself encodes have none: a flip that
leaves them readable is seen only where a rule of `verify` contradicts it. docs/reliability.md says why.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import apsw
import msgspec

from pwf.budgets import Budget
from pwf.errors import InvalidValue
from pwf.protocol.decision_spec import ChoiceSpec
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.mounts import Entries
from pwf.protocol.resources import Condition
from pwf.protocol.runner import StepError
from pwf.protocol.survivors import Survivor
from pwf.protocol.views import Violation
from pwf.store.estimate import Sample
from pwf.store.migrate import create_schema
from pwf.store.queries import load_queries
from pwf.store.runs import RunEnvironment
from pwf.store.tx import Row, Tx
from pwf.store.values import value_fault
from pwf.values import digest, parse

Q = load_queries(__file__)

PAGE_ROWS = 500
NAMED_MAX = 50  # violations of one kind, and runs that one damaged thing is named for
SHOWN_MAX = 120  # characters of a key or of an error

RESTORE = "restore the database from a backup (pwf state restore FILE)"
LOST = f"{RESTORE}; without one it is lost: pwf cancel {{name}} ends the run, if it has not ended"

#: What reading a damaged file raises. Whoever gives up a read, or locks the file, says nothing about its soundness.
UNREADABLE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.MismatchError,
    apsw.SQLError,
    UnicodeDecodeError,
)

#: What each BLOB holds. A test holds that none is left out.
ENCODED: dict[tuple[str, str], Any] = {
    ("events", "payload"): dict[str, Any],
    ("receipts", "response"): Any,
    ("definitions", "graph"): WorkflowGraph,
    ("definitions", "packages"): dict[str, str],
    ("definitions", "warnings"): list[str],
    ("environments", "body"): RunEnvironment,
    ("resources", "spec"): Any,
    ("resources", "status"): Any,
    ("resources", "conditions"): list[Condition],
    ("resources", "error"): StepError,
    ("reconcile_queue", "reasons"): list[str],
    ("former_children", "output"): Any,
    ("runs", "visits"): dict[str, int],
    ("runs", "entries"): Entries,
    ("runs", "input"): Any,
    ("runs", "output"): Any,
    ("runs", "error"): StepError,
    ("attempts", "output"): Any,
    ("attempts", "error"): StepError,
    ("attempts", "counted_from"): dict[str, int],
    ("attempts", "survivors"): tuple[Survivor, ...],
    ("requests", "prompt"): Any,
    ("requests", "schema"): dict[str, Any],
    ("requests", "default_answer"): Any,
    ("requests", "answer"): Any,
    ("submissions", "value"): Any,
    ("messages", "body"): Any,
    ("session_entries", "body"): Any,
    ("effects", "request"): Any,
    ("effects", "output"): Any,
    ("effects", "error"): StepError,
    ("channels", "tells"): tuple[str, ...],
    ("decisions", "subject"): Any,
    ("decisions", "choices"): tuple[ChoiceSpec, ...],
    ("settings", "value"): Any,
    ("settings", "kept_value"): Any,
    ("updates", "data"): Any,
    ("run_budgets", "at_start"): Budget,
    ("run_budgets", "raised"): Budget,
    ("updates", "samples"): tuple[Sample, ...],
}
#: Read chunk by chunk, each with its checksum, and all of a value with its digest.
COMPARED = "content_chunks"
#: Texts that name something: no name has a NUL, at which SQL's own functions end a text.
NAMES = frozenset(
    {"run_id", "request_id", "definition_id", "environment_id", "digest", "name", "node", "workflow"}
)
TYPES = {"INTEGER": int, "TEXT": str, "BLOB": bytes}


class Column(NamedTuple):
    name: str
    type: type
    required: bool
    decode: Callable[[bytes], object] | None


class Table(NamedTuple):
    """A table as the schema has it; `key` are the places of its key in `columns`."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    checked: tuple[tuple[int, int], ...]  # a value and its checksum

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def damage(tx: Tx) -> list[Violation]:
    """Every row and value that is not as it was stored."""
    found: list[Violation] = []
    for table in tables():
        found += _bounded(_damaged_rows(tx, table))
    found += _bounded(_guarded("environments", _damaged_environments(tx)))
    found += _bounded(_guarded("contents", _damaged_values(tx)))
    return found


def integrity(tx: Tx) -> list[Violation]:
    """The file's own soundness: SQLite's check of its pages, indexes and types."""
    try:
        messages = _integrity_messages(tx, "")
    except UNREADABLE as error:  # it gives up at some pages: then table by table
        messages = [f"the file can not be read: {shown(error)}"]
        for name in (COMPARED, *(table.name for table in tables())):
            try:
                messages += _integrity_messages(tx, name)
            except UNREADABLE as inner:
                messages.append(f"table {name} can not be read: {shown(inner)}")
    return [Violation(rule="integrity", message=message, fix=RESTORE) for message in dict.fromkeys(messages)]


def _integrity_messages(tx: Tx, table: str) -> list[str]:
    rows = tx.all(f"PRAGMA integrity_check('{table}')" if table else "PRAGMA integrity_check(20)")
    lines = [line for (text,) in rows for line in str(text).splitlines()]
    lines = [line for line in lines if line != "ok" and not line.startswith("***")]
    roots = {int(page): f"{kind} {name}" for page, kind, name in tx.all(Q.roots)} if lines else {}
    # SQLite names only the page at which a table or an index begins.
    return [re.sub(r"Tree (\d+)", lambda tree: roots.get(int(tree[1]), tree[0]), line) for line in lines]


def shown(error: object) -> str:
    """An error or a key as text that can be printed and sent, whatever was in the file."""
    text = str(error).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"


# --- rows -----------------------------------------------------------------------------------------------------


@cache
def tables() -> tuple[Table, ...]:
    """Every table of the schema but that of the bytes of large values."""
    connection = apsw.Connection(":memory:")
    try:
        create_schema(connection)
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        left_out = {COMPARED, *(name for name in names if name.startswith("sqlite_"))}
        return tuple(_table(connection, name) for name in names if name not in left_out)
    finally:
        connection.close()


def _table(connection: apsw.Connection, name: str) -> Table:
    rows = connection.execute(f"PRAGMA table_info({name})").fetchall()
    columns = tuple(
        Column(str(column), TYPES[str(kind)], bool(required or primary), _decoder(name, str(column)))
        for _, column, kind, required, _, primary in rows
    )
    key = sorted((row[5], place) for place, row in enumerate(rows) if row[5])
    places = {column.name: place for place, column in enumerate(columns)}
    checked = tuple(
        (place, places[f"{column}_crc32"]) for column, place in places.items() if f"{column}_crc32" in places
    )
    return Table(name, columns, tuple(place for _, place in key), checked)


def _decoder(table: str, column: str) -> Callable[[bytes], object] | None:
    wanted = ENCODED.get((table, column))
    return None if wanted is None else msgspec.json.Decoder(wanted).decode


def _damaged_rows(tx: Tx, table: Table) -> Iterator[Violation]:
    try:
        for row, fault in faults(tx, table):
            yield from _row_violations(tx, table, row, fault)
    except UNREADABLE as error:
        yield from _unreadable(tx, table, error)


def faults(tx: Tx, table: Table) -> Iterator[tuple[Row, str]]:
    """Every row with something wrong in it, page by page in the order of the key. Raises what reading raises."""
    keys = [table.columns[place] for place in table.key]
    order = ", ".join(column.name for column in keys)
    # What is no UTF-8 goes back as the bytes that it is.
    marks = ", ".join(
        f"CAST(:k{n} AS TEXT)" if column.type is str else f":k{n}" for n, column in enumerate(keys)
    )
    tail = f"ORDER BY {order} LIMIT {PAGE_ROWS}"
    where, params = "", None
    sound: set[tuple[type, ...]] = set()
    ends: set[Row] = set()
    while True:
        rows = _page(tx, table, f"{where} {tail}", params)
        for row in rows:
            fault = _fault(table, row, sound)
            if fault is not None:
                yield row, fault
        if len(rows) < PAGE_ROWS:
            return
        end = tuple(rows[-1][place] for place in table.key)
        _refuse_circle(end, ends)
        where = f"WHERE ({order}) > ({marks})"
        params = {f"k{n}": value for n, value in enumerate(end)}


def _page(tx: Tx, table: Table, tail: str, params: dict[str, object] | None) -> list[Row]:
    try:
        return tx.all(f"SELECT {', '.join(table.names)} FROM {table.name} {tail}", params)
    except UnicodeDecodeError:
        columns = (
            f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END, typeof({name})"
            for name in table.names
        )
        rows = tx.all(f"SELECT {', '.join(columns)} FROM {table.name} {tail}", params)
        return [tuple(map(_as_it_stands, row[::2], row[1::2])) for row in rows]


class _NoText(bytes):
    """A text that is no UTF-8."""


def _as_it_stands(value: object, kind: str) -> object:
    if kind == "text":
        assert isinstance(value, bytes)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return _NoText(value)
    return value


def _fault(table: Table, row: Row, sound: set[tuple[type, ...]]) -> str | None:
    """What is wrong with a row. `sound`: combinations of types that were found right before."""
    kinds = tuple(map(type, row))
    if kinds not in sound:
        for column, value in zip(table.columns, row, strict=True):
            if value is None and column.required:
                return f"{column.name} is missing"
            if isinstance(value, _NoText):
                return f"{column.name} is no UTF-8"
            if value is not None and type(value) is not column.type:
                return f"{column.name} is of type {type(value).__name__}, not {column.type.__name__}"
        sound.add(kinds)
    for place, checksum in table.checked:
        if row[place] is not None and zlib.crc32(row[place]) != row[checksum]:
            return f"{table.columns[place].name} is not what was stored"
    for column, value in zip(table.columns, row, strict=True):
        if column.decode is not None and value is not None:
            if (fault := _undecodable(column.decode, value)) is not None:
                return f"{column.name} {fault}"
        elif column.name in NAMES and value is not None and "\0" in value:
            return f"{column.name} has a NUL in it"
    return None


def _undecodable(decode: Callable[[bytes], object], data: bytes) -> str | None:
    try:
        decode(data)
    except msgspec.ValidationError as error:
        return f"is not of the form that it must have: {shown(error)}"
    except (msgspec.MsgspecError, RecursionError, ValueError):
        try:
            parse(data)  # the judge of what is JSON: it takes numbers that are too large for the quick one
        except InvalidValue as error:
            return shown(error.message.removeprefix("value "))
    return None


def _row_violations(tx: Tx, table: Table, row: Row, fault: str) -> Iterator[Violation]:
    facts = dict(zip(table.names, row, strict=True))
    key = ", ".join(f"{table.columns[place].name} {_plain(row[place])}" for place in table.key)
    message = f"a row of {table.name} ({key}) is damaged: {fault}"
    yield from named_for(_runs_of(tx, facts), "row_damaged", message)


def named_for(runs: list[str], rule: str, message: str) -> Iterator[Violation]:
    """One violation for each run that it concerns, else one for the database."""
    for run_id in runs[:NAMED_MAX]:
        yield Violation(rule=rule, message=message, run_id=run_id, fix=LOST.replace("{name}", run_id))
    if not runs:
        yield Violation(rule=rule, message=message, fix=RESTORE)


def _runs_of(tx: Tx, facts: dict[str, Any]) -> list[str]:
    """The runs that a row belongs to, as far as that can be read."""
    try:
        if "run_id" in facts and facts["run_id"] is not None:
            return [_plain(facts["run_id"])]
        no = facts.get("run_no", facts.get("entity_no"))
        if no is not None:
            return [_plain(run_id) for (run_id,) in tx.all(Q.run_of_no, {"no": no})]
        if "request_id" in facts:  # of a decision or an answer
            return [_plain(run_id) for (run_id,) in tx.all(Q.request_runs, {"id": facts["request_id"]})]
        if isinstance(facts.get("definition_id"), str):
            return [str(run_id) for (run_id,) in tx.all(Q.definition_runs, {"id": facts["definition_id"]})]
        if isinstance(facts.get("environment_id"), str):
            return [str(run_id) for (run_id,) in tx.all(Q.environment_runs, {"id": facts["environment_id"]})]
        if isinstance(facts.get("digest"), str):
            return list(_places_of(tx, facts["digest"]))
    except UNREADABLE:
        pass
    return []


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return shown(value.decode("utf-8", "backslashreplace"))
    return shown(value)


def _unreadable(tx: Tx, table: Table, error: Exception) -> Iterator[Violation]:
    """A table with a page that can't be read: look at it run by run, and name those of which something is there."""
    column = next((name for name in table.names if name in ("run_no", "entity_no", "run_id")), None)
    runs = _all_runs(tx) if column is not None else {}
    named = False
    for no, run_id in runs.items():
        key = run_id if column == "run_id" else no
        try:
            for row in _page(tx, table, f"WHERE {column} = :key", {"key": key}):
                fault = _fault(table, row, set())
                if fault is not None:
                    named = True
                    yield from _row_violations(tx, table, row, fault)
        except UNREADABLE as found:
            named = True
            message = f"rows of {table.name} can not be read: {shown(found)}"
            yield from named_for([run_id], "row_damaged", message)
    if not named:
        message = f"rows of {table.name} can not be read: {shown(error)}"
        yield Violation(rule="row_damaged", message=message, fix=RESTORE)


def _all_runs(tx: Tx) -> dict[int, str]:
    found: dict[int, str] = {}
    for sql in (Q.run_names, Q.run_ids):
        try:
            found.update({int(no): _plain(name) for no, name in tx.all(sql)})
        except (*UNREADABLE, ValueError, TypeError):
            continue
    return found


# --- values ---------------------------------------------------------------------------------------------------


def _damaged_values(tx: Tx) -> Iterator[Violation]:
    """Every large value: its chunks, their checksums, its size and its digest."""
    for name, size, complete in _pages(tx, Q.values_after):
        if not complete:
            continue  # an upload that goes on, or was given up: what refers to one breaks a rule of its own
        fault = _value_fault(tx, name, size)
        if fault is not None:
            places = _places_of(tx, name) or {"": ["nothing that can be read refers to it"]}
            for run_id, of in list(places.items())[:NAMED_MAX]:
                message = f"value {shown(name)} ({shown(', '.join(of))}) is damaged: {fault}"
                yield from named_for([run_id] if run_id else [], "value_damaged", message)


def _value_fault(tx: Tx, name: Any, size: Any) -> str | None:
    if not isinstance(name, str) or not isinstance(size, int):
        return None  # its row was named
    try:
        return value_fault(tx, name, size)
    except UNREADABLE as error:
        return f"it can not be read: {shown(error)}"


def _places_of(tx: Tx, name: str) -> dict[str, list[str]]:
    """The runs that a value belongs to, and what it is of each."""
    found: dict[str, list[str]] = {}
    try:
        for run_id, of in tx.all(Q.value_runs, {"digest": name}):
            found.setdefault(str(run_id), []).append(str(of))
    except UNREADABLE:
        return {}
    return found


def _damaged_environments(tx: Tx) -> Iterator[Violation]:
    for environment_id, body in _pages(tx, Q.environments):
        if isinstance(body, bytes) and digest(body) != environment_id:
            message = f"environment {shown(environment_id)} is not what was stored under its digest"
            runs = _runs_of(tx, {"environment_id": environment_id})
            yield from named_for(runs, "value_damaged", message)


def _pages(tx: Tx, sql: str) -> Iterator[Row]:
    after = ""
    ends: set[Row] = set()
    while rows := tx.all(sql, {"after": after, "limit": PAGE_ROWS}):
        yield from rows
        after = rows[-1][0]
        _refuse_circle((after,), ends)


def _refuse_circle(end: Row, ends: set[Row]) -> None:
    """In a damaged tree the way on may lead back."""
    if end in ends:
        raise apsw.CorruptError("its rows are out of order")
    ends.add(end)


# --- shared ---------------------------------------------------------------------------------------------------


def _guarded(table: str, found: Iterator[Violation]) -> Iterator[Violation]:
    """Ends where the table itself can't be read, which was said of its rows."""
    try:
        yield from found
    except UNREADABLE as error:
        message = f"not every value of {table} could be compared: {shown(error)}"
        yield Violation(rule="value_damaged", message=message, fix=RESTORE)


def _bounded(found: Iterator[Violation]) -> list[Violation]:
    return cut(list(dict.fromkeys(found)))


def cut(found: list[Violation]) -> list[Violation]:
    """The first of many of one kind; the last one says how many more there are."""
    if len(found) <= NAMED_MAX:
        return found
    more = f"and {len(found) - NAMED_MAX:,} more of the kind: {found[NAMED_MAX].message}"
    return [*found[:NAMED_MAX], msgspec.structs.replace(found[NAMED_MAX], message=more, run_id=None)]
