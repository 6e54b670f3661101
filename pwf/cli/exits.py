"""Exit codes. They never change their meaning once released; docs/operations.md has the table."""

from __future__ import annotations

OK = 0
NO = 1  # a run failed or timed out; a check found a fault
USAGE = 2  # what was typed is wrong: options, JSON, an input or answer of the wrong type
NOT_FOUND = 3  # no such run, request or workflow, or more than one matches
REFUSED = 4  # not possible in the present state, or in conflict with it
UNAVAILABLE = 5  # the daemon can not be reached, or can not do it just now
CANCELLED = 6  # the run was cancelled
NEEDS_PERSON = 7  # the run waits for an answer, or is held
UNSOUND = 8  # a workflow, its environment, the configuration or the state folder can not be used
TIME_OUT = 9  # the time given with --timeout ran out
INTERNAL = 70  # a bug in pwf, or a daemon of another version
INTERRUPTED = 130  # Ctrl-C; runs go on
PIPE_CLOSED = 141  # the reader of our output went away

BY_ERROR_CODE = {
    "invalid_value": USAGE,
    "value_too_large": USAGE,
    "invalid_input": USAGE,
    "invalid_answer": USAGE,
    "invalid_argument": USAGE,
    "usage": USAGE,
    "frame_too_large": USAGE,
    "not_found": NOT_FOUND,
    "ambiguous": NOT_FOUND,
    "conflict": REFUSED,
    "rejected": REFUSED,
    "person_needed": REFUSED,
    "token_refused": REFUSED,
    "claim_lost": REFUSED,
    "already_serving": REFUSED,
    "unavailable": UNAVAILABLE,
    "content_wanted": UNAVAILABLE,  # a value was sent to a daemon that has ended since
    "outcome_unknown": UNAVAILABLE,
    "disk_full": UNAVAILABLE,
    "state_full": UNAVAILABLE,
    "daemon_unreachable": UNAVAILABLE,
    "runner_crashed": UNAVAILABLE,  # of a start: the process that was to load the file was ended
    "store_broken": UNAVAILABLE,
    "graph_error": UNSOUND,
    "load_failed": UNSOUND,
    "no_workflow": UNSOUND,
    "environment_missing": UNSOUND,
    "variables_wanted": UNSOUND,
    "secret_missing": UNSOUND,
    "untrusted": UNSOUND,
    "source_changed": UNSOUND,
    "config_error": UNSOUND,
    "store_refused": UNSOUND,
    "value_damaged": UNSOUND,
    "effect_unknown": NEEDS_PERSON,
    "effect_abandoned": REFUSED,
    "home_refused": UNSOUND,
}

_BY_STATUS = {
    "completed": OK,
    "failed": NO,
    "timed_out": NO,
    "cancelled": CANCELLED,
    "waiting": NEEDS_PERSON,
    "paused": NEEDS_PERSON,
    "ambiguous": NEEDS_PERSON,
    "held": NEEDS_PERSON,
}
_WORST_FIRST = (NO, CANCELLED, NEEDS_PERSON, TIME_OUT)


def of_error(code: str) -> int:
    """The exit code of an error's wire code."""
    return BY_ERROR_CODE.get(code, INTERNAL)


def of_status(status: str) -> int:
    """The exit code of a command that followed a run to this status."""
    return _BY_STATUS.get(status, OK)


def worst(codes: list[int]) -> int:
    """One exit code for several runs: a failure counts most."""
    return next((code for code in _WORST_FIRST if code in codes), OK)
