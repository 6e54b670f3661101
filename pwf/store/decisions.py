"""Decisions: a person's answer, checked against what was asked, and what clients see of them.

One answer wins, by the index of the table, and never changes. One that comes late, or for another proposal, is kept and
told who has won. The caller has made sure that a person speaks. The subject of a decision is never read here.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pwf.errors import Conflict, InvalidAnswer, NotFound, Rejected
from pwf.protocol.decision_spec import ChoiceSpec, DecisionSpec, output_of
from pwf.protocol.decisions import (
    AnswerView,
    Decided,
    DecisionList,
    DecisionListPayload,
    DecisionView,
    EarlierProposal,
)
from pwf.protocol.kinds import DECIDED, REQUESTS
from pwf.store.decision_rows import GivenAnswer, keep_answer
from pwf.store.once import Done, known_answer, once
from pwf.store.queries import load_queries
from pwf.store.read_runs import PAGE_MAX, request_view
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import StoredRequest, is_repeat, load_request, resolve_request, settle
from pwf.store.runs import resolve_ref
from pwf.store.state import RunState, load_run
from pwf.store.tx import Row, Tx
from pwf.store.web_tokens import Token, deciding_token, spend
from pwf.values import canonical

Q = load_queries(__file__)

WEB = "web"  # the channel of what was answered on a page

_choices = msgspec.json.Decoder(tuple[ChoiceSpec, ...])


# --- deciding -------------------------------------------------------------------------------------------------


class Decide(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer. `decision`: how the person names it. `digest`: of what the person has seen.

    `token`: of a page. Then the answer is its holder's, and comes from the web.
    `counting`: by audience, the channels whose answers count; of an audience that is not there all do.
    """

    decision: str
    choice: str
    text: str | None
    digest: str
    actor: str
    channel: str
    token: str | None = None
    counting: dict[str, tuple[str, ...]] = {}
    receipt: ReceiptKey | None = None


def decide(tx: Tx, command: Decide) -> Done[Decided]:
    """Take the answer, or keep it as one that came to nothing. The same answer of the same person again is adopted.

    Raises `TokenRefused`, and then nothing is kept.
    """
    known = known_answer(tx, command.receipt, Decided)
    if known is not None:
        return known
    token = None
    if command.token is not None:
        token = deciding_token(tx, command.token, _resolve(tx, command.decision))
        command = msgspec.structs.replace(command, actor=token.made_by, channel=WEB)
    done = once(tx, command.receipt, Decided, lambda: _decide(tx, command, token))
    if isinstance(done.refusal, Conflict):
        _keep_refused(tx, command, done.refusal.message)
    return done


def _decide(tx: Tx, command: Decide, token: Token | None) -> tuple[Decided, bool]:
    asked = _load(tx, command.decision)
    spec, digest = _spec(tx, asked)
    run = load_run(tx, asked.run_id)
    value = canonical(output_of(command.choice, command.text), what="the answer")
    if asked.status != "pending":
        if not _is_repeated(tx, asked, run, value, command):
            raise _too_late(tx, asked, run)
        return _decided(asked, run, command.choice), True
    if command.digest != digest:
        raise Conflict(
            f"the answer is to another proposal than decision {asked.request_id}",
            hint=f"look at what is proposed now: pwf decide {asked.request_id}",
        )
    counting = command.counting.get(spec.audience, (command.channel,))
    if command.channel not in counting:
        raise Rejected(
            f"decision {asked.request_id} is for {spec.audience}, whose answers do not count through {command.channel}",
            hint=f"answer through {' or '.join(counting)}",
        )
    wrong = spec.fault(command.choice, command.text)
    if wrong is not None:
        raise InvalidAnswer(f"decision {asked.request_id}: {wrong[0]}", hint=wrong[1])
    is_repeat(tx, asked, run, value, "decided")
    settle(tx, asked, run, value, command.actor)
    keep_answer(tx, _given(asked.request_id, command))
    if token is not None:
        spend(tx, token)
    return _decided(asked, run, command.choice), False


def _load(tx: Tx, ref: str) -> StoredRequest:
    asked = load_request(tx, _resolve(tx, ref))
    if not REQUESTS[asked.kind].decided:
        raise Rejected(
            f"request {asked.request_id} is a request of kind {asked.kind}, and no decision",
            hint=REQUESTS[asked.kind].how(asked.request_id),
        )
    return asked


def _resolve(tx: Tx, ref: str) -> str:
    """The request that is meant; of a run that asks nothing now its last decision: who comes late is told of it."""
    try:
        return resolve_request(tx, ref, DECIDED)
    except NotFound as unknown:
        if ref.startswith("run:"):
            row = tx.one(Q.last_of_run, {"run_id": resolve_ref(tx, ref[4:])})
            if row is not None:
                return str(row[0])
        raise NotFound(
            unknown.message, hint="pwf decisions lists what is open, with --all what was"
        ) from None


def _spec(tx: Tx, asked: StoredRequest) -> tuple[DecisionSpec, str]:
    row = tx.one(Q.facts, {"request_id": asked.request_id})
    assert row is not None, "it was stored with its request"
    return DecisionSpec(audience=row[1], choices=_choices.decode(row[2])), row[3]


def _is_repeated(tx: Tx, asked: StoredRequest, run: RunState, value: bytes, command: Decide) -> bool:
    """Whether this very answer of this person has won. What others said, or nobody, is told as theirs."""
    if asked.status != "settled":
        return False
    won = tx.one(Q.winner, {"request_id": asked.request_id})
    given = ("person", command.actor, command.channel)
    if won is None or (won[0], won[2], won[3]) != given:
        return False
    try:
        return is_repeat(tx, asked, run, value, "decided")
    except Conflict:
        return False


def _too_late(tx: Tx, asked: StoredRequest, run: RunState) -> Conflict:
    row = tx.one(Q.winner, {"request_id": asked.request_id})
    won = None if row is None else _answer(row)
    said = f"decision {asked.request_id} "
    if won is None or won.provenance == "cancelled":
        said += f"is closed: its run {run.run_id} is {run.shown_status}"
    elif won.provenance == "expired":
        said += "is closed: nobody decided in time"
    elif won.provenance == "timeout":
        said += f"was decided as {won.choice!r}, its default, since nobody decided in time"
    else:
        said += f"was decided as {won.choice!r} by {won.who} ({won.channel})"
    return Conflict(said, hint=f"pwf show {run.run_id}")


def _given(request_id: str, command: Decide, why_not: str | None = None) -> GivenAnswer:
    return GivenAnswer(
        request_id=request_id,
        provenance="person",
        who=command.actor,
        channel=command.channel,
        digest=command.digest,
        choice=command.choice,
        text=command.text,
        why_not=why_not,
    )


def _keep_refused(tx: Tx, command: Decide, why_not: str) -> None:
    try:
        asked = _load(tx, command.decision)
    except (NotFound, Rejected):
        return
    keep_answer(tx, _given(asked.request_id, command, why_not))


def _decided(asked: StoredRequest, run: RunState, choice: str) -> Decided:
    return Decided(
        decision_id=asked.request_id,
        run_id=run.run_id,
        status=run.shown_status,  # type: ignore[arg-type]
        revision=run.revision,
        choice=choice,
    )


# --- looking --------------------------------------------------------------------------------------------------


def decision_list(tx: Tx, query: DecisionListPayload) -> DecisionList:
    """Decisions, oldest first; or the one that is named, with every answer to it."""
    if query.decision_id is not None:
        asked = _load(tx, query.decision_id)
        return DecisionList(decisions=(_view(tx, asked.request_id, whole=True),))
    limit = max(1, min(query.limit, PAGE_MAX))
    found = [
        _view(tx, request_id)
        for status in query.statuses
        for (request_id,) in tx.all(Q.of_status, {"status": status, "limit": limit})
    ]
    found.sort(key=lambda one: (one.request.created_ms, one.request.request_id))
    return DecisionList(decisions=tuple(found[:limit]))


def _view(tx: Tx, request_id: str, *, whole: bool = False) -> DecisionView:
    row = tx.one(Q.facts, {"request_id": request_id})
    assert row is not None, "it was found just now"
    title, audience, choices, digest, open_ms, earlier_id, visit = row
    request = request_view(tx, request_id)
    winner = tx.one(Q.winner, {"request_id": request_id})
    return DecisionView(
        request=request,
        title=title,
        audience=audience,
        choices=_choices.decode(choices),
        digest=digest,
        visit=visit,
        timeout_ms=open_ms,
        default=None if request.default is None else _choice_of(request.default.json),
        winner=None if winner is None else _answer(winner),
        answers=tuple(map(_answer, tx.all(Q.answers, {"request_id": request_id}))) if whole else (),
        earlier=None if earlier_id is None else _earlier(tx, earlier_id),
    )


def _choice_of(value: Any) -> str | None:
    return None if value is None else json.loads(bytes(value))["choice"]


def _earlier(tx: Tx, request_id: str) -> EarlierProposal | None:
    facts = tx.one(Q.facts, {"request_id": request_id})
    if facts is None:
        return None
    row = tx.one(Q.winner, {"request_id": request_id})
    return EarlierProposal(
        decision_id=request_id,
        visit=facts[6],
        presentation=request_view(tx, request_id).prompt,
        winner=None if row is None else _answer(row),
    )


def _answer(row: Row) -> AnswerView:
    provenance, won, who, channel, at_ms, choice, text, why_not = row
    return AnswerView(
        provenance=provenance,
        won=bool(won),
        who=who,
        channel=channel,
        at_ms=at_ms,
        choice=choice,
        text=text,
        why_not=why_not,
    )
