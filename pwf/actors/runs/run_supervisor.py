"""RunSupervisor: one per live run; drives one runner process through one generation.

Owns: the runner's protocol, its deadlines, its end. Promises: custody is stored before the runner begins; what the
runner says is answered only after its commit; capacity is given back only when the process and all that it started
are proved dead, or the run is held because that can't be shown. Must never touch a run by anything but the fence.
In: the runner's messages; `stop` (a cancel, a pause --now, the drain's end). Out: commands to the store, replies.
If it dies: the run's lease is an orphan, and the Scheduler's recovery settles it from the last boundary.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from pwf.actors.base.logging import Log
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.runs.value_reads import serve_values
from pwf.config import Config
from pwf.discovery import changed_sources
from pwf.errors import (
    ClaimLost,
    EnvironmentMissing,
    GraphError,
    InvalidValue,
    LoadFailed,
    OutcomeUnknown,
    ProtocolError,
    PwfError,
    RunnerCrashed,
    SourceChanged,
    Unavailable,
    ValueTooLarge,
)
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    Ask,
    Finish,
    FromRunner,
    Launch,
    Leaving,
    Publish,
    PutChunk,
    Reply,
    Sequenced,
    StepError,
    WaitUntil,
    decode_from_runner,
    encode_line,
)
from pwf.store.control import HoldRun, hold_run
from pwf.store.definitions import DefinitionRef, LaunchFacts, load_bundle
from pwf.store.launch import Launched, LaunchTerms, Parked, RunnerStarted, runner_started
from pwf.store.queue import Admission
from pwf.store.runner_end import RunnerGone, runner_gone
from pwf.store.runners import Current, Fence, PublishUpdates, publish_updates
from pwf.store.runs import RunEnvironment
from pwf.store.transitions import RunnerMessages, apply_messages
from pwf.store.values import PutValueChunk, put_chunk

R = TypeVar("R")

TIMEOUT_GRACE_S = 0.25  # from a step's time limit to the end of its runner
STOPS_ITSELF_S = 2.0  # more for a runner that can end the step itself, besides SIGTERM to SIGKILL
LEAVE_MORE_S = 0.25  # for the runner itself, besides the time that it gives the step's children
RETRY_S = 1.0  # while the store can't take a write (disk full): the outcome waits, it is not lost
RECEIVE_BYTES = 256 * 1024
CHANGED_NAMED_MAX = 5  # files that a hold's reason names


@dataclass
class Supervision:
    """What every supervisor works with."""

    store: Any  # StoreHandle
    pool: RunnerPool
    config: Config
    log: Log
    terms: LaunchTerms
    draining: Callable[[], bool]
    freed: Callable[[], None]  # a runner is proved dead


class RunSupervisor:
    """`run` is the task. `stop` may be called by any task, at any time, more than once."""

    def __init__(
        self, admission: Admission, world: Supervision, process: RunnerProcess | None = None
    ) -> None:
        self.admission = admission
        self.fence = Fence(run_id=admission.run_id, generation=admission.generation, token=admission.token)
        self.current: Current | None = None
        self._world = world
        self._process = process  # one that stood by, and was launched with the admission
        self._deadline = float("inf")
        self._receiving: trio.CancelScope | None = None
        self._stop_wanted = False
        self._stopped_with_daemon = False
        self._told = False  # the runner may have begun
        self._over = False  # the runner has its last answer
        self._ended = False  # and so has the run: nobody waits for what is left to say of the runner
        self._has_left = False  # its last word: it ends by itself now
        self._childless = False
        self._timed_out: int | None = None
        self.runner_is_gone = False  # proved; what is left is to say so to the store
        self._values_wanted: Callable[[], None] | None = None

    @property
    def marker(self) -> str:
        """What every process of this runner bears in its environment."""
        return self._world.terms.marker_of(self.fence.run_id, self.fence.generation)

    def stop(self, *, with_daemon: bool = False) -> None:
        """End the runner now. What it left open is settled from the last boundary."""
        self._stop_wanted = True
        self._stopped_with_daemon |= with_daemon
        if self._receiving is not None:
            self._receiving.cancel()

    def close(self) -> None:
        """Whatever became of it: hang up on a process that stood by and was never served."""
        if self._process is not None:
            self._process.close()

    # --- one generation ---

    async def run(self, environment: RunEnvironment, facts: LaunchFacts) -> None:
        """Launch, serve, settle. Returns when the runner is proved dead, or its run is held since that failed."""
        error: StepError | None = None
        process = self._process
        if process is None:
            try:
                process = await self._acquire(environment, facts)
            except PwfError as refusal:
                error = await self._not_launched(refusal)
        proved = True
        if process is not None:
            try:
                error = await self._serve(process)
                proved = await self._end(process)
                error = error or self._crash(process)
            finally:
                await process.aclose()
        if proved:
            self._free_capacity()
        await self._settle(proved, error)

    def _free_capacity(self) -> None:
        """The runner is proved dead. What is left is for the store to say, for which nobody else need wait."""
        if not self.runner_is_gone:
            self.runner_is_gone = True
            self._world.freed()

    def _note_exit(self, process: RunnerProcess) -> None:
        """One that has left, and left nothing behind, needs no other proof: its last word may still be on its way."""
        if self._childless and process.has_left:
            self._free_capacity()

    async def _end(self, process: RunnerProcess) -> bool:
        """Whether the runner, and all that it started, is proved dead: asked to end first, then ended."""
        stopped = self._stop_wanted or self._timed_out is not None
        grace_s = self._world.config.stop_grace_s + LEAVE_MORE_S if stopped else 0.0
        return await process.prove_dead(childless=self._childless and not stopped, grace_s=grace_s)

    def _crash(self, process: RunnerProcess) -> StepError | None:
        """What a runner died of that ended in the middle of a step, and not by our hand."""
        if self.current is None or self._over or self._stop_wanted or self._timed_out is not None:
            return None
        how = process.died_of or "nobody could tell how"
        message = f"its runner ended in the middle of the step ({how})"
        return StepError(code=RunnerCrashed.code, message=message, node=self.current.node)

    async def _acquire(self, environment: RunEnvironment, facts: LaunchFacts) -> RunnerProcess:
        if facts.sources:
            await trio.to_thread.run_sync(_refuse_changed, facts, self.fence.run_id)
        _refuse_missing(facts.root)
        definition = DefinitionRef(definition_id=self.admission.definition_id)
        return await self._world.pool.acquire(
            bundle_key=self.admission.definition_id,
            load_bundle=lambda: self._world.store.read(load_bundle, definition),
            interpreter=environment.interpreter,
            environment=environment.variables,
            root=facts.root,
            marker=self.marker,
            isolate=facts.isolate,
        )

    async def _not_launched(self, refusal: PwfError) -> StepError | None:
        """Hold the run with the reason, or count the failure as a runner's end."""
        if isinstance(refusal, ClaimLost | Unavailable):
            self._stopped_with_daemon = True
            await trio.sleep(RETRY_S)  # it is admitted again at once
            return None
        if isinstance(refusal, RunnerCrashed):
            return StepError(code=refusal.code, message=refusal.message)
        holds = {EnvironmentMissing: "environment_missing", SourceChanged: "source_changed"}
        hold = next((name for kind, name in holds.items() if isinstance(refusal, kind)), None)
        if hold is None:
            hold = "load_failed" if isinstance(refusal, LoadFailed | GraphError) else "broken"
        self._world.log.warning("run.held", run_id=self.fence.run_id, hold=hold)
        command = HoldRun(
            run_id=self.fence.run_id, generation=self.fence.generation, hold=hold, detail=refusal.message
        )
        await self._write(hold_run, command)
        return None

    async def _serve(self, process: RunnerProcess) -> StepError | None:
        """Talk with the runner until its socket closes or its time is over. What went wrong, if something did."""
        if self._world.draining():
            self.stop(with_daemon=True)
        if self._stop_wanted:  # while it was made or admitted; no step has begun, and none begins now
            return None
        launched = self.admission.launched or await self._launch(process)
        if not isinstance(launched, Launched):
            self._stop_wanted = True
            return None
        self._enter(launched.current)
        process.on_exit = partial(self._note_exit, process)
        async with trio.open_nursery() as nursery:
            self._values_wanted = partial(nursery.start_soon, self._serve_values, process)
            if _has_values(launched.launch):
                self._want_values()
            error = await self._converse(process, encode_line([launched.launch]))
            nursery.cancel_scope.cancel()
        return error

    async def _launch(self, process: RunnerProcess) -> Launched | Parked | None:
        """Record custody and begin the attempt. None: the run has another owner by now."""
        started = RunnerStarted(fence=self.fence, identity=process.identity, terms=self._world.terms)
        try:
            return await self._write(runner_started, started)
        except ClaimLost:
            return None

    def _want_values(self) -> None:
        """From now on there is something that the runner may read: most never have any."""
        start, self._values_wanted = self._values_wanted, None
        if start is not None:
            start()

    async def _converse(self, process: RunnerProcess, launch: bytes) -> StepError | None:
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        if self._stop_wanted:
            return None
        self._told = True
        if not await self._send(process, launch):
            return None
        while True:
            data = await self._receive(process)
            if data is None:  # its time is over, or it is to be stopped
                return None
            if not data:
                return None
            try:
                messages = [decode_from_runner(line) for line in splitter.feed(data)]
                self._note_leaving(messages, process)
                replies = await self._handle(messages)
            except ProtocolError as error:
                self._world.log.error("runner.protocol", run_id=self.fence.run_id, error=str(error))
                return StepError(
                    code="protocol_rejected", message=f"the runner sent something unknown: {error}"
                )
            except ClaimLost:
                return None
            if self._has_left:
                return None
            if replies and not await self._send(process, encode_line(replies)):
                return None

    async def _receive(self, process: RunnerProcess) -> bytes | None:
        """The next bytes; empty at the end of the stream; None when the runner is to be ended."""
        if self._stop_wanted:
            return None
        with trio.CancelScope(deadline=self._deadline) as scope:
            self._receiving = scope
            try:
                return bytes(await process.stream.receive_some(RECEIVE_BYTES))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
            finally:
                self._receiving = None
        if not self._stop_wanted and not self._over and self.current is not None:
            self._timed_out = self.current.attempt
        return None

    async def _send(self, process: RunnerProcess, data: bytes) -> bool:
        try:
            with trio.move_on_after(self._world.config.lease_s):  # a stopped runner must not stop us
                await process.stream.send_all(data)
                return True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return True  # it has ended; what it said before that is still to be read
        return False

    # --- messages ---

    def _note_leaving(self, messages: list[FromRunner], process: RunnerProcess) -> None:
        for message in messages:
            if isinstance(message, Leaving):
                self._has_left, self._childless = True, message.childless
                self._note_exit(process)

    async def _handle(self, messages: list[FromRunner]) -> list[Reply]:
        replies: list[Reply] = []
        steps: list[Sequenced] = []
        updates: list[Publish] = []
        for message in messages:
            if isinstance(message, Finish | Ask | WaitUntil):
                steps.append(message)
            elif isinstance(message, Publish):
                updates.append(message)
            elif isinstance(message, PutChunk):
                self._want_values()
                replies += await self._apply(steps)  # in order: a chunk may belong to a later step
                steps = []
                replies += await self._put(message)
        if updates and not self._over:
            dropped = await self._write(
                publish_updates, PublishUpdates(fence=self.fence, updates=tuple(updates))
            )
            if dropped:
                self._world.log.warning("updates.dropped", run_id=self.fence.run_id, count=dropped)
        return replies + await self._apply(steps)

    async def _apply(self, steps: list[Sequenced]) -> list[Reply]:
        if not steps:
            return []
        command = RunnerMessages(fence=self.fence, messages=tuple(steps), drain=self._world.draining())
        applied = await self._write(apply_messages, command)
        if applied.current is not None:
            self._enter(applied.current)
        elif applied.replies[-1].verdict != "go":
            self._leave(applied.replies[-1])
        return list(applied.replies)

    def _enter(self, current: Current) -> None:
        self.current = current
        self._deadline = float("inf")
        if current.timeout_ms is not None:
            grace_s = TIMEOUT_GRACE_S
            if current.stops_itself:
                grace_s += self._world.config.stop_grace_s + STOPS_ITSELF_S
            self._deadline = trio.current_time() + current.timeout_ms / 1000 + grace_s

    def _leave(self, last: Reply) -> None:
        self._over = True
        self._ended = last.verdict == "end"
        self.current = None
        self._deadline = trio.current_time() + self._world.config.stop_grace_s
        if last.verdict == "refused":
            self._world.log.error("runner.refused", run_id=self.fence.run_id, error=last.error)

    async def _put(self, chunk: PutChunk) -> list[Reply]:
        command = PutValueChunk(
            run_id=self.fence.run_id,
            generation=self.fence.generation,
            digest=chunk.digest,
            index=chunk.index,
            data=chunk.data,
            last=chunk.last,
            limit=self._world.config.max_value_bytes,
        )
        try:
            await self._write(put_chunk, command)
        except (InvalidValue, ValueTooLarge) as error:
            return [Reply(seq=chunk.seq, verdict="refused", error=error.message)]
        return [Reply(seq=chunk.seq, verdict="go")] if chunk.last else []

    async def _serve_values(self, process: RunnerProcess) -> None:
        await serve_values(process.values, self._world.store, self.fence.run_id)

    # --- the end ---

    async def _settle(self, proved: bool, error: StepError | None) -> None:
        if not proved:
            self._world.log.error(
                "runner.unreaped", run_id=self.fence.run_id, generation=self.fence.generation
            )
        gone = RunnerGone(
            run_id=self.fence.run_id,
            generation=self.fence.generation,
            proved=proved,
            timed_out=self._timed_out,
            stopped=self._stopped_with_daemon or self._stop_wanted,
            begun=self._told,
            error=error,
        )
        await self._write(runner_gone, gone, along=self._ended and proved)

    async def _write(self, handler: Callable[[Any, Any], R], command: Any, *, along: bool = False) -> R:
        """Write until the store takes it: every command here is safe to repeat under its fence or sequence.

        `along`: nobody waits for it.
        """
        store = self._world.store
        write: Callable[[Any, Any], Awaitable[R]] = store.write_along if along else store.write
        warned = False
        while True:
            try:
                return await write(handler, command)
            except OutcomeUnknown:
                raise  # the daemon stops and recovers from the file
            except Unavailable as error:
                if not warned:
                    self._world.log.warning("store.unavailable", run_id=self.fence.run_id, code=error.code)
                warned = True
                await trio.sleep(RETRY_S)


def _has_values(launch: Launch) -> bool:
    """Whether the runner is told of values that it has to read by digest."""
    told = (launch.input, *launch.files.values(), *(step.output for step in launch.past))
    return any(value is not None and value.digest is not None for value in told)


def _refuse_changed(facts: LaunchFacts, run_id: str) -> None:
    """Under source="verify": raise `SourceChanged` with the recorded and the present identity. Reads the files."""
    changed = changed_sources(facts.sources, facts.root)
    if changed:
        named = ", ".join(map(str, changed[:CHANGED_NAMED_MAX]))
        more = len(changed) - CHANGED_NAMED_MAX
        text = f"run {run_id} was started with other text of {named}"
        raise SourceChanged(text + (f" and {more} more files" if more > 0 else ""))


def _refuse_missing(root: str) -> None:
    if not os.path.isdir(root):
        raise EnvironmentMissing(f"the project folder {root} is gone")
