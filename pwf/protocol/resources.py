"""Managed resources on the wire: the operations with what they answer, and what people see of a resource.

A resource is known by its project's root, its manager and its key. Each life of it has a `uid` of its own: after a
delete, what is applied under the same key is another resource. `resource_version` is the compare-and-swap token, which
a frame brings as its `expected_revision`: it grows with each change that can be seen, and not with a reconcile that
changes nothing. `generation` grows with the spec alone.

What a manager declares is `ManagerSpec` in `pwf/protocol/graph.py`; what is said between the process that reconciles
and the daemon stands in `pwf/protocol/reconcile.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Filter, Name, PathText, Words
from pwf.protocol.operation import Operation
from pwf.protocol.origin import Origin
from pwf.protocol.printed import PrintedPiece
from pwf.protocol.raw import null
from pwf.protocol.runner import StepError, Value
from pwf.protocol.views import EffectView, EventView, Explanation, Status

RESOURCES_PAGE = 100

#: `queued`: due now or later. `settled`: nothing is due, and only a wake-up brings the next reconcile. `ambiguous`: an
#: effect's outcome is unknown. `held`: until the act that the reason names. `gone`: it has been deleted.
ResourceState = Literal["queued", "reconciling", "settled", "paused", "ambiguous", "held", "gone"]
ResourceHold = Literal["paused", "effect_ambiguous", "restored", "process_unreaped", "broken"]
ConditionStatus = Literal["True", "False", "Unknown"]
Children = Literal["cancel", "leave"]
Change = Literal["created", "changed", "unchanged"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# --- what people see ------------------------------------------------------------------------------------------


class Condition(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is true of a resource, as its manager or the daemon says. Generation and time are the daemon's."""

    type: str  # "Ready" is the one that lists show
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    changed_ms: int = 0  # when the status became this one


class ChildView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that the manager wants, by its request key. `attempts`: of it so far, as a person may restart it."""

    request_key: str
    run_id: str
    workflow: str
    status: Status
    reason: str | None = None
    attempts: int = 0
    created_ms: int = 0
    ended_ms: int | None = None
    output: Value | None = None


class ResourceSummary(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a list. `ready`, `reason` and `message` are those of the condition `Ready`."""

    uid: str
    manager: str
    key: str
    root: str
    state: ResourceState
    resource_version: int
    generation: int
    observed_generation: int = 0
    ready: ConditionStatus = "Unknown"
    reason: str = ""
    message: str = ""
    hold: ResourceHold | None = None
    hold_detail: str | None = None
    due_ms: int | None = None  # of the next reconcile, where one is due
    failures: int = 0  # reconciles that failed in a row
    deleting_ms: int | None = None  # since when it is to go
    child: str | None = None  # the newest child run that has not ended
    created_ms: int = 0
    gone_ms: int | None = None


class ResourceView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`resource.get`: one bounded document. `children`: the newest hundred. `reconciles`: since it was applied first.

    `controls`: operations that are possible now: reconcile, pause, resume, delete, abandon.
    """

    summary: ResourceSummary
    explanation: Explanation
    spec: Value
    status: Value
    conditions: tuple[Condition, ...] = ()
    finalizers: tuple[str, ...] = ()
    children: tuple[ChildView, ...] = ()
    effects: tuple[EffectView, ...] = ()
    reconciles: int = 0
    reconciled_ms: int | None = None
    error: StepError | None = None  # of the last reconcile, where it failed
    controls: tuple[str, ...] = ()
    path: str = ""  # of the manager's file
    definition_id: str = ""
    newer_code: bool = False  # the file has other code by now: the next apply takes it
    interpreter: str = ""


# --- operations -----------------------------------------------------------------------------------------------


class ResourceRef(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A resource: by manager and key as somebody in `cwd` means them, or by `uid` (a unique prefix is enough).

    By name it is that of `cwd`'s project, else the only one of that name; a gone one is found by its uid alone.
    """

    manager: Name = ""
    key: Name = ""
    cwd: PathText = ""
    uid: Name | None = None


class ResourceListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Newest first. `cwd`: only those of its project. Gone ones are listed only where `states` names them.

    `cursor` is `next_cursor` of the page before.
    """

    manager: Name | None = None
    cwd: PathText | None = None
    states: Annotated[tuple[ResourceState, ...], Filter] = ()
    limit: int = RESOURCES_PAGE
    cursor: int | None = None


class ResourceList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    resources: tuple[ResourceSummary, ...]
    next_cursor: int | None = None


class ApplyPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make the resource's spec this one, with the manager's code as it stands now. `dry_run`: only say what would be.

    `manager`: a name, or the path of a manager's file. What is being deleted takes no spec any more (`conflict`).
    """

    manager: PathText
    key: Name
    spec: msgspec.Raw = msgspec.field(default_factory=null)
    origin: Origin
    dry_run: bool = False


class Applied(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`unchanged`: all of it is as it was. `before`: the spec till now. `uid` is empty in a dry run."""

    uid: str
    manager: str
    key: str
    root: str
    change: Change
    state: ResourceState
    resource_version: int
    generation: int
    before: Value | None = None
    new_code: bool = False  # the manager's code is another than before
    new_environment: bool = False  # its interpreter, or a variable that it is given, is another
    warnings: tuple[str, ...] = ()


class ResourceChanged(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`note` says in words what happens next, where that is not plain."""

    uid: str
    manager: str
    key: str
    state: ResourceState
    resource_version: int
    generation: int
    note: str | None = None


class DeletePayload(ResourceRef, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finalize the resource and let it go. `children`: whether its runs are cancelled first, or go on.

    `abandon`: let it go at once, although what its finalizers stand for was not undone: a person's word alone.
    """

    children: Children = "cancel"
    abandon: bool = False
    note: Words | None = None


class PrintedReconcile(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of what one reconcile printed. `generation`: of its lease. `at_ms`: when it printed last."""

    generation: int
    at_ms: int
    out_bytes: int = 0
    err_bytes: int = 0


class PrintedReconciles(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Oldest first; only reconciles that have printed something, of which the newest are kept."""

    uid: str
    reconciles: tuple[PrintedReconcile, ...]


class ReadReconcilePrinted(ResourceRef, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of what a reconcile printed, from a byte offset."""

    generation: int
    stream: Literal["out", "err"]
    offset: int = 0


class ResourceEventsPayload(ResourceRef, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after_revision: int = 0
    limit: int = RESOURCES_PAGE


class ResourceEventPage(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Oldest first. The revision of an event is the resource version that it made."""

    uid: str
    events: tuple[EventView, ...]
    next_after: int | None = None


class ResourceWaitPayload(ResourceRef, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`settled`: its spec was reconciled, nothing is due. `gone`: it has been deleted. Both: or it needs a person."""

    until: Literal["settled", "gone"] = "settled"
    timeout_ms: int | None = None


class ResourceWaited(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`done` is False when the time ran out."""

    summary: ResourceSummary
    done: bool


class ManagerListPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    origin: Origin


class ManagerLine(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A manager's file. `error` is set where it does not load. `resources`: how many of it are not gone."""

    name: str
    path: str
    scope: Literal["project", "user"]
    doc: str = ""
    resources: int = 0
    every_ms: int | None = None
    watches: bool = False
    error: str | None = None
    hint: str | None = None


class ManagerList(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    root: str
    managers: tuple[ManagerLine, ...]


RESOURCE_OPERATIONS: dict[str, Operation] = {
    "manager.list": Operation(ManagerListPayload, ManagerList),
    "resource.apply": Operation(ApplyPayload, Applied, changes=True, guarded=True),
    "resource.list": Operation(ResourceListPayload, ResourceList),
    "resource.get": Operation(ResourceRef, ResourceView),
    "resource.printed": Operation(ResourceRef, PrintedReconciles),
    "resource.read_printed": Operation(ReadReconcilePrinted, PrintedPiece),
    "resource.events": Operation(ResourceEventsPayload, ResourceEventPage),
    "resource.reconcile": Operation(ResourceRef, ResourceChanged, changes=True, guarded=True),
    "resource.pause": Operation(ResourceRef, ResourceChanged, changes=True, guarded=True),
    "resource.resume": Operation(ResourceRef, ResourceChanged, changes=True, guarded=True),
    "resource.delete": Operation(DeletePayload, ResourceChanged, changes=True, guarded=True),
    "resource.wait": Operation(ResourceWaitPayload, ResourceWaited),
}
