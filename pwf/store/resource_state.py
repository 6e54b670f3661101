"""A managed resource's mutable state, as one struct: loaded once per command, saved once with its events.

Promises: what can be seen changes only under the fence, with one event for each revision; what only counts (reconciles,
failures in a row) changes without one, and under the owner's lease. Nothing is written for what is the same as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pwf.errors import ClaimLost, NotFound, Rejected
from pwf.protocol.graph import ManagerSpec
from pwf.protocol.resources import Condition, ConditionStatus, ResourceState
from pwf.store import moves
from pwf.store.custody_rows import holds_lease
from pwf.store.queries import load_queries
from pwf.store.resource_wake import KIND
from pwf.store.runners import Fence
from pwf.store.state import encode, graph_of
from pwf.store.tx import Tx, subject
from pwf.store.values import load_value

Q = load_queries(__file__)

READY = "Ready"
EVENTS_KEPT = 1_000  # the newest ones, and all of the last 30 days: see `resource_retention`
INTERVAL = "interval"  # the reason of a reconcile that comes by `every=` alone

_conditions = msgspec.json.Decoder(list[Condition])
_reasons = msgspec.json.Decoder(list[str])

#: Reasons of the condition `Ready` that are the daemon's own words: another one is the manager's to take back.
OWN_REASONS = frozenset(
    {
        "Reconciled",
        "Requeued",
        "ReconcileFailed",
        "ReconcileDied",
        "ReconcileTimedOut",
        "ManagerMissing",
        "ManagerBroken",
        "EffectAmbiguous",
        "ProcessUnreaped",
    }
)


class Event(NamedTuple):
    """One entry of the history, and one revision."""

    kind: str
    actor: str
    payload: dict[str, Any]


class Resource(msgspec.Struct):
    """A resource's row with its entity's counters and its row in the queue. `generation` is that of its owner."""

    resource_no: int
    uid: str
    root: str
    manager: str
    key: str
    definition_id: str
    environment_id: str
    paused: int
    hold: str | None
    hold_detail: str | None
    spec: bytes | None
    spec_digest: str | None
    status: bytes | None
    status_digest: str | None
    conditions: Any
    spec_generation: int
    observed_generation: int
    error: bytes | None
    failures: int
    requeues: int
    reconciles: int
    reconciled_wall_ms: int | None
    deleting_wall_ms: int | None
    children: str | None
    created_wall_ms: int
    gone_wall_ms: int | None
    watch: str | None
    events_from: int
    trim_wall_ms: int | None
    revision: int
    generation: int
    lease_token: str | None
    queue_state: str | None
    due_wall_ms: int | None
    due_elapsed_ms: int | None
    due_boot_id: str | None
    reasons: Any
    woken: int | None
    finalizers: list[str] = []

    @property
    def is_live(self) -> bool:
        """Whether it is being reconciled."""
        return self.queue_state == "live"

    @property
    def is_kept_back(self) -> bool:
        """Whether nothing reconciles it before a person, or a word on an effect."""
        return bool(self.paused) or self.hold is not None

    @property
    def state(self) -> ResourceState:
        """Where it stands, as everybody sees it."""
        if self.queue_state == "later" and self.reasons == [INTERVAL]:
            return shown_state(
                self.gone_wall_ms, None, self.hold, self.paused
            )  # its manager has nothing to do
        return shown_state(self.gone_wall_ms, self.queue_state, self.hold, self.paused)

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.manager}/{self.key}"

    def condition(self, type_: str) -> Condition | None:
        """The one of a type."""
        return next((one for one in self.conditions if one.type == type_), None)

    def say(
        self, type_: str, status: ConditionStatus, reason: str, message: str, generation: int, now_ms: int
    ) -> bool:
        """Set a condition; whether anything of it is another than before."""
        before = self.condition(type_)
        since = before.changed_ms if before is not None and before.status == status else now_ms
        after = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            observed_generation=generation,
            changed_ms=since,
        )
        if after == before:
            return False
        if before is None:
            self.conditions.append(after)
        else:
            self.conditions[self.conditions.index(before)] = after
        return True

    @property
    def says_ready(self) -> bool:
        """Whether its manager says itself how it is."""
        ready = self.condition(READY)
        return ready is not None and ready.reason not in OWN_REASONS


def shown_state(
    gone_wall_ms: int | None, queue_state: str | None, hold: str | None, paused: int
) -> ResourceState:
    """The one word for where a resource stands."""
    if gone_wall_ms is not None:
        return "gone"
    if queue_state == "live":
        return "reconciling"
    if hold is not None:
        return "ambiguous" if hold == "effect_ambiguous" else "held"
    if paused:
        return "paused"
    return "settled" if queue_state is None else "queued"


def load_resource(tx: Tx, resource_no: int) -> Resource:
    """By its number. Raises `NotFound`, and `Rejected` where its row is damaged."""
    row = tx.one(Q.load, {"resource_no": resource_no})
    if row is None:
        raise NotFound(f"there is no resource {resource_no}")
    found = Resource(*row)
    try:
        found.conditions = _conditions.decode(found.conditions)
        found.reasons = [] if found.reasons is None else _reasons.decode(found.reasons)
    except (msgspec.MsgspecError, TypeError) as error:
        raise Rejected(
            f"the row of resource {found.uid} is damaged: {error}",
            hint="pwf state verify says what is wrong with it",
        ) from error
    found.finalizers = [str(name) for (name,) in tx.all(Q.finalizers, {"resource_no": resource_no})]
    return found


def owned(tx: Tx, fence: Fence) -> Resource:
    """The resource, if the lease is still the caller's; else `ClaimLost`."""
    if not holds_lease(tx, fence.entity_no, fence.generation, fence.token):
        raise ClaimLost(f"resource {fence.run_id} has another owner by now")
    return load_resource(tx, fence.entity_no)


def manager_of(tx: Tx, definition_id: str) -> ManagerSpec:
    """What the manager of a definition declares."""
    spec = graph_of(tx, definition_id).graph.manager
    if spec is None:
        raise Rejected(f"definition {definition_id} is no resource manager's")
    return spec


def save(
    tx: Tx,
    resource: Resource,
    events: Sequence[Event],
    *,
    generation: int | None = None,
    token: str | None = None,
    expected_revision: int | None = None,
) -> None:
    """Write what has changed, one revision for each event. Raises what `Tx.fence` does, and then nothing is written."""
    note(tx, resource, events, generation=generation, token=token, expected_revision=expected_revision)
    save_quietly(tx, resource)


def note(
    tx: Tx,
    resource: Resource,
    events: Sequence[Event],
    *,
    generation: int | None = None,
    token: str | None = None,
    expected_revision: int | None = None,
) -> None:
    """The revisions and events of `save`, where nothing of the row itself has changed. Raises as that does."""
    number = resource.resource_no
    expected = resource.revision if expected_revision is None else expected_revision
    first = tx.fence(number, generation=generation, token=token, expected_revision=expected)
    for place, event in enumerate(events):
        tx.event(number, first + place, event.kind, event.actor, resource.generation, event.payload)
    if len(events) > 1:
        tx.count_writes(number, len(events) - 1)
    resource.revision = first + len(events) - 1
    if resource.trim_wall_ms is None and resource.revision - resource.events_from >= EVENTS_KEPT:
        tx.run(Q.to_trim, {"resource_no": number, "events_from": resource.events_from})
    tx.changed(subject(KIND, resource.uid))
    tx.changed("resources")


def save_quietly(tx: Tx, resource: Resource) -> None:
    """Write the row without a revision: the caller has passed the fence, or owns it and changes counters alone."""
    facts = {name: getattr(resource, name) for name in _SAVED}
    tx.run(
        Q.save,
        {
            **facts,
            "resource_no": resource.resource_no,
            "spec_crc32": moves.Stored(resource.spec, resource.spec_digest).crc32,
            "status_crc32": moves.Stored(resource.status, resource.status_digest).crc32,
            "conditions": encode(resource.conditions),
        },
    )


_SAVED = (
    "definition_id",
    "environment_id",
    "paused",
    "hold",
    "hold_detail",
    "spec",
    "spec_digest",
    "status",
    "status_digest",
    "spec_generation",
    "observed_generation",
    "error",
    "failures",
    "requeues",
    "reconciles",
    "reconciled_wall_ms",
    "deleting_wall_ms",
    "children",
    "gone_wall_ms",
    "watch",
)


def set_finalizers(tx: Tx, resource: Resource, names: Sequence[str]) -> None:
    """All that are left."""
    drop_finalizers(tx, resource.resource_no)
    for place, name in enumerate(names):
        tx.run(Q.add_finalizer, {"resource_no": resource.resource_no, "place": place, "name": name})
    resource.finalizers = list(names)


def drop_finalizers(tx: Tx, resource_no: int) -> None:
    """Leave none."""
    tx.run(Q.drop_finalizers, {"resource_no": resource_no})


def spec_of(tx: Tx, resource: Resource) -> bytes:
    """The whole spec."""
    return load_value(tx, resource.spec, resource.spec_digest)


def status_of(tx: Tx, resource: Resource) -> bytes:
    """The manager's whole status."""
    return load_value(tx, resource.status, resource.status_digest)
