"""Child runs of a managed resource: started once under a key of its manager, found again, cancelled.

Promises: the same key and the same wish give the same child, whatever has become of it, for as long as the resource
lives: of one that retention has removed a row is left, which answers (`run_kind`). Another wish under the key is a
conflict. A child that a person restarts goes on under its key.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import Conflict, Rejected
from pwf.protocol.reconcile import CHILDREN_TOLD_MAX
from pwf.protocol.resources import ChildView
from pwf.protocol.views import ENDED
from pwf.store.control import Control, cancel
from pwf.store.queries import load_queries
from pwf.store.resource_state import Event, Resource, note, owned
from pwf.store.runners import Fence
from pwf.store.runs import Call, StartRun, start_run
from pwf.store.state import shown_status
from pwf.store.tx import Row, Tx
from pwf.store.values import value_of

Q = load_queries(__file__)


class StopOf(NamedTuple):
    """A run that was cancelled as this revision: its process is still to be ended."""

    run_id: str
    revision: int


class FindChild(msgspec.Struct, frozen=True, kw_only=True):
    """The child under a key, if there is one. `fingerprint`: of what the manager asks for; None: any."""

    fence: Fence
    key: str
    fingerprint: str | None = None


def find_child(tx: Tx, command: FindChild) -> ChildView | None:
    """As it is now. `Conflict` where it was started for something else, `ClaimLost` where the resource is another's."""
    resource = owned(tx, command.fence)
    row = tx.one(Q.first, {"resource_no": resource.resource_no, "key": command.key})
    if row is None:
        return None
    run_id, fingerprint = row
    if command.fingerprint is not None and fingerprint != command.fingerprint:
        raise Conflict(
            f"the child under {command.key!r} is run {run_id}, which was started for another workflow or input",
            hint="let the key name the occasion: a counter in the status, say",
        )
    return _newest(tx, resource.resource_no, command.key)


class EnsureChild(msgspec.Struct, frozen=True, kw_only=True):
    """Start a child under a key, unless there is one. `start` has no `call` yet.

    `deleting`: whether the process was told that the resource is to go.
    """

    fence: Fence
    key: str
    fingerprint: str
    start: StartRun
    deleting: bool = False


def ensure_child(tx: Tx, command: EnsureChild) -> ChildView:
    """The child, started or found. Raises as `find_child` does, and what a start is refused for."""
    find = FindChild(fence=command.fence, key=command.key, fingerprint=command.fingerprint)
    found = find_child(tx, find)
    if found is not None:
        return found
    resource = owned(tx, command.fence)
    if resource.gone_wall_ms is not None:
        raise Rejected(f"resource {resource.label} is gone")
    if resource.deleting_wall_ms is not None and not command.deleting:  # nobody would ever cancel it
        raise Rejected(f"resource {resource.label} is being deleted by now: only its clean-up starts runs")
    call = Call(resource_no=resource.resource_no, key=command.key, fingerprint=command.fingerprint)
    done = start_run(tx, msgspec.structs.replace(command.start, call=call))
    facts = {"key": command.key, "run": done.unwrap().run_id, "workflow": command.start.workflow}
    note(tx, resource, [Event("child_started", "manager", facts)], generation=resource.generation)
    child = _newest(tx, resource.resource_no, command.key)
    assert child is not None, "it was started just now"
    return child


class CancelChild(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the child under a key."""

    fence: Fence
    key: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The child as it is now, None where there is none; and what is still to be stopped of it."""

    child: ChildView | None
    stop: StopOf | None = None


def cancel_child(tx: Tx, command: CancelChild) -> Cancelled:
    """One that has ended stays as it is."""
    resource = owned(tx, command.fence)
    child = _newest(tx, resource.resource_no, command.key)
    if child is None or child.status in ENDED:
        return Cancelled(child=child)
    stop = _cancel(tx, resource, child.run_id)
    return Cancelled(child=_newest(tx, resource.resource_no, command.key), stop=stop)


def cancel_children(tx: Tx, resource: Resource) -> tuple[StopOf, ...]:
    """Cancel all that go on."""
    running = [str(run_id) for (run_id,) in tx.all(Q.going_on, {"resource_no": resource.resource_no})]
    return tuple(_cancel(tx, resource, run_id) for run_id in running)


def _cancel(tx: Tx, resource: Resource, run_id: str) -> StopOf:
    reason = f"its resource {resource.label} wants it no more"
    control = Control(run_id=run_id, actor=f"resource:{resource.uid}", reason=reason)
    return StopOf(run_id, cancel(tx, control).unwrap().revision)


def has_child(tx: Tx, resource_no: int) -> bool:
    """Whether one goes on."""
    return tx.one(Q.going_on, {"resource_no": resource_no}) is not None


def children_of(tx: Tx, resource_no: int, limit: int = CHILDREN_TOLD_MAX) -> tuple[ChildView, ...]:
    """The newest run of each key, the newest first."""
    found: dict[str, ChildView] = {}
    for row in tx.all(Q.children, {"resource_no": resource_no, "limit": limit}):
        child = _child(row)
        found.setdefault(child.request_key, child)
    return tuple(found.values())


def stops_of(tx: Tx, uid: str) -> tuple[StopOf, ...]:
    """Children of a resource that were cancelled, and whose processes are still there."""
    return tuple(StopOf(str(run_id), int(revision)) for run_id, revision in tx.all(Q.to_stop, {"uid": uid}))


def _newest(tx: Tx, resource_no: int, key: str) -> ChildView | None:
    row = tx.one(Q.newest, {"resource_no": resource_no, "key": key})
    return None if row is None else _child(row)


def _child(row: Row) -> ChildView:
    _, key, run_id, workflow, status, hold, reason, restart_no, created, ended, output, digest, size = row
    return ChildView(
        request_key=key,
        run_id=run_id,
        workflow=workflow,
        status=shown_status(status, hold),  # type: ignore[arg-type]
        reason=reason,
        attempts=restart_no + 1,
        created_ms=created,
        ended_ms=ended,
        output=value_of(output, digest, size) if status == "completed" else None,
    )
