"""Scheduler and RunSupervisor against a real store in virtual time; the runner's process is a pair of streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from pwf.actors.base.changes import Changes
from pwf.actors.base.store_actor import StoreActor
from pwf.actors.operations.runs import pause_
from pwf.actors.operations.services import Asked, scope_key
from pwf.actors.processes.custody import PROOF_TIMEOUT_S
from pwf.actors.processes.kept import Kept
from pwf.actors.runs.recovery import LOOK_AGAIN_S, REREAD_S
from pwf.actors.runs.run_supervisor import RETRY_S
from pwf.actors.runs.runner_calls import SecretReads, serve_calls
from pwf.actors.runs.scheduler import Scheduler, SchedulerHandle
from pwf.config import Config
from pwf.errors import Unavailable
from pwf.host import Identity
from pwf.protocol.frames import FrameSplitter, Request
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.masking import Masks
from pwf.protocol.operations import PausePayload
from pwf.protocol.runner import RUNNER_FRAME_BYTES_MAX, Finish, Launch, Leaving, encode_line, to_runner
from pwf.store.control import Control, resume
from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.read_runs import RunQuery, run_view
from pwf.store.runs import StartRun
from pwf.store.verify import verify
from tests.actors.no_log import NoLog
from tests.actors.runner_stream import runner_streams
from tests.actors.test_pruner import TrioClock
from tests.store.inline_executor import InlineExecutor
from tests.store.world import MANUAL, World, graph, linear, node, value

pytestmark = pytest.mark.trio

WITHIN_S = 60.0
LATER = 1_000  # a revision after those of any admission here


class Process:
    """A runner that says what the test says; it is dead when asked to be, which takes a while unless it has left."""

    died_of = ""
    was_unfit = False

    def __init__(self, number: int) -> None:
        self.identity = Identity(pid=number, start_tick=number, boot_id="boot-1", session=number)
        self.stream, self.theirs = runner_streams()
        self.values, self.theirs_values = memory_stream_pair()
        self.on_exit: Callable[[], object] | None = None
        self.has_left = False
        self.prints = SimpleNamespace(folder="", attempt=0, limit=0, masks=Masks())
        self.survivors = ()
        self.marker = "waiting"
        self.proof_s = 0.0
        self.asked_childless: list[bool] = []
        self.goes_back: Any = None

    async def last_words(self) -> int:
        return 0

    async def prove_dead(self, *, childless: bool, grace_s: float) -> bool:
        self.asked_childless.append(childless)
        await trio.sleep(0 if childless and self.has_left else self.proof_s)
        return True

    async def aclose(self) -> None:
        self.stream.close()

    def close(self) -> None:
        self.stream.close()

    async def told(self) -> bytes:
        """What the daemon has said until it hung up."""
        said = b""
        with trio.fail_after(WITHIN_S):
            while more := await self.theirs.receive_some():
                said += bytes(more)
        return said

    async def launched(self) -> Launch:
        """What it is told first."""
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        lines: list[bytes] = []
        with trio.fail_after(WITHIN_S):
            while not lines:
                lines = list(splitter.feed(bytes(await self.theirs.receive_some())))
        launch = to_runner.decode(lines[0])
        assert isinstance(launch, Launch)
        return launch

    async def say(self, *messages: Any) -> None:
        await self.theirs.send_all(encode_line(messages))

    def leave(self) -> None:
        """It has ended by itself."""
        self.has_left = True
        if self.on_exit is not None:
            self.on_exit()

    async def serve(self, *, leaves: bool = True) -> Launch:
        """Execute a run of one step."""
        launch = await self.launched()
        finish = Finish(seq=1, attempt=launch.attempt, outcome="completed", output=value("done"))
        await self.say(finish, Leaving(childless=True))
        if leaves:
            self.leave()
        return launch


class Reserved:
    """As the pool's: to be taken, or put back."""

    def __init__(self, pool: Pool, process: Process) -> None:
        self.process = process
        self._pool = pool

    def take(self, marker: str) -> Process:
        self.process.marker = marker
        return self.process

    def put_back(self) -> None:
        self._pool.waiting.append(self.process)


class Custody:
    """Says what the test wants, and remembers how long it was given."""

    def __init__(self) -> None:
        self.dead = True
        self.given: list[float] = []

    async def prove_dead(self, _identity: Identity, _marker: str, *, timeout_s: float) -> bool:
        self.given.append(timeout_s)
        await trio.sleep(0 if self.dead else timeout_s)
        return self.dead


class Pool:
    def __init__(self) -> None:
        self.kept = Kept()
        self.custody = Custody()
        self.made: list[Process] = []
        self.waiting: list[Process] = []  # for any run
        self.asked = 0
        self.takes_s = 0.01
        self.error: Callable[[], Exception] | None = None

    def stand_by(self) -> Process:
        """From now on one more process waits for a run."""
        process = Process(500 + len(self.made))
        self.made.append(process)
        self.waiting.append(process)
        return process

    async def prove_dead(self, identity: Identity, marker: str, *, timeout_s: float) -> bool:
        return await self.custody.prove_dead(identity, marker, timeout_s=timeout_s)

    async def left_nothing(self, sought: Any) -> list[bool]:
        return [False] * len(sought)  # each is looked at for itself

    def reserve(self, _key: Any) -> Reserved | None:
        return Reserved(self, self.waiting.pop(0)) if self.waiting else None

    async def acquire(self, **_facts: Any) -> Process:
        self.asked += 1
        await trio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error()
        process = Process(100 + len(self.made))
        self.made.append(process)
        return process


def no_reconcilers(*_: Any) -> Any:
    raise AssertionError("nothing is applied here")


class Setting:
    def __init__(self, folder: Any) -> None:
        self.world = World(folder, TrioClock())
        self.world.root = "/"
        self.world.checked = False
        self.log = NoLog()
        self.pool = Pool()
        self.config = Config()
        self.why_stopped: str | None = None
        self.life = trio.CancelScope()  # of the scheduler
        self.pause: Callable[[str], Awaitable[None]] | None = None  # of the store, at each point of a commit

    def start(self, flow: WorkflowGraph, **more: Any) -> str:
        flow = WorkflowGraph(name=flow.name, start=flow.start, nodes=flow.nodes)
        return self.world.start(flow, **more)

    def command(self, flow: WorkflowGraph, **more: Any) -> StartRun:
        """To start a run of it."""
        return self.world.start_command(flow, **more)

    async def begin(self, nursery: trio.Nursery) -> SchedulerHandle:
        self.epoch = self.world.do(claim, ClaimEpoch(token="t", lease_ms=1_000, pid=1, version="x")).epoch
        self.world.close()
        executor = InlineExecutor(self.world.spec, self.pause)
        self.store = await nursery.start(StoreActor(executor).run)
        changes = Changes(self.store)
        self.actor = Scheduler(
            store=self.store,
            pool=self.pool,  # type: ignore[arg-type]
            changes=changes,
            config=self.config,
            log=self.log,
            epoch=self.epoch,
            home_id="h",
            secrets_from=Path("/nowhere/config.toml"),
            make_reconciler=no_reconcilers,
        )
        self.scheduler = self.actor.handle
        await nursery.start(self._live)
        return self.scheduler

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        with self.life:
            await self.actor.run(self.why_stopped, task_status=task_status)

    async def view(self, run_id: str) -> Any:
        return await self.store.read(run_view, RunQuery(run_id=run_id))

    async def violations(self) -> Any:
        return (await self.store.read(verify, self.epoch)).violations

    def said(self, event: str) -> int:
        return [name for name, _ in self.log.events].count(event)


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


async def test_a_run_whose_supervisor_fails_again_and_again_is_held(setting, nursery, autojump_clock):
    run_id = setting.start(linear(1))
    setting.pool.error = lambda: ZeroDivisionError("a fault of our own")
    await setting.begin(nursery)
    await trio.sleep(60)
    assert setting.pool.asked == 3
    assert (await setting.view(run_id)).summary.hold == "no_progress"
    assert (setting.scheduler.used, setting.scheduler.free) == (0, setting.scheduler.capacity)
    assert await setting.violations() == ()


async def test_a_store_that_can_not_be_read_just_now_is_no_fault_of_the_run(
    setting, nursery, autojump_clock, monkeypatch
):
    run_id = setting.start(linear(1))
    setting.pool.error = lambda: Unavailable("the bundle could not be read")
    await setting.begin(nursery)
    await trio.sleep(60)
    assert 3 < setting.pool.asked <= 60 / RETRY_S + 1  # neither held nor spinning
    setting.pool.error = None
    await trio.sleep(REREAD_S)
    assert (await setting.view(run_id)).summary.status == "running"


async def test_a_store_that_is_locked_at_the_start_is_waited_for(
    setting, nursery, autojump_clock, monkeypatch
):
    run_id = setting.start(linear(1))
    failures = [Unavailable("another process keeps the database locked")] * 3

    def locked(_tx: Any, _command: Any) -> int:
        if failures:
            raise failures.pop()
        return 0

    monkeypatch.setattr("pwf.actors.runs.admission.rebase", locked)
    await setting.begin(nursery)
    await trio.sleep(10)
    assert (await setting.view(run_id)).summary.status == "running"


async def test_what_can_not_be_shown_dead_is_looked_at_again_but_only_for_a_moment(
    setting, nursery, autojump_clock
):
    runner = setting.world.run(linear(1))
    setting.pool.custody.dead = False
    await setting.begin(nursery)
    await trio.sleep(60)
    given = setting.pool.custody.given
    assert given[0] == PROOF_TIMEOUT_S
    assert len(given) > 5
    assert set(given[1:]) == {LOOK_AGAIN_S}
    assert (await setting.view(runner.run_id)).summary.hold == "process_unreaped"
    setting.pool.custody.dead = True
    await trio.sleep(2 * REREAD_S)
    assert await setting.store.read(lambda tx, _: tx.all("SELECT * FROM runners"), None) == []


async def test_a_drain_that_ends_before_the_launch_begins_no_step(setting, nursery, autojump_clock):
    run_id = setting.start(graph(node("send", "action", effect=MANUAL)))
    setting.pool.takes_s = 3.0
    scheduler = await setting.begin(nursery)
    await trio.sleep(1)
    await scheduler.drain(1.0)
    view = await setting.view(run_id)
    assert (view.summary.status, view.steps, view.effects) == ("queued", (), ())
    assert await setting.pool.made[0].told() == b""
    assert await setting.violations() == ()


async def test_a_late_repeat_of_pause_now_does_not_end_what_was_resumed_since(
    setting, nursery, autojump_clock
):
    run_id = setting.start(graph(node("send", "action", effect=MANUAL)))
    setting.pool.takes_s = 1.0
    await setting.begin(nursery)
    await trio.sleep(0.5)
    services: Any = SimpleNamespace(store=setting.store, scheduler=setting.scheduler)
    request = Request(request_id="1", client_id="c", operation="run.pause", run_id=run_id)
    asked = Asked(request, PausePayload(now=True), SimpleNamespace(), scope_key(request), "client:ann")
    await pause_(services, asked)
    await trio.sleep(5)
    assert (await setting.view(run_id)).summary.status == "paused"
    await setting.store.write(resume, Control(run_id=run_id))
    await trio.sleep(5)
    assert (await pause_(services, asked)).adopted
    await trio.sleep(5)
    view = await setting.view(run_id)
    assert (view.summary.status, [step.status for step in view.steps]) == ("running", ["active"])


async def test_a_value_that_can_not_be_read_hangs_up_on_the_runner(setting, nursery, autojump_clock):
    class Store:
        async def read(self, *_: Any) -> Any:
            raise Unavailable("the read took too long")

    ours, theirs = memory_stream_pair()

    async def answering(_: Any) -> None:
        raise AssertionError("it is a read")

    nursery.start_soon(serve_calls, ours, Store(), "r", SecretReads((), Path("/nowhere"), Masks()), answering)
    await theirs.send_all(b'{"type":"read_value","digest":"d"}\n')
    with trio.fail_after(1):
        assert await theirs.receive_some() == b""
