"""The home id: which home a database belongs to, and what happens to a copy or a restored backup.

The id is bound to the folder's inode (and, within a boot, to its device). In another folder the database is
a copy: it gets a new id, all leases, runner rows and tokens of pages are voided without a signal to anybody, and every
run that would go on is held as `restored`, since what happened after the copy was made is unknown. The same holds
for an older copy that was put back in its own place: the folder has seen later daemons than it has.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.spawn import Identity
from pwf.store.custody import void_custody
from pwf.store.daemon import Claimed, ClaimEpoch, claim
from pwf.store.kinds import KINDS
from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)

NOWHERE = "0 0 nowhere"  # the place of a backup: no folder is it


class ClaimHome(msgspec.Struct, frozen=True, kw_only=True):
    """Claim the database in the folder with this device and inode.

    `seen_home_id`, `seen_epoch`: what the folder's lock file says was served here last.
    `died`: the earlier daemon ended neither in order, nor by a signal of others.
    """

    claim: ClaimEpoch
    device: int
    inode: int
    seen_home_id: str = ""
    seen_epoch: int = 0
    died: bool = False


def claim_home(tx: Tx, command: ClaimHome) -> Claimed:
    """Fence the previous daemon; in a copy, hold what it was doing. One transaction."""
    known = tx.one(Q.fact, {"key": "home_place"})
    rebooted = known is not None and not str(known[0]).endswith(f" {tx.now.boot_id}")
    copied = _bind(tx, command)
    if copied:
        tx.run(Q.void_leases)
    suspects = sum(kind.daemon_ended(tx, command.died, rebooted) for kind in KINDS.values())
    claimed = claim(tx, command.claim)
    if copied:
        _hold_all(tx)
    return msgspec.structs.replace(claimed, suspects=suspects)


class HomeFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder with this device and inode."""

    device: int
    inode: int


def last_owner(tx: Tx, query: HomeFolder) -> Identity | None:
    """The process that claimed this home last and has not given it up; None where the database is from elsewhere.

    It may have ended: whoever asks looks at the process.
    """
    place = tx.one(Q.fact, {"key": "home_place"})
    claimed = tx.one(Q.last_claim)
    if place is None or claimed is None or claimed[0] != "claimed":
        return None
    facts = msgspec.json.decode(claimed[1])
    if str(place[0]) != f"{query.inode} {query.device} {facts['boot_id']}":
        return None
    return Identity(pid=facts["pid"], start_tick=facts["start_tick"], boot_id=facts["boot_id"], session=0)


def _bind(tx: Tx, command: ClaimHome) -> bool:
    """Write whose folder this is; whether the database came from another, or is older than what was here."""
    place = [str(command.inode), str(command.device), tx.now.boot_id]
    known = tx.one(Q.fact, {"key": "home_place"})
    same = False
    if known is not None:
        was = str(known[0]).split(" ")
        # Device numbers may change from boot to boot, inodes do not. A place that makes no sense is another one.
        same = len(was) == 3 and was[0] == place[0] and (was[1] == place[1] or was[2] != place[2])
        same = same and not _is_older(tx, command)
    if not same:
        tx.run(Q.set_fact, {"key": "home_id", "value": tx.ids.new()})
    tx.run(Q.set_fact, {"key": "home_place", "value": " ".join(place)})
    return known is not None and not same


def _is_older(tx: Tx, command: ClaimHome) -> bool:
    """Whether a later daemon has served this home than the last one that the database knows."""
    home = tx.one(Q.fact, {"key": "home_id"})
    if home is None or home[0] != command.seen_home_id:
        return False
    last = tx.one(Q.last_epoch)
    return command.seen_epoch > (0 if last is None else int(last[0]))


def _hold_all(tx: Tx) -> None:
    void_custody(tx)
    tx.run(Q.void_tokens)
    for kind in KINDS.values():
        kind.hold_copied(tx)
