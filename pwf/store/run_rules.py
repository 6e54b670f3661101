"""The rules that must hold across the tables of a run. Each query lists the runs that break one."""

from __future__ import annotations

from pwf.store.entity_kinds import Rule
from pwf.store.queries import load_queries

Q = load_queries(__file__)

_CANCEL = "pwf cancel {name}, then pwf restart {name}"
_RESTART = "restart the daemon (pwf stop, pwf start): recovery settles it"
_LEFT = f"{_RESTART}; what is left then goes with the run (pwf state prune)"
_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"
_SHOW = "pwf show {name}; " + _REPORT

#: query -> (message, fix)
_RULES: dict[str, tuple[str, str]] = {
    "ended_open": ("the run has ended, but something is still open for it", _LEFT),
    "running_unowned": ("the run is running, but has no queue row, lease or runner", _RESTART),
    "queued_undue": ("the run is queued, but not due, or somebody owns it", _CANCEL),
    "ready_open": ("the run waits to be admitted, but an attempt of it is still open", _CANCEL),
    "queue_misplaced": ("the run was launched before, but is queued as a new start, or the reverse", _CANCEL),
    "waiting_unasked": ("the run waits, but has no open request, or is queued or owned as well", _CANCEL),
    "held_loose": ("the run is held, but without a reason, or is queued, asked or owned as well", _CANCEL),
    "request_stray": ("a request is open, but its run does not wait for it", _CANCEL),
    "answer_lost": ("a request was settled, but its step has not ended with that answer", _SHOW),
    "decision_unwon": ("a decision is closed and has no winner, or is open and has one", _SHOW),
    "decision_misled": ("the run went on with another choice than the one that has won", _SHOW),
    "link_misled": (
        "a link to a decision is to another proposal, or has decided what somebody else has",
        _SHOW,
    ),
    "clock_misplaced": (
        "the run is held and the time of its request passes, or it is not and the time stands still",
        "pwf pause {name}, then pwf resume {name}",
    ),
    "position_miscounted": ("the run's position is not the newest visit of its node", _SHOW),
    "entries_miscounted": ("an included workflow counts from more visits than there were", _SHOW),
    "attempts_miscounted": ("the run's attempts are not numbered as counted", _SHOW),
    "work_stray": ("an agent has reported work of an attempt that is not there", _SHOW),
    "detail_stray": ("it is said what the run waits for, but it is neither held nor due later", _SHOW),
    "probe_stray": ("a run tries whether a usage limit has ended, and has no agent", _SHOW),
    "budget_stray": ("more budget was said for the agent of a run that has none", _SHOW),
    "ambiguous_loose": ("an effect is ambiguous, but its run is not held for it", _CANCEL),
    "step_repeated": ("a committed step ran twice", _SHOW),
    "manual_repeated": ("a manual effect was applied, but not by exactly one completed attempt", _SHOW),
    "effect_unsettled": ("a step completed, but its effect is not settled", _SHOW),
    "effect_left": ("an effect is open, but its run has gone on without it", _SHOW),
    "effect_unattempted": ("an effect belongs to no attempt", _SHOW),
    "notice_empty": ("a notice has no text", _SHOW),
    "effect_mixed": ("a visit has the effect of its node, and parts as well", _SHOW),
    "active_stray": ("an open attempt is not the run's position", _SHOW),
    "counts_wrong": ("the number of runs with this status is not what is counted", _REPORT),
    "runner_stray": ("a runner of an earlier daemon is not settled", _RESTART),
    "restart_orphaned": ("the run restarts one that is not there", _SHOW),
    "restart_early": ("the run restarts one that has not ended", _SHOW),
    "restart_misrooted": ("the run's root is not the first run of its chain of restarts", _SHOW),
    "restart_miscounted": ("the run's restart number does not follow that of the run it restarts", _SHOW),
    "restart_circular": ("the run is a restart of itself, over others", _SHOW),
    "fork_orphaned": ("the run is forked from one that is not there", _SHOW),
    "fork_circular": ("the run is forked from one that was made after it", _SHOW),
    "tree_misrooted": ("the run does not belong to the tree of the run that it comes from", _SHOW),
    "adopted_stray": ("a result was taken over that the other run does not have", _SHOW),
    "adopted_effect": ("the effect of a result that was taken over is the run's own", _SHOW),
    "settings_stray": ("the run has settings, but its workflow declares none", _SHOW),
    "settings_uncounted": (
        "the changes of the run's settings are not numbered as its history has them",
        _SHOW,
    ),
    "content_incomplete": ("the run refers to a value that is not all there", _SHOW),
}

_AMONG = {
    "running_unowned": "running",
    "queued_undue": "queued",
    "waiting_unasked": "waiting",
    "held_loose": "held",
    "request_stray": "waiting",
    "clock_misplaced": "waiting",
    "ambiguous_loose": "",
}

RUN_RULES: dict[str, Rule] = {
    name: Rule(
        getattr(Q, name),
        message,
        fix,
        about=name != "counts_wrong",
        among=_AMONG.get(name),
    )
    for name, (message, fix) in _RULES.items()
}
