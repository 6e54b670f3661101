"""Commands that are slipped into the daemon's batches to force what hardly ever happens by itself.

None of them changes anything that others see. `Spoiler.spoil` gives the jobs of a batch with one more among them, and
`heal` takes its answer out again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import apsw

from pwf.errors import ClaimLost, Rejected
from pwf.store.batch import Batch, Job
from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.loop_share import LONG, is_short
from pwf.store.tx import Tx

TAKEN_OVER = 0.3  # of the batches that are lost


def may_run(job: Job) -> bool:
    """As the product has it for its own commands, each of which it knows. One that is to be undone may run anywhere."""
    assert is_short(job) or job.handler in LONG or job.handler.__module__ == __name__, job.handler
    return is_short(job) or job.handler is _write_and_refuse


class Spoiler:
    """One per life of the daemon."""

    def __init__(self, world: Any, life: Any, chance: random.Random) -> None:
        self._world = world
        self._life = life
        self._chance = chance
        self._place: int | None = None
        self._taken_over: int | None = None

    def spoil(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The jobs, perhaps with one that is refused after a write, or that ends the transaction."""
        self._place = self._taken_over = None
        if not self._life.serving:
            return jobs
        if self._happens("undone"):
            self._world.fault("undone")
            self._place = self._chance.randrange(len(jobs) + 1)
            return [*jobs[: self._place], Job(_write_and_refuse, None), *jobs[self._place :]]
        if self._happens("batch_lost"):
            takes_over = self._chance.random() < TAKEN_OVER
            self._world.fault("batch_lost", takes_over=takes_over)
            self._life.wounds.hit("io_error")
            self._place = 0
            return [Job(self._lose, [takes_over]), *jobs]
        return jobs

    def _happens(self, fault: str) -> bool:
        return bool(self._chance.random() < self._world.rate(fault))

    def _lose(self, tx: Tx, takes_over: list[bool]) -> None:
        """End the transaction as SQLite does; alone, be another daemon that takes the home in between."""
        if takes_over[0] is not None and len(takes_over) == 1:
            takes_over.append(True)
            tx.run("ROLLBACK")
            raise apsw.IOError("SQLite gave up")
        if takes_over[0]:
            command = ClaimEpoch(token=f"thief-{self._life.number}", lease_ms=1, pid=0, version="sim")
            self._taken_over = claim(tx, command).epoch

    def heal(self, batch: Batch) -> Batch:
        """The batch as its callers know it."""
        if self._place is None:
            return batch
        answers = list(batch.answers)
        if answers[self._place].error is not None:
            self._taken_over = None  # it could not be committed
        del answers[self._place]
        return batch._replace(answers=answers)

    def judge(self, jobs: Sequence[Job], batch: Batch) -> None:
        """After the auditor has looked: what came after the other daemon's claim was fenced."""
        if self._taken_over is None:
            return
        self._world.auditor.claimed(None, self._taken_over)
        for job, answer in zip(jobs, batch.answers, strict=True):
            fenced = job.before_claim or isinstance(answer.error, ClaimLost)
            self._world.auditor.check(fenced, f"a command alone is fenced by the epoch: {job} {answer}")


def _write_and_refuse(tx: Tx, _: None) -> None:
    tx.run("INSERT INTO meta (key, value) VALUES ('undone', '')")
    raise Rejected("undone")
