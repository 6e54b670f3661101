"""What clients see. Computed once, in the daemon, from rows and holds; no client infers a status.

Times are wall-clock milliseconds since 1970. Revisions are the run's.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pwf.protocol.follow_ups import FollowUpView
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import NodeKind, RequestKind
from pwf.protocol.notices import NoticeKind
from pwf.protocol.progress import Estimate
from pwf.protocol.runner import StepError, Value
from pwf.protocol.survivors import Survivor

Status = Literal[
    "queued",
    "running",
    "waiting",
    "paused",
    "ambiguous",
    "held",
    "completed",
    "failed",
    "timed_out",
    "cancelled",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "timed_out", "cancelled"})
NEEDS_PERSON: frozenset[str] = frozenset({"waiting", "paused", "ambiguous", "held"})
Hold = Literal[
    "paused",
    "source_changed",
    "environment_missing",
    "no_progress",
    "effect_ambiguous",
    "process_unreaped",
    "load_failed",
    "restored",
    "broken",
    "budget",
]

EffectStatus = Literal["applying", "applied", "rejected", "failed", "ambiguous", "cancelled", "abandoned"]


class _View(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Explanation(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one reason why a run is where it is. `commands` can be typed as they stand.

    `code`: a hold's name, or due_later, retry_later, limited, capacity, launching, executing, request_open, validating,
    alone, behind_in_queue, daemon_degraded, ended.
    """

    code: str
    reason: str
    changes_when: str
    changes_at_ms: int | None = None
    commands: tuple[str, ...] = ()


class RunSummary(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a list."""

    run_id: str
    workflow: str
    title: str | None = None  # defaults: a merge patch drops a key to say null
    status: Status
    revision: int
    generation: int
    node: str | None = None
    created_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    due_ms: int | None = None
    hold: Hold | None = None
    reason: str | None = None  # of a hold, or how it ended
    request_id: str | None = None
    steps: int = 0
    restarted_from: str | None = None  # the ended run that this one restarts
    restart_root: str | None = None  # the first run of that chain
    restart_no: int = 0  # in the chain; 0: no restart
    forked_from: str | None = None  # the run whose outputs this one took over
    gone_on_as: str | None = None  # the newest run that is a restart, a retry or a fork of this one


class AgentUsage(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent has said that it used. Tokens that were read from a cache count as read."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0  # millionths of a dollar


class AgentWork(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent of an attempt has reported. `afresh`: why it did not continue an earlier conversation."""

    agent: str
    conversation: str | None = None
    afresh: str | None = None
    used: AgentUsage = AgentUsage()


class StepView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt. `summary` is the start of its output or error, at most 200 characters."""

    attempt: int
    node: str
    visit: int
    tries: int
    kind: NodeKind
    status: Literal[
        "active", "completed", "failed", "timed_out", "cancelled", "interrupted", "limited", "unknown"
    ]
    generation: int
    started_ms: int
    ended_ms: int | None = None
    active_ms: int = 0
    printed_bytes: int = 0  # that were kept of what it printed, when it ended: `run.printed` reads them
    survivors: tuple[Survivor, ...] = ()  # processes that outlived it, and were ended
    observed: bool = False  # it observes what became of an earlier attempt's effect
    adopted: int | None = None  # taken over: the attempt of the run that this one was forked from
    notice: NoticeKind | None = None  # its output is a text for people: `notice.list` has it
    summary: str = ""
    output: Value | None = None
    error: StepError | None = None
    work: AgentWork | None = None


class UpdateView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A durable update. `estimate`: of progress that is under way, where enough is known."""

    kind: str
    key: str
    data: msgspec.Raw
    updated_ms: int
    estimate: Estimate | None = None


class SubmissionView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was last submitted for a request whose node judges it. `reason`: why it was rejected."""

    status: Literal["validating", "accepted", "rejected"]
    reason: str | None = None
    submitted_by: str = ""
    submitted_ms: int = 0


class RequestView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An open or settled question. `answered_by` is `timeout` where nobody answered in time."""

    request_id: str
    run_id: str
    workflow: str
    node: str
    kind: RequestKind
    status: Literal["pending", "settled", "cancelled"]
    revision: int = 1  # raised when its run is resumed; a submission may name it
    prompt: Value
    schema: dict[str, Any] | None = None
    created_ms: int
    settled_ms: int | None = None
    answer: Value | None = None
    answered_by: str | None = None
    deadline_ms: int | None = None  # None: waits for ever, or its clock stands still
    left_ms: int | None = None  # of its time, while its run is held: the clock stands still
    default: Value | None = None  # the answer when none comes in time; None: the node's `timed_out` way out
    submission: SubmissionView | None = None


class EffectView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the effect ledger."""

    effect_key: str
    outside_key: str | None = None  # what outside systems got (`ctx.effect_key`); None: the effect's key
    run_id: str  # or the uid of the managed resource that made it
    node: str
    visit: int
    type: str
    mode: Literal["idempotent", "manual"]
    status: EffectStatus
    attempts: int
    ref: str | None = None
    settled_by: str | None = None  # who said what became of it; None: its run did
    note: str | None = None  # what that person said of it
    fingerprint: str | None = None  # SHA-256 of the request of one that was made in mid-step
    error: StepError | None = None  # of such a one: why its last try failed, or left its outcome unknown
    reserved_ms: int = 0
    settled_ms: int | None = None


class EventView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the append-only history."""

    revision: int
    kind: str
    actor: str
    generation: int
    at_ms: int
    payload: msgspec.Raw


class RunView(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`run.view`: one bounded document. `steps` is the newest page; `steps_total` says how many there are."""

    summary: RunSummary
    explanation: Explanation
    graph: WorkflowGraph
    root: str
    input: Value
    output: Value | None = None
    error: StepError | None = None
    steps: tuple[StepView, ...] = ()
    steps_total: int = 0
    updates: tuple[UpdateView, ...] = ()
    settings_change: int | None = (
        None  # the newest of its settings, where it has any: `settings.get` reads them
    )
    request: RequestView | None = None
    effects: tuple[EffectView, ...] = ()
    restarts: tuple[str, ...] = ()  # runs that this one was restarted as
    forks: tuple[str, ...] = ()  # runs that were forked from this one, the newest first
    fork_node: str | None = None  # of a fork: where it went on
    fork_visit: int = 0
    controls: tuple[
        str, ...
    ] = ()  # operations that are possible now: pause, resume, cancel, restart, retry, fork, answer, submit
    warnings: tuple[str, ...] = ()  # what somebody should look at before it becomes a failure
    agent: str | None = None  # that does the steps of agents; None: they wait for what is submitted
    usage: AgentUsage | None = None  # of all its attempts; None: no agent has said
    session: str | None = None  # whose model does them
    follow_ups: tuple[FollowUpView, ...] = ()  # for that session, after the run's success
    definition_id: str = ""
    newer_code: bool = False
    interpreter: str = ""
    python: str = ""
    pwf: str = ""


class Violation(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broken rule that `state.verify` found."""

    rule: str
    message: str
    run_id: str | None = None
    fix: str = ""


class KeptProcesses(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Under isolate="keep", since the daemon's start: after how many runs the process stayed for a further one, after
    how many it did not although it was to, and why it did not the last time.
    """

    stayed: int = 0
    ended: int = 0
    last_reason: str = ""
