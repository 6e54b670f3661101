"""When something that has failed is begun again: later with each failure in a row, up to a bound."""

from __future__ import annotations

RETRY_S = 1.0  # after the first failure; doubled with each one in a row
RETRY_S_MAX = 60.0
STEADY_S = 60.0  # what lived so long did not die of its start
DOUBLED_MAX = 6


class Retries:
    """Counts the failures in a row of one thing."""

    def __init__(self) -> None:
        self._failures = 0

    def failed(self, lived_s: float = 0.0) -> float:
        """It has, after it lived so long; in how many seconds it is begun again."""
        self._failures = 1 if lived_s > STEADY_S else self._failures + 1
        return min(RETRY_S_MAX, RETRY_S * 2.0 ** min(self._failures - 1, DOUBLED_MAX))

    def worked(self) -> None:
        """The row is over."""
        self._failures = 0
