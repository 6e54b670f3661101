"""The rules of sessions that `state verify` checks. None can be broken by what pwf does."""

from __future__ import annotations

from pwf.store.entity_kinds import Rule
from pwf.store.queries import load_queries

Q = load_queries(__file__)

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"

SESSION_RULES: dict[str, Rule] = {
    "session_without_epoch": Rule(Q.without_epoch, "a session exists that nobody has attached", _REPORT)
}
