"""The rows of a decision: what is bound by its digest, and every answer, of which one has won.

The winner is written with the end of its request, in the same transaction, whoever ends it: a person, its timeout, or
the end of its run.
"""

from __future__ import annotations

import zlib

import msgspec

from pwf.protocol.decision_spec import DecisionSpec, digest_facts, shown_of
from pwf.store.queries import load_queries
from pwf.store.tx import Tx
from pwf.values import canonical, digest

Q = load_queries(__file__)

REFUSED_MAX = 100  # answers of one decision that did not win, and are kept
ITSELF = "pwf"  # who has ended it where no person did


class NewDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `presentation`: canonical JSON, whole, also where it is stored by its digest."""

    request_id: str
    run_id: str
    node: str
    visit: int
    attempt: int
    decision: DecisionSpec
    presentation: bytes
    subject: bytes | None
    open_ms: int | None
    default: str | None


def add_decision(tx: Tx, new: NewDecision) -> None:
    """Write what its request asks, with its digest and the proposal that it follows."""
    title = shown_of(new.presentation).title
    facts = digest_facts(
        run_id=new.run_id,
        node=new.node,
        visit=new.visit,
        decision=new.decision,
        title=title,
        presentation=digest(new.presentation),
        subject=None if new.subject is None else digest(new.subject),
        timeout_ms=new.open_ms,
        default=new.default,
    )
    earlier = tx.one(Q.earlier, {"run_id": new.run_id, "node": new.node, "attempt": new.attempt})
    tx.run(
        Q.add,
        {
            "request_id": new.request_id,
            "title": title,
            "audience": new.decision.audience,
            "subject": new.subject,
            "subject_crc32": None if new.subject is None else zlib.crc32(new.subject),
            "choices": msgspec.json.encode(new.decision.choices),
            "open_ms": new.open_ms,
            "digest": digest(canonical(facts, what="a decision")),
            "earlier_id": None if earlier is None else earlier[0],
        },
    )


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it is kept. `why_not`: why it has not won."""

    request_id: str
    provenance: str
    who: str = ITSELF
    channel: str = ""
    digest: str | None = None
    choice: str | None = None
    text: str | None = None
    why_not: str | None = None


def keep_answer(tx: Tx, given: GivenAnswer) -> None:
    """Keep an answer: the one that ends the request, or, within a bound, one that came to nothing."""
    won = given.why_not is None
    if not won:
        row = tx.one(Q.answers_of, {"request_id": given.request_id})
        if row is not None and row[0] >= REFUSED_MAX:
            return
    tx.run(Q.add_answer, {**msgspec.structs.asdict(given), "won": won, "now": tx.now.wall_ms})


def closed_with_run(tx: Tx, run_id: str) -> None:
    """The run has ended, and its open request was closed: if that was a decision, nobody decides it any more."""
    for (request_id,) in tx.all(Q.closed, {"run_id": run_id}):
        keep_answer(tx, GivenAnswer(request_id=request_id, provenance="cancelled"))
