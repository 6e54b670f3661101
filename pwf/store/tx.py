"""What a handler sees of the open transaction: statements, the fence, leases, events.

Owns no connection and never begins, commits or rolls back: the executor does. Every statement runs to its end
before its rows are returned, so that nothing is left open at a COMMIT. A handler reads the time from `now`,
makes ids with `ids`, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


class Tx:
    """One command's (or one read's) view of the database. `now` is one reading per batch."""

    __slots__ = ("_connection", "_execute", "changed_keys", "disk_full", "ids", "now")

    def __init__(self, connection: apsw.Connection, *, now: Now, ids: Ids) -> None:
        self.now = now
        self.ids = ids
        self.changed_keys: list[str] = []
        #: The disk is full and the ballast is gone: what can wait for space is refused with `DiskFull`.
        self.disk_full = False
        self._connection = connection
        # One cursor for all: a new one per statement costs more than the statement.
        self._execute: Any = connection.cursor().execute

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

    def changed(self, key: str) -> None:
        """Tell subscribers about `key` ("run:<id>", "queue", "daemon", "requests") once this is committed."""
        self.changed_keys.append(key)

    def unchanged(self, key: str) -> None:
        """Take back the last `changed(key)`, of this command, which has itself done what somebody would wake for."""
        for index in reversed(range(len(self.changed_keys))):
            if self.changed_keys[index] == key:
                del self.changed_keys[index]  # what comes before stands where a savepoint has counted it
                return

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a command that is undone alone when it raises; the exception goes on.

        After SQLite itself has ended the transaction there is nothing left to undo, and whoever catches the
        exception must raise it again.
        """
        mark = len(self.changed_keys)
        self._execute("SAVEPOINT part").fetchall()
        try:
            yield
        except BaseException:
            del self.changed_keys[mark:]
            if self._connection.in_transaction:
                self._execute("ROLLBACK TO part").fetchall()
                self._execute("RELEASE part").fetchall()
            raise
        self._execute("RELEASE part").fetchall()

    # --- entities -------------------------------------------------------------------------------------------

    def create_entity(self, entity_id: str, kind: str) -> int:
        """Make an entity of revision 1 and generation 0; returns the revision.

        The caller has checked that there is none: a second one breaks the primary key.
        """
        self.run(Q.create_entity, {"entity_id": entity_id, "kind": kind})
        return 1

    def fence(
        self,
        entity_id: str,
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
        row = self.one(Q.fence, {"entity_id": entity_id, **facts})
        if row is not None:
            return int(row[0])
        raise self._fenced_off(entity_id, generation, token, expected_revision)

    def count_writes(self, entity_id: str, count: int) -> None:
        """Count further protected writes of the same command, each with an event of its own. Only after its `fence`."""
        self.run(Q.count_writes, {"entity_id": entity_id, "count": count})

    def take_lease(
        self, entity_id: str, *, token: str, owner: str, until_awake_ms: int, dead_owner: str | None = None
    ) -> tuple[int, int]:
        """Become the owner with the next generation; returns (revision, generation).

        `dead_owner` names an owner whose process is proved dead: its lease counts as over. Raises `ClaimLost`
        where the entity is missing or another owner's lease is live.
        """
        row = self.one(
            Q.take_lease,
            {
                "entity_id": entity_id,
                "token": token,
                "owner": owner,
                "until_awake_ms": until_awake_ms,
                "boot_id": self.now.boot_id,
                "awake_ms": self.now.awake_ms,
                "dead_owner": dead_owner,
            },
        )
        if row is not None:
            return int(row[0]), int(row[1])
        entity = self.one(Q.entity, {"entity_id": entity_id})
        if entity is None:
            raise ClaimLost(f"{entity_id} does not exist")
        left_ms = int(entity[4]) - self.now.awake_ms
        raise ClaimLost(f"{entity_id} belongs to {entity[3]} for another {left_ms} ms")

    def renew_lease(self, entity_id: str, *, generation: int, token: str, until_awake_ms: int) -> None:
        """Go on owning: no revision, no event. `ClaimLost` where somebody else has taken it."""
        changed = self.run(
            Q.renew_lease,
            {
                "entity_id": entity_id,
                "generation": generation,
                "token": token,
                "until_awake_ms": until_awake_ms,
                "boot_id": self.now.boot_id,
            },
        )
        if not changed:
            raise self._fenced_off(entity_id, generation, token, None)

    def release_lease(self, entity_id: str) -> None:
        """Give the lease up. Only after a `fence` in the same command."""
        self.run(Q.release_lease, {"entity_id": entity_id})

    def event(
        self,
        entity_id: str,
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
                "entity_id": entity_id,
                "revision": revision,
                "kind": kind,
                "actor": actor,
                "generation": generation,
                "payload": payload if isinstance(payload, bytes) else canonical(payload, what="event"),
                "at_wall_ms": self.now.wall_ms,
            },
        )

    def _fenced_off(
        self, entity_id: str, generation: int | None, token: str | None, expected_revision: int | None
    ) -> ClaimLost | Conflict:
        entity = self.one(Q.entity, {"entity_id": entity_id})
        if entity is None:
            return ClaimLost(f"{entity_id} does not exist")
        revision, present_generation, present_token = entity[:3]
        if generation is not None and generation != present_generation:
            return ClaimLost(
                f"{entity_id} has generation {present_generation}; the writer's is {generation}",
                details={"generation": present_generation},
            )
        if token is not None and token != present_token:
            return ClaimLost(f"{entity_id} belongs to {entity[3] or 'nobody'} by now")
        return Conflict(
            f"{entity_id} has revision {revision} by now; you expected {expected_revision}",
            hint="look at it again, then repeat",
            details={"revision": revision},
        )
