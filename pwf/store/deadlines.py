"""Deadlines of requests, and limits of active time: what is due next, and what becomes of a run that was not answered.

One is settled in one transaction: its default is the answer, or its attempt has timed out. Only requests of runs that
wait for them have a clock that goes (`request_clock`), so no run that is live, launching or held is ever touched.
"""

from __future__ import annotations

from functools import partial

import msgspec

from pwf.protocol.kinds import REQUESTS
from pwf.protocol.runner import StepError
from pwf.store import moves, session_clock
from pwf.store.broken import isolated
from pwf.store.change import changing
from pwf.store.decision_rows import GivenAnswer, keep_answer
from pwf.store.queries import load_queries
from pwf.store.queue import complete_parked
from pwf.store.state import RunState, encode, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

TIMEOUT = "timeout"  # who answered, and who did it, in the history


class NextDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """`in_ms`: until the nearest deadline, 0 when it is over; None: there is none."""

    in_ms: int | None = None


def next_deadline(tx: Tx, _: None = None) -> NextDeadline:
    """How long until `time_out` finds something to do."""
    found = _nearest(tx)
    return NextDeadline() if found is None else NextDeadline(in_ms=max(0, found[0]))


def time_out(tx: Tx, _: None = None) -> str | None:
    """Settle the request whose time has been over for the longest; its id, or None where none is due.

    A run that can't be handled is parked as broken, which stops the clock of its request; where not even that can be
    written, its clock is stopped without the run: nobody waits behind it.
    """
    found = _nearest(tx)
    if found is None or found[0] > 0:
        return None
    _left_ms, request_id, run_id, is_limit = found
    isolated(tx, run_id, partial(_pass_limit if is_limit else _time_out, tx, request_id, run_id))
    if is_limit:
        session_clock.stop(tx, request_id)
    else:
        tx.run(Q.stop_due, {"request_id": request_id})
    tx.changed("requests")
    return request_id


def _nearest(tx: Tx) -> tuple[int, str, str, bool] | None:
    """(milliseconds left, request, run, whether it is a limit of active time) of what is due first."""
    found: list[tuple[int, str, str, bool]] = []
    limit = session_clock.next_limit(tx)
    if limit is not None:
        found.append((*limit, True))
    for sql, now_ms in ((Q.next_by_wall, tx.now.wall_ms), (Q.next_by_elapsed, tx.now.elapsed_ms)):
        row = tx.one(sql)
        if row is not None:
            found.append((row[2] - now_ms, str(row[0]), str(row[1]), False))
    return min(found, default=None)


def _time_out(tx: Tx, request_id: str, run_id: str) -> None:
    run = load_run(tx, run_id)
    row = tx.one(Q.asked, {"request_id": request_id})
    assert row is not None, "an index has found it"
    attempt, kind, default = row
    settle = {"request_id": request_id, "by": TIMEOUT, "now": tx.now.wall_ms}
    if run.ended:  # a broken rule, which must not keep others waiting
        tx.run(Q.expire, settle)
        return
    assert (run.status, run.hold, run.attempts) == ("waiting", None, attempt), (
        "a clock that goes is a run that waits"
    )
    with changing(tx, run):
        if REQUESTS[kind].decided:
            _keep_winner(tx, request_id, default)
        if default is None:
            tx.run(Q.expire, settle)
            error = StepError(code="timed_out", message="nobody answered in time", node=run.node)
            end_parked(tx, run, "timed_out", error, TIMEOUT)
        else:
            tx.run(Q.settle, settle)
            complete_parked(tx, run, default, actor=TIMEOUT)


def _pass_limit(tx: Tx, request_id: str, run_id: str) -> None:
    """The model of a session has worked on a step for as long as it may."""
    run = load_run(tx, run_id)
    limit_ms = graph_of(tx, run.definition_id).node(run.node).timeout_ms
    message = f"the session's model worked on it for {limit_ms or 0:,} ms, its limit"
    error = StepError(code="timed_out", message=message, node=run.node)
    with changing(tx, run):
        tx.run(Q.expire, {"request_id": request_id, "by": TIMEOUT, "now": tx.now.wall_ms})
        end_parked(tx, run, "timed_out", error, TIMEOUT)


def _keep_winner(tx: Tx, request_id: str, default: bytes | None) -> None:
    if default is None:
        keep_answer(tx, GivenAnswer(request_id=request_id, provenance="expired"))
    else:
        choice = msgspec.json.decode(default)["choice"]
        keep_answer(tx, GivenAnswer(request_id=request_id, provenance="timeout", choice=choice))


def end_parked(tx: Tx, run: RunState, outcome: str, error: StepError, actor: str) -> None:
    """End the open attempt of a run whose request was closed without an answer, and go on from there."""
    graph = graph_of(tx, run.definition_id)
    then = moves.follow(run, graph.node(run.node), outcome, None)
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": outcome}
    moves.end_attempt(tx, run, outcome, error=encode(error))
    moves.take(tx, run, graph, then, outcome, moves.NOTHING, error, go=False)
    moves.note(tx, run, "step_finished", actor, moves.after_facts(facts, run, then))
