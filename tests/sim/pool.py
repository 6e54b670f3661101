"""The simulated RunnerPool and Custody: the same calls as the real ones, on the simulated machine."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import trio
from trio.testing import memory_stream_pair

import pwf.watch
from pwf.actors.processes.custody import Sought, suspects, without_trace
from pwf.actors.processes.kept import Kept
from pwf.actors.processes.runner_pool import NO_PID
from pwf.actors.processes.standing_by import TemplateKey, template_key
from pwf.errors import EnvironmentMissing, LoadFailed, RunnerCrashed
from pwf.host import Bearer
from pwf.host.identity import Identity
from pwf.protocol.masking import Masks
from pwf.protocol.runner import WAITING_MARKER
from pwf.protocol.spawn import Resolved
from tests.actors.runner_stream import RunnerStream
from tests.sim.bounds import PROOF_TIMEOUT_S
from tests.sim.machine import Process
from tests.sim.runners import SimRunner
from tests.sim.virtual_time import sleep

REFUSALS = (LoadFailed, EnvironmentMissing, RunnerCrashed)
LEAVE_S = 1.0
POLL_S = 0.1


class SimCustody:
    """Proof by the process table of the simulated machine."""

    def __init__(self, world: Any, chance: random.Random, life: Any) -> None:
        self._world = world
        self._chance = chance
        self._life = life
        self._survived: set[Process] = set()

    async def prove_dead(
        self,
        runner: Identity,
        marker: str,
        *,
        died_tick: int | None = None,
        timeout_s: float = PROOF_TIMEOUT_S,
    ) -> bool:
        """Kill the runner and all bearers of its marker until none is left; False when the bound is over."""
        machine = self._world.machine
        await trio.lowlevel.checkpoint()
        if runner.pid > 0 and runner.boot_id != machine.boot_id:
            return True
        with trio.move_on_after(timeout_s):
            while True:
                found = self._suspects(runner, marker, died_tick)
                if not found:
                    return True
                for process in found:
                    ours = process.marker == marker or process.identity.is_same(runner)
                    self._world.auditor.check(ours, f"no stranger is killed for {marker}: {process}")
                    self._perhaps_survive(process)
                    later = process.epoch > self._life.epoch
                    rule = f"no daemon signals what a later one has started: {process}"
                    self._world.auditor.check(not later, rule)
                    process.kill()
                with trio.move_on_after(POLL_S):
                    await found[0].ended.wait()
        self._world.note("custody.unproved", marker=marker)
        self._world.auditor.holds.unproved(marker.split(":")[1])
        return False

    async def left_nothing(self, sought: Sequence[Sought]) -> list[bool]:
        """As `CustodyHandle.left_nothing`, by the product's own rule."""
        await trio.lowlevel.checkpoint()
        machine = self._world.machine
        bearers = [Bearer(p.identity, 0, p.marker) for p in machine.living() if p.identity.pid >= 0]
        earlier = [one.runner.pid > 0 and one.runner.boot_id != machine.boot_id for one in sought]
        clear = without_trace(bearers, sought)
        return [either or other for either, other in zip(earlier, clear, strict=True)]

    def _suspects(self, runner: Identity, marker: str, died_tick: int | None) -> list[Process]:
        """What the product's own rule says of the processes that a scan would find."""
        living = {p.identity: p for p in self._world.machine.living() if p.identity.pid >= 0}
        bearers = [Bearer(identity, 0, process.marker) for identity, process in living.items()]
        found = suspects(bearers, runner, marker, died_tick)
        return [living[identity] for identity in (*found.ours, *found.doubtful)]

    def _perhaps_survive(self, process: Process) -> None:
        """Once per process: it is in the kernel's hands for a while, and can't be ended."""
        if process.killed or process.immortal or process in self._survived:
            return
        self._survived.add(process)
        if self._chance.random() < self._world.rate("unprovable"):
            self._world.fault("unprovable", marker=process.marker)
            process.survive(self._chance.choice([2.0, 8.0, 20.0]))


class HeldRunner:
    """A runner as its daemon holds it."""

    died_of = "a fault"
    was_unfit = False

    def __init__(
        self, world: Any, pool: SimPool, key: TemplateKey, process: Process, stream: Any, values: Any
    ) -> None:
        self._world = world
        self._key = key
        self._pool = pool
        self._process = process
        self.identity = process.identity
        self.marker = process.marker
        self.stream = DaemonEnd(pool, process, stream)
        self.values = ValuesEnd(values)
        self.prints = SimpleNamespace(folder="", attempt=0, limit=0, masks=Masks())
        self.survivors = ()
        self.on_exit: Callable[[], object] | None = None
        process.on_ended = self._tell_exit

    def promise(self, marker: str) -> None:
        """The process is this run's, though it bears its marker only once it is launched."""
        self._process.promised = marker.split(":")[1]

    @property
    def alive(self) -> bool:
        """Whether the process is there; nobody may have noticed its end."""
        return self._process.alive

    @property
    def has_left(self) -> bool:
        """As `RunnerProcess.has_left`."""
        return not self._process.alive and not self._process.killed

    @property
    def goes_back(self) -> object:
        """As `RunnerProcess.goes_back`."""
        return self.stay

    def stay(self) -> None:
        """As `RunnerProcess.stay`."""
        last, self.marker, self.on_exit = self.marker, WAITING_MARKER, None
        if self._process.alive:
            self._world.auditor.stays(self._process, last, reads=not self.values.is_closed)
        self._pool.waiting.setdefault(self._key, []).append(self)

    def _tell_exit(self) -> None:
        if self.on_exit is not None:
            self.on_exit()

    async def last_words(self) -> int:
        """As `RunnerProcess.last_words`: nothing here prints."""
        return 0

    async def prove_dead(
        self, childless: bool = False, *, grace_s: float = 0.0, timeout_s: float = PROOF_TIMEOUT_S
    ) -> bool:
        """As `RunnerProcess.prove_dead`."""
        if childless or grace_s:
            with trio.move_on_after(LEAVE_S if childless else grace_s):
                await self._process.ended.wait()
            if childless and not self._process.alive:
                return True
        return await self._pool.custody.prove_dead(self.identity, self.marker, timeout_s=timeout_s)

    async def aclose(self) -> None:
        """Close both sockets."""
        self.close()

    def close(self) -> None:
        """The same at once, as when the daemon's process ends."""
        self.on_exit = None
        self.stream.close()
        _close(self.values.stream)
        self._pool.held.pop(self, None)


class ValuesEnd:
    """The daemon's end of the stream for values. `is_closed`: by whoever serves it, and not with the daemon."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.is_closed = False
        self.send_all, self.receive_some = stream.send_all, stream.receive_some

    async def aclose(self) -> None:
        """Close, and remember it."""
        self.is_closed = True
        await self.stream.aclose()


class DaemonEnd(RunnerStream):
    """The daemon's end of a runner's message stream. It may die before or after it says something."""

    async def send_within(self, data: bytes, seconds: float) -> bool:
        taken = await super().send_within(data, seconds)
        if not taken:  # the daemon ends a runner that takes nothing, and books that as the runner's own end
            self._process.died = True
        return taken

    def __init__(self, pool: SimPool, process: Process, stream: Any) -> None:
        super().__init__(stream)
        self._process = process
        self._is_broken = False
        self._life = pool.life

    async def send_all(self, data: bytes) -> None:
        self._life.perhaps_crash("before send")
        if self._is_broken:
            raise trio.BrokenResourceError
        self._is_broken = breaks = self._life.happens("send_breaks")
        if not breaks or self._life.happens("send_breaks"):
            await super().send_all(data)
        if breaks:
            self._process.died = True
            self._process.kill_s = max(self._process.kill_s, 1.0)  # it may go on for a while
            self._process.kill()
            raise trio.BrokenResourceError
        self._life.perhaps_crash("after send")


def _close(stream: Any) -> None:
    stream.send_stream.close()
    stream.receive_stream.close()


class SimReserved:
    """As `Reserved`."""

    def __init__(self, pool: SimPool, key: TemplateKey, held: HeldRunner) -> None:
        self.process = held
        self._pool = pool
        self._key = key

    def take(self, marker: str) -> HeldRunner:
        """It is a run's from now on."""
        self.process.marker = marker
        self.process.promise(marker)
        self._pool.stand_by(self._key)
        return self.process

    def put_back(self) -> None:
        """Nobody needed it."""
        self._pool.waiting.setdefault(self._key, []).append(self.process)


class SimPool:
    """What the Scheduler and the RunSupervisors need of a RunnerPool, for one life of the daemon."""

    def __init__(self, world: Any, life: Any) -> None:
        self._world = world
        self.life = life
        self._chance = world.stream(f"pool:{life.number}")
        self.custody = SimCustody(world, self._chance, life)
        self.held: dict[HeldRunner, None] = {}
        self.waiting: dict[TemplateKey, list[HeldRunner]] = {}
        self.kept = Kept()
        self._loaded: set[str] = set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Everything happens in the tasks of the machine."""
        task_status.started()
        await trio.sleep_forever()

    def runners(self) -> list[tuple[str, Identity]]:
        """As `RunnerPool.runners`."""
        return []

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        """What a resolver would say of the seed's workflow."""
        if path == self._world.managers.path:
            model, watch = self._world.managers, {}
        else:  # as it stands when it is read, which may be edited before the answer is there
            model, watch = self._world.models[Path(path).stem], {path: pwf.watch.mark_of(path)}
        await sleep(self._chance.random() * 0.02)
        return Resolved(call=0, definition=model.definition, texts=model.texts, watch=watch)

    async def acquire(
        self,
        *,
        bundle_key: str,
        load_bundle: Callable[[], Awaitable[Any]],
        interpreter: str,
        environment: dict[str, str],
        root: str,
        marker: str,
        isolate: str = "fork",
    ) -> HeldRunner:
        """A new process that waits for its launch."""
        await sleep(self._chance.random() * 0.05)
        if bundle_key not in self._loaded:
            bundle = await load_bundle()
            self._world.auditor.code.loaded(bundle_key, bundle)
            self._loaded.add(bundle_key)
        if self._chance.random() < self._world.rate("runner_exit"):
            raise RunnerCrashed("the template ended")
        if self._chance.random() < self._world.rate("launch_refused"):
            refusal = self._chance.choice(REFUSALS)
            self._world.fault("launch_refused", marker=marker)
            self._world.auditor.holds.launch_refused(marker.split(":")[1], refusal.code)
            raise refusal("it can't be launched just now")
        key = template_key(interpreter, bundle_key, environment)
        held = self._start(key, marker)
        try:
            await sleep(self._chance.random() * 0.02)
        except trio.Cancelled:  # as the pool promises: who is cancelled leaves no process behind
            held.close()
            raise
        self.stand_by(key)
        return held

    async def prove_dead(
        self, identity: Identity, marker: str, *, timeout_s: float = PROOF_TIMEOUT_S
    ) -> bool:
        """As `RunnerPool.prove_dead`, which only recovery asks."""
        self._no_supervisor_has(identity, marker)
        if any(held.identity == identity and held.marker != marker for held in self.held):
            identity = msgspec.structs.replace(identity, pid=NO_PID, session=NO_PID)
        return await self.custody.prove_dead(identity, marker, timeout_s=timeout_s)

    async def left_nothing(self, sought: Sequence[Sought]) -> list[bool]:
        """As `RunnerPool.left_nothing`."""
        for one in sought:
            self._no_supervisor_has(one.runner, one.marker)
        return await self.custody.left_nothing(sought)

    def _no_supervisor_has(self, identity: Identity, marker: str) -> None:
        is_held = any(
            held.alive and held.marker == marker and held.identity.is_same(identity) for held in self.held
        )
        self._world.auditor.endings.recovers(marker, is_held=is_held)

    def reserve(self, key: TemplateKey) -> SimReserved | None:
        """As `RunnerPool.reserve`."""
        waiting = self.waiting.get(key, [])
        while waiting:
            held = waiting.pop()
            if held.alive or self._chance.random() < 0.5:  # the end of one may not be known yet
                return SimReserved(self, key, held)
            held.close()
        return None

    def stand_by(self, key: TemplateKey) -> None:
        """Perhaps have a process wait for the next run."""
        if self._chance.random() < self._world.rate("stand_by") and not self.waiting.get(key):
            self.waiting.setdefault(key, []).append(self._start(key, WAITING_MARKER))

    def _start(self, key: TemplateKey, marker: str) -> HeldRunner:
        """A process that waits for its launch."""
        process = self._world.machine.add_process(marker)
        process.epoch, process.code = self.life.epoch, key[1]
        if self._chance.random() < self._world.rate("slow_kill"):
            process.kill_s = self._chance.random() * 4.0
        ours, theirs = memory_stream_pair()
        values, their_values = memory_stream_pair()
        held = HeldRunner(self._world, self, key, process, ours, values)
        self.held[held] = None
        runner = SimRunner(self._world, process, theirs, their_values)

        async def live() -> None:
            try:
                await runner.run()
            finally:
                _close(theirs)
                _close(their_values)

        self._world.start_process(process, live)
        return held

    def close_all(self) -> None:
        """The daemon's process has ended: the kernel closes what it held."""
        for held in list(self.held):
            held.close()
