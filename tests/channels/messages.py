"""Messages as the daemon makes them."""

from __future__ import annotations

from typing import Any

from pwf.protocol.channel_port import ChannelMessage
from pwf.protocol.decision_spec import ChoiceSpec, Section, Shown, TextSpec

SHIP = ChoiceSpec(id="ship", label="Ship it")
FIX = ChoiceSpec(id="fix", label="Fix first", text=TextSpec(label="What must change?"))
STOP = ChoiceSpec(id="stop", label="Stop", text=TextSpec(label="Why?", required=False))
TOKEN = "0123456789abcdef0123456789abcdef"


def decision(**more: Any) -> ChannelMessage:
    """A decision that is open."""
    facts: dict[str, Any] = {
        "message_id": "m7xm7xm7xm7x",
        "event": "decide",
        "title": "release: approve",
        "words": "pwf decide q7fq7fq7fq7f",
        "run_id": "k3k3k3k3k3k3",
        "workflow": "release",
        "node": "approve",
        "request_id": "q7fq7fq7fq7f",
        "audience": "operator",
        "shown": Shown(title="approve", summary="Ship 1.2?", blocks=(Section(title="Notes"),)),
        "choices": (SHIP, FIX),
        "token": TOKEN,
        "at_ms": 1_700_000_000_000,
    }
    return ChannelMessage(**(facts | more))
