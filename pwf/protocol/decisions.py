"""Operations on decisions: the list, and a person's answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Filter, Name, PathText, Words
from pwf.protocol.decision_spec import ChoiceSpec
from pwf.protocol.runner import Value
from pwf.protocol.views import RequestView, Status

Provenance = Literal["person", "timeout", "cancelled", "expired"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class AnswerView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer that was given, whether it won or not. `why_not`: what was wrong with it."""

    provenance: Provenance
    won: bool
    who: str
    channel: str
    at_ms: int
    choice: str | None = None
    text: str | None = None
    why_not: str | None = None


class EarlierProposal(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the same node proposed before, and what came of it."""

    decision_id: str
    visit: int
    presentation: Value
    winner: AnswerView | None = None


class DecisionView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision. Its presentation is the request's prompt; its subject stands in no view."""

    request: RequestView
    title: str
    audience: str
    choices: tuple[ChoiceSpec, ...]
    digest: str
    visit: int
    timeout_ms: int | None = None  # None: it waits for ever
    default: str | None = None  # the choice, when nobody decides in time
    winner: AnswerView | None = None
    answers: tuple[AnswerView, ...] = ()  # of one that is asked for by its id
    earlier: EarlierProposal | None = None


class DecisionListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Oldest first. `decision_id`: only this one, whatever its status: an id, a unique prefix, `@last`, `run:ID`."""

    decision_id: PathText | None = None
    statuses: Annotated[tuple[Literal["pending", "settled", "cancelled"], ...], Filter] = ("pending",)
    limit: int = 100


class DecisionList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decisions: tuple[DecisionView, ...]


class DecidePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`digest`: of what was seen; another proposal since makes the answer stale. `decision_id` as in the list.

    `token`: of who answers on a page: a link to this decision, or a browser that has signed in.
    """

    decision_id: PathText
    choice: Name
    text: Words | None = None
    digest: Name
    token: Name | None = None


class Decided(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer won; it is the output of the node that asked."""

    decision_id: str
    run_id: str
    status: Status
    revision: int
    choice: str
