"""One reconcile in the store: what its process is told, and its one atomic finish with the end of its process.

Promises: only whoever still owns the lease is told anything, or changes anything. What a result means is decided in
`reconcile_result`.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost
from pwf.protocol.reconcile import Reconcile, Reconciled
from pwf.protocol.spawn import Identity
from pwf.store.children import children_of
from pwf.store.custody import runner_gone
from pwf.store.custody_rows import runner_is_live
from pwf.store.entity_kinds import RunnerGone
from pwf.store.launch import LaunchTerms
from pwf.store.queries import load_queries
from pwf.store.reconcile_result import finish
from pwf.store.resource_queue import LEASE_MS
from pwf.store.resource_state import manager_of, owned, save_quietly
from pwf.store.runners import Fence
from pwf.store.state import graph_of
from pwf.store.tx import Tx
from pwf.store.values import stored_value

Q = load_queries(__file__)

OUTPUT_BYTES_MAX = 4 * 1024 * 1024  # where no limit is configured


class ReconcileStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A process stands ready for a resource that was admitted. The ids: of what it was made from."""

    fence: Fence
    definition_id: str
    environment_id: str
    identity: Identity
    terms: LaunchTerms = LaunchTerms()


def reconcile_started(tx: Tx, command: ReconcileStarted) -> Reconcile | None:
    """Record custody, and say everything that the process needs. None: it is not to be reconciled now.

    Code that an apply has replaced since the admission sees no new spec, and leaves the wake-up to the new code.
    Raises `ClaimLost` where the resource has another owner by now.
    """
    resource = owned(tx, command.fence)
    if resource.is_kept_back or resource.gone_wall_ms is not None:
        return None
    if (command.definition_id, command.environment_id) != (resource.definition_id, resource.environment_id):
        return None
    runner_is_live(tx, resource.resource_no, resource.generation, command.identity)
    reasons = tuple(resource.reasons)
    tx.run(Q.told, {"resource_no": resource.resource_no})
    resource.reconciles += 1
    save_quietly(tx, resource)
    return Reconcile(
        uid=resource.uid,
        manager=resource.manager,
        key=resource.key,
        lease_generation=resource.generation,
        generation=resource.spec_generation,
        observed_generation=resource.observed_generation,
        resource_version=resource.revision,
        spec=stored_value(tx, resource.spec, resource.spec_digest),
        status=stored_value(tx, resource.status, resource.status_digest),
        conditions=tuple(resource.conditions),
        finalizers=tuple(resource.finalizers),
        children=children_of(tx, resource.resource_no),
        deleting=resource.deleting_wall_ms is not None,
        reasons=reasons,
        failures=resource.failures,
        deadline_ms=manager_of(tx, resource.definition_id).deadline_ms,
        root=resource.root,
        secrets=graph_of(tx, resource.definition_id).graph.secrets,
        output_folder=command.terms.output_of(resource.uid),
        output_bytes_max=command.terms.limits.get("output_bytes_max") or OUTPUT_BYTES_MAX,
        marker=command.terms.marker_of(resource.uid, resource.generation),
        memory_bytes_max=command.terms.limits.get("memory_bytes_max"),
    )


class RenewReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """The reconcile goes on."""

    fence: Fence


def renew_reconcile(tx: Tx, command: RenewReconcile) -> bool:
    """Renew its lease; False where the resource is somebody else's by now."""
    fence = command.fence
    return tx.try_renew_lease(
        fence.entity_no,
        generation=fence.generation,
        token=fence.token,
        until_awake_ms=tx.now.awake_ms + LEASE_MS,
    )


class ReconcileFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a reconcile whose process has said how it ended. `generation`: of the spec that it was told.

    `gone`: the end of its process.
    """

    fence: Fence
    generation: int
    result: Reconciled
    gone: RunnerGone


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """`counted` is False for a stale one."""

    counted: bool


def reconcile_finished(tx: Tx, command: ReconcileFinished) -> Finished:
    """Commit the result with the end of the process. A stale owner's changes nothing."""
    counted = True
    try:
        resource = owned(tx, command.fence)
    except ClaimLost:
        counted = False
    else:
        if resource.is_live:
            finish(tx, resource, command.generation, command.result, proved=command.gone.proved)
    runner_gone(tx, command.gone)
    return Finished(counted=counted)
