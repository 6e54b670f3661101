"""One reconcile, from the daemon's message to its answer: the author's function is called once, and read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from pwf.errors import InvalidValue
from pwf.protocol.merge_patch import apply, diff
from pwf.protocol.reconcile import STATUS_BYTES_MAX, Reconcile, Reconciled, SaidEvent
from pwf.values import canonical
from pwf.workflow.reconcile_context import Outcome, ReconcileContext
from pwf.workflow.reconcile_port import ReconcilePort
from pwf.workflow.resource import Child, Condition, ReadValue, Resource
from pwf.workflow.resource_manager import ResourceManager, status_bytes

#: Calls an async function of the author's and waits for its end.
RunAsync = Callable[[Callable[..., Any], ReconcileContext, Resource[Any, Any]], object]


def reconcile_once(
    manager: ResourceManager[Any, Any],
    given: Reconcile,
    port: ReconcilePort,
    *,
    read_value: ReadValue,
    run_async: RunAsync,
    mark: Callable[[str], str],
    told: list[SaidEvent],
) -> Reconciled:
    """Call the manager's function. What it raises comes as it is, `EffectUnknown` included.

    `told`: gets what the function tells in the history, also when it raises.
    `mark`: what a watched path is like now, relative to the project's root. It is asked before anything else.

    Raises `InvalidValue` where what it returned is no outcome, or its status is not what the manager declares.
    """
    status = read_value(given.status)
    resource = _resource(manager, given, status, read_value)
    watch = {} if given.deleting else {path: mark(path) for path in manager.watched(resource.spec)}
    ctx = ReconcileContext(port, read_value, told)
    assert manager.fn is not None, "it was checked when the file was loaded"
    call = manager.fn if not manager.is_async else partial(run_async, manager.fn)
    outcome = call(ctx, resource)
    if not isinstance(outcome, Outcome):
        raise InvalidValue(
            f"reconcile of manager {manager.name!r} returned {outcome!r:.80}",
            hint="return ctx.settled(…) or ctx.requeue(…)",
        )
    return Reconciled(
        outcome=outcome.result,
        after_ms=outcome.after_ms,
        status=msgspec.Raw(_patch(manager, status, outcome.status)),
        conditions=tuple(one.said() for one in outcome.conditions),
        finalizers=outcome.finalizers,
        watch=watch,
        events=tuple(told),
    )


def _resource(
    manager: ResourceManager[Any, Any], given: Reconcile, status: bytes, read_value: ReadValue
) -> Resource[Any, Any]:
    try:
        spec, kept = manager.read_spec(read_value(given.spec)), manager.read_status(status)
    except msgspec.ValidationError as error:
        raise InvalidValue(
            f"resource {manager.name}/{given.key} does not fit the types of its manager any more: {error}",
            hint="give new fields a default; or apply a spec that fits",
        ) from error
    return Resource(
        manager=manager.name,
        key=given.key,
        uid=given.uid,
        spec=spec,
        status=kept,
        generation=given.generation,
        observed_generation=given.observed_generation,
        resource_version=given.resource_version,
        conditions={one.type: Condition.kept(one) for one in given.conditions},
        finalizers=given.finalizers,
        children={one.request_key: Child.of(one, read_value) for one in given.children},
        deleting=given.deleting,
        failures=given.failures,
        reasons=given.reasons,
    )


def _patch(manager: ResourceManager[Any, Any], before: bytes, said: Any) -> bytes:
    """The merge patch that a returned status means; `{}` where it changes nothing."""
    if said is None:
        return b"{}"
    what = f"the status of manager {manager.name!r}"
    old = msgspec.json.decode(before)
    if isinstance(said, dict):
        said_json = canonical(said, limit=STATUS_BYTES_MAX, what=what)
        after = status_bytes(apply(old, msgspec.json.decode(said_json)), what)
    else:
        after = status_bytes(said, what)
    new = msgspec.json.decode(after)
    if not isinstance(new, dict):
        raise InvalidValue(
            f"{what} is {said!r:.80}", hint="return its status type, or a dict to merge into it"
        )
    try:
        manager.read_status(after)
    except msgspec.ValidationError as error:
        raise InvalidValue(
            f"{what} would not be what it declares: {error}",
            hint="a field that may be None needs that as its default",
        ) from error
    return canonical(diff(old, new), what=what)
