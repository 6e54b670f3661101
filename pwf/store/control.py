"""What people do to a run: pause, resume, cancel. Each works in every state that has not ended.

The caller stops the runner once it has the answer, before it does anything else. A runner that nobody stopped would
learn it from its next message (`claim_lost`, or `park`), or when its step's time is over.
"""

from __future__ import annotations

import msgspec

from pwf.budgets import Budget
from pwf.errors import PersonNeeded, Rejected
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.protocol.operations import RunChanged
from pwf.store import moves, place
from pwf.store.agent_limits import is_turned_away, lift
from pwf.store.broken import DETAIL_CHARACTERS_MAX
from pwf.store.budgets import say_more
from pwf.store.change import changing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.state import RunState, graph_of, load_run
from pwf.store.tx import Tx
from pwf.values import shortened

Q = load_queries(__file__)

#: Holds that `resume` lifts by trying once more. The others need the act that their reason names.
RETRIED = frozenset(
    {"no_progress", "process_unreaped", "load_failed", "environment_missing", "restored", "broken", "budget"}
)


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """`now` (of a pause): stop the running step. `sources_ok`: the caller has compared the files (source="verify")."""

    run_id: str
    actor: str = "client"
    expected_revision: int | None = None
    now: bool = False
    reason: str | None = None
    sources_ok: bool = False
    receipt: ReceiptKey | None = None
    accounts: dict[str, str] = {}  # of agents, where that is not their name
    budget: Budget | None = None  # of a resume: so much more


def pause(tx: Tx, command: Control) -> Done[RunChanged]:
    """Hold the run at its next boundary."""
    return once(tx, command.receipt, RunChanged, lambda: _pause(tx, command))


def resume(tx: Tx, command: Control) -> Done[RunChanged]:
    """Lift a hold that a person may lift."""
    return once(tx, command.receipt, RunChanged, lambda: _resume(tx, command))


def cancel(tx: Tx, command: Control) -> Done[RunChanged]:
    """End the run as cancelled, with all that is open for it."""
    return once(tx, command.receipt, RunChanged, lambda: _cancel(tx, command))


def _pause(tx: Tx, command: Control) -> tuple[RunChanged, bool]:
    run = load_run(tx, command.run_id)
    _not_ended(run, "pause")
    if run.hold == "paused" or run.pause_requested:
        return _changed(
            run, "it is paused already" if run.hold else "it pauses at the end of this step"
        ), True
    with changing(tx, run, expected_revision=command.expected_revision):
        note = None
        if run.hold is not None:
            run.pause_requested = 1
            note = f"it stays {run.shown_status} as well"
        elif run.status == "running":
            run.pause_requested = 1
            note = "the running step is being stopped" if command.now else "it pauses at the end of this step"
        else:
            place.hold(tx, run, "paused", waiting=run.status == "waiting")
        return _done(tx, run, "paused", command, note), False


def _resume(tx: Tx, command: Control) -> tuple[RunChanged, bool]:
    run = load_run(tx, command.run_id)
    _not_ended(run, "resume")
    if run.status == "queued" and run.hold_detail is not None:
        return _try_now(tx, run, command), False
    if run.hold is None and not run.pause_requested:
        if run.status == "waiting":
            request = tx.one(Q.open_request, {"run_id": run.run_id})
            hint = None if request is None else REQUESTS[request[1]].how(request[0])
            raise Rejected(f"run {run.run_id} only waits for its request", hint=hint)
        return _changed(run, "it is not held"), True
    _may_resume(run, command)
    with changing(tx, run, expected_revision=command.expected_revision):
        run.pause_requested = 0
        if run.hold in RETRIED:
            moves.progressed(tx, run)
        if command.budget is not None:
            say_more(tx, run, command.budget)
        if run.hold is not None:
            if run.hold == "paused" and is_turned_away(tx, run):
                _lift_limit(tx, run, command)
            _unhold(tx, run)
        return _done(tx, run, "resumed", command, None), False


def _try_now(tx: Tx, run: RunState, command: Control) -> RunChanged:
    """It waits for the end of a usage limit, and somebody knows better."""
    with changing(tx, run, expected_revision=command.expected_revision):
        _lift_limit(tx, run, command)
        place.queue(tx, run)
        return _done(tx, run, "resumed", command, "it asks its agent now")


def _lift_limit(tx: Tx, run: RunState, command: Control) -> None:
    if run.agent is not None:
        lift(tx, command.accounts.get(run.agent, run.agent))


def _may_resume(run: RunState, command: Control) -> None:
    if command.actor.startswith("session:") and run.hold not in (None, "paused"):
        raise PersonNeeded(
            f"only a person may resume run {run.run_id}: {run.hold_detail or run.hold}",
            hint=f"in a terminal: pwf resume {run.run_id}",
        )
    if command.budget is not None and run.hold != "budget":
        raise Rejected(f"run {run.run_id} is not held for its budget", hint=f"pwf explain {run.run_id}")
    if run.hold == "effect_ambiguous":
        raise Rejected(
            f"run {run.run_id} is ambiguous: {run.hold_detail}",
            hint=f"find out what happened, then: pwf recover {run.run_id} happened|not-happened|give-up",
        )
    if run.hold == "source_changed" and not command.sources_ok:
        raise Rejected(
            f"run {run.run_id} is held: {run.hold_detail}",
            hint=f"restore the files, then: pwf resume {run.run_id}; or: pwf cancel {run.run_id}",
        )


def _unhold(tx: Tx, run: RunState) -> None:
    if run.status == "waiting":
        tx.run(Q.raise_request, {"run_id": run.run_id})
        tx.changed("requests")
        place.wait(tx, run)
        return
    timer = False
    node = graph_of(tx, run.definition_id).node(run.node)
    if KINDS[node.kind].sets_timer:
        timer = tx.one(moves.Q.active_attempt, {"run_no": run.run_no}) is not None
    place.requeue(tx, run, timer=timer)


def _cancel(tx: Tx, command: Control) -> tuple[RunChanged, bool]:
    run = load_run(tx, command.run_id, to_end=True)
    if run.status == "cancelled":
        return _changed(run, "it is cancelled already"), True
    _not_ended(run, "cancel")
    note = "its processes are being stopped" if run.status == "running" else None
    reason = shortened(command.reason or f"cancelled by {command.actor}", moves.REASON_MAX)
    with changing(tx, run, expected_revision=command.expected_revision):
        moves.end(tx, run, "cancelled", reason=reason)
        return _done(tx, run, "cancelled", command, note), False


def _not_ended(run: RunState, verb: str) -> None:
    if run.ended:
        how = f": {run.reason}" if run.reason else ""
        raise Rejected(
            f"run {run.run_id} has ended ({run.status}{how}); there is nothing to {verb}",
            hint=f"pwf show {run.run_id}, or start it anew: pwf restart {run.run_id}",
        )


def _done(tx: Tx, run: RunState, kind: str, command: Control, note: str | None) -> RunChanged:
    facts: dict[str, object] = {"now": True} if command.now else {}
    if command.reason:
        facts["reason"] = shortened(command.reason, moves.REASON_MAX)
    moves.note(tx, run, kind, command.actor, facts)
    return _changed(run, note)


def _changed(run: RunState, note: str | None) -> RunChanged:
    return RunChanged(run_id=run.run_id, status=run.shown_status, revision=run.revision, note=note)  # type: ignore[arg-type]


class HoldRun(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon can't launch an admitted run: hold it with the reason."""

    run_id: str
    generation: int
    hold: str
    detail: str


def hold_run(tx: Tx, command: HoldRun) -> None:
    """Park a run that was admitted but can't be launched. Nothing happens when it has another owner by now."""
    run = load_run(tx, command.run_id)
    if run.generation != command.generation or run.status != "running":
        return
    detail = shortened(command.detail, DETAIL_CHARACTERS_MAX)
    with changing(tx, run, generation=command.generation):
        place.hold(tx, run, command.hold, detail)
        place.release(tx, run)
        moves.note(tx, run, "held", "daemon", {"hold": command.hold, "detail": detail})
