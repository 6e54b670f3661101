"""A change of a run, from its fence to its row: the one way in which a command writes to a run that it has loaded.

Promises: nothing is written before the fence is passed; on the way out the attempt that goes on has its row, the
position is saved, and every counted revision has its event. A change that raises saves nothing, and its command is
undone.
"""

from __future__ import annotations

from types import TracebackType

from pwf.store.moves import write_attempt
from pwf.store.queries import load_queries
from pwf.store.state import RunState, encode
from pwf.store.tx import Tx

Q = load_queries(__file__)


def changing(
    tx: Tx,
    run: RunState,
    *,
    generation: int | None = None,
    token: str | None = None,
    expected_revision: int | None = None,
) -> Change:
    """Pass the fence now; what the `with` block does to `run` is one write, and it notes one event.

    Raises `ClaimLost` or `Conflict`, as `Tx.fence` does.
    """
    change = Change(tx, run, generation=generation, token=token, expected_revision=expected_revision)
    change.write()
    return change


class Change:
    """Several writes to one run in one command, each begun with `write`. Without any, nothing is saved."""

    __slots__ = ("_expected_revision", "_generation", "_run", "_token", "_tx", "_writes")

    def __init__(
        self,
        tx: Tx,
        run: RunState,
        *,
        generation: int | None = None,
        token: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        self._tx, self._run = tx, run
        self._generation, self._token, self._expected_revision = generation, token, expected_revision
        self._writes = 0

    def write(self) -> None:
        """Begin a write: the first passes the fence, and nobody comes between two of one command."""
        run, expected = self._run, self._expected_revision
        if self._writes == 0:
            run.revision = self._tx.fence(
                run.run_no,
                generation=self._generation,
                token=self._token,
                # What the row was loaded as, in this transaction: then the fence need not say what it is now.
                expected_revision=run.revision if expected is None else expected,
            )
        else:
            assert run.noted == run.revision, "a write without an event"
            run.revision += 1
        self._writes += 1

    def __enter__(self) -> Change:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self._writes == 0:
            return
        tx, run = self._tx, self._run
        assert run.noted == run.revision, "a write without an event"
        write_attempt(tx, run)
        _save(tx, run)
        if self._writes > 1:
            tx.count_writes(run.run_no, self._writes - 1)


def _save(tx: Tx, run: RunState) -> None:
    """Write position and counters; and status, hold and due time where the run was placed anew.

    How a run ended, `moves.end` has written.
    """
    position = {
        "run_no": run.run_no,
        "title": run.title,
        "node": run.node,
        "visit": run.visit,
        "visits": encode(run.visits),
        "entries": encode(run.entries),
        "steps": run.steps,
        "attempts": run.attempts,
        "tries": run.tries,
        "failures": run.failures,
        "crashes": run.crashes,
        "observe": run.observe,
        "seq": run.seq,
        "pause_requested": run.pause_requested,
    }
    if not run.placed or run.ended:
        tx.run(Q.save_position, position)
        return
    place = {
        "status": run.status,
        "hold": run.hold,
        "hold_detail": run.hold_detail,
        "due_wall_ms": run.due_wall_ms,
        "due_elapsed_ms": run.due_elapsed_ms,
        "due_boot_id": run.due_boot_id,
        "started_wall_ms": run.started_wall_ms,
        "reason": run.reason,
    }
    tx.run(Q.save_all, {**position, **place})
    run.placed = False
