"""The home id: which home a database belongs to, and what happens to a copy or a restored backup.

The id is bound to the folder's inode (and, within a boot, to its device). In another folder the database is
a copy: it gets a new id, all leases and runner rows are voided without a signal to anybody, and every run
that would go on is held as `restored`, since what happened after the copy was made is unknown.
"""

from __future__ import annotations

import msgspec

from pwf.store import moves
from pwf.store.daemon import Claim, Claimed, claim
from pwf.store.queries import load_queries
from pwf.store.runner_end import RunnerGone, runner_gone
from pwf.store.state import load_run, save_position
from pwf.store.tx import Tx

Q = load_queries(__file__)


class ClaimHome(msgspec.Struct, frozen=True, kw_only=True):
    """Claim the database in the folder with this device and inode."""

    claim: Claim
    device: int
    inode: int


def claim_home(tx: Tx, command: ClaimHome) -> Claimed:
    """Fence the previous daemon; in a copy, hold what it was doing. One transaction."""
    copied = _bind(tx, command)
    if copied:
        tx.run(Q.void_leases)
    claimed = claim(tx, command.claim)
    if copied:
        _hold_all(tx)
    return claimed


def _bind(tx: Tx, command: ClaimHome) -> bool:
    """Write whose folder this is; whether the database came from another."""
    place = [str(command.inode), str(command.device), tx.now.boot_id]
    known = tx.one(Q.fact, {"key": "home_place"})
    if known is not None:
        inode, device, boot_id = str(known[0]).split(" ")
        # Device numbers may change from boot to boot, inodes do not.
        same = inode == place[0] and (device == place[1] or boot_id != place[2])
    if known is None or not same:
        tx.run(Q.set_fact, {"key": "home_id", "value": tx.ids.new()})
    tx.run(Q.set_fact, {"key": "home_place", "value": " ".join(place)})
    return known is not None and not same


def _hold_all(tx: Tx) -> None:
    for run_id, generation in tx.all(Q.runners):
        runner_gone(tx, RunnerGone(run_id=run_id, generation=generation, proved=True, stopped=True))
    for (run_id,) in tx.all(Q.not_ended):
        run = load_run(tx, run_id)
        run.revision = tx.fence(run.entity_id)
        detail = "the database was copied or restored: what the run did after that is unknown"
        moves.hold(tx, run, "restored", detail, waiting=run.status == "waiting")
        save_position(tx, run)
        moves.note(tx, run, "held", "daemon", {"hold": "restored"})
