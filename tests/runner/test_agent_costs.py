"""What an ACP agent says of its costs is of the whole conversation: each attempt counts what is new."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from pwf.runner.kinds.agent_acp import Listener


class Heard:
    def __init__(self) -> None:
        self.cost = 0.0
        self.printed = ""

    def used(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        self.cost += cost

    def print(self, text: str) -> None:
        self.printed += text


def hear(listener: Listener, *updates: Any) -> None:
    async def heard() -> None:
        for update in updates:
            await listener.session_update("s", update)

    asyncio.run(heard())


def costs(amount: float) -> Any:
    return SimpleNamespace(session_update="usage_update", cost=SimpleNamespace(amount=amount))


def says(text: str) -> Any:
    content = SimpleNamespace(type="text", text=text)
    return SimpleNamespace(session_update="agent_message_chunk", content=content)


def test_what_a_continued_conversation_had_cost_before_is_not_counted_again() -> None:
    heard = Heard()
    listener = Listener(cast(Any, heard), None)
    listener.cost = 1.0  # as earlier attempts were told
    listener.begin()
    hear(listener, costs(1.2))
    assert round(heard.cost, 6) == 0.2


def test_what_is_repeated_of_a_continued_conversation_is_neither_counted_nor_printed() -> None:
    heard = Heard()
    listener = Listener(cast(Any, heard), None)
    hear(listener, says("long ago"), costs(1.0))
    listener.begin()
    hear(listener, says("now"), costs(1.25), costs(1.0))
    assert (heard.cost, heard.printed, listener.said) == (0.25, "now", ["now"])
