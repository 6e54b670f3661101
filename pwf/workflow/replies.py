"""What an agent says in place of a value: `returns=assistant_message()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from pwf.errors import GraphError
from pwf.workflow.source import Place


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """The reply that an agent shows, as it stands: a text. `max_chars` None: as long as any value may be."""

    max_chars: int | None = None

    @property
    def type(self) -> Any:
        """What the output is."""
        return Annotated[str, msgspec.Meta(min_length=1, max_length=self.max_chars)]


def assistant_message(max_chars: int | None = None) -> AssistantMessage:
    """For `@flow.agent(returns=…)`: the output is the text that the agent says, at most so many characters of it."""
    if max_chars is not None and (type(max_chars) is not int or max_chars < 1):
        raise GraphError(
            f"{Place.of_caller()}: assistant_message has max_chars={max_chars!r:.80}",
            hint="give a whole number of characters, at least 1, or None",
        )
    return AssistantMessage(max_chars)
