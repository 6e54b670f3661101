"""The queue of reconciles: one row for each resource that is due or being reconciled, so wake-ups merge.

Promises: a wake-up is never lost (`resource_wake`). The cost of an admission does not grow with what is due later.
"""

from __future__ import annotations

import msgspec

from pwf.store import request_clock
from pwf.store.custody_rows import add_runner
from pwf.store.queries import load_queries
from pwf.store.resource_state import Resource
from pwf.store.resource_wake import KIND, merged, put_in_queue, take_from_queue
from pwf.store.state import encode
from pwf.store.tx import Tx, subject

Q = load_queries(__file__)

DUE_BATCH = 500  # rows that become due in one transaction; more follow in the next
LEASE_MS = 120_000


class AdmittedReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is ours now; `revision` is what it had then."""

    uid: str
    entity_no: int
    generation: int
    revision: int
    token: str
    definition_id: str
    environment_id: str

    @property
    def name(self) -> str:
        """What its entity is known by."""
        return self.uid


# --- due and not ------------------------------------------------------------------------------------------------


def enqueue(tx: Tx, resource: Resource, reasons: list[str], delay_ms: int = 0) -> None:
    """Make a resource due that is not being reconciled; under a hold or a pause it stays where it is."""
    if resource.is_kept_back:
        dequeue(tx, resource)
        return
    state = "later" if delay_ms > 0 else "ready"
    resource.reasons = merged(resource.reasons, *reasons)
    put_in_queue(tx, resource.resource_no, state, delay_ms, encode(resource.reasons))
    resource.queue_state = state
    tx.changed("queue")


def dequeue(tx: Tx, resource: Resource) -> None:
    """Nothing is due."""
    take_from_queue(tx, resource.resource_no)
    resource.queue_state = None


# --- admission ------------------------------------------------------------------------------------------------


def fire_due(tx: Tx) -> int:
    """What is due later and whose time has come; how many there were."""
    facts = {"wall_ms": tx.now.wall_ms, "elapsed_ms": tx.now.elapsed_ms, "limit": DUE_BATCH}
    return tx.run(Q.fire_by_wall, facts) + tx.run(Q.fire_by_elapsed, facts)


def waiting_ms(tx: Tx) -> int | None:
    """How long the first has been due that may be admitted; None: there is none."""
    row = tx.one(Q.first_ready)
    left_ms = None if row is None else request_clock.left_ms(tx, *row)
    return None if left_ms is None else max(0, -left_ms)


def ready_numbers(tx: Tx, limit: int) -> list[int]:
    """The next that may be admitted, in the order of their due times."""
    return [int(number) for (number,) in tx.all(Q.ready, {"limit": limit})] if limit > 0 else []


def admit_one(tx: Tx, resource_no: int, owner: str, epoch: int) -> AdmittedReconcile:
    """Take the lease, which is no change that anybody could see, and a place for the process."""
    token = tx.ids.token()
    revision, generation = tx.take_lease(
        resource_no,
        token=token,
        owner=owner,
        until_awake_ms=tx.now.awake_ms + LEASE_MS,
        counted=False,
    )
    tx.run(Q.make_live, {"resource_no": resource_no})
    add_runner(tx, resource_no, generation, epoch)
    row = tx.one(Q.admitted, {"resource_no": resource_no})
    assert row is not None
    uid, definition_id, environment_id = row
    tx.changed(subject(KIND, uid))
    tx.changed("resources")
    return AdmittedReconcile(
        uid=uid,
        entity_no=resource_no,
        generation=generation,
        revision=revision,
        token=token,
        definition_id=definition_id,
        environment_id=environment_id,
    )


def rebase(tx: Tx) -> int:
    """At start: relative times of an earlier boot go by the wall clock from now on."""
    return tx.run(Q.rebase, {"boot_id": tx.now.boot_id})
