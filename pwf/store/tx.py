"""What a handler sees of the open transaction: statements, the fence, leases, events.

Owns no connection and never begins, commits or rolls back: the executor does. Every statement runs to its end
before its rows are returned, so that nothing is left open at a COMMIT. A handler reads the time from `now`,
makes ids with `ids`, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import apsw

from pwf.clock import Now
from pwf.errors import ClaimLost, Conflict
from pwf.ids import Ids
from pwf.store.queries import load_queries
from pwf.values import canonical

Row = tuple[Any, ...]
Params = Mapping[str, object]

Q = load_queries(__file__)

DAEMON_NO = 0  # the daemon's entity; that of a run has the run's number


class NeedsUndo(Exception):
    """A part must be undone, and no savepoint was set, or it can't be done in a hurry: the batch is run again."""


class Tx:
    """One command's (or one read's) view of the database. `now` is one reading per batch."""

    __slots__ = (
        "_connection",
        "_cursor",
        "_execute",
        "changed_keys",
        "disk_full",
        "ids",
        "is_hurried",
        "needs_undo",
        "now",
        "sets_savepoints",
    )

    def __init__(self, connection: apsw.Connection, *, now: Now, ids: Ids) -> None:
        self.now = now
        self.ids = ids
        self.changed_keys: list[str] = []
        #: The disk is full and the ballast is gone: what can wait for space is refused with `DiskFull`.
        self.disk_full = False
        #: Savepoints cost: two statements each, and a copy of every page that is written under them. What raises has
        #: mostly written nothing, so they are set only in a batch where something has to be undone (`NeedsUndo`).
        self.sets_savepoints = True
        self.needs_undo = False
        #: In the event loop's thread, where nothing may take long.
        self.is_hurried = False
        self._connection = connection
        # One cursor for all: a new one per statement costs more than the statement.
        self._cursor = connection.cursor()
        self._execute: Any = self._cursor.execute

    def all(self, sql: str, params: Params | None = None) -> list[Row]:
        """Run a statement to its end; its rows."""
        rows: list[Row] = self._execute(sql, params).fetchall()
        return rows

    def one(self, sql: str, params: Params | None = None) -> Row | None:
        """Run a statement that gives at most one row; that row or None."""
        rows: list[Row] = self._execute(sql, params).fetchall()
        assert len(rows) <= 1, f"{len(rows)} rows where at most one was expected: {sql}"
        return rows[0] if rows else None

    def run(self, sql: str, params: Params | None = None) -> int:
        """Run an INSERT, UPDATE or DELETE; how many rows it changed."""
        self._execute(sql, params).fetchall()
        return self._connection.changes()

    def insert(self, sql: str, params: Params) -> int:
        """Insert a row of a table that numbers its rows; the number. (RETURNING would cost a table of its own.)"""
        self._execute(sql, params).fetchall()
        return self._connection.last_insert_rowid()

    def let_go(self) -> None:
        """Reset a statement whose rows could not be taken (a text that is no UTF-8): it would keep its snapshot."""
        self._cursor.close(True)
        self._cursor = self._connection.cursor()
        self._execute = self._cursor.execute

    def changed(self, key: str) -> None:
        """Tell subscribers about `key` ("run:<id>", "queue", "daemon", "requests") once this is committed."""
        self.changed_keys.append(key)

    def unchanged(self, key: str) -> None:
        """Take back the last `changed(key)`, of this command, which has itself done what somebody would wake for."""
        for index in reversed(range(len(self.changed_keys))):
            if self.changed_keys[index] == key:
                del self.changed_keys[index]  # what comes before stands where a savepoint has counted it
                return

    def savepoint(self) -> Part:
        """A part of a command that is undone alone when it raises; the exception goes on.

        After SQLite itself has ended the transaction there is nothing left to undo, and whoever catches the
        exception must raise it again.
        """
        return Part(self)

    def set_savepoint(self) -> int:
        """Begin a part; what `undo` is to be given."""
        if self.sets_savepoints:
            self._execute("SAVEPOINT part").fetchall()
        return self._connection.total_changes()

    def keep(self) -> None:
        """End a part that has gone well."""
        if self.sets_savepoints:
            self._execute("RELEASE part").fetchall()

    def undo(self, mark: int) -> None:
        """End a part as if it had never been. Raises `NeedsUndo` where it has written and no savepoint was set."""
        if self.sets_savepoints:
            self._execute("ROLLBACK TO part").fetchall()
            self._execute("RELEASE part").fetchall()
        elif self._connection.total_changes() != mark:
            self.needs_undo = True
            raise NeedsUndo

    def lengthy(self) -> None:
        """What follows takes more than a few milliseconds. In a hurry it raises `NeedsUndo`: begin anew elsewhere."""
        if self.is_hurried:
            self.needs_undo = True
            raise NeedsUndo

    @property
    def is_open(self) -> bool:
        """Whether the transaction still is; some errors make SQLite end it."""
        return self._connection.in_transaction

    # --- entities -------------------------------------------------------------------------------------------

    def create_entity(self, kind: str, name: str, entity_no: int | None = None) -> int:
        """Make an entity of revision 1 and generation 0; returns its number, the next one unless it is given.

        `name` is what it is known by within its kind. The caller has checked that there is none of that name.
        """
        return self.insert(Q.create_entity, {"entity_no": entity_no, "kind": kind, "name": name})

    def fence(
        self,
        entity_no: int,
        *,
        generation: int | None = None,
        token: str | None = None,
        expected_revision: int | None = None,
    ) -> int:
        """Begin a protected write: compare and count in one statement; returns the new revision.

        Nothing is written when it raises: `ClaimLost` where the entity is missing or has another generation
        or token, `Conflict` where only the revision differs.
        """
        facts = {"generation": generation, "token": token, "expected_revision": expected_revision}
        if not self.run(Q.fence, {"entity_no": entity_no, **facts}):
            raise self._fenced_off(entity_no, generation, token, expected_revision)
        if expected_revision is not None:
            return expected_revision + 1
        row = self.one(Q.revision, {"entity_no": entity_no})  # RETURNING costs a table of its own
        assert row is not None
        return int(row[0])

    def count_writes(self, entity_no: int, count: int) -> None:
        """Count further protected writes of the same command, each with an event of its own. Only after its `fence`."""
        self.run(Q.count_writes, {"entity_no": entity_no, "count": count})

    def take_lease(
        self,
        entity_no: int,
        *,
        token: str,
        owner: str,
        until_awake_ms: int,
        dead_owner: str | None = None,
        counted: bool = True,
    ) -> tuple[int, int]:
        """Become the owner with the next generation; returns (revision, generation).

        `dead_owner` names an owner whose process is proved dead: its lease counts as over. `counted`: it is a revision,
        and gets an event. Raises `ClaimLost` where the entity is missing or another owner's lease is live.
        """
        row = self.one(
            Q.take_lease,
            {
                "entity_no": entity_no,
                "token": token,
                "owner": owner,
                "until_awake_ms": until_awake_ms,
                "boot_id": self.now.boot_id,
                "awake_ms": self.now.awake_ms,
                "dead_owner": dead_owner,
                "counted": counted,
            },
        )
        if row is not None:
            return int(row[0]), int(row[1])
        entity = self.one(Q.entity, {"entity_no": entity_no})
        if entity is None:
            raise ClaimLost(f"entity {entity_no} does not exist")
        left_ms = int(entity[4]) - self.now.awake_ms
        raise ClaimLost(f"{subject(*entity[6:])} belongs to {entity[3]} for another {left_ms} ms")

    def renew_lease(self, entity_no: int, *, generation: int, token: str, until_awake_ms: int) -> None:
        """Go on owning: no revision, no event. `ClaimLost` where somebody else has taken it."""
        if not self.try_renew_lease(
            entity_no, generation=generation, token=token, until_awake_ms=until_awake_ms
        ):
            raise self._fenced_off(entity_no, generation, token, None)

    def try_renew_lease(self, entity_no: int, *, generation: int, token: str, until_awake_ms: int) -> bool:
        """The same; False where it is not the writer's any more."""
        facts = {"generation": generation, "token": token, "until_awake_ms": until_awake_ms}
        return bool(self.run(Q.renew_lease, {"entity_no": entity_no, "boot_id": self.now.boot_id, **facts}))

    def release_lease(self, entity_no: int) -> None:
        """Give the lease up. Only after a `fence` in the same command."""
        self.run(Q.release_lease, {"entity_no": entity_no})

    def event(
        self,
        entity_no: int,
        revision: int,
        kind: str,
        actor: str,
        generation: int,
        payload: Mapping[str, object] | bytes,
    ) -> None:
        """Write the history's entry for `revision`. `payload`: an object, or canonical JSON as it stands."""
        self.run(
            Q.add_event,
            {
                "entity_no": entity_no,
                "revision": revision,
                "kind": kind,
                "actor": actor,
                "generation": generation,
                "payload": payload if isinstance(payload, bytes) else canonical(payload, what="event"),
                "at_wall_ms": self.now.wall_ms,
            },
        )

    def _fenced_off(
        self, entity_no: int, generation: int | None, token: str | None, expected_revision: int | None
    ) -> ClaimLost | Conflict:
        entity = self.one(Q.entity, {"entity_no": entity_no})
        if entity is None:
            return ClaimLost(f"entity {entity_no} does not exist")
        revision, present_generation, present_token = entity[:3]
        name = subject(*entity[6:])
        if generation is not None and generation != present_generation:
            return ClaimLost(
                f"{name} has generation {present_generation}; the writer's is {generation}",
                details={"generation": present_generation},
            )
        if token is not None and token != present_token:
            return ClaimLost(f"{name} belongs to {entity[3] or 'nobody'} by now")
        return Conflict(
            f"{name} has revision {revision} by now; you expected {expected_revision}",
            hint="look at it again, then repeat",
            details={"revision": revision},
        )


def subject(kind: str, name: str) -> str:
    """What people know an entity by, and the key under which its changes are told: "run:<id>", "daemon"."""
    return f"{kind}:{name}" if name else kind


class Part:
    """See `Tx.savepoint`."""

    __slots__ = ("_keys", "_mark", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def __enter__(self) -> None:
        self._keys = len(self._tx.changed_keys)
        self._mark = self._tx.set_savepoint()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._tx.keep()
            return
        del self._tx.changed_keys[self._keys :]
        if self._tx.is_open and not self._tx.needs_undo:
            self._tx.undo(self._mark)
