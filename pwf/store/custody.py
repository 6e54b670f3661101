"""Custody of processes: recorded before work starts, given up when they are proved dead, for entities of every kind.

What becomes of the entity itself, its kind decides (`kinds`).
"""

from __future__ import annotations

import msgspec

from pwf.protocol.spawn import Identity
from pwf.store.custody_rows import Q
from pwf.store.entity_kinds import RunnerGone
from pwf.store.kinds import KINDS
from pwf.store.tx import Tx, subject


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


def standing_runners(tx: Tx, _: None = None) -> tuple[Standing, ...]:
    """Every process that is not proved gone: those without a supervisor are what recovery must settle."""
    found = []
    for entity_no, kind, name, generation, pid, tick, boot_id, session in tx.all(Q.standing):
        try:
            identity = msgspec.convert(
                {"pid": pid, "start_tick": tick, "boot_id": boot_id, "session": session}, Identity
            )
        except msgspec.ValidationError:  # it was never told, or the row is damaged: its marker still finds it
            identity = None
        found.append(
            Standing(entity_no=entity_no, kind=kind, name=name, generation=generation, identity=identity)
        )
    for kind in KINDS.values():
        for entity_no, name, generation in tx.all(kind.unattended) if kind.unattended else ():
            found.append(
                Standing(entity_no=entity_no, kind=kind.name, name=name, generation=generation, identity=None)
            )
    return tuple(found)


def runner_gone(tx: Tx, command: RunnerGone) -> None:
    """Settle what the process left open, from the last committed boundary. Safe to repeat."""
    kind = KINDS.get(command.kind)
    if kind is not None:  # else its row is damaged, and `state verify` says so
        kind.settle(tx, command)
    which = {"entity_no": command.entity_no, "generation": command.generation}
    if command.proved:
        tx.run(Q.delete_runner, which)
        tx.run(Q.drop_holds, which)
    else:
        tx.run(Q.runner_ending, which)
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
