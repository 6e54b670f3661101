"""Answers that come through a channel: taken by their token, with how far is read, in one transaction.

Promises: a token opens the one proposal that its message showed, through the one channel that it was sent through;
the same answer told twice is one; whoever comes late is told what was decided; nothing is read for good before its
answer is stored.
"""

from __future__ import annotations

import msgspec

from pwf.errors import PwfError
from pwf.protocol.channel_port import Answered, Verdict
from pwf.protocol.decision_spec import ChoiceSpec
from pwf.store.channel_content import closing_words
from pwf.store.channel_messages import is_open, token_digest
from pwf.store.channel_rows import move_cursor, owned
from pwf.store.decisions import Decide, decide
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

_choices = msgspec.json.Decoder(tuple[ChoiceSpec, ...])

OVER = "this message is of no use any more: look with pwf decisions"


class ChannelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`counting`: as in `Decide`."""

    channel_no: int
    said: Answered
    counting: dict[str, tuple[str, ...]]


def take_answer(tx: Tx, command: ChannelAnswer) -> Verdict:
    """Take it, or say why not."""
    said = command.said
    channel = owned(tx, command.channel_no, said.epoch)
    if said.cursor is not None:
        move_cursor(tx, channel.channel_no, said.cursor)
    if not said.token:
        return Verdict(number=said.number, said="", taken=False)
    which = {"token_digest": token_digest(said.token), "channel_no": channel.channel_no}
    row = tx.one(Q.by_token, which)
    if row is None or row[0] == "void":
        return Verdict(number=said.number, said=OVER, taken=False)
    _state, request_id, digest, choices = row
    choice = _choice(_choices.decode(choices), said)
    wanted = None if choice is None else choice.text
    asks = wanted is not None and (wanted.required or said.with_text)
    if wanted is not None and asks and not said.text and is_open(tx, request_id):
        return Verdict(number=said.number, said="", taken=False, asks=wanted.label)
    answer = Decide(
        decision=request_id,
        choice=said.choice if choice is None else choice.id,
        text=said.text,
        digest=digest,
        actor=f"{channel.name}:{said.who}",
        channel=channel.name,
        counting=command.counting,
    )
    try:
        decide(tx, answer).unwrap()
    except PwfError as refusal:
        words = refusal.message if is_open(tx, request_id) else closing_words(tx, request_id)
        return Verdict(number=said.number, said=words, taken=False)
    return Verdict(number=said.number, said=closing_words(tx, request_id), taken=True)


def _choice(choices: tuple[ChoiceSpec, ...], said: Answered) -> ChoiceSpec | None:
    """The one that is meant, by its number or its id."""
    if said.choice_no is not None:
        return choices[said.choice_no] if 0 <= said.choice_no < len(choices) else None
    return next((one for one in choices if one.id == said.choice), None)
