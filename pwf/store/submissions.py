"""Submissions: what an agent was asked for is handed in, judged, and becomes the output of the node that asked.

The value has been checked against the request's stored schema by the caller, who read it in `submitted_facts`. Where
the node has `validate=`, the submission is stored first, and an *errand* (a process that may give one verdict) judges
it: its row is the errand's queue, and the entity that owns lease and custody. The run stands still meanwhile.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import Submitted
from pwf.protocol.runner import Launch
from pwf.protocol.spawn import Identity
from pwf.store import moves
from pwf.store.change import changing
from pwf.store.custody import runner_gone
from pwf.store.custody_rows import add_runner, holds_lease, runner_is_live
from pwf.store.entity_kinds import RunnerGone
from pwf.store.launch import LaunchTerms, launch_of, past_of
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import StoredRequest, is_repeat, load_request, settle
from pwf.store.sessions import SessionFence, hold
from pwf.store.state import RunState, graph_of, load_run
from pwf.store.submission_kind import KIND, close, reject
from pwf.store.tx import Tx
from pwf.store.values import load_value, stored_value

Q = load_queries(__file__)


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is canonical JSON that fits the request's schema. `request_revision`: as it was seen."""

    request_id: str
    value: bytes
    request_revision: int | None = None
    actor: str
    session: SessionFence | None = None  # whose model submits it; None: a person in an agent's place
    receipt: ReceiptKey | None = None


def submit(tx: Tx, command: Submit) -> Done[Submitted]:
    """Accept a submission, or store it to be judged. One for an earlier revision, or a second, different one, is a
    `Conflict`.
    """
    return once(tx, command.receipt, Submitted, lambda: _submit(tx, command))


def _submit(tx: Tx, command: Submit) -> tuple[Submitted, bool]:
    if command.session is not None:
        hold(tx, command.session)
    asked = load_request(tx, command.request_id)
    if not REQUESTS[asked.kind].submitted:
        raise Rejected(
            f"request {asked.request_id} is a request of kind {asked.kind}; it takes no submission",
            hint=REQUESTS[asked.kind].how(asked.request_id),
        )
    run = load_run(tx, asked.run_id)
    if command.session is not None and run.session_no != command.session.session_no:
        raise NotFound(f"session {command.session.session_id!r} has no request {asked.request_id!r}")
    if is_repeat(tx, asked, run, command.value, "settled"):
        return _submitted(asked, run), True
    judged = tx.one(Q.validating, {"request_id": asked.request_id})
    if judged is not None:
        if load_value(tx, judged[1], judged[2]) == command.value:
            return _submitted(asked, run, judged[0]), True
        raise Conflict(
            f"what was submitted before for request {asked.request_id} is still being validated",
            hint=f"pwf show {run.run_id} tells the verdict",
        )
    if command.session is not None and run.hold is not None:
        raise Conflict(
            f"run {run.run_id} is {run.shown_status}: what its session submits does not count now",
            hint="the session is told when it goes on",
        )
    if command.request_revision not in (None, asked.revision):
        raise Conflict(
            f"request {asked.request_id} is at revision {asked.revision}, and this is for revision "
            f"{command.request_revision}: its run was resumed since",
            hint=f"look at it again: pwf submit {asked.request_id}",
        )
    if graph_of(tx, run.definition_id).node(asked.node).validates:
        return _submitted(asked, run, _store(tx, asked, run, command)), False
    settle(tx, asked, run, command.value, command.actor)
    return _submitted(asked, run), False


def _submitted(asked: StoredRequest, run: RunState, submission_no: int | None = None) -> Submitted:
    return Submitted(
        request_id=asked.request_id,
        run_id=run.run_id,
        status=run.shown_status,  # type: ignore[arg-type]
        revision=run.revision,
        verdict="accepted" if submission_no is None else "validating",
        submission=submission_no,
    )


def _store(tx: Tx, asked: StoredRequest, run: RunState, command: Submit) -> int:
    count = tx.one(Q.count_of_run, {"run_id": run.run_id})
    assert count is not None
    with changing(tx, run):
        value = moves.stored(tx, command.value)
        number = tx.create_entity(KIND, f"{run.run_id}/{count[0] + 1}")
        facts: dict[str, object] = {"request": asked.request_id, "node": asked.node}
        tx.event(number, 1, "submitted", command.actor, 0, facts)
        tx.run(Q.heard, {"request_id": asked.request_id})
        tx.run(
            Q.add,
            {
                "submission_no": number,
                "run_id": run.run_id,
                "request_id": asked.request_id,
                "value": value.inline,
                "value_crc32": value.crc32,
                "value_digest": value.digest,
                "actor": command.actor,
                "now": tx.now.wall_ms,
            },
        )
        moves.note(tx, run, "submitted", command.actor, facts)
    tx.changed("submissions")
    tx.changed("requests")
    return number


class SubmissionState(NamedTuple):
    """What has become of a submission. `reason`: why it was rejected."""

    status: Literal["validating", "accepted", "rejected"]
    reason: str | None


def submission_state(tx: Tx, submission_no: int) -> SubmissionState:
    """Its verdict, if it has one."""
    row = tx.one(Q.state, {"submission_no": submission_no})
    return SubmissionState("rejected", "its run is gone") if row is None else SubmissionState(*row)


# --- errands --------------------------------------------------------------------------------------------------


class DueErrand(NamedTuple):
    """A submission that is to be judged. `generation`: of its last errand; 0: it has had none."""

    submission_no: int
    name: str
    generation: int
    definition_id: str
    environment_id: str
    run_id: str


def due_errand(tx: Tx, after: int = 0) -> DueErrand | None:
    """The oldest submission after this one for which no process works."""
    row = tx.one(Q.due, {"after": after})
    return None if row is None else DueErrand(*row)


class BeginErrand(msgspec.Struct, frozen=True, kw_only=True):
    """Take the lease of a submission, with a place for its process. `due`: as it was read."""

    submission_no: int
    generation: int
    owner: str
    epoch: int
    lease_ms: int


def begin_errand(tx: Tx, command: BeginErrand) -> str | None:
    """The token; None where it is not to be judged any more."""
    number = command.submission_no
    row = tx.one(Q.one, {"submission_no": number})
    if row is None or row[3] != "validating":
        return None
    token = tx.ids.token()
    until = tx.now.awake_ms + command.lease_ms
    revision, generation = tx.take_lease(number, token=token, owner=command.owner, until_awake_ms=until)
    if generation != command.generation + 1:
        raise Conflict(f"submission {number} is judged by somebody else")
    add_runner(tx, number, generation, command.epoch)
    tx.event(number, revision, "errand_begun", "daemon", generation, {"errands": row[7]})
    return token


class ErrandStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A process stands ready for an errand."""

    submission_no: int
    name: str
    generation: int
    identity: Identity
    terms: LaunchTerms = LaunchTerms()


def errand_started(tx: Tx, command: ErrandStarted) -> Launch | None:
    """Record custody, and say everything that the process needs. None: there is nothing to judge any more."""
    row = tx.one(Q.one, {"submission_no": command.submission_no})
    if row is None or row[3] != "validating":
        return None
    runner_is_live(tx, command.submission_no, command.generation, command.identity)
    tx.run(Q.begin, {"submission_no": command.submission_no})
    _number, run_id, _request, _status, value, value_digest = row[:6]
    run = load_run(tx, run_id)
    graph = graph_of(tx, run.definition_id)
    return launch_of(
        tx,
        run,
        graph,
        command.terms,
        past=past_of(tx, run, graph),
        marker=command.terms.marker_of(command.name, command.generation),
        judge=stored_value(tx, value, value_digest),
    )


class EndErrand(msgspec.Struct, frozen=True, kw_only=True):
    """The process of an errand has ended. `accepted`: its verdict; None: it gave none, and is not to blame for that."""

    gone: RunnerGone
    token: str
    accepted: bool | None = None
    reason: str = ""


def end_errand(tx: Tx, command: EndErrand) -> None:
    """Give the verdict, if there is one, and settle the process. Safe to repeat.

    What a process says counts only when it and all that it started are dead, since the run goes on by it. Without that
    proof the submission is judged anew, as soon as recovery has it.
    """
    gone = command.gone
    row = tx.one(Q.one, {"submission_no": gone.entity_no})
    judged = command.accepted is not None and row is not None and row[3] == "validating" and gone.proved
    if judged and holds_lease(tx, gone.entity_no, gone.generation, command.token):
        assert row is not None
        revision = tx.fence(gone.entity_no, generation=gone.generation, token=command.token)
        if command.accepted:
            value = load_value(tx, row[4], row[5])
            _accept(tx, gone.entity_no, revision, gone.generation, row[2], value, row[6])
        else:
            reject(tx, gone.entity_no, revision, "runner", gone.generation, command.reason)
    runner_gone(tx, gone)


def _accept(
    tx: Tx, number: int, revision: int, generation: int, request_id: str, value: bytes, submitted_by: str
) -> None:
    close(tx, number, "accepted")
    asked = load_request(tx, request_id)
    run = load_run(tx, asked.run_id)
    facts: dict[str, object] = {"request": request_id, "node": asked.node}
    tx.event(number, revision, "accepted", "runner", generation, facts)
    settle(tx, asked, run, value, submitted_by)
    tx.changed("submissions")
