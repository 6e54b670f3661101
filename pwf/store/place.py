"""Where a run stands: due, with a runner, waiting for an answer, held, ended. `place` is the way to put it there.

Three places write the status without it, each in a statement of its own: `runs` (a new run), `queue` (an admission that
has no runner yet) and `broken` (a row that nobody can load).

Promises: a run has a row in the queue only while it is due or live; who waits for the queue, or for what becomes of the
run, is told.
"""

from __future__ import annotations

from pwf.store import request_clock, session_messages
from pwf.store.queries import load_queries
from pwf.store.resource_wake import wake
from pwf.store.state import RunState
from pwf.store.tx import Tx

Q = load_queries(__file__)


def place(
    tx: Tx,
    run: RunState,
    status: str,
    *,
    hold: str | None = None,
    detail: str | None = None,
    timer: bool = False,
) -> None:
    """Put the run there, with its queue row. The row of a run that has a runner is the admission's (`queue`).

    `timer`: a wait node's attempt is open, so even a due run goes through `fire_due`, which ends that attempt.
    """
    run.status, run.hold, run.hold_detail, run.placed = status, hold, detail, True
    if status == "running":
        return
    if run.session_no is not None:
        session_messages.placed(tx, run)
    if status == "queued":
        _enqueue(tx, run, timer=timer)
        tx.changed("queue")
    else:
        tx.run(Q.dequeue, {"run_no": run.run_no})
        if status == "waiting":
            (request_clock.start if hold is None else request_clock.stop)(tx, run.run_id)
        if run.called_by is not None:
            wake(tx, run.called_by, "child")
        tx.changed("stand:" + run.run_id)  # where it stands: what a wait waits for


def queue(
    tx: Tx,
    run: RunState,
    *,
    delay_ms: int = 0,
    wall_ms: int | None = None,
    timer: bool = False,
    detail: str | None = None,
) -> None:
    """Make the run due: now, after `delay_ms` of elapsed time, or at an absolute wall time.

    Under a requested pause the run is held instead, and keeps its due time. `timer`: see `place`. `detail`: what it
    waits for until then, where that isn't plain.
    """
    now = tx.now
    run.due_wall_ms = wall_ms if wall_ms is not None else now.wall_ms + delay_ms
    relative = wall_ms is None  # what is due at once, too: the wall clock may step back before it is admitted
    run.due_elapsed_ms = now.elapsed_ms + delay_ms if relative else None
    run.due_boot_id = now.boot_id if relative else None
    requeue(tx, run, timer=timer, detail=detail)


def requeue(tx: Tx, run: RunState, *, timer: bool = False, detail: str | None = None) -> None:
    """Queue the run at the due time that it has kept, unless a pause is wanted. `timer`: see `place`."""
    if run.pause_requested:
        hold(tx, run, "paused")
    else:
        place(tx, run, "queued", timer=timer, detail=detail)


def wait(tx: Tx, run: RunState) -> None:
    """The run waits for its request; under a requested pause it is paused as well."""
    if run.pause_requested:
        hold(tx, run, "paused", waiting=True)
    else:
        place(tx, run, "waiting")


def hold(tx: Tx, run: RunState, reason: str, detail: str | None = None, *, waiting: bool = False) -> None:
    """Park the run under a hold; only the act that the reason names lifts it. `waiting`: its request stays open.

    A pause under another hold stays wanted.
    """
    if reason == "paused":
        run.pause_requested = 0
    elif run.hold == "paused":
        run.pause_requested = 1
    place(tx, run, "waiting" if waiting else "held", hold=reason, detail=detail)


def release(tx: Tx, run: RunState) -> None:
    """Nobody owns the run while it is parked or ended."""
    if run.lease_token is not None:
        tx.release_lease(run.run_no)
        run.lease_token = None


def _enqueue(tx: Tx, run: RunState, *, timer: bool) -> None:
    due_wall_ms = run.due_wall_ms if run.due_wall_ms is not None else tx.now.wall_ms
    if run.due_elapsed_ms is not None and run.due_boot_id != tx.now.boot_id:
        # Parked across a reboot: only the wall clock still says how much of a relative time is left.
        run.due_elapsed_ms = run.due_boot_id = None
    tx.run(
        Q.enqueue,
        {
            "run_no": run.run_no,
            "state": "later" if timer or _is_later(tx, run, due_wall_ms) else "ready",
            "priority": run.priority,
            "due_wall_ms": due_wall_ms,
            "due_elapsed_ms": run.due_elapsed_ms,
            "due_boot_id": run.due_boot_id,
            "is_new": run.generation == 0,
        },
    )


def _is_later(tx: Tx, run: RunState, due_wall_ms: int) -> bool:
    if run.due_elapsed_ms is not None:
        return run.due_elapsed_ms > tx.now.elapsed_ms
    return due_wall_ms > tx.now.wall_ms
