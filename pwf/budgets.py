"""What the agents of a run may use: as the configuration, a workflow or a person says it."""

from __future__ import annotations

from typing import Annotated

import msgspec

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Quantity = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """None: no bound. `tokens` are those read and written; `money` is in dollars, as the agent reports it; `minutes` is
    the time that its steps took; `steps` counts steps of agents, however often each was tried.
    """

    tokens: Amount | None = None
    money: Quantity | None = None
    minutes: Quantity | None = None
    steps: Amount | None = None

    def over(self, other: Budget) -> Budget:
        """This one, and what the other says where this one says nothing."""
        return Budget(
            tokens=other.tokens if self.tokens is None else self.tokens,
            money=other.money if self.money is None else self.money,
            minutes=other.minutes if self.minutes is None else self.minutes,
            steps=other.steps if self.steps is None else self.steps,
        )

    def within(self, other: Budget) -> Budget:
        """The nearer bound of both, for each of what is bounded."""
        mine, others = self.over(other), other.over(self)  # now both say something, or neither does
        nearer = {
            name: min(getattr(mine, name), getattr(others, name))
            for name in self.__struct_fields__
            if getattr(mine, name) is not None
        }
        return Budget(**nearer)
