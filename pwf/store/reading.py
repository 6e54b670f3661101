"""What the reader thread does: one read at a time, on one snapshot, bounded in time and interruptible.

Owns the reader connection, which can't write. Blocking calls, one thread; `Reading.stop` is called from another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw
import msgspec

from pwf.clock import Clock
from pwf.errors import StoreBroken, Unavailable, ValueDamaged
from pwf.ids import Ids
from pwf.store.tx import Params, Row, Tx

T = TypeVar("T")

READ_LIMIT_S = 5.0
STEPS_BETWEEN_CHECKS = 2_000  # of SQLite's machine, some tens of microseconds


class Reading:
    """One read's allowance. `stop()` may be called from any thread."""

    def __init__(self, limit_s: float = READ_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._ends: float | None = None
        self.stopped = False

    def stop(self) -> None:
        """Nobody waits for the result any more."""
        self.stopped = True

    def begin(self) -> None:
        """The time counts from here, not from when the read was queued."""
        self._ends = time.monotonic() + self._limit_s

    @property
    def over(self) -> bool:
        """Whether the read must end now."""
        return self.stopped or (self._ends is not None and time.monotonic() > self._ends)

    def check(self) -> None:
        """Raise `Unavailable` when the read must end now."""
        if self.over:
            raise self.failure()

    def failure(self) -> Unavailable:
        """What a read that was ended raises."""
        if self.stopped:
            return Unavailable("the read was given up")
        return Unavailable(
            f"the read took longer than {self._limit_s:g} s", hint="ask for less, or for a page"
        )


class ReadTx(Tx):
    """A `Tx` that also ends between statements when its time is over."""

    __slots__ = ("reading",)

    reading: Reading

    def all(self, sql: str, params: Params | None = None) -> list[Row]:
        self.reading.check()
        return super().all(sql, params)

    def one(self, sql: str, params: Params | None = None) -> Row | None:
        self.reading.check()
        return super().one(sql, params)


class Reader:
    """Runs reads on its connection."""

    def __init__(self, connection: apsw.Connection, *, clock: Clock, ids: Ids) -> None:
        self._connection = connection
        self._clock = clock
        self._tx = ReadTx(connection, now=clock.now(), ids=ids)
        self._statement: Any = connection.cursor().execute
        self._is_closed = False
        connection.set_progress_handler(self._must_end, STEPS_BETWEEN_CHECKS)

    def run(self, handler: Callable[[Tx, Any], T], query: object, reading: Reading) -> T:
        """Run a handler on one snapshot.

        Raises `Unavailable` when it took too long or was stopped, or the store has closed meanwhile; `ValueDamaged` for
        what does not decode.
        """
        if self._is_closed:
            raise Unavailable("the store is closed")
        self._tx.reading = reading
        reading.begin()
        try:
            reading.check()
            self._statement("BEGIN").fetchall()
            self._tx.now = self._clock.now()
            return handler(self._tx, query)
        except apsw.InterruptError as error:
            raise reading.failure() from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise StoreBroken(f"the database is damaged: {error}") from error
        except (apsw.BusyError, apsw.IOError, apsw.NoMemError, apsw.CantOpenError, apsw.FullError) as error:
            raise Unavailable(f"the database could not be read: {error}") from error
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            self._tx.let_go()
            raise ValueDamaged(
                f"what is stored can not be read: {error}", hint="pwf state verify names its row and its run"
            ) from error
        finally:
            self._end()

    def close(self) -> None:
        """Close the connection. Who still comes is told."""
        self._is_closed = True
        self._connection.close()

    def _end(self) -> None:
        self._tx.changed_keys.clear()
        self._tx.reading = Reading()  # ending the snapshot must not be interrupted
        if self._connection.in_transaction:
            self._statement("ROLLBACK").fetchall()

    def _must_end(self) -> bool:
        return self._tx.reading.over
