"""What became of the processes of definitions that ask to keep them: how many stayed, how many did not, and why not.

Counts of this daemon, in memory and bounded in number: they explain, and nothing is decided by them. A published
table: the pool has it, and each supervisor notes in it at once what became of its own process.
"""

from __future__ import annotations

from pwf.protocol.views import KeptProcesses

DEFINITIONS_MAX = 256  # the ones that were heard of last


class Kept:
    """By definition."""

    def __init__(self) -> None:
        self._known: dict[str, KeptProcesses] = {}

    def find(self, definition_id: str) -> KeptProcesses:
        """What is known of it."""
        return self._known.get(definition_id, KeptProcesses())

    def note(self, definition_id: str, not_kept: str = "") -> None:
        """A run is over, and its process stayed, or did not for this reason."""
        before = self.find(definition_id)
        self._known.pop(definition_id, None)
        if not_kept:
            now = KeptProcesses(stayed=before.stayed, ended=before.ended + 1, last_reason=not_kept)
        else:
            now = KeptProcesses(stayed=before.stayed + 1, ended=before.ended, last_reason=before.last_reason)
        self._known[definition_id] = now
        if len(self._known) > DEFINITIONS_MAX:
            del self._known[next(iter(self._known))]
