"""Submissions, as one kind of entity: what becomes of one whose errand's process has ended, and what verify checks.

A submission has no retention of its own: it goes with its run (`run_kind`). In a copied home it waits until its run is
resumed: nothing is due while the run is held as restored.
"""

from __future__ import annotations

from pwf.store.entity_kinds import EntityKind, Rule, RunnerGone
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

KIND = "submission"
ERRANDS_MAX = 3  # whose process was ended with the daemon, a drain or the machine
INTERRUPTED = f"it could not be validated: {ERRANDS_MAX} times the daemon ended while that went on"

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"


def _settle(tx: Tx, gone: RunnerGone) -> None:
    """The errand has no verdict: it is due again, or was tried often enough. Safe to repeat."""
    row = tx.one(Q.entity, {"submission_no": gone.entity_no})
    if row is None or row[0] != gone.generation or row[1] is None:
        return
    _generation, _token, status, run_id, errands = row
    revision = tx.fence(gone.entity_no, generation=gone.generation)
    tx.release_lease(gone.entity_no)
    if status == "validating" and errands >= ERRANDS_MAX:
        close(tx, gone.entity_no, "rejected", INTERRUPTED)
        tx.event(gone.entity_no, revision, "rejected", "daemon", gone.generation, {"reason": INTERRUPTED})
        tx.changed("run:" + run_id)
    else:
        tx.event(gone.entity_no, revision, "errand_ended", "daemon", gone.generation, {})
    tx.changed("submissions")


def close(tx: Tx, submission_no: int, status: str, reason: str | None = None) -> bool:
    """Give it its one verdict. False: it had one."""
    facts = {"submission_no": submission_no, "status": status, "reason": reason, "now": tx.now.wall_ms}
    return bool(tx.run(Q.judged, facts))


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
