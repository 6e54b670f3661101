"""Admission: timers that are due, runs that are due, and the lease and runner row that an admitted run gets.

The cost of an admission does not grow with the backlog: rows that are due later, ready and live stand in partial
indexes of their own.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import msgspec

from pwf.protocol.operations import RunStarted
from pwf.protocol.spawn import Identity
from pwf.store import moves, resource_queue
from pwf.store.broken import isolated
from pwf.store.change import changing
from pwf.store.custody_rows import add_runner
from pwf.store.launch import Launched, LaunchTerms, Parked, launch_admitted
from pwf.store.once import Done
from pwf.store.queries import load_queries
from pwf.store.resource_broken import isolated_resource
from pwf.store.resource_queue import AdmittedReconcile
from pwf.store.runs import StartRun, start_run
from pwf.store.state import RunState, encode, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

LENGTHY_ROWS = 16  # that become due together: some milliseconds
LENGTHY_RUNS = 8  # that are admitted together: as long
DUE_BATCH = 500  # rows that become due in one transaction; more follow in the next
ADMIT_BATCH = 64
ALONE_AFTER_MS = 60_000  # due for so long, a run that is to be alone keeps others back
Turn = Literal["run", "reconcile"]
GOING_ON_MAX = 7  # in a row while a new start waits: every eighth admission is the oldest one's


class Standby(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has loaded a definition in an environment, and stands by for any run of these."""

    definition_id: str
    environment_id: str
    identity: Identity


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Admit up to `limit` runs and reconciles for the daemon of `epoch`, leased to `owner` until `lease_ms` from now.

    They take turns where both have work; it is `turn`'s. `reconciles_only`: no run, the seat is beyond the capacity.

    `going_on`: how many runs that go on were admitted in a row before; a new start's turn comes after `GOING_ON_MAX`.
    The Scheduler counts them in memory: a count that is late, or lost with the daemon, delays a new start a little.

    Those that find a process among the `standbys` are launched at once, on these `terms`.
    """

    limit: int
    epoch: int
    owner: str
    lease_ms: int
    going_on: int = 0
    turn: Turn = "run"
    reconciles_only: bool = False
    standbys: tuple[Standby, ...] = ()
    terms: LaunchTerms = LaunchTerms()


class AdmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is ours now, admitted as `revision`.

    `launched`: for the process `identity`, which stood by; else it has no process yet.
    """

    run_id: str
    entity_no: int
    generation: int
    revision: int
    token: str
    definition_id: str
    environment_id: str
    is_new: bool
    identity: Identity | None = None
    launched: Launched | Parked | None = None

    @property
    def name(self) -> str:
        """What its entity is known by."""
        return self.run_id


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """`next_in_ms`: until the nearest due time, None when nothing is due later. `more`: come again at once.

    `fired`: rows whose time had come, whose runs may still be ready. `turn`: whose it is next.
    """

    runs: tuple[AdmittedRun, ...]
    reconciles: tuple[AdmittedReconcile, ...] = ()
    turn: Turn = "run"
    next_in_ms: int | None = None
    more: bool = False
    fired: int = 0


class DueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`reconcile_waiting_ms`: how long the first reconcile has been due; None where none is, or may be admitted now."""

    due_now: bool
    next_in_ms: int | None
    reconcile_waiting_ms: int | None = None


def look(tx: Tx, _: None = None) -> DueAnswer:
    """Whether an admission would find work, and how long until it would. The bounded re-read of the Scheduler."""
    next_in_ms = _next_in_ms(tx)
    ready = _alone(tx)
    waiting_ms = None
    if ready is None:
        ready = _in_order(tx, 1, 0)
        waiting_ms = resource_queue.waiting_ms(tx)
    due_now = bool(ready) or waiting_ms is not None or next_in_ms == 0
    return DueAnswer(due_now=due_now, next_in_ms=next_in_ms, reconcile_waiting_ms=waiting_ms)


def admit(tx: Tx, command: Admit) -> Admitted:
    """Fire what is due, then take as many ready runs and reconciles as fit."""
    fired = fire_due(tx) + resource_queue.fire_due(tx)
    limit = 0 if tx.disk_full else min(command.limit, ADMIT_BATCH)
    rows = _alone(tx) if limit > 0 else []
    due: list[int] = []
    if rows is None:  # else a suspected run is to be alone, also among reconciles
        rows = [] if command.reconciles_only else _in_order(tx, limit, command.going_on)
        due = resource_queue.ready_numbers(tx, limit)
    elif command.reconciles_only:
        rows = []
    shares = _shares(len(rows), len(due), limit, command.turn)
    rows, due = rows[: shares.runs], due[: shares.reconciles]
    if len(rows) + len(due) > LENGTHY_RUNS:
        tx.lengthy()
    reconciles = [
        isolated_resource(
            tx, number, partial(resource_queue.admit_one, tx, number, command.owner, command.epoch)
        )
        for number in due
    ]
    full_batch = fired >= DUE_BATCH or (len(rows) + len(due) == ADMIT_BATCH and command.limit > ADMIT_BATCH)
    return Admitted(
        runs=_admit_runs(tx, command, rows),
        reconciles=tuple(one for one in reconciles if one is not None),
        turn=shares.turn,
        next_in_ms=_next_in_ms(tx),
        more=full_batch,
        fired=fired,
    )


class _Shares(NamedTuple):
    runs: int
    reconciles: int
    turn: Turn


def _shares(runs: int, reconciles: int, limit: int, turn: Turn) -> _Shares:
    """How many of each, one after the other, and whose turn is next."""
    taken: dict[Turn, int] = {"run": 0, "reconcile": 0}
    there: dict[Turn, int] = {"run": runs, "reconcile": reconciles}
    for _ in range(min(limit, runs + reconciles)):
        other: Turn = "reconcile" if turn == "run" else "run"
        one = turn if taken[turn] < there[turn] else other
        taken[one] += 1
        turn = "reconcile" if one == "run" else "run"
    return _Shares(taken["run"], taken["reconcile"], turn)


def _admit_runs(tx: Tx, command: Admit, rows: list[_Ready]) -> tuple[AdmittedRun, ...]:
    runs: list[AdmittedRun] = []
    standbys = list(command.standbys)
    for ready in rows:
        standby = _standby_for(standbys, ready)
        admission = isolated(tx, ready.run_id, partial(_admit_one, tx, command, ready, standby))
        if admission is None:
            continue  # whatever stands by for it may serve the next one
        runs.append(admission)
        if standby is not None:
            standbys.remove(standby)
    return tuple(runs)


class _Ready(NamedTuple):
    is_new: bool
    priority: int
    run_no: int
    run_id: str
    definition_id: str
    environment_id: str


def _alone(tx: Tx) -> list[_Ready] | None:
    """Who is admitted while runs are suspected of killing the daemon: each is to be alone, beside no run or reconcile.

    None: whoever is next. One that has been due for long keeps others back, so that what goes on comes to an end and
    its turn comes.
    """
    suspected = tx.all(Q.suspected)
    if not suspected:
        return None
    if any(state == "live" for state, *_ in suspected):
        return []
    _, due_wall_ms, *ready = suspected[0]
    if tx.one(Q.any_live) is None:
        return [_Ready(False, *ready)]
    return [] if tx.now.wall_ms - due_wall_ms >= ALONE_AFTER_MS else None


def _in_order(tx: Tx, limit: int, going_on: int) -> list[_Ready]:
    """The next `limit` runs: by priority, then what goes on before what is new, but for every eighth, then by due time.

    Both kinds are read from the head of an index of their own, so that no backlog of one stands before the other.
    """
    older = [_Ready(False, *row) for row in tx.all(Q.going_on, {"limit": limit})]
    newer = [_Ready(True, *row) for row in tx.all(Q.new_starts, {"limit": limit})]
    chosen: list[_Ready] = []
    while len(chosen) < limit and (older or newer):
        if not newer or (older and older[0].priority > newer[0].priority):
            takes_new = False
        else:
            takes_new = not older or newer[0].priority > older[0].priority or going_on >= GOING_ON_MAX
        going_on = 0 if takes_new else going_on + 1
        chosen.append((newer if takes_new else older).pop(0))
    return chosen


def _standby_for(standbys: list[Standby], ready: _Ready) -> Standby | None:
    for standby in standbys:
        if (standby.definition_id, standby.environment_id) == (ready.definition_id, ready.environment_id):
            return standby
    return None


def _admit_one(tx: Tx, command: Admit, ready: _Ready, standby: Standby | None) -> AdmittedRun:
    run_no, run_id = ready.run_no, ready.run_id
    token = tx.ids.token()
    revision, generation = tx.take_lease(
        run_no, token=token, owner=command.owner, until_awake_ms=tx.now.awake_ms + command.lease_ms
    )
    tx.run(Q.make_live, {"run_no": run_no})
    tx.event(run_no, revision, "admitted", "daemon", generation, b"{}")
    launched = None
    if standby is None:
        tx.run(Q.set_running, {"run_no": run_no})
        add_runner(tx, run_no, generation, command.epoch)
        tx.changed("run:" + run_id)
    else:
        launched = launch_admitted(tx, run_id, standby.identity, command.terms, command.epoch)
    return AdmittedRun(
        run_id=run_id,
        entity_no=run_no,
        generation=generation,
        revision=revision,
        token=token,
        definition_id=ready.definition_id,
        environment_id=ready.environment_id,
        is_new=ready.is_new,
        identity=None if standby is None else standby.identity,
        launched=launched,
    )


class StartAdmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Start a run while there is capacity, so that it need not wait for another transaction."""

    start: StartRun
    admit: Admit


def start_admitted(tx: Tx, command: StartAdmitted) -> tuple[Done[RunStarted], Admitted]:
    """Start a run, then admit what is first in the queue, which may be another."""
    done = start_run(tx, command.start)
    admitted = admit(tx, command.admit)
    started = None if done.adopted else done.result
    is_admitted = started is not None and any(one.run_id == started.run_id for one in admitted.runs)
    if is_admitted and not admitted.fired:
        tx.unchanged("queue")  # it waits for nobody, and nobody else waits since this
    return done, admitted


def fire_due(tx: Tx) -> int:
    """Move rows whose time has come to ready, and end the attempts of timers. Returns how many there were."""
    now = tx.now
    rows = tx.all(Q.due_by_wall, {"is_new": False, "wall_ms": now.wall_ms, "limit": DUE_BATCH})
    rows += tx.all(Q.due_by_wall, {"is_new": True, "wall_ms": now.wall_ms, "limit": DUE_BATCH})
    rows += tx.all(Q.due_by_elapsed, {"elapsed_ms": now.elapsed_ms, "limit": DUE_BATCH})
    if len(rows) > LENGTHY_ROWS:
        tx.lengthy()
    for run_no, run_id in rows:
        isolated(tx, run_id, partial(_fire, tx, run_no, run_id))
    return len(rows)


def _fire(tx: Tx, run_no: int, run_id: str) -> None:
    active = tx.one(Q.active_visit, {"run_no": run_no})
    if active is None:
        tx.run(Q.make_ready, {"run_no": run_no})
        return
    run = load_run(tx, run_id)
    with changing(tx, run):
        output = encode({"due_ms": run.due_wall_ms})
        run.due_wall_ms = run.due_elapsed_ms = run.due_boot_id = None
        complete_parked(tx, run, output, actor="timer")


def complete_parked(tx: Tx, run: RunState, output: bytes, *, actor: str) -> None:
    """End the open attempt of a parked run (a timer, an answered request) with its output, and go on from there."""
    graph = graph_of(tx, run.definition_id)
    node = graph.node(run.node)
    then, error = moves.follow_output(run, node, output)
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": "completed"}
    value = moves.stored(tx, output)
    moves.end_attempt(tx, run, "completed", output=value)
    moves.take(tx, run, graph, then, "completed", value, error, go=False)
    moves.note(tx, run, "step_finished", actor, moves.after_facts(facts, run, then))


def _next_in_ms(tx: Tx) -> int | None:
    """How long until the nearest run or reconcile becomes due; None when none will by itself."""
    wall = tx.one(Q.next_by_wall)
    elapsed = tx.one(Q.next_by_elapsed)
    left = []
    if wall is not None and wall[0] is not None:
        left.append(wall[0] - tx.now.wall_ms)
    if elapsed is not None and elapsed[0] is not None:
        left.append(elapsed[0] - tx.now.elapsed_ms)
    return max(0, min(left)) if left else None


def rebase(tx: Tx, _: None = None) -> int:
    """At start, once: relative times of an earlier boot go by the wall clock from now on; returns how many. Parked runs
    have theirs at `resume`.

    They are not turned into times of this boot: a machine may come up with a wrong clock, and have it corrected later.
    """
    boot = {"boot_id": tx.now.boot_id}
    resource_queue.rebase(tx)
    tx.run(Q.rebase_runs, boot)
    return tx.run(Q.rebase, boot)
