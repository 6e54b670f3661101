"""The outside world: it counts what steps do to it, and knows the truth that nobody inside may know."""

from __future__ import annotations

from collections import Counter


class Outside:
    """Applications of effects by key. Answers `observe` and persons truthfully."""

    def __init__(self) -> None:
        self.applications: Counter[str] = Counter()

    def apply(self, effect_key: str) -> None:
        """Something happens that can't be taken back."""
        self.applications[effect_key] += 1

    def happened(self, effect_key: str) -> bool:
        """Whether it happened at least once."""
        return self.applications[effect_key] > 0
