"""A person's choice as the payload of `decision.answer`: it names what the person has seen."""

from __future__ import annotations

from pwf.protocol.decisions import DecidePayload, DecisionView


def decide_payload(seen: DecisionView, choice: str, text: str | None, digest: str | None) -> DecidePayload:
    """`digest`: of what was seen, where `seen` was fetched at another time."""
    return DecidePayload(
        decision_id=seen.request.request_id,
        choice=choice,
        text=text,
        digest=seen.digest if digest is None else digest,
    )
