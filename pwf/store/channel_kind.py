"""Channels, as one kind of entity: what restore and verify do with them.

A channel's row stays; its messages go with the run that they are about (`run_kind`).
"""

from __future__ import annotations

from pwf.store.channel_rows import KIND, lose_sends
from pwf.store.entity_kinds import EntityKind, Rule
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

COPIED = "its database was copied or restored"

_RESTART = "restart the daemon (pwf stop, pwf start)"
_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"


def _hold_copied(tx: Tx) -> None:
    """Sends in flight are ambiguous, tokens are void, and what is open is shown anew once its run goes on."""
    tx.run(Q.drop_happenings)
    for (number,) in tx.all(Q.all_numbers):
        lose_sends(tx, number)
        tx.run(Q.void_messages, {"channel_no": number, "why": COPIED})
        tx.run(Q.void_tokens, {"channel_no": number})


CHANNEL = EntityKind(
    name=KIND,
    table="channels",
    key="channel_no",
    hold_copied=_hold_copied,
    rules={
        "message_stale": Rule(Q.stale, "a message shows as open what is settled", _RESTART, about=False),
        "message_unbooked": Rule(
            Q.unbooked, "the ledger does not say what its message says", _REPORT, about=False
        ),
        "send_stray": Rule(Q.send_stray, "a send in the ledger is of no message", _REPORT, about=False),
        "send_unowned": Rule(
            Q.sends_without_adapter, "a message is being sent, but nobody sends it", _RESTART, about=False
        ),
        "message_forgotten": Rule(
            Q.due_for_ever, "a message is due for a channel that is not configured", _REPORT, about=False
        ),
    },
)
