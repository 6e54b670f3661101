"""Which commands clients have under way: what is theirs to change changes only then.

A command may be at work from the moment it is sent until its first answer. A repeat of an answered command changes
nothing, so it is not under way again.
"""

from __future__ import annotations

from collections.abc import Callable

from pwf.protocol.frames import Request


class Steering:
    """Kept by the auditor. Moments are counts of commits."""

    def __init__(self, commits: Callable[[], int]) -> None:
        self._commits = commits
        self._under_way: dict[tuple[str, str], set[str]] = {}
        self._answered: dict[tuple[str, str], int] = {}  # the last moment of an answer
        self._done: set[str] = set()

    def sent(self, request: Request) -> None:
        """A client sends a command, for the first time or again."""
        if request.request_id not in self._done:
            self._under_way.setdefault(_key(request), set()).add(request.request_id)

    def answered(self, request: Request) -> None:
        """A client has its answer."""
        key = _key(request)
        if request.request_id not in self._done:
            self._done.add(request.request_id)
            self._under_way.get(key, set()).discard(request.request_id)
            self._answered[key] = self._commits()

    def might(self, run_id: str, operation: str, since: int = 0) -> bool:
        """Whether a client's command of this kind can have been at work since that moment."""
        key = (run_id, operation)
        return bool(self._under_way.get(key)) or self._answered.get(key, -1) >= since


def _key(request: Request) -> tuple[str, str]:
    return request.run_id or "", request.operation
