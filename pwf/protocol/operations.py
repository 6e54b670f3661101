"""Payload and result of every operation of `pwf.client.v1`. `OPERATIONS` is the list.

An operation that names one run takes it from the frame's `run_id` (an id, a unique prefix, `@last`,
`@last-failed`); the daemon resolves it in one place.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from pwf.budgets import Budget
from pwf.protocol.agents import AgentList, ResumePayload
from pwf.protocol.bounds import Filter, Name, PathText, Words
from pwf.protocol.channels import CHANNEL_OPERATIONS
from pwf.protocol.decisions import Decided, DecidePayload, DecisionList, DecisionListPayload
from pwf.protocol.effects import EffectDetail, EffectList, EffectListPayload, EffectRef, ResolvePayload
from pwf.protocol.follow_ups import FOLLOW_UP_OPERATIONS
from pwf.protocol.forks import ForkPayload, RestartPayload
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import RequestKind
from pwf.protocol.notices import NoticeList, NoticeListPayload
from pwf.protocol.operation import Operation
from pwf.protocol.origin import Origin
from pwf.protocol.printed import Printed, PrintedPayload, PrintedPiece, ReadPrinted
from pwf.protocol.raw import null
from pwf.protocol.replies import AssistantPayload, RequestUpdated, UpdatePayload
from pwf.protocol.resources import (
    RESOURCE_OPERATIONS,
    ResourceList,
    ResourceListPayload,
    ResourceRef,
    ResourceView,
)
from pwf.protocol.runner import Value
from pwf.protocol.sessions import SESSION_OPERATIONS, SessionView
from pwf.protocol.settings import SETTINGS_OPERATIONS
from pwf.protocol.uploads import Content as Content
from pwf.protocol.uploads import ContentTaken, PutContent
from pwf.protocol.uploads import ReadContent as ReadContent
from pwf.protocol.views import (
    EventView,
    Explanation,
    KeptProcesses,
    RequestView,
    RunSummary,
    RunView,
    Status,
    Violation,
)
from pwf.protocol.web import WEB_OPERATIONS

LIST_PAGE = 100
LIST_PAGE_MAX = 1_000


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Nothing(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No fields."""


# --- daemon ---------------------------------------------------------------------------------------------------


class LiveRunner(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that executes a run. Every process that it starts bears its `marker` in its environment."""

    marker: str
    pid: int
    memory_bytes: int = 0  # resident, with all below it


class DaemonStatus(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Literal["starting", "serving", "draining", "degraded"]
    version: str
    pid: int
    epoch: int
    home: str
    socket: str
    started_ms: int
    renewed_ms: int
    lease_left_ms: int
    clients: int
    sessions: int = 0  # that are attached now
    runs: dict[str, int]  # by status, ended ones included
    held: dict[str, int]  # by hold
    requests_open: int
    request_oldest_ms: int | None = None
    effects_ambiguous: int = 0
    resources: int = 0  # that are not gone
    reconciles_queued: int = 0  # due now
    reconciles_live: int = 0
    resources_kept_back: int = 0  # paused or held
    runners: int = 0
    capacity: int = 0
    admissions: int = 0  # since start
    store_bytes: int = 0  # the database file
    used_bytes: int = 0  # of it, without its free pages: what `max_state_size` is compared with
    max_state_size: int | None = None
    wal_bytes: int = 0
    memory_bytes: int = 0  # of the daemon, resident
    open_descriptors: int = 0
    live: tuple[LiveRunner, ...] = ()
    disk_full: bool = False
    pages: str | None = None  # where the answer pages are, if the daemon keeps them there
    problems: tuple[str, ...] = ()
    violations: tuple[
        Violation, ...
    ] = ()  # of the rules that cost little to look at; `state.verify` finds all


class StopPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`drain_ms` None: as configured."""

    drain_ms: int | None = None


class StopResult(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stopping has begun. `applying` names manual effects that are still being applied."""

    pid: int
    applying: tuple[str, ...] = ()


# --- workflows ------------------------------------------------------------------------------------------------


class WorkflowRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name or a path, seen from `origin`. `or_manager`: it may also be that of a resource manager."""

    workflow: PathText
    origin: Origin
    or_manager: bool = False


class WorkflowListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    origin: Origin


class WorkflowLine(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`error` is set where the file does not load."""

    name: str
    path: str
    scope: Literal["project", "user", "built-in"]
    doc: str = ""
    nodes: int = 0
    error: str | None = None
    hint: str | None = None


class WorkflowList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    root: str
    workflows: tuple[WorkflowLine, ...]


class WorkflowDescription(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    graph: WorkflowGraph
    root: str
    path: str
    definition_id: str
    interpreter: str
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    kept: KeptProcesses | None = None  # where the definition asks for it


# --- runs -----------------------------------------------------------------------------------------------------


class StartPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`at_ms`: wall time of the first step. `run_id` and the frame's key make the start safe to repeat. `max_steps`: in
    place of the workflow's. `budget`: of its agents.

    `agent`: who does their steps: a configured one, or `person` (they wait for `request.submit`). None: as configured.
    `session`: whose model does them, in place of an agent; what a session starts is its own.
    """

    workflow: PathText
    origin: Origin
    input: msgspec.Raw = msgspec.field(default_factory=null)
    run_id: Name | None = None
    at_ms: int | None = None
    priority: int = 0
    agent: Name | None = None
    session: Name | None = None
    max_steps: int | None = None
    budget: Budget | None = None


class RunStarted(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`code_is_older`: the run was adopted, and its file has newer code by now.

    Of a restart: `restart_root` is the first run of the chain of restarts, `restart_no` counts from it. Of a fork: it
    goes on at `node`, with what `took_over` names (`NODE`, or `NODE#VISIT`).
    """

    run_id: str
    status: Status
    revision: int
    code_is_older: bool = False
    warnings: tuple[str, ...] = ()
    restarted_from: str | None = None
    restart_root: str | None = None
    restart_no: int = 0
    forked_from: str | None = None
    node: str | None = None
    took_over: tuple[str, ...] = ()


class RunListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Newest first. `cursor` is `next_cursor` of the page before. `since_ms`: made then or later, by the wall clock.

    `title`: has this text in it, in small or capital letters.
    """

    statuses: Annotated[tuple[Status, ...], Filter] = ()
    workflow: PathText | None = None
    since_ms: int | None = None
    title: Words | None = None
    limit: int = LIST_PAGE
    cursor: int | None = None


class RunList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    runs: tuple[RunSummary, ...]
    next_cursor: int | None = None


class EventsPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after_revision: int = 0
    limit: int = LIST_PAGE


class EventPage(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_id: str
    events: tuple[EventView, ...]
    next_after: int | None = None


class StepsPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of `run.view`: the page of steps ends before this attempt (None: the newest). `node`: only its steps."""

    before_attempt: int | None = None
    limit: int = LIST_PAGE
    node: Name | None = None


class PausePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`now` stops the running step instead of letting it end."""

    now: bool = False


class CancelPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Words | None = None


class RunChanged(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`note` says in words what happens next, where that is not plain."""

    run_id: str
    status: Status
    revision: int
    note: str | None = None


class WaitPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`until` ended, or parked (ended, or needs a person: an open request or a hold). None waits for ever."""

    until: Literal["ended", "parked"] = "ended"
    timeout_ms: int | None = None


class WaitResult(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`done` is False when the time ran out."""

    summary: RunSummary
    done: bool
    output: Value | None = None


class Explained(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    summary: RunSummary
    explanation: Explanation


# --- requests -------------------------------------------------------------------------------------------------


class RequestListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Oldest first. `request`: only this one, whatever its status, as `AnswerPayload.request_id` names it.

    `kinds`: which can be meant by that, where it could be several.
    """

    request: PathText | None = None
    kinds: Annotated[tuple[RequestKind, ...], Filter] = ()
    statuses: Annotated[tuple[Literal["pending", "settled", "cancelled"], ...], Filter] = ("pending",)
    limit: int = LIST_PAGE


class RequestList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    requests: tuple[RequestView, ...]


class AnswerPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`request_id`: or a unique prefix, `@last` (the open one that was asked last), `run:ID` (what that run asks)."""

    request_id: PathText
    answer: msgspec.Raw


class Answered(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request_id: str
    run_id: str
    status: Status
    revision: int


class SubmitPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent was asked for. `request_id` as in `AnswerPayload`. `revision`: only if it is at this."""

    request_id: PathText
    value: msgspec.Raw
    revision: int | None = None


class Submitted(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`accepted`: it is the output of the node that asked. `validating`: the workflow's own function still judges it;
    the same command again, or the view of the run, tells the verdict. `rejected`: that function says why, and the
    request stays open.
    """

    request_id: str
    run_id: str
    status: Status
    revision: int
    verdict: Literal["accepted", "validating", "rejected"] = "accepted"
    reason: str | None = None
    submission: int | None = None  # the number under which it is judged


# --- state, content, views ------------------------------------------------------------------------------------


class StateStatus(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str
    schema: int
    home_id: str
    page_bytes: int
    file_bytes: int
    wal_bytes: int
    free_bytes: int
    rows: dict[str, int]
    settings: dict[str, str]
    sqlite: str


class VerifyResult(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    violations: tuple[Violation, ...]
    checked: dict[str, int]


class BackupPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`path`: absolute, of a file that does not exist yet; the daemon writes it."""

    path: PathText


class BackupResult(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished, verified backup. `violations`: rules that its runs break, as those of the database do."""

    path: str
    bytes: int
    runs: int
    at_ms: int
    home_id: str
    epoch: int
    violations: tuple[Violation, ...] = ()


class PrunePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Remove trees of ended runs whose last run ended before `before_ms` (wall time, not in the future)."""

    before_ms: int
    dry_run: bool = False


class PruneResult(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was removed, or would be. `kept`: trees that are old enough, by the reason why they stay.

    `values`: contents that nothing referred to any more. `freed_bytes`: given back to the file system, as its
    files show it. `owed_bytes`: given back when no other process reads the database any more.
    """

    before_ms: int
    dry_run: bool = False
    trees: int = 0
    runs: int = 0
    kept: dict[str, int] = {}
    values: int = 0
    freed_bytes: int = 0
    owed_bytes: int = 0


ViewName = Literal["run", "runs", "resource", "resources", "session"]


class SubscribePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Follow one of `VIEWS`, under an id that the client chooses.

    `query`, `resources`: which a list has. `resource`, `session`: which is meant (None: the connection's own session).
    """

    id: Name
    view: ViewName
    query: RunListPayload | None = None
    resource: ResourceRef | None = None
    resources: ResourceListPayload | None = None
    session: Name | None = None


class UnsubscribePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Name


class ViewFacts(NamedTuple):
    """`body`: what a snapshot is. `needs_run`: the view is of the frame's run."""

    body: type[msgspec.Struct]
    needs_run: bool = False


VIEWS: dict[ViewName, ViewFacts] = {
    "run": ViewFacts(RunView, needs_run=True),
    "runs": ViewFacts(RunList),
    "resource": ViewFacts(ResourceView),
    "resources": ViewFacts(ResourceList),
    "session": ViewFacts(SessionView),
}

OPERATIONS: dict[str, Operation] = {
    "daemon.status": Operation(Nothing, DaemonStatus),
    "daemon.stop": Operation(StopPayload, StopResult),
    "workflow.list": Operation(WorkflowListPayload, WorkflowList),
    "workflow.describe": Operation(WorkflowRef, WorkflowDescription),
    "run.start": Operation(StartPayload, RunStarted, changes=True),
    "run.list": Operation(RunListPayload, RunList),
    "run.status": Operation(Nothing, Explained, needs_run=True),
    "run.view": Operation(StepsPayload, RunView, needs_run=True),
    "run.events": Operation(EventsPayload, EventPage, needs_run=True),
    "run.printed": Operation(PrintedPayload, Printed, needs_run=True),
    "run.read_printed": Operation(ReadPrinted, PrintedPiece, needs_run=True),
    "run.pause": Operation(PausePayload, RunChanged, needs_run=True, changes=True, guarded=True),
    "run.resume": Operation(ResumePayload, RunChanged, needs_run=True, changes=True, guarded=True),
    "run.cancel": Operation(CancelPayload, RunChanged, needs_run=True, changes=True, guarded=True),
    "run.restart": Operation(RestartPayload, RunStarted, needs_run=True, changes=True, guarded=True),
    "run.fork": Operation(ForkPayload, RunStarted, needs_run=True, changes=True, guarded=True),
    "run.wait": Operation(WaitPayload, WaitResult, needs_run=True),
    "request.list": Operation(RequestListPayload, RequestList),
    "request.answer": Operation(AnswerPayload, Answered, changes=True, guarded=True),
    "request.submit": Operation(SubmitPayload, Submitted, changes=True),
    "request.update": Operation(UpdatePayload, RequestUpdated, changes=True),
    "request.assistant": Operation(AssistantPayload, Submitted, changes=True),
    "notice.list": Operation(NoticeListPayload, NoticeList),
    "agent.list": Operation(Nothing, AgentList),
    "decision.list": Operation(DecisionListPayload, DecisionList),
    "decision.answer": Operation(DecidePayload, Decided, changes=True),
    **WEB_OPERATIONS,
    **CHANNEL_OPERATIONS,
    "effect.list": Operation(EffectListPayload, EffectList),
    "effect.get": Operation(EffectRef, EffectDetail),
    "effect.resolve": Operation(ResolvePayload, RunChanged, needs_run=True, changes=True, guarded=True),
    **(SESSION_OPERATIONS | SETTINGS_OPERATIONS | FOLLOW_UP_OPERATIONS),
    **RESOURCE_OPERATIONS,
    "state.status": Operation(Nothing, StateStatus),
    "state.verify": Operation(Nothing, VerifyResult),
    "state.backup": Operation(BackupPayload, BackupResult),
    "state.prune": Operation(PrunePayload, PruneResult, changes=True),
    "content.put": Operation(PutContent, ContentTaken),
    "content.read": Operation(ReadContent, Content, needs_run=True),
    "view.subscribe": Operation(SubscribePayload, Nothing),
    "view.unsubscribe": Operation(UnsubscribePayload, Nothing),
}
