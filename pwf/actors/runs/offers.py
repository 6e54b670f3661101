"""Offers: what the Scheduler puts into a transaction that may admit runs, and takes back what was not needed.

An offer is free capacity, and the processes that stand by for the definitions that were launched lately: a run that
finds one of its own is launched in the very transaction that admits it. Owns the standing-by processes of its offers
from `open` to the end of its block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import Reserved
from pwf.actors.processes.warm import TEMPLATES_MAX, TemplateKey, template_key
from pwf.store.daemon import owner_of
from pwf.store.definitions import LaunchFacts
from pwf.store.launch import LaunchTerms
from pwf.store.queue import Admission, Admit, Standby
from pwf.store.runs import RunEnvironment


class Offer:
    """`admit` is the command. Whoever has its answer takes the processes of the runs that were launched."""

    def __init__(self, admit: Admit, reserved: list[Reserved]) -> None:
        self.admit = admit
        self.closed = trio.Event()
        self.stops: set[tuple[str, int | None]] = set()
        self._reserved = {one.process.identity: one for one in reserved}

    def is_stopped(self, admission: Admission) -> bool:
        """Whether the end of its runner was asked for before anybody here knew of it."""
        run_id = admission.run_id
        return bool(self.stops & {(run_id, None), (run_id, admission.generation)})

    def take(self, admission: Admission) -> RunnerProcess | None:
        """The process that was launched for this run; None: it has none yet."""
        if admission.identity is None:
            return None
        marker = self.admit.terms.marker_of(admission.run_id, admission.generation)
        return self._reserved.pop(admission.identity).take(marker)

    def close(self) -> None:
        """Give back what nobody took."""
        while self._reserved:
            self._reserved.popitem()[1].put_back()
        self.closed.set()


class _Known(NamedTuple):
    key: TemplateKey
    root: str


class Offers:
    """Makes offers of the scheduler's capacity; `promised` is what those that are open may use of it."""

    def __init__(self, pool: RunnerPool, epoch: int, lease_ms: int, terms: LaunchTerms) -> None:
        self._pool = pool
        self._epoch = epoch
        self._lease_ms = lease_ms
        self._terms = terms
        self._open: set[Offer] = set()
        self._going_on = 0  # admissions in a row that were no new start
        self._known: dict[tuple[str, str], _Known] = {}  # by definition and environment, the latest last

    @property
    def promised(self) -> int:
        """Runs that may just be being admitted."""
        return sum(offer.admit.limit for offer in self._open)

    def count(self, admissions: tuple[Admission, ...]) -> None:
        """These were admitted, in this order."""
        for admission in admissions:
            self._going_on = 0 if admission.is_new else self._going_on + 1

    def learn(self, admission: Admission, facts: LaunchFacts, environment: RunEnvironment) -> None:
        """What a run was launched from, further ones may be: a process may stand by for them."""
        if facts.sources or facts.isolate == "spawn":
            return  # its files are compared first, or each runner is a process started for itself
        pair = (admission.definition_id, admission.environment_id)
        known = self._known.pop(pair, None)
        if known is None:
            key = template_key(environment.interpreter, admission.definition_id, environment.variables)
            known = _Known(key, facts.root)
        self._known[pair] = known
        while len(self._known) > TEMPLATES_MAX:
            del self._known[next(iter(self._known))]

    @contextmanager
    def open(self, limit: int) -> Iterator[Offer]:
        """An offer for up to `limit` runs."""
        reserved: list[Reserved] = []
        standbys: list[Standby] = []
        for (definition_id, environment_id), known in self._known.items() if limit > 0 else ():
            if not os.path.isdir(known.root):
                continue  # the supervisor says so
            for _ in range(limit):
                one = self._pool.reserve(known.key)
                if one is None:
                    break
                reserved.append(one)
                identity = one.process.identity
                standbys.append(
                    Standby(definition_id=definition_id, environment_id=environment_id, identity=identity)
                )
        admit = Admit(
            limit=limit,
            epoch=self._epoch,
            owner=owner_of(self._epoch),
            lease_ms=self._lease_ms,
            going_on=self._going_on,
            standbys=tuple(standbys),
            terms=self._terms,
        )
        offer = Offer(admit, reserved)
        self._open.add(offer)
        try:
            yield offer
        finally:
            self._open.discard(offer)
            offer.close()

    def stop(self, run_id: str, generation: int | None) -> None:
        """For a run that an open offer may just have admitted: its end may be committed with its admission."""
        for offer in self._open:
            offer.stops.add((run_id, generation))

    async def all_closed(self) -> None:
        """Wait for the offers that are open now. What they admit is known to the scheduler then."""
        for offer in list(self._open):
            await offer.closed.wait()
