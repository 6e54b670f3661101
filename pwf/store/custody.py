"""Custody of processes: recorded before work starts, given up when they are proved dead, for entities of every kind.

What becomes of the entity itself, its kind decides (`kinds`). Who is to signal a process reads its row by a command:
the transaction has checked the daemon's epoch, and what a later daemon launches is another generation.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.spawn import Identity
from pwf.store.custody_rows import Q, runner_is_ending, runner_is_gone
from pwf.store.entity_kinds import RunnerGone
from pwf.store.kinds import KINDS
from pwf.store.tx import Tx, subject

STRETCH_MAX = 200  # rows that are read at once


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A process's row, or an entity that says it has a process, without one. `identity` is None when it was never told.

    `name` is also what the process's marker names.
    """

    entity_no: int
    kind: str
    name: str
    generation: int
    identity: Identity | None

    def gone(self, *, proved: bool, stopped: bool) -> RunnerGone:
        """Its end, as `runner_gone` takes it."""
        return RunnerGone(
            entity_no=self.entity_no,
            kind=self.kind,
            name=self.name,
            generation=self.generation,
            proved=proved,
            stopped=stopped,
        )


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Some of what stands; `more`: there may be others `after` this entity."""

    found: tuple[Standing, ...]
    after: int
    more: bool


def standing_stretch(tx: Tx, after: int) -> Stretch:
    """The processes of the entities after this one that are not proved gone; the last stretch has those without a row.

    Those without a supervisor are what recovery must settle.
    """
    found = _standing(tx, after, STRETCH_MAX)
    if len(found) == STRETCH_MAX:
        return Stretch(found=tuple(found), after=found[-1].entity_no, more=True)
    return Stretch(found=(*found, *_unattended(tx)), after=after, more=False)


def standing_runners(tx: Tx, _: None = None) -> tuple[Standing, ...]:
    """All of them."""
    return (*_standing(tx, 0, -1), *_unattended(tx))


def _standing(tx: Tx, after: int, limit: int) -> list[Standing]:
    found = []
    rows = tx.all(Q.standing, {"after": after, "limit": limit})
    for entity_no, kind, name, generation, pid, tick, boot_id, session in rows:
        try:
            identity = msgspec.convert(
                {"pid": pid, "start_tick": tick, "boot_id": boot_id, "session": session}, Identity
            )
        except msgspec.ValidationError:  # it was never told, or the row is damaged: its marker still finds it
            identity = None
        found.append(
            Standing(entity_no=entity_no, kind=kind, name=name, generation=generation, identity=identity)
        )
    return found


def _unattended(tx: Tx) -> list[Standing]:
    return [
        Standing(entity_no=entity_no, kind=kind.name, name=name, generation=generation, identity=None)
        for kind in KINDS.values()
        for entity_no, name, generation in (tx.all(kind.unattended) if kind.unattended else ())
    ]


def runner_gone(tx: Tx, command: RunnerGone) -> None:
    """Settle what the process left open, from the last committed boundary. Safe to repeat."""
    kind = KINDS.get(command.kind)
    if kind is not None:  # else its row is damaged, and `state verify` says so
        kind.settle(tx, command)
    if command.proved:
        runner_is_gone(tx, command.entity_no, command.generation)
    else:
        runner_is_ending(tx, command.entity_no, command.generation, command.given_up)
    tx.changed(subject(command.kind, command.name))


def runners_gone(tx: Tx, gone: tuple[RunnerGone, ...]) -> None:
    """Settle several processes' ends in one transaction."""
    for one in gone:
        runner_gone(tx, one)


def void_custody(tx: Tx) -> None:
    """In a copied or restored database no process is ours: settle each as one that is gone, and signal nobody."""
    for found in standing_runners(tx):
        runner_gone(tx, found.gone(proved=True, stopped=True))
    tx.run(Q.void_runners)
