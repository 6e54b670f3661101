"""Offers: what goes into a transaction that may admit runs, and comes back to the Scheduler when that is over.

An offer is seats of the capacity, and the processes that stand by for the definitions that were launched lately: a run
that finds one of its own is launched in the very transaction that admits it. Whoever takes an offer owns its seats and
processes, and hands them over to the Scheduler with what was admitted, also when nothing was.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import msgspec
from trio_util import AsyncValue

from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import Reserved, TemplateKey
from pwf.actors.runs.capacity import Seat, SeatsOffered, Snapshot
from pwf.actors.runs.launching import Launchable
from pwf.errors import Unavailable
from pwf.store.daemon import owner_of
from pwf.store.launch import LaunchTerms
from pwf.store.queue import Admit, Admitted, AdmittedRun, Standby


class Offer:
    """`admit` is the command. The Scheduler takes the processes of the runs that were launched, and closes it."""

    def __init__(self, admit: Admit, seats: list[Seat], reserved: list[Reserved]) -> None:
        self.admit = admit
        self.seats = seats
        self._reserved = {one.process.identity: one for one in reserved}

    def take(self, admission: AdmittedRun) -> RunnerProcess | None:
        """The process that was launched for this run; None: it has none yet."""
        if admission.identity is None:
            return None
        marker = self.admit.terms.marker_of(admission.run_id, admission.generation)
        return self._reserved.pop(admission.identity).take(marker)

    def close(self) -> None:
        """Put back the processes that nobody took."""
        while self._reserved:
            self._reserved.popitem()[1].put_back()


class OfferClosed(msgspec.Struct, frozen=True, kw_only=True):
    """To the Scheduler: the transaction is over. `admitted`: None when nothing was, as far as anybody knows."""

    offer: Offer
    admitted: Admitted | None


class Offers:
    """Makes offers, for any task: of seats that are laid out, and of what the Scheduler publishes."""

    def __init__(
        self,
        store: StoreHandle,
        reserve: Callable[[TemplateKey], Reserved | None],
        hand_over: Callable[[OfferClosed], Awaitable[None]],
        seats: SeatsOffered,
        snapshot: AsyncValue[Snapshot],
        launchables: AsyncValue[tuple[Launchable, ...]],
        *,
        epoch: int,
        lease_ms: int,
        terms: LaunchTerms,
    ) -> None:
        self._store = store
        self._reserve = reserve
        self._hand_over = hand_over
        self._seats, self._beyond = seats
        self._snapshot = snapshot
        self._launchables = launchables
        self._template = Admit(limit=0, epoch=epoch, owner=owner_of(epoch), lease_ms=lease_ms, terms=terms)

    @property
    def why_stopped(self) -> str | None:
        """Why nothing may be admitted now."""
        stopped: str | None = self._snapshot.value.stopped
        return "the disk is full" if stopped is None and self._store.disk_full else stopped

    @property
    def free(self) -> int:
        """How many runs may be admitted now."""
        return self._seats.count if self.why_stopped is None else 0

    def take(self, most: int | None = None) -> Offer:
        """An offer for as many runs as may be admitted, at most `most`; perhaps none. Whoever takes it closes it."""
        seats = self._seats.take_now(most) if self.why_stopped is None else []
        reserved: list[Reserved] = []
        standbys: list[Standby] = []
        for found in self._launchables.value if seats else ():
            if found.key is None or not os.path.isdir(found.facts.root):
                continue  # the supervisor says so
            for _ in seats:
                one = self._reserve(found.key)
                if one is None:
                    break
                reserved.append(one)
                standbys.append(
                    Standby(
                        definition_id=found.definition_id,
                        environment_id=found.environment_id,
                        identity=one.process.identity,
                    )
                )
        admit = msgspec.structs.replace(
            self._template,
            limit=len(seats),
            going_on=self._snapshot.value.going_on,
            turn=self._snapshot.value.turn,
            standbys=tuple(standbys),
        )
        return Offer(admit, seats, reserved)

    @property
    def runs_hold_all(self) -> bool:
        """Whether runs alone have all the capacity, so that a reconcile that has waited may exceed it."""
        snapshot: Snapshot = self._snapshot.value
        nobody_else = not self.free and not snapshot.reconciles and self.why_stopped is None
        return nobody_else and bool(self._beyond.count)

    def take_beyond(self) -> Offer:
        """An offer for one reconcile beyond the capacity. Whoever takes it closes it."""
        seats = self._beyond.take_now() if self.runs_hold_all else []
        admit = msgspec.structs.replace(self._template, limit=len(seats), reconciles_only=True)
        return Offer(admit, seats, [])

    async def close(self, offer: Offer, admitted: Admitted | None) -> None:
        """Hand over what was admitted, and give back the rest. A caller that is cancelled hands over first."""
        try:
            await self._hand_over(OfferClosed(offer=offer, admitted=admitted))
        except Unavailable:
            offer.close()  # the daemon ends, and the next one recovers
