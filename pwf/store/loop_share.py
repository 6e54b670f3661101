"""The event loop's share of a batch: which part of the store's work its own thread does. The whole rule stands here.

Why: to hand a batch to the writer's thread and back costs two hops, and while both threads execute Python they wait for
one another's interpreter lock. A short command costs less than that; so does a COMMIT while the disk is fast.

A batch begins in the loop's thread. It goes on in the writer's, in the same transaction, and never comes back, when

1. the writer's thread has work: the connection is used by one thread at a time;
2. the database is locked by another process: the loop does not wait for a lock;
3. the next command is not `SHORT`, or finds that it will take long (`Tx.lengthy`): large values, many due rows,
   many runs to admit, or a long past to tell one;
4. the loop has spent `TURN_S` on this batch;
5. something must be undone, or a COMMIT has failed: what follows may be anything, a full disk's ballast included;
6. COMMITs are slow (`Pace`). Then commands still begin here, and only COMMITs wait for the disk elsewhere.

Checkpoints, ballast, rescue and closing are calls of their own, always in the writer's thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pwf.store.at_run import at_run
from pwf.store.batch import Batch, Job, Writer
from pwf.store.channel_answers import take_answer
from pwf.store.channel_messages import begin_work, make_messages, make_missing, settle_work
from pwf.store.channel_rows import begin_epoch, channel_stands, configure
from pwf.store.channel_words import probe_channel, recover_message
from pwf.store.child_words import change_child, queue_for_child, remove_for_child, run_of_child
from pwf.store.children import cancel_child, ensure_child, find_child
from pwf.store.control import cancel, hold_run, pause, resume
from pwf.store.custody import runner_gone, runners_gone, standing_stretch
from pwf.store.daemon import release, renew
from pwf.store.deadlines import time_out
from pwf.store.decisions import decide
from pwf.store.effects import resolve_effect
from pwf.store.follow_ups import queue_follow_up, remove_follow_up
from pwf.store.fork import fork_run, look_fork
from pwf.store.home import claim_home, last_owner
from pwf.store.launch import runner_started
from pwf.store.once import keep_refusal
from pwf.store.queue import admit, rebase, start_admitted
from pwf.store.receipts import drop_receipts
from pwf.store.reconciles import reconcile_finished, reconcile_started, renew_reconcile
from pwf.store.request_clock import rebase_deadlines
from pwf.store.request_updates import update_request
from pwf.store.requests import answer
from pwf.store.resource_effects import reconcile_part
from pwf.store.resource_retention import drop_old_effects, trim_events
from pwf.store.resource_watch import wake_watching
from pwf.store.resource_words import resolve_resource_effect
from pwf.store.resources import (
    apply_resource,
    delete_resource,
    pause_resource,
    reconcile_resource,
    resume_resource,
)
from pwf.store.restart import look_restart, restart_run
from pwf.store.retention import drop_definitions, drop_environments, prune_tree, record_prune
from pwf.store.runs import start_run
from pwf.store.session_clock import sample
from pwf.store.session_turns import report, report_turn
from pwf.store.sessions import attach, clear, detach
from pwf.store.settings import change_settings
from pwf.store.space import compact
from pwf.store.step_parts import part_call
from pwf.store.submissions import begin_errand, end_errand, errand_started, submit
from pwf.store.transcripts import record
from pwf.store.transitions import apply_messages
from pwf.store.unreadable import park_unreadable
from pwf.store.updates import publish_updates
from pwf.store.uploads import drop_uploads, put_upload
from pwf.store.values import drop_values, put_chunk
from pwf.store.web_tokens import enter, invite, leave, make_link

TURN_S = 0.002  # that the loop gives to the commands of one batch: as long as four fast COMMITs
COMMITS_SEEN = 16  # the last ones, by which the disk is judged
PROBE_S_MAX = 0.002  # that the first COMMIT in the loop's thread may take
HELD_S_MAX = 0.016  # that the last COMMITs may have held the loop for together: 1 ms each
APART_S_MIN = (
    1.0  # COMMITs stay in the writer's thread so long, that a disk of changing speed rarely holds the loop
)

#: Commands of a few rows by their keys. What is in neither table goes to the writer's thread.
SHORT: frozenset[Callable[..., Any]] = frozenset(
    {
        admit,
        answer,
        apply_messages,
        apply_resource,
        attach,
        begin_epoch,
        begin_work,
        clear,
        record,
        report,
        report_turn,
        sample,
        cancel,
        cancel_child,
        channel_stands,
        change_child,
        change_settings,
        delete_resource,
        detach,
        ensure_child,
        enter,
        find_child,
        queue_follow_up,
        queue_for_child,
        remove_follow_up,
        remove_for_child,
        run_of_child,
        fork_run,
        decide,
        hold_run,
        invite,
        keep_refusal,
        leave,
        look_fork,
        look_restart,
        make_link,
        part_call,
        pause,
        pause_resource,
        probe_channel,
        publish_updates,
        reconcile_finished,
        reconcile_part,
        reconcile_resource,
        reconcile_started,
        record_prune,
        recover_message,
        settle_work,
        take_answer,
        renew_reconcile,
        resolve_effect,
        resolve_resource_effect,
        release,
        renew,
        restart_run,
        resume,
        resume_resource,
        runner_gone,
        runner_started,
        start_admitted,
        start_run,
        submit,
        update_request,
        time_out,
        begin_errand,
        end_errand,
        errand_started,
        wake_watching,
    }
)

#: Commands that walk through many rows or large values, or run once.
LONG: frozenset[Callable[..., Any]] = frozenset(
    {
        claim_home,
        compact,
        configure,
        make_messages,
        make_missing,
        drop_definitions,
        drop_environments,
        drop_receipts,
        drop_values,
        last_owner,
        park_unreadable,
        drop_old_effects,
        prune_tree,
        trim_events,
        drop_uploads,
        put_chunk,
        put_upload,
        rebase,
        rebase_deadlines,
        runners_gone,
        standing_stretch,
    }
)


def is_short(job: Job) -> bool:
    """Whether a job may run in the loop's thread."""
    return (job.command.handler if job.handler is at_run else job.handler) in SHORT


class Pace:
    """Judges the disk by its last COMMITs: `in_loop` says whose thread makes the next one.

    At first it is the writer's. After `COMMITS_SEEN` there the next is made in the loop, as a probe, and more follow
    if it took no more than `PROBE_S_MAX`. The loop gives up once the last ones have held it for `HELD_S_MAX`: of a disk
    that takes 5 ms, four do; of one that hangs, one. Then there is no probe for `APART_S_MIN`.

    How long COMMITs take in the writer's thread decides little: the wait for the interpreter lock is part of it, some
    milliseconds while the loop is busy. If each of the last ones took `HELD_S_MAX`, it is surely the disk, and there is
    no probe. So a slow disk holds the loop for one COMMIT a second, and one that hangs for none.
    """

    def __init__(self) -> None:
        self.in_loop = False
        self._took: deque[float] = deque(maxlen=COMMITS_SEEN)
        self._apart_until = 0.0

    def note(self, took_s: float, now_s: float) -> None:
        """A COMMIT has ended, and took so long."""
        self._took.append(took_s)
        if self.in_loop:
            failed_probe = len(self._took) == 1 and took_s > PROBE_S_MAX
            if failed_probe or sum(self._took) > HELD_S_MAX:
                self.in_loop, self._apart_until = False, now_s + APART_S_MIN
                self._took.clear()
        elif len(self._took) == COMMITS_SEEN and now_s >= self._apart_until and min(self._took) < HELD_S_MAX:
            self.in_loop = True
            self._took.clear()


class LoopShare:
    """Decides for one executor. Used by one thread at a time, as the writer is. `clock`: seconds that go forward."""

    def __init__(
        self, *, clock: Callable[[], float] = time.perf_counter, may_run: Callable[[Job], bool] = is_short
    ) -> None:
        self.pace = Pace()
        self._clock = clock
        self._may_run = may_run
        self._until = 0.0

    def run(self, writer: Writer, jobs: Sequence[Job]) -> Batch | None:
        """In the loop's thread: do what may be done there. None: the writer's thread has to execute and `commit` it."""
        if not self._may_run(jobs[0]):
            return None
        self._until = self._clock() + TURN_S
        if writer.execute_at_once(jobs, self._may_go_on) and self.pace.in_loop and self._commit(writer):
            return writer.batch()
        return None

    def commit(self, writer: Writer) -> Batch:
        """In the writer's thread, after `Writer.execute`."""
        if writer.may_commit:
            self._commit(writer)
        return writer.commit()

    def _may_go_on(self, job: Job) -> bool:
        return self._clock() < self._until and self._may_run(job)

    def _commit(self, writer: Writer) -> bool:
        began = self._clock()
        done = writer.try_commit()
        ended = self._clock()
        self.pace.note(ended - began, ended)
        return done
