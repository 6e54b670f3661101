"""What a message of a channel says, read when it is sent: so it is about the present, and stands nowhere twice.

Texts come from a presentation, which is checked when it is made, or are made here. The subject of a decision is not
read.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.channel_port import ChannelEvent, ChannelMessage
from pwf.protocol.decision_spec import shown_of
from pwf.protocol.decisions import AnswerView, DecisionListPayload, DecisionView
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.views import RunSummary
from pwf.store.decisions import decision_list
from pwf.store.notices import notice_view
from pwf.store.read_runs import request_view, summary_of
from pwf.store.tx import Tx
from pwf.store.values import load_value
from pwf.values import shortened

ASKING = frozenset({"decide", "remind"})  # messages that a decision answers
PROMPT_CHARS = 2_000
TITLE_CHARS = 200


def content_of(
    tx: Tx, message_id: str, event: str, run_id: str | None, request_id: str | None, token: str
) -> ChannelMessage:
    """What is to be sent."""
    if run_id is None:
        return ChannelMessage(
            message_id=message_id,
            event="test",
            title="pwf: this channel works",
            words="nothing is to be done",
            at_ms=tx.now.wall_ms,
        )
    if event in ASKING and request_id is not None:
        return _decision(tx, message_id, event, request_id, token)
    return _of_run(tx, message_id, event, run_id, request_id)  # type: ignore[arg-type]  # the table's CHECK


def _decision(tx: Tx, message_id: str, event: str, request_id: str, token: str) -> ChannelMessage:
    view = _view(tx, request_id)
    request = view.request
    json = request.prompt.json
    shown = shown_of(load_value(tx, None if json is None else bytes(json), request.prompt.digest))
    title = _title(_name(summary_of(tx, request.run_id)), view)
    return ChannelMessage(
        message_id=message_id,
        event=event,  # type: ignore[arg-type]  # the table's CHECK
        title=title if event == "decide" else f"still open: {title}",
        words=f"pwf decide {request_id}",
        run_id=request.run_id,
        workflow=request.workflow,
        node=request.node,
        request_id=request_id,
        audience=view.audience,
        shown=shown,
        choices=view.choices,
        deadline_ms=request.deadline_ms,
        default=view.default,
        token=token,
        at_ms=request.created_ms,
    )


def notice_of(tx: Tx, message_id: str, run_id: str, attempt: int) -> ChannelMessage:
    """The text of a notify node, in the title as far as that takes it."""
    notice = notice_view(tx, run_id, attempt)
    said = f"{notice.title or notice.workflow}: {notice.text}"
    title = shortened(" ".join(said.split()), TITLE_CHARS)
    return ChannelMessage(
        message_id=message_id,
        event="notice",
        title=title,
        words=f"pwf show {run_id}",
        text=None if title == said else notice.text,
        run_id=run_id,
        workflow=notice.workflow,
        node=notice.node,
        at_ms=notice.at_ms,
    )


def _of_run(
    tx: Tx, message_id: str, event: ChannelEvent, run_id: str, request_id: str | None
) -> ChannelMessage:
    run = summary_of(tx, run_id)
    name = _name(run)
    why = f": {run.reason}" if run.reason else ""
    if request_id is not None:
        request = request_view(tx, request_id)
        json = request.prompt.json
        asked = f": {shortened(bytes(json).decode(), PROMPT_CHARS)}" if json is not None else ""
        said, words = f"{name} asks{asked}", REQUESTS[request.kind].how(request_id)
    elif event == "held":
        said, words = f"{name} needs a person{why}", f"pwf explain {run_id}"
    elif event == "failed":
        said, words = (
            f"{name} has {'timed out' if run.status == 'timed_out' else 'failed'}{why}",
            f"pwf show {run_id}",
        )
    else:
        said, words = f"{name} has ended: {run.status}{why}", f"pwf show {run_id}"
    return ChannelMessage(
        message_id=message_id,
        event=event,
        title=" ".join(said.split()),
        words=words,
        run_id=run_id,
        workflow=run.workflow,
        node=run.node,
        request_id=request_id,
        at_ms=tx.now.wall_ms,
    )


def title_of(tx: Tx, request_id: str) -> str:
    """The one line of what is asked."""
    request = request_view(tx, request_id)
    name = _name(summary_of(tx, request.run_id))
    if not REQUESTS[request.kind].decided:
        return shortened(" ".join(f"{name}: {request.node}".split()), TITLE_CHARS)
    return _title(name, _view(tx, request_id))


def closing_words(tx: Tx, request_id: str) -> str:
    """How it ended, for the message that asked."""
    request = request_view(tx, request_id)
    if not REQUESTS[request.kind].decided:
        return "answered" if request.status == "settled" else "closed: its run has ended"
    view = _view(tx, request_id)
    return "closed" if view.winner is None else words_of(view, view.winner)


def words_of(view: DecisionView, winner: AnswerView) -> str:
    """Who has decided what."""
    if winner.provenance == "cancelled":
        return "closed: its run has ended"
    if winner.provenance == "expired":
        return "closed: nobody decided in time"
    label = next((one.label for one in view.choices if one.id == winner.choice), winner.choice or "")
    if winner.provenance == "timeout":
        return f"{label}: the default, since nobody decided in time"
    text = f" “{shortened(winner.text, TITLE_CHARS)}”" if winner.text else ""
    return f"decided: {shortened(label, TITLE_CHARS)}{text}, by {winner.who} ({winner.channel})"


def _view(tx: Tx, request_id: str) -> DecisionView:
    found = decision_list(tx, DecisionListPayload(decision_id=request_id)).decisions[0]
    return msgspec.structs.replace(found, answers=())


def _name(run: RunSummary) -> str:
    """What tells the run from others of its workflow, where somebody has said that."""
    return run.title or run.workflow


def _title(name: str, view: DecisionView) -> str:
    return shortened(" ".join(f"{name}: {view.title}".split()), TITLE_CHARS)
