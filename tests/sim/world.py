"""One simulated world: machine, disk, outside, daemon lives, runners, clients, faults and the auditor.

The seed draws a mix, and the world goes through three phases: faults; calm, in which everything must move to an
end; and a last look. Seams for what comes later: a further kind of process or client joins in `_live_through`.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from pwf.config import Agent, Config
from pwf.protocol.frames import Request, Response
from pwf.store.database import open_writer
from tests.sim import bounds, branches
from tests.sim.agents import SimAgent
from tests.sim.auditor import Auditor, Violation
from tests.sim.channels import SimChannels
from tests.sim.clients import SimClient
from tests.sim.code import Code
from tests.sim.determinism import no_collection, pinned_scheduler, stream_of
from tests.sim.disk import Disk
from tests.sim.faults import Gremlin
from tests.sim.life import Life
from tests.sim.machine import Machine, Process
from tests.sim.managers import Managers
from tests.sim.mix import Mix, draw_mix
from tests.sim.outside import Outside
from tests.sim.people import Latecomer, SimPerson
from tests.sim.reached import Reached
from tests.sim.sessions import serve_sessions
from tests.sim.settings import SimChanger
from tests.sim.virtual_time import VirtualTime, sleep
from tests.sim.watcher import Watcher
from tests.sim.workload import WorkflowModel

CHANGERS = 2  # of settings
AGENTS = 2  # that submit for the same requests
PEOPLE = 2  # who decide the same decisions
CALM_S_MAX = 3_600.0
ANSWERS_S_MAX = 600.0  # after the faults
TIDY_S = 5.0
RESTART_S_MAX = 3.0
FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else None

_fresh_database: bytes | None = None


@dataclass
class Result:
    """What a seed came to."""

    seed: int
    mix: Mix
    violation: str | None = None
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    commits: int = 0
    trace: list[str] = field(default_factory=list)
    reached: Reached = field(default_factory=Reached)


class World:
    """Everything that one seed decides."""

    def __init__(
        self, seed: int, folder: Path, *, tell: Callable[[str], None] | None = None, mix: Mix | None = None
    ) -> None:
        self.seed = seed
        self.folder = folder
        self.database = folder / "pwf.db"
        self.mix = mix or draw_mix(self.stream("mix"))
        self.calm = False
        self.calm_since_ms = 0  # true time
        self.starts_left = self.mix.runs
        self.channels = SimChannels(self)
        self.config = Config(
            max_runners=self.mix.capacity,
            lease_s=self.mix.lease_s,
            lease_renew_s=self.mix.lease_s / 3,
            drain_s=2.0,
            stop_grace_s=1.0,
            agents={"sim": Agent(command=("sim",))},
            channels=self.channels.configured,
            audiences=self.channels.audiences,
        )
        chance = self.stream("workload")
        self.code = Code(self, seed, chance)
        self.models = self.code.current
        self.managers = Managers(self)
        self.machine = Machine()
        reuse = self.stream("pids")
        self.machine.reuses = lambda: reuse.random() < self.rate("pid_reuse")
        self.outside = Outside()
        self.uploaded: set[str] = set()  # names of values
        self.disk = Disk(folder, self.stream("disk"), loses_power=self.mix.loses_power)
        self.auditor = Auditor(self)
        self.life: Life | None = None
        self.lives = 0
        self.alive: list[Life] = []
        self.violation: str | None = None
        self.faults: Counter[str] = Counter()
        self.events = 0
        self.trace: list[str] = []
        self.power_fails = False
        self._death: str | None = None  # the boot in which the last daemon died by itself
        self.reached = Reached()
        self.gremlin = Gremlin(self)
        self._watcher = Watcher(self)
        self._tell = tell
        self._network = self.stream("network")

    # --- for every part -----------------------------------------------------------------------------------

    def stream(self, name: str) -> random.Random:
        """A source of randomness of this seed."""
        return stream_of(self.seed, name)

    def model_of(self, definition: str) -> WorkflowModel:
        """The plain model of a definition."""
        return self.code.known[definition]

    def rate(self, fault: str) -> float:
        """The strength of a fault now."""
        return 0.0 if self.calm else self.mix.rate(fault)

    def note(self, event: str, **facts: object) -> None:
        """One line of the trace."""
        self.events += 1
        line = f"{trio.current_time():10.3f} {event} " + " ".join(f"{k}={v}" for k, v in facts.items())
        self.trace.append(line)
        if self._tell is not None:
            self._tell(line)

    def fault(self, kind: str, **facts: object) -> None:
        """A fault happens."""
        self.faults[kind] += 1
        self.note("FAULT." + kind, **facts)

    # --- processes ----------------------------------------------------------------------------------------

    def start_process(self, process: Process, work: Callable[[], Awaitable[None]]) -> None:
        """Run a process until its work is done or it is killed."""

        async def live() -> None:
            try:
                with process.scope:
                    await work()
            finally:
                process.ended.set()
                if process.on_ended is not None:
                    process.on_ended()
                self.note("process.ended", marker=process.marker, pid=process.identity.pid)

        self.note("process.started", marker=process.marker, pid=process.identity.pid)
        self._processes.start_soon(live)

    def apply(self, process: Process, node: Any, effect_key: str) -> None:
        """A process does something to the outside world."""
        self.note("outside.applied", effect=effect_key, pid=process.identity.pid)
        self.auditor.applies(process, node, effect_key)
        self.outside.apply(effect_key)

    # --- clients ------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response | None:
        """Send a request to whoever serves; None when no answer came."""
        chance = self._network
        await sleep(chance.random() * 0.02)
        if chance.random() < self.rate("late_message"):
            await sleep(chance.random() * 5.0)
        life = self.life
        if life is None or not life.serving:
            return None
        answers: list[Response] = []
        answered, scope = life.door.begin(request, answers)
        if chance.random() < self.rate("request_doubled"):
            life.door.begin(request, answers)
        if chance.random() < self.rate("disconnect"):
            await sleep(chance.random() * 0.1)
            scope.cancel()
            self.fault("disconnect", request=request.request_id)
            return None
        await answered.wait()
        if not answers or chance.random() < self.rate("reply_lost"):
            return None
        return answers[0]

    # --- the daemon ---------------------------------------------------------------------------------------

    async def _keep_daemon(self) -> None:
        chance = self.stream("restarts")
        while True:
            await self.live_once()
            await sleep(chance.random() * RESTART_S_MAX)
            while self.life is not None:  # a second daemon serves
                await self.life.over.wait()
                await sleep(0.1)

    async def live_once(self) -> None:
        """One life of the daemon, and what its end means for the disk."""
        self.lives += 1
        life = self.life = Life(self, self.lives)
        self.alive.append(life)
        self.note("daemon.starts", life=life.number)
        self.auditor.waits.begins()
        outcome = await life.run()
        self.alive.remove(life)
        self.note("daemon.ended", life=life.number, outcome=outcome)
        if outcome == "died":
            self.auditor.daemon_died(life, life.cause)
        by_itself = life.died_by_itself or outcome == "died"
        self._death = self.machine.boot_id if by_itself and not self.alive else None
        if self.life is life:
            self.life = self.alive[-1] if self.alive else None
        if self.power_fails and not self.alive:
            self.auditor.detach()
            self.disk.lose_power()
            self.power_fails = False

    def step_kills_daemon(self, run_id: str) -> None:
        """A step brings down the daemon that serves."""
        if self.life is not None:
            self.fault("killed_by_step", run=run_id, life=self.life.number)
            self.life.died_by_itself = True
            self.life.crash()

    def take_death(self) -> bool:
        """Whether the last daemon died by itself, in this boot. Who starts looks once."""
        death, self._death = self._death, None
        return bool(death == self.machine.boot_id and len(self.alive) == 1)

    # --- the seed -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """All phases. Raises `Violation`."""
        self.write_turn = trio.Lock()
        self._whole = trio.CancelScope()
        try:
            with self._whole:
                async with trio.open_nursery() as self._processes:
                    await self._live_through()
                    self._processes.cancel_scope.cancel()
        except BaseException:
            if self.violation is None:
                raise
        if self.violation is not None:
            raise Violation(self.violation)

    def fail(self, text: str) -> None:
        """A rule is broken: the first one ends the seed."""
        if self.violation is None:
            self.violation = text
            self.note("VIOLATION", text=text)
            self._whole.cancel()

    async def _live_through(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_daemon)
            nursery.start_soon(self.gremlin.run)
            nursery.start_soon(self.channels.press)
            if self.code.every_s is not None:
                nursery.start_soon(self.code.run)
            if self.mix.rate("watched"):
                nursery.start_soon(self._watcher.run)
            with trio.move_on_after(self.mix.fault_s + ANSWERS_S_MAX) as patience:
                await self._serve_clients()
            self.auditor.check(not patience.cancelled_caught, "every client gets its answers")
            await self._come_to_an_end()
            nursery.cancel_scope.cancel()
        await self._last_look()

    async def _serve_clients(self) -> None:
        async with trio.open_nursery() as clients:
            for number in range(self.mix.clients):
                clients.start_soon(SimClient(self, f"c{number}").run)
            if self.managers.active:
                clients.start_soon(self.managers.run)
            for number in range(AGENTS):
                clients.start_soon(SimAgent(self, f"a{number}").run)
            clients.start_soon(serve_sessions, self)
            for number in range(PEOPLE):
                clients.start_soon(SimPerson(self, f"p{number}").run)
            clients.start_soon(Latecomer(self).run)
            for number in range(CHANGERS):
                clients.start_soon(SimChanger(self, f"s{number}").run)
            await sleep(self.mix.fault_s)
            self.note("calm")
            self.calm = True
            self.calm_since_ms = self.machine.true_ms
            self.gremlin.heal()

    async def _come_to_an_end(self) -> None:
        janitor = SimClient(self, "janitor")
        with trio.move_on_after(CALM_S_MAX) as patience:
            while not (await janitor.tidy() and await self.managers.tidy(janitor)):
                await sleep(TIDY_S)
            await sleep(20.0)
            await self._watcher.check_at_rest()
            await janitor.verify()
            self.auditor.at_rest()
            self.channels.at_rest()
            self.managers.at_rest()
        self.auditor.check(not patience.cancelled_caught, f"every run ends: {self.auditor.unended()}")

    async def _last_look(self) -> None:
        """An ordered stop, and everything that was promised is still in the file."""
        if self.life is not None:
            self.life.crash()
        self.auditor.look(None)
        self.auditor.promises_hold()


# --- running seeds ----------------------------------------------------------------------------------------


def run_seed(
    seed: int, *, tell: Callable[[str], None] | None = None, make: Callable[..., World] = World
) -> Result:
    """Run one seed in this process, in a world that `make` makes."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-sim-", dir=FOLDER))
    try:
        return _run_in(make(seed, folder, tell=tell))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_in(world: World) -> Result:
    seed = world.seed
    world.database.write_bytes(_database(world.folder))
    world.database.chmod(0o600)
    result = Result(seed, world.mix)
    branches.install()
    branches.reached.clear()
    try:
        with no_collection(), bounds.drawn(world.mix, world.code), pinned_scheduler(seed):
            trio.run(world.run, clock=VirtualTime())
    except Exception as error:  # noqa: BLE001 - a fault of the simulation itself is a failed seed too
        result.violation = _first_violation(error) or "".join(traceback.format_exception(error))[-2_000:]
    finally:
        world.auditor.detach()
        result.events, result.faults, result.trace = world.events, world.faults, world.trace
        result.commits = world.auditor.commits
        world.reached.branches.update(branches.reached)
        result.reached = world.reached
        result.digest = world.auditor.digest()
    return result


def _first_violation(error: BaseException) -> str | None:
    if isinstance(error, Violation):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        found = [_first_violation(inner) for inner in error.exceptions]
        return next((text for text in found if text is not None), None)
    return None


def _database(folder: Path) -> bytes:
    """A fresh database: made once per process, by the store's own code."""
    global _fresh_database
    if _fresh_database is None:
        path = folder / "fresh.db"
        open_writer(path).close()
        _fresh_database = path.read_bytes()
        path.unlink()
    return _fresh_database


__all__ = ["Any", "Result", "World", "run_seed"]
