"""RunSupervisor: one per live run; drives one runner process through one generation.

Owns: the runner's protocol, its deadlines, its end. Promises: custody is stored before the runner begins; what the
runner says is answered only after its commit; capacity is given back only when the process and all that it started
are proved dead, or the run is held because that can't be shown. Must never touch a run by anything but the fence.
In: the runner's messages; `Stop` (a cancel, a pause --now, the drain's end). Out: commands to the store, replies; what
is published of it, and a wake-up for the Scheduler, which reads that then.
If it dies: the run's lease is an orphan, and recovery settles it from the last boundary.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import trio

from pwf.actors.base.beside import beside
from pwf.actors.base.mailbox import Mailbox
from pwf.actors.base.socket_stream import Interrupted
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.runs.launching import RETRY_S, Launchable, Supervision, acquire, hold_for, look_up
from pwf.actors.runs.runner_calls import Calls, SecretReads, has_calls, serve_calls
from pwf.errors import (
    ClaimLost,
    OutcomeUnknown,
    ProtocolError,
    PwfError,
    RunnerCrashed,
    Unavailable,
)
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    Ask,
    Finish,
    FromRunner,
    Leaving,
    PutChunk,
    Sequenced,
    StepError,
    StepReply,
    Told,
    WaitUntil,
    decode_from_runner,
    encode_line,
)
from pwf.protocol.survivors import Survivor, without
from pwf.store.control import HoldRun, hold_run
from pwf.store.custody import runner_gone
from pwf.store.entity_kinds import RunnerGone
from pwf.store.launch import Launched, Parked, RunnerStarted, runner_started
from pwf.store.queue import AdmittedRun
from pwf.store.run_kind import RUN
from pwf.store.runners import Current, Fence
from pwf.store.transitions import RunnerMessages, apply_messages
from pwf.store.tx import Tx
from pwf.store.updates import PublishUpdates, publish_updates

C = TypeVar("C")
R = TypeVar("R")

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 8  # its messages are wishes: a doubled one says nothing new
TIMEOUT_GRACE_S = 0.25  # from a step's time limit to the end of its runner
OVER_S = (
    1.0  # from the report that goes beyond a budget: an agent that is done with its step ends it in that time
)
STOPS_ITSELF_S = 2.0  # more for a runner that can end the step itself, besides SIGTERM to SIGKILL
LEAVE_MORE_S = 0.25  # for the runner itself, besides the time that it gives the step's children
RECEIVE_BYTES = 256 * 1024
NOT_SAID = Leaving()


# --- messages -------------------------------------------------------------------------------------------------


class Stop(msgspec.Struct, frozen=True):
    """End the runner now. What it left open is settled from the last boundary."""


# --- the handle -----------------------------------------------------------------------------------------------


class SupervisorHandle:
    """What the Scheduler holds of it. What stands here is published by the supervisor.

    A message that comes late, or finds the inbox full of its like, is of no use to anybody.
    """

    def __init__(self, inbox: Mailbox[Stop]) -> None:
        self._inbox = inbox
        self.deadline = math.inf  # of the step that runs
        self.interrupt: Callable[[], None] | None = None  # what it waits for, while it speaks with its runner
        self.is_proved = False  # the runner is proved dead; what is left is to say so to the store
        self.leaves_nothing: RunnerProcess | None = None  # it has said so, and that it leaves
        self.is_over = False  # the supervisor has ended
        self.has_failed = False  # by a fault of our own, which counts like a runner's crash
        self.launched_from: Launchable | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is there of the runner any more.

        One that has left, and left nothing behind, needs no proof: its last word may still be on its way to the disk.
        """
        return self.is_proved or (self.leaves_nothing is not None and self.leaves_nothing.has_left)

    def stop(self) -> None:
        """End the runner now. May be called more than once, and too late."""
        self._inbox.put_now(Stop())
        self.wake()

    def wake(self) -> None:
        """Look at inbox and time."""
        if self.interrupt is not None:
            self.interrupt()


# --- the actor ------------------------------------------------------------------------------------------------


class Phase(enum.IntEnum):
    """How far the run has come under this runner. It only grows."""

    LAUNCHING = 0
    TOLD = 1  # the runner may have begun
    ENDED = 2  # and so has the run: nobody waits for what is left to say of the runner


class RunSupervisor:
    """The actor: one task, which a `Stop` wakes while it waits for its runner."""

    def __init__(
        self,
        admission: AdmittedRun,
        world: Supervision,
        process: RunnerProcess | None,
        known: Launchable | None,
    ) -> None:
        self._admission = admission
        self._fence = Fence(
            run_id=admission.run_id,
            entity_no=admission.entity_no,
            generation=admission.generation,
            token=admission.token,
        )
        self._world = world
        self._wake = partial(world.wake, (admission.entity_no, admission.generation))
        self._process = process  # one that stood by, and was launched with the admission
        self._known = known
        self._inbox: Mailbox[Stop] = Mailbox(INBOX_MAX, "the supervisor")
        self._phase = Phase.LAUNCHING
        self._current: Current | None = None  # None: not launched, or the runner has its last answer
        self._splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        self._calls = Calls(self._fence, self._write, world.config.max_value_bytes)
        self._calls_wanted = (
            False  # it may read something by digest, ask for secrets, or make effects in mid-step
        )
        self._secrets: tuple[str, ...] = ()  # those that it may ask for
        self._stop_wanted = False
        self._last_word = NOT_SAID  # the runner's
        self._parted = False  # by the store's word the run has ended, or is parked
        self._row_gone = False  # and with it, in one transaction, its process's row
        self._printed = 0  # bytes kept of the step that it ended in
        self._survivors: tuple[Survivor, ...] = ()
        self._timed_out: int | None = None  # the attempt
        self._is_over = False  # its agent has gone beyond a budget
        self._hung_up = self._died = False  # the runner, in the middle of a step
        self._fault: StepError | None = None  # what was wrong with what it said
        self.handle = SupervisorHandle(self._inbox)

    async def run(self) -> None:
        """One generation. A supervisor that fails ends alone: its lease is an orphan, which recovery settles."""
        run_id, generation = self._admission.run_id, self._admission.generation
        try:
            await self._live(self._known or await self._look_up())
        except OutcomeUnknown:
            raise
        except Unavailable as error:  # a read failed: not this run's fault
            self._world.log.warning("supervisor.unavailable", run_id=run_id, code=error.code)
        except Exception as error:  # noqa: BLE001 - supervision: the run's failure must stay its own
            self._world.log.error(
                "supervisor.failed", run_id=run_id, generation=generation, error=repr(error)
            )
            self.handle.has_failed = True
        finally:
            if self._process is not None:
                self._process.close()  # whatever became of it: one that stood by may never have been served
            self._inbox.close()
            self.handle.is_over = True
            self._wake()

    async def _look_up(self) -> Launchable:
        """What nobody has launched for a while. The Scheduler remembers it."""
        found = self.handle.launched_from = await look_up(self._world.store, self._admission)
        self._wake()
        return found

    # --- one generation ---

    async def _live(self, known: Launchable) -> None:
        """Launch, serve, settle. Returns when the runner is proved dead, or its run is held since that failed."""
        error: StepError | None = None
        if self._process is None:
            try:
                self._process = await acquire(self._world, known, self._fence.run_id, self._fence.generation)
            except PwfError as refusal:
                error = await self._not_launched(refusal)
        proved = True
        if self._process is not None:
            error = await self._serve(self._process)
            if error is None and self._may_stay(self._process):
                await self._give_back(self._process)
                return
            proved = await self._end(self._process)
            error = error or self._crash(self._process)
            await self._keep_last_words(self._process)
            await self._process.aclose()
        if proved:
            self._free_capacity()
        await self._settle(proved, error)

    def _may_stay(self, process: RunnerProcess) -> bool:
        """Whether it waits for another run, and may: whatever is to end the run ends the process."""
        last = self._last_word
        if not (last.stays and last.childless and self._parted and process.goes_back is not None):
            return False
        return self._timed_out is None and not self._is_to_stop()

    async def _give_back(self, process: RunnerProcess) -> None:
        """The runner has left the run, and is as one that has none. Its row goes before it can be launched again."""
        self.handle.interrupt = None  # a stop that comes late is not the next run's
        if not self._row_gone:
            await self._settle(True, None)
        self._process = None
        self._world.pool.kept.note(self._admission.definition_id)
        process.stay()
        self._free_capacity()

    def _free_capacity(self) -> None:
        """The runner is proved dead. What is left is for the store to say, for which nobody else need wait."""
        if not self.handle.is_gone:
            self.handle.is_proved = True
            self._wake()

    async def _end(self, process: RunnerProcess) -> bool:
        """Whether the runner, and all that it started, is proved dead: asked to end first, then ended."""
        stopped = self._stop_wanted or self._timed_out is not None
        grace_s = self._world.config.stop_grace_s + LEAVE_MORE_S if stopped else 0.0
        childless = self._last_word.childless and not stopped and not self._last_word.stays
        return await process.prove_dead(childless=childless, grace_s=grace_s)

    async def _keep_last_words(self, process: RunnerProcess) -> None:
        """A runner that ended in the middle of a step has not read all that the step printed."""
        if self._current is not None and self._phase is Phase.TOLD and self._last_word is NOT_SAID:
            self._printed = await process.last_words()
            self._survivors = without(process.survivors, process.prints.masks)

    def _crash(self, process: RunnerProcess) -> StepError | None:
        """What a runner died of that ended in the middle of a step, and not by our hand or with us."""
        self._stop_wanted |= self._world.draining()  # who ends the machine ends runners and daemon together
        if self._current is None or self._stop_wanted or self._timed_out is not None:
            return None
        self._died = self._hung_up and not process.was_unfit
        how = process.died_of or "nobody could tell how"
        message = f"its runner ended in the middle of the step ({how})"
        return StepError(code=RunnerCrashed.code, message=message, node=self._current.node)

    async def _not_launched(self, refusal: PwfError) -> StepError | None:
        """Hold the run with the reason, or count the failure as a runner's end."""
        if isinstance(refusal, ClaimLost | Unavailable):
            self._stop_wanted = True
            await trio.sleep(RETRY_S)  # it is admitted again at once
            return None
        if isinstance(refusal, RunnerCrashed):
            return StepError(code=refusal.code, message=refusal.message)
        hold = hold_for(refusal)
        self._world.log.warning("run.held", run_id=self._fence.run_id, hold=hold)
        fence, detail = self._fence, refusal.message
        held = HoldRun(run_id=fence.run_id, generation=fence.generation, hold=hold, detail=detail)
        await self._write(hold_run, held)
        return None

    async def _serve(self, process: RunnerProcess) -> StepError | None:
        """Talk with the runner until its socket closes or its time is over. What went wrong, if something did."""
        if self._is_to_stop():  # since it was made or admitted; no step has begun, and none begins now
            return None
        launched = self._admission.launched or await self._launch(process)
        if not isinstance(launched, Launched):
            self._stop_wanted = True
            return None
        process.prints.folder = self._world.terms.output_of(self._fence.run_id)
        process.prints.limit = self._world.config.max_output_bytes
        self._enter(launched.current)
        process.on_exit = self._wake
        self._calls_wanted = has_calls(launched.launch)
        self._secrets = launched.launch.graph.secrets
        self.handle.interrupt = process.stream.interrupt
        self._world.deadlines.watch(self.handle)
        try:
            await self._converse(process, encode_line([launched.launch]))
        finally:
            self._world.deadlines.forget(self.handle)
        self._hears_stop()
        return self._fault

    def _is_to_stop(self) -> bool:
        """Whether no step may begin: before there is a runner to speak with, a drain counts, too."""
        self._stop_wanted |= self._world.draining()
        return self._hears_stop()

    def _hears_stop(self) -> bool:
        """Read the inbox. Whether the runner is to be ended."""
        self._stop_wanted |= bool(self._inbox.take_now())
        return self._stop_wanted

    async def _launch(self, process: RunnerProcess) -> Launched | Parked | None:
        """Record custody and begin the attempt. None: the run has another owner by now."""
        started = RunnerStarted(fence=self._fence, identity=process.identity, terms=self._world.terms)
        try:
            return await self._write(runner_started, started)
        except ClaimLost:
            return None

    async def _converse(self, process: RunnerProcess, launch: bytes) -> None:
        """Until there is nothing more to say. Only where there may be calls does a second task serve them."""
        if self._is_to_stop():
            return
        self._phase = Phase.TOLD
        goes_on = await self._send(process, launch)
        while goes_on and not self._calls_wanted:
            goes_on = await self._exchange(process)
        if not goes_on:
            return
        secrets = SecretReads(self._secrets, self._world.secrets_from, process.prints.masks)
        store, run_id = self._world.store, self._fence.run_id
        calls = process.values, store, run_id, secrets, self._calls.answer
        await beside(partial(self._exchange_all, process), serve_calls, *calls)

    async def _exchange_all(self, process: RunnerProcess) -> None:
        while await self._exchange(process):
            pass

    async def _exchange(self, process: RunnerProcess) -> bool:
        """Take what the runner says, and answer it. False: nothing more is to be heard, or said."""
        data = await self._receive(process)
        if not data:  # it has ended, its time is over, or it is to be stopped
            self._hung_up = data is not None
            return False
        try:
            messages = [decode_from_runner(line) for line in self._splitter.feed(data)]
            leaves = self._note_leaving(messages)
            replies = await self._handle_words(messages)
        except ProtocolError as error:
            self._world.log.error("runner.protocol", run_id=self._fence.run_id, error=str(error))
            said = f"the runner sent something unknown: {error}"
            self._fault = StepError(code="protocol_rejected", message=said)
            return False
        except ClaimLost:
            return False
        return not leaves and (not replies or await self._send(process, encode_line(replies)))

    async def _receive(self, process: RunnerProcess) -> bytes | None:
        """The next bytes; empty at the end of the stream; None when the runner is to be ended."""
        while not self._hears_stop():
            try:
                return await process.stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
            except Interrupted:
                if trio.current_time() >= self.handle.deadline:
                    self._stop_wanted |= self._is_over  # its launch anew finds the budget spent
                    if self._current is not None and not self._hears_stop():
                        self._timed_out = self._current.attempt
                    return None
        return None

    async def _send(self, process: RunnerProcess, data: bytes) -> bool:
        try:
            within_s = self._world.config.lease_s  # a stopped one must not stop us
            return await process.stream.send_within(data, within_s)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return True  # it has ended; what it said before that is still to be read

    # --- messages of the runner ---

    def _note_leaving(self, messages: list[FromRunner]) -> bool:
        """Whether its last word is among them: then it ends by itself, and wants no answer."""
        for message in messages:
            if isinstance(message, Leaving):
                self._last_word = message
                if message.not_kept:
                    self._world.pool.kept.note(self._admission.definition_id, message.not_kept)
                if message.childless and not message.stays:
                    self.handle.leaves_nothing = self._process
                    if self.handle.is_gone:  # it was faster than its word
                        self._wake()
                return True
        return False

    async def _handle_words(self, messages: list[FromRunner]) -> list[StepReply]:
        replies: list[StepReply] = []
        steps: list[Sequenced] = []
        told: list[Told] = []
        for message in messages:
            if isinstance(message, Finish | Ask | WaitUntil):
                steps.append(message)
            elif isinstance(message, Told):
                told.append(message)
            elif isinstance(message, PutChunk):
                self._calls_wanted = True
                replies += await self._apply(steps)  # in order: a chunk may belong to a later step
                steps = []
                replies += await self._calls.put_answered(message)
        if told and self._current is not None:
            said = PublishUpdates.told(self._fence, told, self._world.terms.agents)
            published = await self._write(publish_updates, said)
            if (count := published.dropped) > 0:
                self._world.log.warning("updates.dropped", run_id=self._fence.run_id, count=count)
            if published.is_over and not self._is_over:
                self._is_over = True
                self._set_deadline(min(self.handle.deadline, trio.current_time() + OVER_S))
        return replies + await self._apply(steps)

    async def _apply(self, steps: list[Sequenced]) -> list[StepReply]:
        if not steps:
            return []
        drain = self._world.draining()
        stays = self._last_word.stays and not drain and not self._stop_wanted
        agents = self._world.terms.agents
        command = RunnerMessages(
            fence=self._fence, messages=tuple(steps), drain=drain, stays=stays, agents=agents
        )
        applied = await self._write(apply_messages, command)
        self._row_gone = applied.gone
        if applied.current is not None:
            self._enter(applied.current)
        elif applied.replies[-1].verdict != "go":
            self._leave(applied.replies[-1])
        return list(applied.replies)

    def _enter(self, current: Current) -> None:
        self._current, self._is_over = current, False
        if self._process is not None:
            self._process.prints.attempt = current.attempt
        deadline = math.inf
        if current.timeout_ms is not None:
            grace_s = TIMEOUT_GRACE_S
            if current.stops_itself:
                grace_s += self._world.config.stop_grace_s + STOPS_ITSELF_S
            deadline = trio.current_time() + current.timeout_ms / 1000 + grace_s
        self._set_deadline(deadline)

    def _set_deadline(self, deadline: float) -> None:
        self.handle.deadline = deadline
        self._world.deadlines.note(deadline)

    def _leave(self, last: StepReply) -> None:
        self._current = None
        self._parted = last.verdict in ("park", "end")
        if last.verdict == "end":
            self._phase = Phase.ENDED
        self._set_deadline(trio.current_time() + self._world.config.stop_grace_s)
        if last.verdict == "refused":
            self._world.log.error("runner.refused", run_id=self._fence.run_id, error=last.error)

    # --- the end ---

    async def _settle(self, proved: bool, error: StepError | None) -> None:
        fence = self._fence
        if not proved:
            self._world.log.error("runner.unreaped", run_id=fence.run_id, generation=fence.generation)
        gone = RunnerGone(
            entity_no=fence.entity_no,
            kind=RUN.name,
            name=fence.run_id,
            generation=fence.generation,
            proved=proved,
            timed_out=self._timed_out,
            stopped=self._stop_wanted,
            begun=self._phase >= Phase.TOLD,
            died=self._died,
            error=error,
            attempt=None if self._current is None else self._current.attempt,
            printed=self._printed,
            survivors=self._survivors,
            given_up=self._process.identity if self._row_gone and self._process is not None else None,
        )
        await self._write(runner_gone, gone, along=self._phase is Phase.ENDED and proved)

    async def _write(self, handler: Callable[[Tx, C], R], command: C, *, along: bool = False) -> R:
        """Every command here is safe to repeat under its fence or sequence. `along`: nobody waits for it."""
        return await self._world.write(self._fence.run_id, handler, command, along=along)
