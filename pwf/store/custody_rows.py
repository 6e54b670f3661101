"""The rows of custody: written with a launch, marked when the work is over. `custody` decides when they go."""

from __future__ import annotations

from pwf.protocol.spawn import Identity
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


def add_runner(tx: Tx, entity_no: int, generation: int, epoch: int, identity: Identity | None = None) -> None:
    """Custody of a process; without an identity a place for it, before the process exists."""
    state = "launching" if identity is None else "live"
    facts = {"epoch": epoch, "state": state, "now": tx.now.wall_ms}
    tx.run(Q.add_runner, {**_identity(entity_no, generation, identity), **facts})


def runner_is_live(tx: Tx, entity_no: int, generation: int, identity: Identity) -> None:
    """The process of an entity that was admitted without one."""
    tx.run(Q.runner_started, _identity(entity_no, generation, identity))


def runner_is_ending(tx: Tx, entity_no: int, generation: int, given_up: Identity | None = None) -> None:
    """The process has nothing more to do; it is still to be proved dead. `given_up`: it has no row any more."""
    tx.run(Q.runner_ending, {"entity_no": entity_no, "generation": generation})
    if given_up is not None:
        tx.run(Q.runner_again, {**_identity(entity_no, generation, given_up), "now": tx.now.wall_ms})


def runner_is_gone(tx: Tx, entity_no: int, generation: int) -> None:
    """The process and all that it started are proved dead, or it has left the entity and bears its marker no more."""
    which = {"entity_no": entity_no, "generation": generation}
    tx.run(Q.delete_runner, which)
    tx.run(Q.drop_holds, which)


def has_runner(tx: Tx, entity_no: int) -> bool:
    """Whether a process of the entity may still do something."""
    return tx.one(Q.has_runner, {"entity_no": entity_no}) is not None


def holds_lease(tx: Tx, entity_no: int, generation: int, token: str) -> bool:
    """Whether the entity is still the writer's, without counting a write."""
    owner = {"entity_no": entity_no, "generation": generation, "token": token}
    return tx.one(Q.lease_holder, owner) is not None


def _identity(entity_no: int, generation: int, identity: Identity | None) -> dict[str, object]:
    return {
        "entity_no": entity_no,
        "generation": generation,
        "pid": identity and identity.pid,
        "start_tick": identity and identity.start_tick,
        "boot_id": identity and identity.boot_id,
        "session": identity and identity.session,
    }
