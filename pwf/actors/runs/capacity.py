"""Capacity: a seat for each run or reconcile that may be live at once, and one beyond them.

A seat is laid out for whoever may admit one next, or it is with an open offer, or a live one has it until its process
is proved dead. The one beyond the capacity is for a reconcile, while runs hold all others. Owned by the Scheduler's
task, which alone lays out; anybody may take a seat that is laid out, and says so by the message that closes its offer.
Promises: there are never more seats than these; one that was taken counts as used until it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from pwf.actors.base.mailbox import Mailbox
from pwf.store.queue import Turn


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the Scheduler publishes. `used`: launches and live runners, those still being proved dead included.

    `reconciles`: those of them that have a reconcile. `going_on`: admissions in a row that were no new start. `turn`:
    whose it is, where both have work. `stopped` says why nothing is admitted.
    `is_settled`: nothing is admitted any more, and nothing of what was is left here.
    """

    used: int = 0
    reconciles: int = 0
    admissions: int = 0
    going_on: int = 0
    turn: Turn = "run"
    stopped: str | None = None
    is_settled: bool = False


class Seat(msgspec.Struct, frozen=True):
    """Room for one run or reconcile."""

    number: int


class SeatsOffered(NamedTuple):
    """Where seats are laid out: those of the capacity, and the one beyond."""

    laid_out: Mailbox[Seat]
    beyond: Mailbox[Seat]


class Capacity:
    """The Scheduler's own. `offers` is what others hold of it."""

    def __init__(self, seats: int) -> None:
        self.laid_out: Mailbox[Seat] = Mailbox(seats, "the scheduler")
        self.beyond: Mailbox[Seat] = Mailbox(1, "the scheduler")
        self.offers = SeatsOffered(self.laid_out, self.beyond)
        self._one_beyond = Seat(seats)
        self._kept = set(map(Seat, range(seats + 1)))  # not to be had: before `open`, and after `close`
        self._away: set[Seat] = set()  # laid out, or with an offer
        self._is_open = False

    @property
    def is_back(self) -> bool:
        """Whether no seat is laid out or with an offer."""
        return not self._away

    def open(self) -> None:
        """Admissions may begin."""
        self._is_open = True
        kept, self._kept = self._kept, set()
        self.give_back(kept)

    def close(self) -> None:
        """No further run is admitted; what is with an offer comes back later."""
        self._is_open = False
        taken = [*self.laid_out.take_now(), *self.beyond.take_now()]
        self._away.difference_update(taken)
        self._kept.update(taken)

    def occupy(self, seat: Seat) -> None:
        """What was admitted by an offer has this seat of it."""
        self._away.discard(seat)

    def give_back(self, seats: Iterable[Seat]) -> None:
        """They are free: an offer did not need them, or their runs' runners are proved dead."""
        for seat in seats:
            if self._is_open:
                self._away.add(seat)
                self._box_of(seat).put_now(seat)
            else:
                self._away.discard(seat)
                self._kept.add(seat)

    def offered(self) -> set[Seat]:
        """The seats that are with an open offer now: what it admits is not known here yet."""
        inside = [*self.laid_out.take_now(), *self.beyond.take_now()]
        for seat in inside:
            self._box_of(seat).put_now(seat)
        return self._away.difference(inside)

    def _box_of(self, seat: Seat) -> Mailbox[Seat]:
        return self.beyond if seat == self._one_beyond else self.laid_out
