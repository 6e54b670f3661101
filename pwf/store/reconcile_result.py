"""What the end of a reconcile means for its resource: a result that counts, one that is stale, a failure, a stop.

Promises: status, conditions, finalizers, events and the queue change together; a result for an older generation changes
nothing but the history, and is reconciled again at once. What is as it was makes neither a revision nor an event.
Every caller has made sure that the reconcile is the present one.
"""

from __future__ import annotations

from typing import Any

from pwf.errors import InvalidValue
from pwf.protocol.merge_patch import apply as merge
from pwf.protocol.reconcile import STATUS_BYTES_MAX, Reconciled, SaidEvent
from pwf.protocol.runner import StepError
from pwf.store import moves
from pwf.store.resource_effects import after_reconcile
from pwf.store.resource_end import try_go
from pwf.store.resource_queue import dequeue, enqueue
from pwf.store.resource_state import (
    INTERVAL,
    READY,
    Event,
    Resource,
    manager_of,
    save,
    save_quietly,
    set_finalizers,
    status_of,
)
from pwf.store.resource_wake import HURRIED
from pwf.store.resource_watch import take_watch
from pwf.store.state import encode
from pwf.store.tx import Tx
from pwf.values import canonical, parse, shortened

BACKOFF_MS_MIN = 1_000
BACKOFF_MS_MAX = 60_000
JITTER_STEPS = 1_024
REPEAT_MS_MIN = 1_000  # of a `requeue` that repeats without a new spec
MESSAGE_MAX = 1_000

#: Why `Ready` is False, by the code of what went wrong.
REASONS = {
    "environment_missing": "ManagerMissing",
    "load_failed": "ManagerBroken",
    "graph_error": "ManagerBroken",
    "runner_timed_out": "ReconcileTimedOut",
    "runner_crashed": "ReconcileDied",
}


def finish(tx: Tx, resource: Resource, told: int, result: Reconciled, *, proved: bool) -> None:
    """Commit a result for the spec of generation `told`. `proved`: its process, and all that it started, is dead."""
    resource.reconciled_wall_ms = tx.now.wall_ms
    if told != resource.spec_generation and result.outcome != "failed":
        held = after_reconcile(tx, resource, None, lifted=True)
        facts = {"generation": told, "present": resource.spec_generation, "outcome": result.outcome}
        _leave(tx, resource, 0, ["stale"])
        save(tx, resource, [Event("result_dropped", "daemon", facts), *held], generation=resource.generation)
        return
    if result.outcome == "failed":
        error = result.error or StepError(
            code="node_failed", message="its manager failed and did not say why"
        )
        failed(tx, resource, error, said=result.events)
        return
    events = _take(tx, resource, result)
    resource.failures, resource.error = 0, None
    if resource.observed_generation != told:
        resource.observed_generation = told
        resource.requeues = 0
        events.append(Event("observed", "manager", {"generation": told}))
    settled, lifted = result.outcome == "settled", resource.woken == HURRIED
    events += after_reconcile(tx, resource, None, settled=settled, lifted=lifted)
    take_watch(tx, resource, result.watch)
    _place(tx, resource, result)
    events += try_go(tx, resource, proved=proved)
    if events:
        save(tx, resource, events, generation=resource.generation)
    else:
        save_quietly(tx, resource)


def _take(tx: Tx, resource: Resource, result: Reconciled) -> list[Event]:
    """What the manager says, as far as it is another than before: one event for each sort of change."""
    events: list[Event] = []
    if result.status is not None:
        before = status_of(tx, resource)
        after = merged_status(before, bytes(result.status))
        if after != before:
            resource.status, resource.status_digest = moves.stored(tx, after)
            events.append(Event("status", "manager", {"bytes": len(after)}))
    events += _conditions(tx, resource, result)
    if result.finalizers is not None and list(result.finalizers) != resource.finalizers:
        set_finalizers(tx, resource, list(dict.fromkeys(result.finalizers)))
        events.append(Event("finalizers", "manager", {"finalizers": resource.finalizers}))
    return events + _history(result.events)


def _history(told: tuple[SaidEvent, ...]) -> list[Event]:
    """What the manager tells."""
    events: list[Event] = []
    for said in told:
        facts: dict[str, Any] = {"reason": said.reason, "message": said.message}
        if said.data is not None:
            facts["data"] = parse(bytes(said.data), what="event")
        events.append(Event("said", "manager", facts))
    return events


def _conditions(tx: Tx, resource: Resource, result: Reconciled) -> list[Event]:
    events: list[Event] = []
    now, generation = tx.now.wall_ms, resource.spec_generation
    said = [(one.type, one.status, one.reason, one.message) for one in result.conditions]
    if not any(one[0] == READY for one in said) and not resource.says_ready:
        if result.outcome == "settled":
            said.append((READY, "True", "Reconciled", ""))
        else:
            said.append((READY, "Unknown", "Requeued", "its manager asks to be called again"))
    for type_, status, reason, message in said:
        if resource.say(type_, status, reason, message, generation, now):
            facts = {"type": type_, "status": status, "reason": reason, "message": message}
            events.append(Event("condition", "manager", facts))
    return events


def merged_status(before: bytes, patch: bytes) -> bytes:
    """The status with a merge patch applied, as canonical JSON. Raises `InvalidValue` where it is too large."""
    document = merge(parse(before, what="status"), parse(patch, what="status"))
    try:
        return canonical(document, limit=STATUS_BYTES_MAX, what="status")
    except InvalidValue as error:
        raise InvalidValue(f"the manager's status: {error.message}") from error


def _place(tx: Tx, resource: Resource, result: Reconciled) -> None:
    """Where a resource stands after a reconcile that went well."""
    every_ms = manager_of(tx, resource.definition_id).every_ms
    if result.outcome == "settled":
        resource.requeues = 0
        _leave(tx, resource, every_ms, [INTERVAL])
        return
    delay_ms = result.after_ms or 0
    if delay_ms < REPEAT_MS_MIN and resource.requeues:
        delay_ms = REPEAT_MS_MIN
    resource.requeues += 1
    _leave(tx, resource, delay_ms, ["due"])


def _leave(tx: Tx, resource: Resource, delay_ms: int | None, reasons: list[str]) -> None:
    """End the reconcile's row: what has woken it meanwhile brings one more at once. `delay_ms` None: nothing is due."""
    woken, resource.queue_state = bool(resource.woken), None
    tx.release_lease(resource.resource_no)
    if woken:
        enqueue(tx, resource, [])
    elif delay_ms is None:
        dequeue(tx, resource)
    else:
        enqueue(tx, resource, reasons, delay_ms)


# --- failures -------------------------------------------------------------------------------------------------


def failed(tx: Tx, resource: Resource, error: StepError, *, said: tuple[SaidEvent, ...] = ()) -> None:
    """Book a failure of a reconcile whose lease is ours: `Ready` says so, and the next one waits longer."""
    reason = REASONS.get(error.code, "ReconcileFailed")
    message = shortened(error.message, MESSAGE_MAX)
    events = _history(said)
    is_hurried = resource.woken == HURRIED
    held = after_reconcile(tx, resource, error, lifted=is_hurried)
    if held:
        resource.error = encode(error)
        _leave(tx, resource, None, [])
        save(tx, resource, [*events, *held], generation=resource.generation)
        return
    if resource.say(READY, "False", reason, message, resource.spec_generation, tx.now.wall_ms):
        events.append(Event("failed", "daemon", {"reason": reason, "code": error.code, "message": message}))
    resource.failures += 1
    resource.error = encode(error)
    resource.requeues = 0
    if not is_hurried and resource.failures > 1:
        resource.woken = 0  # what has woken it is told with the next, but does not bring it before its time
    _leave(tx, resource, backoff_ms(tx, resource.failures), ["retry"])
    if events:
        save(tx, resource, events, generation=resource.generation)
    else:
        save_quietly(tx, resource)
        tx.changed(f"resource:{resource.uid}")


def backoff_ms(tx: Tx, failures: int) -> int:
    """From a second to a minute, with jitter, so that those that failed together don't come back together."""
    base: int = min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(failures - 1, 10))
    jitter = int(tx.ids.token(), 16) % JITTER_STEPS
    return min(BACKOFF_MS_MAX, base + base * jitter // (4 * JITTER_STEPS))


# --- ends that nobody is to blame for ---------------------------------------------------------------------------


def put_back(tx: Tx, resource: Resource) -> None:
    """The process was stopped with its daemon or machine, or was never told to begin: once more, at once."""
    held = after_reconcile(tx, resource, None, lifted=True)
    resource.woken = 1
    resource.reasons = [*resource.reasons, "restarted"]
    _leave(tx, resource, 0, [])
    if held:
        save(tx, resource, held, generation=resource.generation)
    tx.changed(f"resource:{resource.uid}")


def hold_unreaped(tx: Tx, resource: Resource) -> None:
    """Processes of its last reconcile are not proved dead: nobody reconciles it before a person has looked."""
    detail = "processes of its last reconcile could not be shown dead"
    resource.hold, resource.hold_detail = "process_unreaped", detail
    resource.say(READY, "False", "ProcessUnreaped", detail, resource.spec_generation, tx.now.wall_ms)
    _leave(tx, resource, None, [])
    save(tx, resource, [Event("held", "daemon", {"hold": "process_unreaped"})])
