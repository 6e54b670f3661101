"""Errands: judges what was submitted for agents, where a workflow says more of it than its type, one at a time.

Owns: the one slot for that, which runs never take, and the errand that is under way. Promises: custody is stored before
the process begins; a verdict is committed when the process is proved dead, and counts once; what the daemon ended
itself is tried again, what failed, died or took too long by itself is rejected with that reason, and where no process
can be had, that counts as nothing. Must never touch a run but through a verdict.
In: time, changes of submissions. Out: commands to the store; `wake` when it is idle.
If it dies: the Scheduler ends, and with it the daemon; the next one settles the process, and judges anew.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from pwf.actors.base.beside import beside
from pwf.actors.base.changes import Changes, Watch
from pwf.actors.runs.judge import ERRAND_S, Judge, Verdict
from pwf.actors.runs.launching import Supervision, acquire, look_up
from pwf.errors import (
    ClaimLost,
    Conflict,
    OutcomeUnknown,
    PwfError,
    RunnerCrashed,
    Unavailable,
    ValueDamaged,
)
from pwf.store.daemon import owner_of
from pwf.store.entity_kinds import RunnerGone
from pwf.store.submission_kind import KIND
from pwf.store.submissions import (
    BeginErrand,
    DueErrand,
    EndErrand,
    ErrandStarted,
    begin_errand,
    due_errand,
    end_errand,
    errand_started,
    submission_state,
)

# --- limits ---------------------------------------------------------------------------------------------------

LEASE_S = 2 * ERRAND_S  # longer than an errand may take with its launch and its end: it is never renewed
REREAD_S = 5.0
RETRY_S = 1.0  # after an errand that could not begin; doubled each time in a row
RETRY_MAX_S = 8.0

Key = tuple[int, int]


# --- the actor ------------------------------------------------------------------------------------------------


class Errands:
    """The actor. `live`: the errand under way, whose process is not recovery's to settle. `idle` tells of its end."""

    def __init__(
        self, world: Supervision, changes: Changes, *, epoch: int, idle: Callable[[], object]
    ) -> None:
        self._world = world
        self._changes = changes
        self._epoch = epoch
        self._idle = idle
        self._scope: trio.CancelScope | None = None  # of the talk with the process
        self._is_stopped = False
        self._after = 0  # the submission that could not be judged: the others come before it is tried again
        self._failures = 0  # in a row
        self.live: frozenset[Key] = frozenset()

    def stop(self) -> None:
        """End what is under way, which is tried again by the next daemon. Nothing begins any more."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Judge, until cancelled."""
        with self._changes.watch("submissions") as watch:
            while True:
                if not await self._judge_next():
                    await watch.wait(REREAD_S)

    async def _judge_next(self) -> bool:
        """Whether there is more to do. What fails is left to recovery, and comes again: later each time."""
        if self._is_stopped or self._world.draining():
            return False
        due: DueErrand | None = None
        try:
            due = await self._world.store.read(due_errand, self._after)
            if due is None:
                is_round_over, self._after = self._after > 0, 0
                return is_round_over
            self.live = frozenset({(due.submission_no, due.generation + 1)})  # before anybody can see it
            began = await self._judge(due)
        except OutcomeUnknown:
            raise
        except (Unavailable, Conflict, ClaimLost) as error:
            self._world.log.warning("errand.unavailable", code=error.code)
            began = False
        except Exception as error:  # noqa: BLE001 - supervision: one submission's fault ends no daemon
            self._world.log.error("errand.failed", error=repr(error))
            began = False
        finally:
            self.live = frozenset()
            self._idle()
        if began:
            self._failures = 0
            return True
        self._after = self._after if due is None else due.submission_no
        await trio.sleep(min(RETRY_MAX_S, RETRY_S * 2**self._failures))
        self._failures += 1
        return True

    async def _judge(self, due: DueErrand) -> bool:
        """One errand, from its lease to the end of its process. False: no process could be had for it."""
        begin = BeginErrand(
            submission_no=due.submission_no,
            generation=due.generation,
            owner=owner_of(self._epoch),
            epoch=self._epoch,
            lease_ms=int(LEASE_S * 1000),
        )
        token = await self._world.write(due.run_id, begin_errand, begin, along=False)
        if token is None:
            return True
        errand = _Errand(self._world, due, due.generation + 1)
        try:
            verdict = await self._hear(due, errand)
            proved = await errand.prove_dead()
            if errand.fell_silent and not (self._is_stopped or self._world.draining()):
                verdict = False, errand.obituary
        finally:
            errand.close()  # whatever became of it
        gone = RunnerGone(
            entity_no=due.submission_no,
            kind=KIND,
            name=due.name,
            generation=due.generation + 1,
            proved=proved,
            stopped=verdict is None,
        )
        accepted, reason = (None, "") if verdict is None else verdict
        end = EndErrand(gone=gone, token=token, accepted=accepted, reason=reason)
        await self._world.write(due.run_id, end_errand, end, along=False)
        return not errand.has_no_process

    async def _hear(self, due: DueErrand, errand: _Errand) -> Verdict | None:
        """What the process says. None: it is stopped, or its submission is over."""
        verdict = None
        with self._changes.watch("submissions") as watch, trio.CancelScope() as scope:
            self._scope = scope
            if not self._is_stopped:
                verdict = await beside(errand.ask, self._end_with_its_submission, due, watch, scope)
        self._scope = None
        return verdict

    async def _end_with_its_submission(self, due: DueErrand, watch: Watch, scope: trio.CancelScope) -> None:
        """The task that ends the talk when its run has ended: nobody wants the verdict any more."""
        while True:
            await watch.wait(REREAD_S)
            try:
                state = await self._world.store.read(submission_state, due.submission_no)
            except Unavailable:
                continue
            if state.status != "validating":
                scope.cancel()


class _Errand(Judge):
    """One process that judges one submission."""

    def __init__(self, world: Supervision, due: DueErrand, generation: int) -> None:
        super().__init__(world, due.run_id, "validate=")
        self._due = due
        self._generation = generation
        self.has_no_process = False  # it could not be launched, which is nobody's fault

    async def ask(self) -> Verdict | None:
        """The verdict; None where there is none, which is nobody's fault but the daemon's."""
        try:
            known = await look_up(self._world.store, self._due)
            self.process = await acquire(self._world, known, self._due.name, self._generation)
        except (Unavailable, RunnerCrashed) as error:
            self._world.log.warning("errand.no_process", error=error.message)
            self.has_no_process = True
            return None
        except PwfError as refusal:
            return False, f"it could not be validated: {refusal.message}"
        started = ErrandStarted(
            submission_no=self._due.submission_no,
            name=self._due.name,
            generation=self._generation,
            identity=self.process.identity,
            terms=self._world.terms,
        )
        try:
            launch = await self._world.write(self._due.run_id, errand_started, started, along=False)
        except ValueDamaged as refusal:
            return False, f"it could not be validated: {refusal.message}"
        return None if launch is None else await self.converse(self.process, launch)
