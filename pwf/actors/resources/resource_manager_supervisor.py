"""ResourceManagerSupervisor: one for each reconcile that goes on; drives one process, and commits its one result.

Owns: the process's protocol, its lease, its deadline, its end. Promises: custody is stored before the process begins;
one result counts, and is committed in one transaction when the process and all that it started are proved dead; what
the process asks is answered when it is on disk. A process that ends without a result is a failure, which only the
lease's owner books. Must never touch a resource by anything but the fence.
In: the process's messages; `Stop` (somebody let go of the resource, the drain's end). Out: commands to the store,
answers; what is published of it, and a wake-up for the Scheduler.
If it dies: the resource's lease is an orphan, and recovery has it reconciled again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import trio

from pwf.actors.base.mailbox import Mailbox
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.resources.questions import Questions
from pwf.actors.runs.launching import RETRY_S, Launchable, Supervision, acquire, look_up
from pwf.actors.runs.runner_calls import SecretReads
from pwf.errors import ClaimLost, OutcomeUnknown, ProtocolError, PwfError, RunnerCrashed, Unavailable
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.reconcile import Reconcile, Reconciled, decode_from_reconcile
from pwf.protocol.runner import RUNNER_FRAME_BYTES_MAX, Leaving, StepError, encode_line
from pwf.store.custody import runner_gone
from pwf.store.entity_kinds import RunnerGone
from pwf.store.reconciles import (
    ReconcileFinished,
    ReconcileStarted,
    RenewReconcile,
    reconcile_finished,
    reconcile_started,
    renew_reconcile,
)
from pwf.store.resource_queue import AdmittedReconcile
from pwf.store.resource_wake import KIND
from pwf.store.runners import Fence
from pwf.store.tx import Tx

C = TypeVar("C")
R = TypeVar("R")

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 8  # its messages are wishes: a doubled one says nothing new
RENEW_S = 30.0
LEAVE_MORE_S = 0.25  # for the process itself, besides the time that it gives its children
RECEIVE_BYTES = 256 * 1024


# --- messages -------------------------------------------------------------------------------------------------


class Stop(msgspec.Struct, frozen=True):
    """End the process now. The resource is reconciled again."""


# --- the handle -----------------------------------------------------------------------------------------------


class ReconcileSupervisorHandle:
    """What the Scheduler holds of it. What stands here is published by the supervisor."""

    def __init__(self, inbox: Mailbox[Stop]) -> None:
        self._inbox = inbox
        self.is_proved = False  # the process is proved dead; what is left is to say so to the store
        self.is_over = False
        self.has_failed = False
        self.launched_from: Launchable | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is there of the process any more."""
        return self.is_proved

    def stop(self) -> None:
        """End the process now. May be called more than once, and too late."""
        self._inbox.put_now(Stop())


# --- the actor ------------------------------------------------------------------------------------------------


class ResourceManagerSupervisor:
    """The actor: one task, with helpers while it speaks with its process."""

    def __init__(
        self,
        admission: AdmittedReconcile,
        world: Supervision,
        known: Launchable | None,
        questions: Questions,
    ) -> None:
        self._admission = admission
        self._world = world
        self._known = known
        self._questions = questions
        self._fence = Fence(
            run_id=admission.uid,
            entity_no=admission.entity_no,
            generation=admission.generation,
            token=admission.token,
        )
        self._wake = partial(world.wake, (admission.entity_no, admission.generation))
        self._inbox: Mailbox[Stop] = Mailbox(INBOX_MAX, "the supervisor of a reconcile")
        self._process: RunnerProcess | None = None
        self._splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        self._told: Reconcile | None = None
        self._result: Reconciled | None = None
        self._last_word: Leaving | None = None
        self._stop_wanted = False
        self._late = False  # its time was over
        self._fault: StepError | None = None  # what was wrong with what it said
        self.handle = ReconcileSupervisorHandle(self._inbox)

    async def run(self) -> None:
        """One reconcile. A supervisor that fails ends alone: its lease is an orphan, which recovery settles."""
        uid, generation = self._admission.uid, self._admission.generation
        try:
            await self._live(self._known or await self._look_up())
        except OutcomeUnknown:
            raise
        except Unavailable as error:  # a read failed: not this resource's fault
            self._world.log.warning("reconcile.unavailable", uid=uid, code=error.code)
        except Exception as error:  # noqa: BLE001 - supervision: the resource's failure must stay its own
            self._world.log.error("reconcile.failed", uid=uid, generation=generation, error=repr(error))
            self.handle.has_failed = True
        finally:
            if self._process is not None:
                self._process.close()
            self._inbox.close()
            self.handle.is_over = True
            self._wake()

    async def _look_up(self) -> Launchable:
        """What nobody has launched for a while. The Scheduler remembers it."""
        found = self.handle.launched_from = await look_up(self._world.store, self._admission)
        self._wake()
        return found

    # --- one reconcile ---

    async def _live(self, known: Launchable) -> None:
        """Launch, serve, commit."""
        error: StepError | None = None
        proved = True
        try:
            self._process = await acquire(self._world, known, self._admission.uid, self._admission.generation)
        except (ClaimLost, Unavailable):
            self._stop_wanted = True
            await trio.sleep(RETRY_S)  # it is admitted again at once
        except PwfError as refusal:
            error = StepError(code=refusal.code, message=refusal.message)
        if self._process is not None:
            prints = self._process.prints
            prints.folder = self._world.terms.output_of(self._admission.uid)
            prints.attempt, prints.limit = self._admission.generation, self._world.config.max_output_bytes
            await self._serve(self._process, known)
            proved = await self._end(self._process)
            if self._last_word is None:
                await self._process.last_words()
            error = self._why(self._process)
            await self._process.aclose()
        if proved:
            self.handle.is_proved = True
            self._wake()
        await self._commit(proved, error)

    async def _serve(self, process: RunnerProcess, known: Launchable) -> None:
        """Tell the process, and hear it to its last word, its deadline, or a stop."""
        if self._is_to_stop():
            return
        started = ReconcileStarted(
            fence=self._fence,
            definition_id=self._admission.definition_id,
            environment_id=self._admission.environment_id,
            identity=process.identity,
            terms=self._world.terms,
        )
        try:
            told = await self._write(reconcile_started, started)
        except ClaimLost:
            told = None
        if told is None or self._is_to_stop():
            self._stop_wanted = True
            return
        self._told = told
        with trio.CancelScope(deadline=trio.current_time() + told.deadline_ms / 1000) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew)
                nursery.start_soon(self._hear_stop, scope)
                secrets = SecretReads(told.secrets, self._world.secrets_from, process.prints.masks)
                serve = partial(self._questions.serve, deleting=told.deleting, secrets=secrets)
                nursery.start_soon(serve, process.values, self._fence, self._world, known)
                await self._converse(process, told)
                nursery.cancel_scope.cancel()
        self._late = scope.cancelled_caught and not self._stop_wanted and self._result is None

    async def _converse(self, process: RunnerProcess, told: Reconcile) -> None:
        """Until its last word, or its end."""
        try:
            await process.stream.send_all(encode_line([told]))
            while self._last_word is None:
                data = await process.stream.receive_some(RECEIVE_BYTES)
                if not data:
                    return
                for line in self._splitter.feed(data):
                    self._note(decode_from_reconcile(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        except ProtocolError as error:
            self._world.log.error("reconcile.protocol", uid=self._fence.run_id, error=str(error))
            said = f"the process that reconciled it sent something unknown: {error}"
            self._fault = StepError(code="protocol_rejected", message=said)

    def _note(self, message: Reconciled | Leaving) -> None:
        if isinstance(message, Leaving):
            self._last_word = message
        elif self._result is None:  # the first counts
            self._result = message

    async def _renew(self) -> None:
        """Go on owning the resource. One that somebody else has by now is not ours to go on with."""
        while True:
            await trio.sleep(RENEW_S)
            if not await self._write(renew_reconcile, RenewReconcile(fence=self._fence)):
                self._inbox.put_now(Stop())

    async def _hear_stop(self, scope: trio.CancelScope) -> None:
        await self._inbox.take(INBOX_MAX)
        self._stop_wanted = True
        scope.cancel()

    def _is_to_stop(self) -> bool:
        """Whether nothing may begin: before there is a process to speak with, a drain counts, too."""
        self._stop_wanted |= self._world.draining() or bool(self._inbox.take_now())
        return self._stop_wanted

    async def _end(self, process: RunnerProcess) -> bool:
        """Whether the process, and all that it started, is proved dead: asked to end first, then ended."""
        asked = self._stop_wanted or self._late
        grace_s = self._world.config.stop_grace_s + LEAVE_MORE_S if asked else 0.0
        childless = self._last_word is not None and self._last_word.childless and not asked
        return await process.prove_dead(childless=childless, grace_s=grace_s)

    def _why(self, process: RunnerProcess) -> StepError | None:
        """What went wrong where there is no result, by no doing of ours."""
        self._stop_wanted |= self._world.draining() and self._result is None
        if self._told is None or self._result is not None:
            return None
        if self._fault is not None:
            return self._fault
        if self._late:
            message = f"the reconcile took longer than its {self._told.deadline_ms / 1000:g} s"
            return StepError(code="runner_timed_out", message=message)
        how = process.died_of or "nobody could tell how"
        message = f"the process that reconciled it ended without a result ({how})"
        return StepError(code=RunnerCrashed.code, message=message)

    # --- the end ---

    async def _commit(self, proved: bool, error: StepError | None) -> None:
        fence = self._fence
        if not proved:
            self._world.log.error("runner.unreaped", run_id=fence.run_id, generation=fence.generation)
        gone = RunnerGone(
            entity_no=fence.entity_no,
            kind=KIND,
            name=fence.run_id,
            generation=fence.generation,
            proved=proved,
            stopped=self._stop_wanted,
            begun=self._told is not None,
            error=error,
        )
        if self._result is None or self._told is None:
            await self._write(runner_gone, gone)
            return
        finished = ReconcileFinished(
            fence=fence, generation=self._told.generation, result=self._result, gone=gone
        )
        await self._write(reconcile_finished, finished)

    async def _write(self, handler: Callable[[Tx, C], R], command: C) -> R:
        """Every command here is safe to repeat under its fence."""
        return await self._world.write(self._fence.run_id, handler, command, along=False)


# --- pure functions -------------------------------------------------------------------------------------------


def make_reconciler(
    questions: Questions, admission: AdmittedReconcile, world: Supervision, known: Launchable | None
) -> ResourceManagerSupervisor:
    """For the Scheduler, which must not know this room."""
    return ResourceManagerSupervisor(admission, world, known, questions)
