"""Managed resources in a store with a clock: everything that happens to one, as short calls, without any process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import msgspec

from pwf.protocol.graph import ManagerSpec, WorkflowGraph
from pwf.protocol.reconcile import Reconcile, Reconciled, SaidCondition, SaidEvent
from pwf.protocol.resources import Condition, DeletePayload, ResourceEventsPayload, ResourceView
from pwf.protocol.runner import BeginPart, PartAnswer, SettlePart, StepError
from pwf.protocol.spawn import Identity
from pwf.store.custody import runner_gone
from pwf.store.entity_kinds import RunnerGone
from pwf.store.read_resources import ResourceEventsQuery, ResourceQuery, resource_events, resource_view
from pwf.store.reconciles import ReconcileFinished, ReconcileStarted, reconcile_finished, reconcile_started
from pwf.store.resource_effects import ReconcilePart, reconcile_part
from pwf.store.resource_queue import AdmittedReconcile
from pwf.store.resources import ApplyResource, ControlResource, ResourceMeant, apply_resource
from pwf.store.runners import Fence
from pwf.values import canonical
from tests.store.world import ENVIRONMENT, World, value

_pids = itertools.count(50_000)


def manager(name: str = "mirror", **more: Any) -> WorkflowGraph:
    """What a manager's file declares."""
    return WorkflowGraph(name=name, start="", nodes=(), manager=ManagerSpec(**more))


def raw(data: object) -> msgspec.Raw:
    return msgspec.Raw(canonical(data))


def said(type_: str, status: Any, reason: str = "Said", message: str = "") -> SaidCondition:
    return SaidCondition(type=type_, status=status, reason=reason, message=message)


def told(reason: str, **data: Any) -> SaidEvent:
    return SaidEvent(reason=reason, data=raw(data))


class Resources:
    """The resources of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.manager = manager()

    def apply(self, key: str = "a", spec: object = None, **more: Any) -> Any:
        command = ApplyResource(
            code=self.world.code(more.pop("graph", self.manager)),
            environment=more.pop("environment", ENVIRONMENT),
            manager=self.manager.name,
            key=key,
            spec=canonical({} if spec is None else spec),
            actor="client:ann",
            **more,
        )
        return self.world.do(apply_resource, command)

    def control(self, handler: Any, uid: str, **more: Any) -> Any:
        command = ControlResource(which=ResourceMeant(uid=uid), actor="client:ann", **more)
        return self.world.do(handler, command)

    def delete(self, uid: str, **more: Any) -> Any:
        from pwf.store.resources import delete_resource

        return self.control(delete_resource, uid, delete=DeletePayload(**more))

    def view(self, uid: str) -> ResourceView:
        query = ResourceQuery(which=ResourceMeant(uid=uid))
        return self.world.read(resource_view, query)  # type: ignore[no-any-return]

    def state(self, uid: str) -> str:
        return self.view(uid).summary.state

    def ready(self, uid: str) -> tuple[str, str]:
        summary = self.view(uid).summary
        return summary.ready, summary.reason

    def status(self, uid: str) -> Any:
        return msgspec.json.decode(self.view(uid).status.json)  # type: ignore[arg-type]

    def condition(self, uid: str, type_: str) -> Condition | None:
        return next((one for one in self.view(uid).conditions if one.type == type_), None)

    def events(self, uid: str) -> list[str]:
        query = ResourceEventsQuery(which=ResourceMeant(uid=uid), payload=ResourceEventsPayload(limit=1_000))
        return [event.kind for event in self.world.read(resource_events, query).events]

    def admit(self, limit: int = 1) -> tuple[AdmittedReconcile, ...]:
        """Reconciles alone, whoever's turn it is."""
        return self.world.admission(limit, reconciles_only=True).reconciles

    def launch(self, uid: str | None = None) -> Reconciling:
        """Admit the next reconcile (`uid` says whose it must be), and tell its process."""
        admitted = self.admit()
        assert admitted, "no reconcile was admitted"
        assert uid is None or admitted[0].uid == uid, admitted[0]
        return self.begin(admitted[0])

    def begin(self, admission: AdmittedReconcile) -> Reconciling:
        fence = Fence(
            run_id=admission.uid,
            entity_no=admission.entity_no,
            generation=admission.generation,
            token=admission.token,
        )
        pid = next(_pids)
        identity = Identity(pid=pid, start_tick=pid, boot_id=self.world.clock.boot_id, session=pid)
        started = ReconcileStarted(
            fence=fence,
            definition_id=admission.definition_id,
            environment_id=admission.environment_id,
            identity=identity,
        )
        return Reconciling(self, fence, self.world.do(reconcile_started, started))

    def settle(self, uid: str, **more: Any) -> None:
        """One reconcile that goes well."""
        self.launch(uid).end(**more)


@dataclass
class Reconciling:
    """The process of one reconcile."""

    resources: Resources
    fence: Fence
    told: Reconcile | None

    def end(
        self, outcome: Any = "settled", *, generation: int | None = None, proved: bool = True, **said: Any
    ) -> bool:
        """Say the result, and leave, unless it is not `proved`. Whether it counted."""
        assert self.told is not None, "it was told nothing"
        if "status" in said:
            said["status"] = raw(said["status"])
        finished = ReconcileFinished(
            fence=self.fence,
            generation=self.told.generation if generation is None else generation,
            result=Reconciled(outcome=outcome, **said),
            gone=self.gone(proved=proved),
        )
        return bool(self.resources.world.do(reconcile_finished, finished).counted)

    def fail(self, message: str = "it broke", code: str = "node_failed", **more: Any) -> bool:
        return self.end("failed", error=StepError(code=code, message=message), **more)

    def die(self, **more: Any) -> None:
        """End without a result."""
        self.resources.world.do(runner_gone, self.gone(**more))

    def gone(self, **more: Any) -> RunnerGone:
        facts: dict[str, Any] = {"proved": True, **more}
        return RunnerGone(
            entity_no=self.fence.entity_no,
            kind="resource",
            name=self.fence.run_id,
            generation=self.fence.generation,
            **facts,
        )

    def begins(self, part: str, request: object = None, **more: Any) -> PartAnswer:
        facts: dict[str, Any] = {"kind": "write", "mode": "manual", **more}
        return self._ask(BeginPart(attempt=1, part=part, request=value(request), **facts))

    def settles(self, part: str, status: Any = "applied", output: object = None) -> PartAnswer:
        return self._ask(SettlePart(attempt=1, part=part, status=status, output=value(output)))

    def _ask(self, call: BeginPart | SettlePart) -> PartAnswer:
        command = ReconcilePart(fence=self.fence, call=call)
        return self.resources.world.do(reconcile_part, command)  # type: ignore[no-any-return]
