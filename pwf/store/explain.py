"""The one reason why a run is where it is, from the predicates that the scheduler itself uses.

`explain` is a plain function of a run's rows and of what the scheduler knows at this moment (`Load`). Every
non-terminal run gets exactly one reason, when that changes, and what can be typed.
"""

from __future__ import annotations

import msgspec

from pwf.clock import Now
from pwf.protocol.kinds import REQUESTS, RequestKind
from pwf.protocol.views import ENDED, Explanation, SubmissionView
from pwf.store.session_standing import SessionStanding

NAMED_MAX = 5  # effects that a reason names


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler knows: capacity in use, and why it admits nothing (degraded, draining, disk full)."""

    used: int = 0
    capacity: int = 0
    stopped: str | None = None


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for."""

    request_id: str
    kind: RequestKind
    deadline_wall_ms: int | None
    left_ms: int | None = None  # the clock stands still
    default: str | None = None  # JSON
    submission: SubmissionView | None = None
    troubles: tuple[str, ...] = ()  # of the channels that are to show it


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a reason is made of."""

    run_id: str
    status: str
    hold: str | None
    hold_detail: str | None
    node: str
    reason: str | None
    request: OpenRequest | None
    tries: int
    failures: int
    daemon_deaths: int
    pause_requested: bool
    queue_state: str | None
    due_wall_ms: int | None
    due_in_ms: int | None  # by the clock that decides
    runner_state: str | None
    active_since_ms: int | None
    timeout_ms: int | None
    session: SessionStanding | None = None
    retry: str | None = None  # what to type so that it goes on, where it has ended and that is taken
    gone_on_as: tuple[str, str] | None = None  # the newest fork of a run that has ended, and its status
    unknown_effects: tuple[
        str, ...
    ] = ()  # keys, where the run has ended or is held for them: at most `NAMED_MAX`


#: hold -> (reason, when it changes, commands)
_HOLDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "paused": ("it is paused", "when it is resumed", ("pwf resume {run}", "pwf cancel {run}")),
    "source_changed": (
        "its source files have changed, and its workflow asked to run only unchanged ones",
        "when the recorded files are restored and it is resumed",
        ("pwf show {run}", "pwf resume {run}", "pwf cancel {run}"),
    ),
    "environment_missing": (
        "the interpreter it was started with can not serve it",
        "when the interpreter is back and it is resumed",
        ("pwf doctor", "pwf resume {run}", "pwf cancel {run}"),
    ),
    "no_progress": (
        "its runner ended by itself three times in a row without progress",
        "when somebody has looked and resumes it",
        ("pwf show {run}", "pwf logs", "pwf resume {run}", "pwf cancel {run}"),
    ),
    "effect_ambiguous": (
        "nobody knows whether its outside effect happened",
        "when a person has found out and says so",
        (
            "pwf effects --ambiguous",
            "pwf recover {run} happened --output JSON",
            "pwf recover {run} not-happened",
            "pwf cancel {run}",
        ),
    ),
    "process_unreaped": (
        "processes of its last runner could not be shown dead",
        "when they are gone and it is resumed",
        ("pwf doctor", "pwf resume {run}", "pwf cancel {run}"),
    ),
    "load_failed": (
        "its pinned code no longer loads",
        "when what it needs is installed again and it is resumed",
        ("pwf resume {run}", "pwf cancel {run}"),
    ),
    "restored": (
        "a person must look at it before it goes on",
        "when a person resumes it",
        ("pwf resume {run}", "pwf cancel {run}"),
    ),
    "broken": (
        "one of its rows can not be handled",
        "when it is resumed or cancelled",
        ("pwf state verify", "pwf resume {run}", "pwf cancel {run}"),
    ),
    "budget": (
        "it has used up its budget",
        "when a person says more, or the day is over and it is resumed",
        ("pwf resume {run} --budget tokens=100000", "pwf resume {run}", "pwf cancel {run}"),
    ),
}


def explain(run: RunFacts, load: Load, now: Now) -> Explanation:
    """The reason, for a run in any state."""
    if run.status in ENDED:
        return _ended(run)
    if run.hold is not None:
        reason, changes, commands = _HOLDS[run.hold]
        if run.request is not None:
            reason += (
                f", and its request {run.request.request_id} {_open_under(run.hold, run.request.left_ms)}"
            )
            if run.hold == "restored":
                commands = (REQUESTS[run.request.kind].how(run.request.request_id), *commands)
        if run.hold == "effect_ambiguous" and len(run.unknown_effects) > 1:
            first = run.unknown_effects[0]
            reason = "nobody knows whether its outside effects happened"
            changes = "when a person has found out about each, and says so"
            commands = (
                "pwf effects --ambiguous",
                f"pwf effects show {first}",
                *_words(first, goes_on=True),
                "pwf cancel {run}",
            )
        return _make(run, run.hold, reason + _because(run.hold_detail), changes, commands)
    if run.request is not None:
        return _waiting(run, run.request, now)
    if run.status == "running":
        return _running(run, now)
    return _queued(run, load, now)


def _open_under(hold: str, left_ms: int | None) -> str:
    if left_ms is None:
        return "is open"
    if left_ms > 0:
        return f"is open for another {_duration(left_ms)} once it goes on"
    if hold == "restored":
        return "can be answered only now: its time is over once the run goes on"
    return "was not answered in time, which counts once it goes on"


_ENDINGS = {
    "completed": "completed",
    "failed": "failed",
    "timed_out": "ran out of time",
    "cancelled": "was cancelled",
}


def _ended(run: RunFacts) -> Explanation:
    reason = f"it {_ENDINGS[run.status]}" + _because(run.reason)
    if run.gone_on_as is not None:
        reason += "; it was gone on with as {} ({})".format(*run.gone_on_as)
    if run.session is not None and run.session.queued:
        reason += (
            f"; follow-ups still to be sent to its session {run.session.session_id}: {run.session.queued}"
        )
    if not run.unknown_effects:
        return _make(run, "ended", reason, "never: it has ended", _after(run))
    return _make(
        run,
        "ended",
        f"{reason}; nobody knows whether {_named(run.unknown_effects)} happened",
        "never: it has ended; it can be restarted when a person has found out and says so",
        _words(run.unknown_effects[0], goes_on=False),
    )


def _named(keys: tuple[str, ...]) -> str:
    if len(keys) == 1:
        return f"its effect {keys[0]}"
    more = " and more" if len(keys) == NAMED_MAX else ""
    return f"its effects {', '.join(keys)}{more}"


def _words(key: str, *, goes_on: bool) -> tuple[str, ...]:
    happened = "happened --output JSON" if goes_on else "happened"
    return tuple(f"pwf effects resolve {key} {word}" for word in (happened, "not-happened"))


def _after(run: RunFacts) -> tuple[str, ...]:
    if run.status == "completed":
        return ("pwf show {run}",)
    if run.gone_on_as is not None:
        return ("pwf show {run}", f"pwf explain {run.gone_on_as[0]}")
    retry = () if run.retry is None else (run.retry,)
    return ("pwf show {run}", *retry, "pwf restart {run}")


def _because(detail: str | None) -> str:
    return f": {detail}" if detail else ""


def _waiting(run: RunFacts, request: OpenRequest, now: Now) -> Explanation:
    submission = request.submission
    if submission is not None and submission.status == "validating":
        return _make(
            run,
            "validating",
            f"what was submitted for node {run.node!r} is being validated",
            "when the workflow's own function has judged it, within a minute or so",
            ("pwf watch {run}", "pwf cancel {run}"),
        )
    rejected = (
        "" if submission is None else f"; the last that was submitted was rejected: {submission.reason}"
    )
    command = REQUESTS[request.kind].command
    settle = () if command is None else (command.format(request=request.request_id),)
    session: tuple[str, ...] = ()
    if run.session is not None and REQUESTS[request.kind].answered_by == "session":
        session = (_session(run.session, now),)
        settle = ("pwf sessions", *settle)
    return _make(
        run,
        "request_open",
        "; ".join(
            (REQUESTS[request.kind].waits.format(node=repr(run.node)) + rejected, *session, *request.troubles)
        ),
        "when it is answered; " + _at_deadline(request),
        (*settle, "pwf pause {run}", "pwf cancel {run}"),
        at_ms=request.deadline_wall_ms,
    )


def _session(session: SessionStanding, now: Now) -> str:
    """What the session that is to answer has of it."""
    if not session.connected:
        stands = f"is not attached since {_duration(now.wall_ms - session.seen_ms)}"
    elif session.turn_since_ms is not None:
        stands = f"is at work: its turn is open since {_duration(now.wall_ms - session.turn_since_ms)}"
    elif not session.reported:
        stands = "is attached, and has not said yet what it has"
    elif session.unseen:
        stands = "is attached, and has not seen its message yet"
    else:
        stands = "has its message, and no turn of it is open"
    return f"its session {session.session_id} {stands}"


def _at_deadline(request: OpenRequest) -> str:
    if request.deadline_wall_ms is None:
        return "it waits for ever"
    if request.default is None:
        return "at its deadline it has timed out"
    return f"at its deadline the answer is its default, {request.default}"


def _running(run: RunFacts, now: Now) -> Explanation:
    if run.runner_state != "live" or run.active_since_ms is None:
        reason = "its runner process is being launched" + ("; it pauses then" if run.pause_requested else "")
        return _make(run, "launching", reason, "within moments", ("pwf watch {run}",))
    limit = "it has no time limit"
    ends_at = None
    if run.timeout_ms is not None:
        ends_at = run.active_since_ms + run.timeout_ms
        limit = f"at the latest when its time limit of {_duration(run.timeout_ms)} is over"
    pause = "; it pauses after this step" if run.pause_requested else ""
    return _make(
        run,
        "executing",
        f"node {run.node!r} is executing since {_duration(now.wall_ms - run.active_since_ms)}{pause}",
        f"when the step ends; {limit}",
        ("pwf watch {run}", "pwf pause {run} --now", "pwf cancel {run}"),
        at_ms=ends_at,
    )


def _queued(run: RunFacts, load: Load, now: Now) -> Explanation:
    commands = ("pwf pause {run}", "pwf cancel {run}")
    timer = run.active_since_ms is not None  # of a queued run, only a timer's attempt is open
    if run.due_in_ms is not None and run.due_in_ms > 0:
        at_ms = now.wall_ms + run.due_in_ms
        when = f"in {_duration(run.due_in_ms)}"
        if timer:
            return _make(
                run, "due_later", f"node {run.node!r} waits for its time", when, commands, at_ms=at_ms
            )
        if run.hold_detail is not None:
            lifted = ("pwf agents", "pwf resume {run}", "pwf cancel {run}")
            return _make(run, "limited", run.hold_detail, when, lifted, at_ms=at_ms)
        if run.failures:
            reason = f"node {run.node!r} failed {_times(run.failures)} and is tried again later"
            return _make(run, "retry_later", reason, when, commands, at_ms=at_ms)
        return _make(run, "due_later", "it is due later", when, commands, at_ms=at_ms)
    if timer:  # it takes no capacity
        return _make(
            run,
            "due_later",
            f"the time of node {run.node!r} has come",
            "within moments",
            ("pwf watch {run}",),
        )
    if load.stopped is not None:
        return _make(
            run,
            "daemon_degraded",
            f"the daemon admits nothing: {load.stopped}",
            "when that is over",
            ("pwf status",),
        )
    if run.runner_state is not None:
        return _make(
            run,
            "reaping",
            "the processes of its last step are being proved dead",
            "within seconds",
            ("pwf doctor",),
        )
    if run.daemon_deaths >= 2:
        reason = f"the daemon died {_times(run.daemon_deaths)} while it ran, so it is admitted alone"
        return _make(run, "alone", reason, "when no other run is executing", ("pwf logs", *commands))
    if load.capacity and load.used >= load.capacity:
        reason = f"all {load.capacity} runners are busy"
        return _make(
            run, "capacity", reason, "when one of them is free", ("pwf ls --status running", *commands)
        )
    return _make(
        run, "behind_in_queue", "it is due and next to be admitted", "within moments", ("pwf watch {run}",)
    )


def _make(
    run: RunFacts, code: str, reason: str, changes: str, commands: tuple[str, ...], at_ms: int | None = None
) -> Explanation:
    typed = tuple(command.replace("{run}", run.run_id) for command in commands)
    return Explanation(code=code, reason=reason, changes_when=changes, changes_at_ms=at_ms, commands=typed)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _duration(ms: int) -> str:
    seconds = max(0, ms) / 1000
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
