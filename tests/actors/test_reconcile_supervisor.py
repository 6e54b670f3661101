"""The supervisor of one reconcile: one result, committed once its process is proved dead, under a renewed lease."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pwf.actors.code.agents import Agents
from pwf.actors.resources.resource_manager_supervisor import RENEW_S, ResourceManagerSupervisor
from pwf.actors.runs.launching import Supervision
from pwf.config import Config
from pwf.protocol.reconcile import Reconcile, Reconciled
from pwf.protocol.runner import Leaving, Value
from pwf.store.launch import LaunchTerms
from pwf.store.reconciles import ReconcileFinished, ReconcileStarted, RenewReconcile
from pwf.store.resource_queue import AdmittedReconcile
from tests.actors.no_log import NoLog
from tests.actors.test_scheduler import Process

pytestmark = pytest.mark.trio

PROOF_S = 3.0
DEADLINE_S = 600.0
SETTLED = Reconciled(outcome="settled")
KNOWN: Any = SimpleNamespace(
    definition_id="d",
    environment_id="e",
    facts=SimpleNamespace(sources=(), root="/", isolate="fork"),
    environment=SimpleNamespace(interpreter="python", variables={}),
)


class Immortal(Process):
    """No signal ends it."""

    async def prove_dead(self, *, childless: bool, grace_s: float) -> bool:
        await super().prove_dead(childless=childless, grace_s=grace_s)
        return False


class Store:
    """Remembers what is written; whoever reconciles is told at once."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.is_owned = True

    async def write(self, _handler: Any, command: Any) -> Any:
        self.written.append(command)
        if isinstance(command, ReconcileStarted):
            spec = Value(json=b"{}", size=2)  # type: ignore[arg-type]
            return Reconcile(
                uid="u",
                manager="m",
                key="k",
                lease_generation=1,
                generation=1,
                observed_generation=0,
                resource_version=1,
                spec=spec,
                status=spec,
                deadline_ms=int(DEADLINE_S * 1_000),
            )
        return self.is_owned

    def of(self, kind: Any) -> list[Any]:
        return [command for command in self.written if isinstance(command, kind)]


class Asks:
    """Nothing is asked."""

    async def serve(self, *_: Any, **_more: Any) -> None:
        await trio.sleep_forever()


async def nobody(_run_id: str, _revision: int) -> None:
    """No child is cancelled here."""


class Reconciling:
    """A supervisor with its process, and what it wrote."""

    def __init__(self, process: Process) -> None:
        self.store = Store()
        self.process = process

        async def acquire(**_facts: Any) -> Process:
            return process

        world = Supervision(
            store=self.store,  # type: ignore[arg-type]
            pool=SimpleNamespace(acquire=acquire),  # type: ignore[arg-type]
            config=Config(),
            agents=Agents(Config(), Path("/nowhere/config.toml")),
            secrets_from=Path("/nowhere/config.toml"),
            log=NoLog(),
            terms=LaunchTerms(),
            draining=lambda: False,
            deadlines=None,  # type: ignore[arg-type]
            wake=lambda _who: None,
            stop_run=nobody,
        )
        admitted = AdmittedReconcile(
            uid="u", entity_no=1, generation=1, revision=1, token="t", definition_id="d", environment_id="e"
        )
        self.actor = ResourceManagerSupervisor(admitted, world, KNOWN, Asks())  # type: ignore[arg-type]

    @property
    def finished(self) -> list[ReconcileFinished]:
        return self.store.of(ReconcileFinished)

    async def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.actor.run)
        with trio.fail_after(1):
            await self.process.theirs.receive_some()


async def test_a_result_is_committed_when_its_process_is_proved_dead_and_not_before(nursery, autojump_clock):
    one = Reconciling(Process(100))
    one.process.proof_s = PROOF_S
    await one.begin(nursery)
    await one.process.say(SETTLED, Leaving(childless=False))
    await trio.sleep(PROOF_S / 2)
    assert (one.finished, one.actor.handle.is_proved) == ([], False)
    await trio.sleep(PROOF_S)
    assert [(done.result.outcome, done.gone.proved) for done in one.finished] == [("settled", True)]


async def test_a_process_that_is_not_proved_dead_is_committed_as_such_and_holds_its_seat(
    nursery, autojump_clock
):
    one = Reconciling(Immortal(100))
    await one.begin(nursery)
    await one.process.say(SETTLED, Leaving(childless=False))
    await trio.sleep(1)
    assert [done.gone.proved for done in one.finished] == [False]
    assert not one.actor.handle.is_gone


async def test_the_first_result_of_a_process_counts(nursery, autojump_clock):
    one = Reconciling(Process(100))
    await one.begin(nursery)
    await one.process.say(SETTLED, Reconciled(outcome="requeue"), Leaving(childless=True))
    await trio.sleep(1)
    assert [done.result.outcome for done in one.finished] == ["settled"]


async def test_its_lease_is_renewed_while_it_works(nursery, autojump_clock):
    one = Reconciling(Process(100))
    await one.begin(nursery)
    await trio.sleep(RENEW_S * 3.5)
    assert len(one.store.of(RenewReconcile)) == 3
    assert one.process.asked_childless == [], "it goes on"


async def test_a_process_whose_lease_somebody_else_has_is_ended(nursery, autojump_clock):
    one = Reconciling(Process(100))
    await one.begin(nursery)
    one.store.is_owned = False
    await trio.sleep(RENEW_S * 1.5)
    assert one.process.asked_childless == [False]
