"""A storm of reconciles in virtual time: many resources, each touched again and again while what reconciles them dies.

As the other worlds, with the real actors and store. Nobody starts runs; processes are killed, the daemon crashes and
drains, wake-ups come late, and the rules of `managers` hold for every resource.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from pwf.protocol.reconcile import Reconcile
from tests.sim.auditor import Auditor
from tests.sim.clients import SimClient
from tests.sim.machine import Process
from tests.sim.managers import Managers
from tests.sim.mix import Mix
from tests.sim.virtual_time import sleep
from tests.sim.world import World

CLIENTS = 24
LOOK_EVERY = 200  # commits between two looks at every entity, which cost more the more there are
REST_S = 20.0
PAUSE_S = 1.0  # of a client between two touches: more come than are reconciled meanwhile, so many merge
SPECS = 5
TOUCHES_OF_SPEC = 0.3
RATES = {
    "runner_kill_every_s": 0.5,
    "crash_every_s": 40.0,
    "drain_every_s": 90.0,
    "runner_exit": 0.1,
    "step_fails": 0.1,
    "step_hangs": 0.02,
    "wake_lost": 0.2,
    "wake_late": 0.3,
    "reply_lost": 0.1,
    "request_doubled": 0.1,
    "slow_kill": 0.3,
    "stand_by": 0.3,
}


class StormAuditor(Auditor):
    """Looks at every entity now and then; how busy the store is says nothing here."""

    def look(self, life: Any) -> None:
        if life is None or self.commits % LOOK_EVERY == 0:
            super().look(life)
        else:
            self.commits += 1

    def time_passes(self) -> None:
        return None


class StormManagers(Managers):
    """`resources` of them, each touched `touches` times: by a change outside, or by another spec."""

    def __init__(self, world: Any, resources: int, touches: int) -> None:
        super().__init__(world)
        self.active = True
        self.reconciles = 0
        self.keys = [f"r{number}" for number in range(resources)]
        self._left = [key for key in self.keys for _ in range(touches)]
        self._chance.shuffle(self._left)

    async def _ensure_child(self, values: Any, told: Reconcile) -> None:
        """None: what runs do is only right where each commit is looked at. The other seeds have child runs."""

    async def make(self, client: SimClient) -> None:
        """Apply the next ones until all are there."""
        while self.keys:
            await self.apply(client, self.keys.pop(), 0)

    async def disturb(self, client: SimClient) -> None:
        """Touch the next one until every touch is made."""
        while self._left:
            key = self._left.pop()
            await sleep(self._chance.random() * PAUSE_S)
            if self._chance.random() < TOUCHES_OF_SPEC:
                await self.apply(client, key, self._chance.randrange(SPECS))
            else:
                await self.touch(client, key)

    async def reconcile(self, process: Any, stream: Any, values: Any, told: Any) -> None:
        self.reconciles += 1
        await super().reconcile(process, stream, values, told)


class ResourceStorm(World):
    """The world of one storm."""

    managers: StormManagers

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        resources: int,
        touches: int,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(seed, folder, tell=tell, mix=storm_mix())
        self.auditor = StormAuditor(self)
        self.managers = StormManagers(self, resources, touches)
        self.machine.reuses = lambda: False

    def start_process(self, process: Process, work: Any) -> None:
        """What has ended is forgotten: looking for a process costs more the more there were."""

        async def live() -> None:
            try:
                await work()
            finally:
                self._processes.start_soon(self._forget, process)

        super().start_process(process, live)

    async def _forget(self, process: Process) -> None:
        await process.ended.wait()
        self.machine.processes.pop(process.identity.pid, None)

    async def _serve_clients(self) -> None:
        for act in (self.managers.make, self.managers.disturb):
            async with trio.open_nursery() as clients:
                for number in range(CLIENTS):
                    clients.start_soon(act, SimClient(self, f"{act.__name__}{number}"))
        self.calm = True
        self.calm_since_ms = self.machine.true_ms
        self.gremlin.heal()

    async def _come_to_an_end(self) -> None:
        while self.auditor.rows("SELECT 1 FROM reconcile_queue LIMIT 1"):
            await sleep(REST_S)
        await super()._come_to_an_end()


def storm_mix() -> Mix:
    """No runs; many processes at once."""
    return Mix(
        runs=0,
        clients=0,
        capacity=16,
        lease_s=30.0,
        fault_s=3_600.0,
        pause_s=0.005,
        checkpoint_bytes=4 * 1024 * 1024,
        bounds=None,
        slow_commits=None,
        rates=dict(RATES),
    )
