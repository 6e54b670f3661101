"""Requests: a durable question has one answer, which becomes the output of the node that asked.

The answer has been validated against the stored schema by the caller, who read it in `request_facts`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pwf.errors import Ambiguous, Conflict, NotFound, Rejected
from pwf.protocol.kinds import PLAIN, REQUESTS, SUBMITTED, RequestKind
from pwf.protocol.operations import Answered
from pwf.store import moves, place, request_clock
from pwf.store.change import changing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.queue import complete_parked
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import resolve_ref
from pwf.store.state import RunState, load_run
from pwf.store.tx import Tx
from pwf.store.values import load_value

Q = load_queries(__file__)


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    run_id: str
    kind: RequestKind
    status: str
    schema: dict[str, Any] | None


def request_facts(tx: Tx, ref: str) -> RequestFacts:
    """What must be known to validate an answer. `ref`: see `resolve_request`."""
    return _facts(tx, resolve_request(tx, ref, PLAIN))


def submitted_facts(tx: Tx, ref: str) -> RequestFacts:
    """The same of what is submitted."""
    return _facts(tx, resolve_request(tx, ref, SUBMITTED))


def _facts(tx: Tx, request_id: str) -> RequestFacts:
    row = tx.one(Q.request, {"request_id": request_id})
    assert row is not None
    schema = None if row[6] is None else msgspec.json.decode(row[6])
    return RequestFacts(request_id=row[0], run_id=row[1], kind=row[4], status=row[5], schema=schema)


def resolve_request(tx: Tx, ref: str, kinds: Sequence[RequestKind] = ()) -> str:
    """The request's id. `ref`: an id, a unique prefix, `@last`, `@last:ROOT` of a project, or `run:REF` of a run.

    `kinds`: those that can be meant; others are found only where none of these is.
    """
    meant = {"kinds": json.dumps(kinds)}
    name, _, root = ref.partition(":")
    if name == "@last":
        row = tx.one(Q.last_open, {**meant, "root": root or None})
        if row is None:
            where = f" in the project {root}" if root else ""
            raise NotFound(f"no question is open{where}", hint="pwf requests --all lists those that were")
        return str(row[0])
    if ref.startswith("run:"):
        run_id = resolve_ref(tx, ref[4:])
        row = tx.one(Q.open_of_run, {"run_id": run_id})
        if row is None:
            raise NotFound(f"run {run_id} has no open request", hint="pwf requests lists the open ones")
        return str(row[0])
    if ref and ref.isascii():
        if tx.one(Q.request, {"request_id": ref}) is not None:
            return ref
        rows = tx.all(Q.by_prefix, {"low": ref, "high": ref + "\x7f", **meant})
        rows = [row for row in rows if row[1]] or rows
        if len(rows) == 1:
            return str(rows[0][0])
        if rows:
            shown = ", ".join(row[0] for row in rows)
            raise Ambiguous(
                f"{ref!r} is the beginning of several requests: {shown}", hint="type more of the id"
            )
    raise NotFound(f"there is no request {ref!r}", hint="pwf requests lists the open ones")


class AnswerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` is canonical JSON that fits the request's schema. `expected_revision`: of its run, as it was seen."""

    request_id: str
    answer: bytes
    expected_revision: int | None = None
    actor: str
    receipt: ReceiptKey | None = None


def answer(tx: Tx, command: AnswerRequest) -> Done[Answered]:
    """Settle a request. A second, different answer is a `Conflict` that changes nothing."""
    return once(tx, command.receipt, Answered, lambda: _answer(tx, command))


def _answer(tx: Tx, command: AnswerRequest) -> tuple[Answered, bool]:
    asked = load_request(tx, command.request_id)
    if not REQUESTS[asked.kind].plain:
        raise Rejected(
            f"request {asked.request_id} is a request of kind {asked.kind}; it takes no plain answer",
            hint=REQUESTS[asked.kind].how(asked.request_id),
        )
    run = load_run(tx, asked.run_id)
    again = is_repeat(tx, asked, run, command.answer, "answered")
    if not again:
        settle(tx, asked, run, command.answer, command.actor, expected_revision=command.expected_revision)
    result = Answered(
        request_id=asked.request_id,
        run_id=run.run_id,
        status=run.shown_status,  # type: ignore[arg-type]
        revision=run.revision,
    )
    return result, again


# --- what every way to settle a request shares ------------------------------------------------------------------


class StoredRequest(NamedTuple):
    """A request's row, as far as its settlement needs it."""

    request_id: str
    run_id: str
    node: str
    attempt: int
    kind: RequestKind
    status: str
    schema: bytes | None
    answer: bytes | None
    answer_digest: str | None
    answered_by: str | None
    revision: int
    deadline_wall_ms: int | None
    deadline_elapsed_ms: int | None
    deadline_boot_id: str | None
    left_ms: int | None  # while its clock stands still


def load_request(tx: Tx, request_id: str) -> StoredRequest:
    """The row; `NotFound` when there is none."""
    row = tx.one(Q.request, {"request_id": request_id})
    if row is None:
        raise NotFound(f"there is no request {request_id!r}")
    return StoredRequest(*row)


def is_repeat(tx: Tx, asked: StoredRequest, run: RunState, value: bytes, verb: str) -> bool:
    """Whether the request was settled with this very value. Raises unless it may be settled now."""
    if asked.status == "settled":
        if load_value(tx, asked.answer, asked.answer_digest) == value:
            return True
        raise Conflict(
            f"request {asked.request_id} was {verb} by {asked.answered_by} already",
            hint=f"pwf show {run.run_id}",
        )
    if asked.status == "cancelled":
        raise Rejected(f"request {asked.request_id} is closed: its run {run.run_id} is {run.shown_status}")
    if run.hold != "restored":  # there the clock may have stopped at 0, and nobody could answer in time
        _refuse_late(tx, asked, run)
    if run.status != "waiting" or run.attempts != asked.attempt:
        raise Conflict(f"request {asked.request_id} does not belong to what run {run.run_id} does now")
    return False


def _refuse_late(tx: Tx, asked: StoredRequest, run: RunState) -> None:
    left_ms, stands_still = asked.left_ms, asked.left_ms is not None
    if not stands_still:
        left_ms = request_clock.left_ms(
            tx, asked.deadline_wall_ms, asked.deadline_elapsed_ms, asked.deadline_boot_id
        )
    if left_ms is None or left_ms > 0:
        return
    hint = f"pwf show {run.run_id} says what came of it"
    if stands_still:
        hint = f"what follows then comes when its run goes on: pwf resume {run.run_id}"
    raise Conflict(f"the time to answer request {asked.request_id} is over", hint=hint)


def settle(
    tx: Tx,
    asked: StoredRequest,
    run: RunState,
    value: bytes,
    actor: str,
    *,
    expected_revision: int | None = None,
) -> None:
    """Give the request its one answer, which ends the attempt; the run goes on unless something holds it."""
    with changing(tx, run, expected_revision=expected_revision):
        stored = moves.stored(tx, value)
        tx.run(
            Q.settle,
            {
                "request_id": asked.request_id,
                "answer": stored.inline,
                "answer_crc32": stored.crc32,
                "answer_digest": stored.digest,
                "answered_by": actor,
                "now": tx.now.wall_ms,
            },
        )
        hold, detail = run.hold, run.hold_detail
        complete_parked(tx, run, value, actor=actor)
        if hold is not None and not run.ended:  # an answer settles its request, and lifts no hold
            place.hold(tx, run, hold, detail)
    tx.changed("requests")
