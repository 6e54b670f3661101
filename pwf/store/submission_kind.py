"""Submissions, as one kind of entity: what becomes of one whose errand's process has ended, and what verify checks.

A submission has no retention of its own: it goes with its run (`run_kind`). In a copied home it waits until its run is
resumed: nothing is due while the run is held as restored.
"""

from __future__ import annotations

from functools import partial

from pwf.store import moves, session_messages
from pwf.store.broken import isolated
from pwf.store.change import changing
from pwf.store.entity_kinds import EntityKind, Rule, RunnerGone
from pwf.store.queries import load_queries
from pwf.store.state import load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

KIND = "submission"
ERRANDS_MAX = (
    3  # told to begin, and ended with the daemon, by a drain, or with the machine; or never proved to end
)
INTERRUPTED = (
    f"it could not be validated: {ERRANDS_MAX} times that was interrupted, with the daemon or the machine, or left "
    "processes that could not be ended"
)

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"


def _settle(tx: Tx, gone: RunnerGone) -> None:
    """The errand has no verdict: it is due again, or was tried often enough. Safe to repeat.

    It is rejected when the process is proved dead: else what is submitted next would be judged beside it.
    """
    row = tx.one(Q.entity, {"submission_no": gone.entity_no})
    if row is None or row[0] != gone.generation:
        return
    _generation, token, status, run_id, errands = row
    if token is not None:
        revision = tx.fence(gone.entity_no, generation=gone.generation)
        tx.release_lease(gone.entity_no)
        tx.event(gone.entity_no, revision, "errand_ended", "daemon", gone.generation, {})
        tx.changed("submissions")
    if status == "validating" and errands >= ERRANDS_MAX and gone.proved:
        isolated(tx, run_id, partial(_interrupted, tx, gone))


def _interrupted(tx: Tx, gone: RunnerGone) -> None:
    revision = tx.fence(gone.entity_no, generation=gone.generation)
    reject(tx, gone.entity_no, revision, "daemon", gone.generation, INTERRUPTED)


def reject(tx: Tx, submission_no: int, revision: int, actor: str, generation: int, reason: str) -> None:
    """Give it its verdict, of which both it and its run have an event. `revision`: the submission's, by its fence."""
    row = tx.one(Q.asked, {"submission_no": submission_no})
    assert row is not None, "it is being judged"
    run_id, request_id, node, revision_asked = row
    close(tx, submission_no, "rejected", reason)
    facts: dict[str, object] = {"request": request_id, "node": node, "reason": reason}
    tx.event(submission_no, revision, "rejected", actor, generation, facts)
    run = load_run(tx, run_id)
    with changing(tx, run):
        moves.note(tx, run, "submission_rejected", actor, facts)
        session_messages.rejected(tx, run, request_id, revision_asked, reason)
    tx.changed("submissions")
    tx.changed("requests")


def close(tx: Tx, submission_no: int, status: str, reason: str | None = None) -> None:
    """Give it its one verdict."""
    facts = {"submission_no": submission_no, "status": status, "reason": reason, "now": tx.now.wall_ms}
    assert tx.run(Q.judged, facts), "it is being judged"


SUBMISSION = EntityKind(
    name=KIND,
    table="submissions",
    key="submission_no",
    settle=_settle,
    unattended=Q.unattended,
    rules={
        "submission_stray": Rule(
            Q.stray, "a submission is being validated, but its request is not open", _REPORT
        ),
        "submission_lost": Rule(
            Q.lost, "a submission was accepted, but is not the answer of its request", _REPORT
        ),
    },
)
