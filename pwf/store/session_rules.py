"""The rules of sessions that `state verify` checks. None can be broken by what pwf does."""

from __future__ import annotations

import json

from pwf.protocol.kinds import REQUESTS
from pwf.store.entity_kinds import Rule
from pwf.store.queries import load_queries

Q = load_queries(__file__)

_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"
_RESUME = "pwf pause {name}, then pwf resume {name}, tells the session anew"
_KINDS = json.dumps([kind for kind, facts in REQUESTS.items() if facts.answered_by == "session"])


def _of_sessions(sql: str) -> str:
    """The same with the kinds of requests that sessions answer: they have one table, which no SQL repeats."""
    return sql.replace("{KINDS}", _KINDS)


SESSION_RULES: dict[str, Rule] = {
    "session_without_epoch": Rule(Q.without_epoch, "a session exists that nobody has attached", _REPORT),
    "session_untold": Rule(
        _of_sessions(Q.untold), "a run waits for its session, which was never told what for", _RESUME
    ),
    "session_stalled": Rule(
        _of_sessions(Q.stalled), "a run waits for its session, which has nothing to do for it", _RESUME
    ),
    "session_step_stray": Rule(
        Q.step_stray, "a session is to be sent a step that counts for nothing any more", _REPORT
    ),
    "session_end_untold": Rule(Q.end_untold, "a session was not told how a run ended, or too early", _REPORT),
    "follow_up_early": Rule(Q.follow_up_early, "a follow-up was sent before its run had succeeded", _REPORT),
    "follow_up_kept": Rule(
        Q.follow_up_kept, "a follow-up is queued of a run that did not succeed", "pwf follow-up ls {name}"
    ),
    "session_elsewhere": Rule(
        Q.elsewhere, "a message or a turn of a run belongs to another session", _REPORT
    ),
    "session_turn_stray": Rule(
        Q.turn_stray, "a turn goes on about a message of which nothing more comes", _REPORT
    ),
    "session_segment_gap": Rule(
        Q.segment_gap, "what a session has recorded about a run is not what it counts", _REPORT
    ),
    "session_entry_stray": Rule(
        Q.entry_stray, "an entry was recorded of a segment that there is not", _REPORT
    ),
    "session_clock_stray": Rule(Q.clock_stray, "time is counted though nobody works on it", _REPORT),
}
