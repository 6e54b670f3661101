"""Managed resources: applied, found by what people type, and what people do to one.

Promises: one living resource under a name; a spec that is the same changes nothing; the manager's initial status is
stored once in a life; a repeat gets its first answer.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Ambiguous, Conflict, DiskFull, InvalidArgument, NotFound, Rejected
from pwf.ids import check_id, check_key
from pwf.protocol.resources import (
    Applied,
    Change,
    DeletePayload,
    ResourceChanged,
    ResourceRef,
)
from pwf.store import moves
from pwf.store.children import cancel_children
from pwf.store.custody_rows import has_runner
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.resource_end import abandon, try_go
from pwf.store.resource_queue import enqueue
from pwf.store.resource_state import Event, Resource, load_resource, save, spec_of
from pwf.store.resource_wake import KIND, wake
from pwf.store.runs import RunEnvironment, environment_id_of, save_environment
from pwf.store.space import refuse_over_budget
from pwf.store.tx import Tx, subject
from pwf.store.values import value_of

Q = load_queries(__file__)

MATCHES_MAX = 4


class ApplyResource(msgspec.Struct, frozen=True, kw_only=True):
    """Make a resource's spec this one. `spec` and `initial_status` are canonical, and have been checked."""

    code: SaveDefinition
    environment: RunEnvironment
    manager: str
    key: str
    spec: bytes
    dry_run: bool = False
    expected_revision: int | None = None
    receipt: ReceiptKey | None = None
    actor: str = "client"
    state_bytes_max: int | None = None


def apply_resource(tx: Tx, command: ApplyResource) -> Done[Applied]:
    """Create the resource, change its spec, its manager's code or environment, or leave it as it is."""
    return once(tx, command.receipt, Applied, lambda: _apply(tx, command))


def _apply(tx: Tx, command: ApplyResource) -> tuple[Applied, bool]:
    check_id(command.manager, "manager")
    check_key(command.key, "key")
    row = tx.one(Q.alive, {"manager": command.manager, "key": command.key, "root": command.environment.root})
    if tx.disk_full:
        raise DiskFull("the disk is full: nothing is applied until there is space", hint="pwf state status")
    refuse_over_budget(tx, command.state_bytes_max)
    if row is None:
        return _create(tx, command), False
    return _change(tx, load_resource(tx, int(row[0])), command)


def _create(tx: Tx, command: ApplyResource) -> Applied:
    if command.expected_revision is not None:
        raise Conflict(
            f"there is no resource {command.manager}/{command.key} by now", hint="apply it without a version"
        )
    name = {"manager": command.manager, "key": command.key, "root": command.environment.root}
    if tx.one(Q.still_at_work, name) is not None:  # two lives of one name must not work on the same world
        raise Conflict(
            f"processes of {command.manager}/{command.key} as it was before are not proved dead yet",
            hint="apply it again in a moment; pwf doctor names those that do not end",
        )
    if command.dry_run:
        return _answer(command, "created", generation=1)
    uid = tx.ids.new()
    number = tx.create_entity(KIND, uid)
    graph = command.code.definition.graph
    assert graph.manager is not None, "what is applied has a manager"
    spec = moves.stored(tx, command.spec)
    status = moves.stored(tx, graph.manager.initial_status.encode())
    environment_id = _surroundings(tx, command)
    tx.run(
        Q.insert,
        {
            "resource_no": number,
            "uid": uid,
            "root": command.environment.root,
            "manager": command.manager,
            "key": command.key,
            "definition_id": command.code.definition.definition_id,
            "environment_id": environment_id,
            "spec": spec.inline,
            "spec_crc32": spec.crc32,
            "spec_digest": spec.digest,
            "status": status.inline,
            "status_crc32": status.crc32,
            "status_digest": status.digest,
            "conditions": b"[]",
            "now": tx.now.wall_ms,
        },
    )
    facts = {"manager": command.manager, "key": command.key, "generation": 1}
    tx.event(number, 1, "applied", command.actor, 0, facts)
    resource = load_resource(tx, number)
    enqueue(tx, resource, ["applied"])
    tx.changed(subject(KIND, uid))
    tx.changed("resources")
    return _answer(command, "created", resource=resource)


def _change(tx: Tx, resource: Resource, command: ApplyResource) -> tuple[Applied, bool]:
    before = spec_of(tx, resource)
    old_spec = value_of(resource.spec, resource.spec_digest, len(before))
    if resource.deleting_wall_ms is not None:
        raise Conflict(
            f"resource {resource.label} is being deleted",
            hint=f"wait until it is gone: pwf resource delete {resource.label} --wait",
        )
    new_spec = before != command.spec
    new_code = resource.definition_id != command.code.definition.definition_id
    new_environment = resource.environment_id != environment_id_of(command.environment)
    new = {"new_code": new_code, "new_environment": new_environment}
    generation = resource.spec_generation + new_spec
    expected = command.expected_revision
    if expected is not None and expected != resource.revision:
        raise Conflict(
            f"resource {resource.label} has version {resource.revision} by now; you expected {expected}",
            hint="look at it again, then repeat",
        )
    if not new_spec and not any(new.values()):
        return _answer(command, "unchanged", resource=resource, before=old_spec), True
    if command.dry_run:
        planned = _answer(command, "changed", resource=resource, before=old_spec, **new)
        return msgspec.structs.replace(planned, generation=generation), True
    if new_spec:
        stored = moves.stored(tx, command.spec)
        resource.spec, resource.spec_digest = stored.inline, stored.digest
        resource.spec_generation = generation
    if any(new.values()):
        resource.environment_id = _surroundings(tx, command)
        resource.definition_id = command.code.definition.definition_id
    resource.failures = resource.requeues = 0
    _lift_ambiguity(resource)
    save(tx, resource, [Event("applied", command.actor, {"generation": generation, **new})])
    wake(tx, resource.resource_no, "applied", hurried=True)
    resource = load_resource(tx, resource.resource_no)
    return _answer(command, "changed", resource=resource, before=old_spec, **new), False


def _surroundings(tx: Tx, command: ApplyResource) -> str:
    save_definition(tx, command.code)
    return save_environment(tx, command.environment)


def _answer(
    command: ApplyResource,
    change: Change,
    *,
    resource: Resource | None = None,
    generation: int = 0,
    **more: object,
) -> Applied:
    return Applied(
        uid="" if resource is None else resource.uid,
        manager=command.manager,
        key=command.key,
        root=command.environment.root,
        change=change,
        state="queued" if resource is None else resource.state,
        resource_version=0 if resource is None else resource.revision,
        generation=generation if resource is None else resource.spec_generation,
        **more,  # type: ignore[arg-type]
    )


def _lift_ambiguity(resource: Resource) -> None:
    """A new spec, or a person, has it looked at again; an effect that is still ambiguous says so then."""
    if resource.hold == "effect_ambiguous":
        resource.hold = resource.hold_detail = None


# --- finding --------------------------------------------------------------------------------------------------


class ResourceMeant(msgspec.Struct, frozen=True, kw_only=True):
    """What a person typed, with the project of their folder."""

    manager: str = ""
    key: str = ""
    uid: str | None = None
    root: str = ""


def meant(ref: ResourceRef, root: str) -> ResourceMeant:
    """A reference from the wire."""
    return ResourceMeant(manager=ref.manager, key=ref.key, uid=ref.uid, root=root)


def find_resource(tx: Tx, wanted: ResourceMeant) -> Resource:
    """The one that is meant. Raises `NotFound`, or `Ambiguous` with the first matches."""
    if wanted.uid is not None:
        return _by_uid(tx, wanted.uid)
    if not wanted.manager or not wanted.key:
        raise InvalidArgument("say which resource: a manager and a key, or a uid")
    named = {"manager": wanted.manager, "key": wanted.key}
    row = tx.one(Q.alive, {**named, "root": wanted.root})
    if row is not None:
        return load_resource(tx, int(row[0]))
    rows = tx.all(Q.alive_anywhere, {**named, "limit": MATCHES_MAX})
    if not rows:
        raise NotFound(
            f"there is no resource {wanted.manager}/{wanted.key}", hint="pwf resource ls lists the resources"
        )
    if len(rows) > 1:
        places = "; ".join(f"{root} ({uid})" for _, uid, root in rows)
        raise Ambiguous(
            f"several projects have a resource {wanted.manager}/{wanted.key}: {places}",
            hint="name it by its uid",
        )
    return load_resource(tx, int(rows[0][0]))


def _by_uid(tx: Tx, uid: str) -> Resource:
    if not uid or not uid.isascii():
        raise NotFound(f"there is no resource {uid!r}", hint="pwf resource ls lists the resources")
    rows = tx.all(Q.by_uid, {"low": uid, "high": uid + "\x7f", "limit": MATCHES_MAX})
    exact = [row for row in rows if row[1] == uid]
    if len(exact) == 1:
        rows = exact
    if not rows:
        raise NotFound(
            f"there is no resource whose uid begins with {uid!r}", hint="pwf resource ls lists the resources"
        )
    if len(rows) > 1:
        shown = ", ".join(str(name) for _, name in rows)
        raise Ambiguous(f"{uid!r} is the beginning of several uids: {shown}", hint="type more of it")
    return load_resource(tx, int(rows[0][0]))


# --- what people do to one ------------------------------------------------------------------------------------


class ControlResource(msgspec.Struct, frozen=True, kw_only=True):
    """`which`: the resource. `delete`: only of a delete."""

    which: ResourceMeant
    actor: str = "client"
    expected_revision: int | None = None
    delete: DeletePayload | None = None
    receipt: ReceiptKey | None = None


def reconcile_resource(tx: Tx, command: ControlResource) -> Done[ResourceChanged]:
    """Have it reconciled now."""
    return once(tx, command.receipt, ResourceChanged, lambda: _reconcile(tx, command))


def pause_resource(tx: Tx, command: ControlResource) -> Done[ResourceChanged]:
    """Nothing reconciles it until it is resumed; a reconcile that goes on is let end."""
    return once(tx, command.receipt, ResourceChanged, lambda: _pause(tx, command))


def resume_resource(tx: Tx, command: ControlResource) -> Done[ResourceChanged]:
    """Lift what keeps it back, and have it reconciled."""
    return once(tx, command.receipt, ResourceChanged, lambda: _resume(tx, command))


def delete_resource(tx: Tx, command: ControlResource) -> Done[ResourceChanged]:
    """Have it finalized, or abandon it."""
    return once(tx, command.receipt, ResourceChanged, lambda: _delete(tx, command))


def _reconcile(tx: Tx, command: ControlResource) -> tuple[ResourceChanged, bool]:
    resource = _living(tx, command)
    if resource.paused or resource.hold not in (None, "effect_ambiguous"):
        raise Rejected(
            f"resource {resource.label} is {resource.state}: {resource.hold_detail or 'nothing reconciles it'}",
            hint=f"pwf resource resume {resource.label}",
        )
    if resource.hold is not None:
        _lift_ambiguity(resource)
        save(
            tx,
            resource,
            [Event("requested", command.actor, {})],
            expected_revision=command.expected_revision,
        )
    elif command.expected_revision not in (None, resource.revision):
        tx.fence(resource.resource_no, expected_revision=command.expected_revision)
    wake(tx, resource.resource_no, "requested", hurried=True)
    note = "it is being reconciled, and will be once more" if resource.is_live else None
    return _changed(tx, resource, note), False


def _pause(tx: Tx, command: ControlResource) -> tuple[ResourceChanged, bool]:
    resource = _living(tx, command)
    if resource.paused:
        return _changed(tx, resource, "it is paused already"), True
    resource.paused = 1
    save(tx, resource, [Event("paused", command.actor, {})], expected_revision=command.expected_revision)
    note = None
    if resource.is_live:
        note = "the reconcile that goes on is let end"
    else:
        enqueue(tx, resource, [])  # which is: not, as long as it is paused
    return _changed(tx, resource, note), False


def _resume(tx: Tx, command: ControlResource) -> tuple[ResourceChanged, bool]:
    resource = _living(tx, command)
    if not resource.is_kept_back:
        return _changed(tx, resource, "nothing keeps it back"), True
    if resource.hold == "effect_ambiguous" and not resource.paused:
        raise Rejected(
            f"resource {resource.label} is ambiguous: {resource.hold_detail}",
            hint="find out what happened, then: pwf effects --ambiguous",
        )
    if resource.hold == "process_unreaped" and has_runner(tx, resource.resource_no):
        raise Rejected(
            f"processes of resource {resource.label} are not proved dead yet", hint="pwf doctor names them"
        )
    resource.paused = 0
    if resource.hold != "effect_ambiguous":
        resource.hold = resource.hold_detail = None
    resource.failures = resource.requeues = 0
    save(tx, resource, [Event("resumed", command.actor, {})], expected_revision=command.expected_revision)
    if not resource.is_live:
        enqueue(tx, resource, ["resumed"])
    return _changed(tx, resource, None), False


def _delete(tx: Tx, command: ControlResource) -> tuple[ResourceChanged, bool]:
    resource = _living(tx, command)
    asked = command.delete or DeletePayload()
    deleting = resource.deleting_wall_ms is not None
    if deleting and not asked.abandon:
        return _changed(tx, resource, "it is being deleted already"), True
    events: list[Event] = []
    if not deleting:
        resource.deleting_wall_ms, resource.children = tx.now.wall_ms, asked.children
        resource.failures = resource.requeues = 0
        _lift_ambiguity(resource)
        events.append(Event("deleting", command.actor, {"children": asked.children}))
        if asked.children == "cancel":
            cancel_children(tx, resource)
    elif asked.abandon and resource.children == "cancel":
        cancel_children(tx, resource)
    if asked.abandon:
        events += abandon(tx, resource, command.actor, asked.note)
    else:
        events += try_go(tx, resource, proved=not has_runner(tx, resource.resource_no))
    save(tx, resource, events, expected_revision=command.expected_revision)
    note = None
    if resource.gone_wall_ms is None:
        wake(tx, resource.resource_no, "deleting", hurried=True)
        if resource.paused or resource.hold is not None:
            note = (
                f"it is {resource.state}: pwf resource resume {resource.label} lets its manager finalize it"
            )
    return _changed(tx, resource, note), False


def _living(tx: Tx, command: ControlResource) -> Resource:
    resource = find_resource(tx, command.which)
    if resource.gone_wall_ms is not None:
        raise Rejected(f"resource {resource.label} is gone", hint="apply it anew")
    return resource


def _changed(tx: Tx, resource: Resource, note: str | None) -> ResourceChanged:
    now = load_resource(tx, resource.resource_no)
    return ResourceChanged(
        uid=now.uid,
        manager=now.manager,
        key=now.key,
        state=now.state,
        resource_version=now.revision,
        generation=now.spec_generation,
        note=note,
    )
