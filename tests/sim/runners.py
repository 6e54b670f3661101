"""Simulated runners: what a runner process says and does, over in-memory streams and in virtual time.

Speaks `pwf.protocol.runner` as the real engine does (pipelining past pure nodes, uploads, observing), and shares no
code with it. Its steps compute, fail, hang, apply effects outside, spawn children, and end their own process.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import trio

from pwf.protocol.agents import AgentCommand, Limited
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.kinds import KINDS, RequestKind
from pwf.protocol.mounts import enter, mounts_of, steps_within
from pwf.protocol.reconcile import Reconcile
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    WAITING_MARKER,
    AgentReport,
    Ask,
    Finish,
    Judged,
    Launch,
    Leaving,
    Publish,
    PutChunk,
    ReadValue,
    StepError,
    StepReply,
    Value,
    WaitUntil,
    encode_line,
    to_runner,
    value_answer,
)
from pwf.values import canonical, digest
from tests.sim.bounds import CHUNK_BYTES
from tests.sim.machine import Process
from tests.sim.managers import is_reconcile, read_reconcile
from tests.sim.parts import PartFailed, Parts
from tests.sim.workload import CHOICES, LARGE, NO_WAY, NodeModel, PartModel

LEAVE_S = 0.5


@dataclass(frozen=True)
class Ended:
    """How a step ended."""

    outcome: str
    output: dict[str, Any] | None = None
    settled: str | None = None
    observed: bool = False
    error: StepError | None = None


class ProcessEnds(BaseException):
    """The step ended its own process."""


class SimRunner:
    """One runner process, from its launch to its end, with as many runs as come to it."""

    def __init__(
        self, world: Any, process: Process, stream: trio.abc.Stream, values: trio.abc.Stream
    ) -> None:
        self._world = world
        self._process = process
        self._stream = stream
        self._values = values
        self._chance = world.stream(f"runner:{process.marker}:{process.identity.pid}")
        self._lines: deque[Launch | StepReply | Reconcile] = deque()
        self._news = trio.Event()
        self._begin_anew()
        self._sending = trio.Lock()
        self._held = b""  # ends of pure steps that leave a moment later, or never if the process dies before

    async def run(self) -> None:
        """The whole life of the process; the caller marks its end."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._listen)
                while await self._live():
                    self._begin_anew()
                nursery.cancel_scope.cancel()
        except* ProcessEnds:
            self._world.note("runner.exits", run=self._process.run_id)

    def _begin_anew(self) -> None:
        self._seq = 0
        self._uploads = (
            1_000_000  # numbers of their own: a step's answer that comes twice is not taken for an upload's
        )
        self._waiting: deque[tuple[int, Any]] = deque()
        self._answered: dict[int, str] = {}
        self._stop: StepReply | None = None
        self._settings = 0  # the newest change of them that it was told of
        self._failed = self._has_walked_away = False
        self._own: set[str] = set()  # values that it has uploaded

    # --- the wire -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Take in what the daemon says; when it hangs up, end the children that are known, and this process."""
        buffer = b""
        while True:
            try:
                data = await self._stream.receive_some()
            except trio.ClosedResourceError:
                data = b""
            await self._process.breathe(self._latency())
            if not data:
                break
            *lines, buffer = (buffer + bytes(data)).split(b"\n")
            told = (read_reconcile(line) if is_reconcile(line) else to_runner.decode(line) for line in lines)
            self._lines.extend(told)
            self._news.set()
        await self._process.breathe(self._chance.random() * 0.05)
        raise ProcessEnds

    async def _next(self) -> Launch | StepReply | Reconcile:
        while not self._lines:
            await self._flush()
            self._news = trio.Event()
            if not self._lines:
                await self._news.wait()
        return self._lines.popleft()

    async def _send(self, message: Any, *, hold: bool = False) -> None:
        if not hold:
            await self._process.breathe(self._latency())
        data = encode_line([message])
        if not isinstance(message, PutChunk | Leaving | Publish) and self._chance.random() < self._world.rate(
            "double_message"
        ):
            data += data
        self._held += data
        if hold:
            self._nursery.start_soon(self._tick)
        else:
            await self._flush()

    async def _tick(self) -> None:
        await self._process.breathe(self._chance.random() * 0.05)
        await self._flush()

    async def _flush(self) -> None:
        try:
            async with self._sending:
                data, self._held = self._held, b""
                if data:
                    await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._process.breathe(self._chance.random() * 0.05)
            raise ProcessEnds from None

    def _latency(self) -> float:
        if self._chance.random() < self._world.rate("late_message"):
            return float(self._chance.random() * 3.0)
        return 0.0

    def _take(self, reply: Launch | StepReply | Reconcile) -> None:
        self._world.auditor.check(isinstance(reply, StepReply), "a runner is launched once")
        assert isinstance(reply, StepReply)
        if not self._waiting or reply.seq != self._waiting[0][0]:
            same = self._answered.get(reply.seq) == reply.verdict
            self._world.auditor.check(same, f"reply {reply} was not due, and is no repeat")
            return
        seq, message = self._waiting.popleft()
        self._answered[seq] = reply.verdict
        if reply.settings is not None:
            self._settings = reply.settings.change
        if not isinstance(message, PutChunk):
            self._world.auditor.runner_answered(self._process, message, reply)
        if reply.verdict != "go":
            self._stop = reply

    def _drain(self) -> bool:
        while self._lines and self._stop is None:
            self._take(self._lines.popleft())
        return self._stop is None

    async def _settle(self) -> bool:
        while self._waiting and self._stop is None:
            self._take(await self._next())
        return self._stop is None

    async def _say(self, message: Any, *, may_hold: bool = False) -> None:
        self._waiting.append((message.seq, message))
        await self._send(message, hold=may_hold and self._happens("hold"))

    async def _reconcile(self, told: Reconcile) -> bool:
        try:
            await self._world.managers.reconcile(self._process, self._stream, self._values, told)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionError):
            await self._process.breathe(self._chance.random() * 0.05)
        return False

    # --- the loop over nodes ------------------------------------------------------------------------------

    async def _live(self) -> bool:
        """One run. Whether the process stays for a further one; what still comes of this one is skipped then."""
        while not isinstance(launch := await self._next(), Launch):
            if isinstance(launch, Reconcile):
                return await self._reconcile(launch)
            self._world.auditor.check(
                self._process.kept, f"the first that a runner hears is its launch: {launch}"
            )
        self._process.marker = launch.marker
        if launch.judge is not None:
            await self._judge(launch)
            return False
        self._world.auditor.launched(self._process, launch)
        self._model = self._world.model_of(self._process.code)
        self._run_id, self._generation = launch.run_id, launch.generation
        self._node, self._visit, self._attempt = launch.node, launch.visit, launch.attempt
        self._visits = {launch.node: launch.visit, **launch.visits}
        self._steps = launch.steps_taken
        self._entries = dict(launch.entries)
        self._settings = 0 if launch.settings is None else launch.settings.change
        await self._read_values(launch)
        await self._loop(launch)
        if self._has_walked_away:
            self._process.wait_again(WAITING_MARKER)
            self._process.promised = self._run_id
            await self._send(Leaving(childless=True, stays=True))
            return True
        keeps = self._happens("keep")
        if not (keeps or self._happens("leave_early")):
            await self._settle()
        children = [p for p in self._world.machine.bearers(self._process.marker) if p is not self._process]
        for child in children:
            child.kill()
        with trio.move_on_after(LEAVE_S):
            for child in children:
                await child.ended.wait()
        childless = not any(child.alive for child in children)
        stays = keeps and not children and not self._failed
        if stays:
            self._process.wait_again(WAITING_MARKER)
        await self._send(Leaving(childless=childless, stays=stays))
        if not stays and self._happens(
            "lingers"
        ):  # it is in the kernel's hands, and nothing of its run works any more
            seconds = self._chance.choice([3.0, 12.0])
            self._process.survive(seconds)
            self._process.at_work = False
            await self._process.breathe(seconds)
        return stays

    async def _judge(self, launch: Launch) -> None:
        """An errand: one verdict, or an end without a word; some take too long."""
        self._world.auditor.judges(self._process, launch)
        await self._process.breathe(self._chance.choice([0.01, 0.5, 5.0]))
        if self._happens("step_hangs"):
            await self._process.breathe(self._chance.choice([20.0, 100.0]))
        if self._happens("runner_exit"):
            self._process.died = True
            raise ProcessEnds
        accepted = self._world.calm or self._chance.random() < 0.7
        await self._send(Judged(accepted=accepted, reason="" if accepted else "another one, please"))
        if not self._happens("leave_early"):
            await self._send(Leaving(childless=True))

    async def _loop(self, launch: Launch) -> None:
        observe = launch.observe
        while True:
            node: NodeModel = self._model.nodes[self._node]
            spent = self._steps >= launch.graph.max_steps or self._is_spent()
            pure = KINDS[node.kind].pure and not spent
            if not (self._drain() if pure else await self._settle()):
                return
            end: Ended | None = None
            if observe:
                observe = False
                end = await self._observe(launch)
            if KINDS[node.kind].sets_timer and end is None:
                await self._wait()
                return
            asks = None if launch.agent is not None and KINDS[node.kind].headless else KINDS[node.kind].asks
            if asks and end is None:
                await self._ask(asks)
                return
            if end is None and KINDS[node.kind].headless and launch.agent is not None:
                await self._send(
                    AgentReport(
                        attempt=self._attempt, agent=launch.agent.name, conversation="c", input_tokens=1
                    )
                )
                if self._happens("limited"):
                    await self._limited(launch.agent)
                    return
            seen = self._settings
            if not await self._finish(node, end if end is not None else await self._step(node), seen):
                return
            if self._happens("walks_away"):
                self._has_walked_away = self._process.died = True
                return

    async def _wait(self) -> None:
        self._seq += 1
        relative = self._chance.random() < 0.5
        delay_ms = self._chance.choice([0, 100, 2_000, 15_000])
        wall_ms = self._world.machine.now().wall_ms + delay_ms
        times = {"delay_ms": delay_ms} if relative else {"wall_ms": wall_ms}
        message = WaitUntil(seq=self._seq, attempt=self._attempt, **times)
        self._world.auditor.waits.timer_asked(self._run_id, message)
        await self._say(message)

    async def _ask(self, kind: RequestKind) -> None:
        self._seq += 1
        words = canonical(self._model.nodes[self._node].prompt(self._visit))
        prompt = Value(json=msgspec.Raw(words), size=len(words))
        node = self._model.nodes[self._node].spec()
        subject = canonical(self._model.nodes[self._node].subject(self._visit))
        self._world.auditor.endings.asked(self._run_id, self._generation, self._attempt)
        await self._say(
            Ask(
                seq=self._seq,
                attempt=self._attempt,
                kind=kind,
                prompt=prompt,
                subject=Value(json=msgspec.Raw(subject)) if KINDS[node.kind].chooses else None,
                timeout_ms=node.open_ms,
                default=node.default,
            )
        )

    async def _limited(self, agent: AgentCommand) -> None:
        """It is done with for now, and no failure."""
        self._failed = True
        until = self._world.machine.now().wall_ms + self._chance.choice([1, 3_000, 20_000])
        met = Limited(
            account=agent.account_name,
            on_limit=self._chance.choice(["resume", "resume", "ask", "stop"]),
            until_wall_ms=self._chance.choice([None, until]),
        )
        if met.on_limit == "ask":
            self._world.auditor.holds.asks(self._run_id)
        self._world.auditor.endings.finish_sent(self._run_id, self._generation, self._attempt)
        self._seq += 1
        error = _error("limited", "429", self._node)
        message = Finish(
            seq=self._seq, attempt=self._attempt, outcome="failed", error=error, limited=met, active_ms=1
        )
        await self._say(message)

    async def _finish(self, node: NodeModel, end: Ended, seen: int) -> bool:
        self._failed |= end.outcome != "completed"
        output = await self._put(end.output) if end.output is not None else None
        if self._stop is not None:
            return False
        if end.output is not None:
            data = canonical(end.output)
            self._world.auditor.said.finish_sent(self._run_id, self._generation, self._attempt, data)
        self._world.auditor.endings.finish_sent(self._run_id, self._generation, self._attempt)
        self._world.auditor.settings.finish_sent(self._run_id, self._attempt, seen)
        following = node.follow(end.outcome, end.output)
        if end.outcome != "completed" and end.settled in ("unknown", "applied"):
            following = None
        no_case = following is NO_WAY
        following = None if no_case else following
        self._seq += 1
        await self._say(
            Finish(
                seq=self._seq,
                attempt=self._attempt,
                outcome=end.outcome,
                output=output,
                error=None
                if end.outcome == "completed"
                else end.error or _error("sim", end.outcome, node.id),
                next=following,
                route_error=_error("routing_failed", "no case", node.id) if no_case else None,
                settled=end.settled,
                observed=end.observed,
                settings=seen,
                active_ms=1,
            ),
            may_hold=self._may_hold(node, end, following),
        )
        if following is None or (end.outcome != "completed" and not await self._settle()):
            return False
        self._node, self._attempt, self._steps = following, self._attempt + 1, self._steps + 1
        self._visit = self._visits[following] = self._visits.get(following, 0) + 1
        if self._model.nodes[following].mount is not None:
            enter(self._entries, self._visits, following)
        return True

    def _is_spent(self) -> bool:
        """Whether a workflow that is included around here has taken more steps than it may."""
        mounts = ((mount, self._model.nodes[mount].mount) for mount in mounts_of(self._node))
        return any(steps_within(self._entries, self._visits, name) > spec.max_steps for name, spec in mounts)

    def _may_hold(self, node: NodeModel, end: Ended, following: str | None) -> bool:
        if not KINDS[node.kind].pure:
            return False
        if following is None:
            return True
        then = self._model.nodes[following]
        return end.outcome == "completed" and KINDS[then.kind].pure and not node.retries and not then.retries

    async def _put(self, output: dict[str, Any]) -> Value:
        data = canonical(output)
        if len(data) <= 4_096:
            return Value(json=msgspec.Raw(data), size=len(data))
        name = digest(data)
        if await self._settle():
            if self._happens("lies"):
                return await self._lie(name, data)
            await self._upload(name, data)
            self._own.add(name)
            self._world.uploaded.add(name)
            await self._settle()
        return Value(digest=name, size=len(data))

    async def _lie(self, name: str, data: bytes) -> Value:
        """Name what another has uploaded, or upload other bytes than those that are named."""
        self._world.auditor.liars.add(self._run_id)
        self._failed = self._process.died = True  # what comes of it is its own end
        others = sorted(self._world.uploaded - self._own)
        if others and self._chance.random() < 0.5:
            return Value(digest=self._chance.choice(others), size=len(data))
        self._own.add(name)  # where it is stored already, it has it by now
        await self._upload(name, data[::-1])
        await self._settle()
        return Value(digest=name, size=len(data))

    async def _upload(self, name: str, data: bytes) -> None:
        pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
        for index, piece in enumerate(pieces[:-1]):
            await self._send(PutChunk(digest=name, index=index, data=piece))
        self._uploads += 1
        last = PutChunk(
            seq=self._uploads, digest=name, index=len(pieces) - 1, data=pieces[-1], last=True, size=len(data)
        )
        await self._say(last)

    async def _read_values(self, launch: Launch) -> None:
        """Read what is told by digest. The daemon may hang up in the middle of it, which ends this process."""
        told = [launch.input, *(step.output for step in launch.past if step.output is not None)]
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        for name in sorted({value.digest for value in told if value.digest is not None}):
            data, last = b"", False
            try:
                await self._values.send_all(encode_line([ReadValue(digest=name)]))
                while not last:
                    received = await self._values.receive_some()
                    await self._process.breathe()
                    if not received:
                        raise trio.BrokenResourceError
                    for line in splitter.feed(bytes(received)):
                        chunk = value_answer.decode(line)
                        data, last = data + chunk.data, chunk.last
                        self._world.auditor.said.answered_a_read(launch, name, missing=chunk.missing)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.hangs_up()
            self._world.auditor.said.was_read(name, data)

    # --- steps --------------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return f"{self._run_id}:{self._node}:{self._visit}"

    def _happens(self, fault: str) -> bool:
        return bool(self._chance.random() < self._world.rate(fault))

    async def _pass(self, most_s: float = 0.5) -> None:
        """Some work; the process may end in it."""
        if KINDS[self._model.nodes[self._node].kind].pure and self._happens("quick"):
            return
        slow = 20.0 if self._happens("slow_runner") else 1.0
        await self._process.breathe(self._chance.random() * most_s * slow)
        if self._happens("kills_daemon"):
            self._world.step_kills_daemon(self._process.run_id)
        if self._happens("runner_exit"):
            self._process.died = True
            raise ProcessEnds

    async def _observe(self, launch: Launch) -> Ended | None:
        self._world.auditor.step_begins(self._process, self._node, self._visit, self._attempt)
        await self._pass()
        if self._happens("step_fails"):
            return Ended("failed", settled="unknown", observed=True)
        if self._world.outside.happened(self._key):
            return Ended("completed", self._output(), settled="applied", observed=True)
        if launch.observe_then is None:
            return None
        return Ended(launch.observe_then, settled="rejected", observed=True, error=launch.observe_error)

    async def _step(self, node: NodeModel) -> Ended:
        self._world.auditor.step_begins(self._process, self._node, self._visit, self._attempt)
        if node.effect is not None and self._happens("publish"):
            key, told = self._chance.choice(["a", "b"]), b'{"completed":%d,"total":9}' % self._attempt
            await self._send(Publish(attempt=self._attempt, kind="progress", key=key, data=msgspec.Raw(told)))
        await self._pass()
        if node.timeout_ms is not None and self._happens("step_hangs"):
            ended = await self._hang(node)
            if ended is not None:
                return ended
        if node.effect is None:
            return Ended("failed") if self._happens("step_fails") else Ended("completed", self._output())
        return await self._act(node)

    async def _act(self, node: NodeModel) -> Ended:
        if node.effect == "parts":
            return await self._make_parts(node)
        manual = node.effect == "manual"
        if self._happens("step_fails"):
            settled = self._chance.choice(["rejected", "unknown"]) if manual else None
            return Ended("failed", settled=settled)
        done = await self._apply(node, self._key)
        await self._pass()
        if not done or self._happens("step_fails"):
            return Ended("failed", settled="unknown" if manual else None)
        if self._happens("bad_value"):
            return Ended("failed", settled="applied" if manual else None)
        return Ended("completed", self._output(), settled="applied" if manual else None)

    async def _make_parts(self, node: NodeModel) -> Ended:
        try:
            await Parts(self, node, self._key).make()
        except PartFailed as failure:
            settled = "unknown" if failure.unsure else None
            return Ended(failure.outcome, settled=settled, observed=failure.unsure, error=failure.error)
        await self._pass()
        if self._happens("step_fails") or self._happens("bad_value"):
            return Ended("failed")
        return Ended("completed", self._output())

    def hangs_up(self) -> NoReturn:
        """The daemon has closed a socket in the middle of a step, which ends this process."""
        self._process.died = True
        raise ProcessEnds

    async def _hang(self, node: NodeModel) -> Ended | None:
        """A shell step is timed out by its runner; a plain one by the daemon, if it does not wake up before."""
        assert node.timeout_ms is not None
        if self._happens("unprovable"):  # it hangs in the kernel, and no signal ends it
            self._process.survive(node.timeout_ms / 1_000 + 10.0)
        if node.effect is not None and self._chance.random() < 0.3:
            if node.effect == "parts":
                made = await self._make_parts(node)
                if made.outcome != "completed":
                    return made
            done = node.effect == "parts" or await self._apply(node, self._key)
            if not done:
                return Ended("failed", settled="unknown" if node.effect == "manual" else None)
            applied = True
        else:
            applied = False
        if KINDS[node.kind].stops_itself:
            await self._process.breathe(node.timeout_ms / 1_000)
            return Ended("timed_out", settled="unknown" if node.effect == "manual" else None)
        factor = self._chance.choice([0.9, 1.05, 3.0, 3.0])
        life = self._world.life
        await self._process.breathe(node.timeout_ms / 1_000 * factor)
        if factor == 3.0:
            self._world.auditor.endings.overran(self._process, node.timeout_ms, life)
        if applied:
            return Ended("completed", self._output(), settled="applied" if node.effect == "manual" else None)
        return None

    async def _apply(self, node: NodeModel | PartModel, key: str) -> bool:
        """Apply the effect, or have a child do it; False when the child died of something before."""
        if not self._happens("orphan_child"):
            self._world.apply(self._process, node, key)
            return True
        child = self._world.machine.add_process(self._process.marker)
        child.epoch = self._process.epoch
        child.at_work = True
        delay_s = self._chance.random() * 2.0

        async def work() -> None:
            await child.breathe(delay_s)
            self._world.apply(child, node, key)

        self._world.start_process(child, work)
        await child.ended.wait()
        await self._process.breathe()
        return not child.killed

    def _output(self) -> dict[str, Any]:
        go = "back" if self._chance.random() < 0.2 else CHOICES[0]
        output: dict[str, Any] = {"go": go, "n": self._chance.randrange(1_000_000)}
        if self._chance.random() < 0.05 or self._happens("large"):
            output["n"] %= 2  # so that one value comes several times
            output["large"] = LARGE
        return output


def _error(code: str, message: str, node: str) -> StepError:
    return StepError(code=code, message=message, node=node)
