"""What the holder of a pending request says of its work: an update of the run, and an event with its number.

Promises: it is said once, of a request that is open, at the revision that was seen, and at most `SAID_MAX` times of
one; it settles nothing.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Conflict, NotFound, Rejected, ValueTooLarge
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.replies import RequestUpdated
from pwf.protocol.runner import UPDATE_BYTES_MAX, UPDATES_MAX
from pwf.store import moves
from pwf.store.change import changing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import load_request
from pwf.store.sessions import SessionFence, hold
from pwf.store.state import load_run
from pwf.store.tx import Tx
from pwf.store.updates import Which, look_up, put_update

Q = load_queries(__file__)

SAID_MAX = 1_000  # of one request: each is an event, which is kept as long as its run


class UpdateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`data` is canonical JSON. `session`: as in `Submit`."""

    request_id: str
    kind: str
    key: str
    data: bytes
    request_revision: int | None = None
    actor: str
    session: SessionFence | None = None
    receipt: ReceiptKey | None = None


def update_request(tx: Tx, command: UpdateRequest) -> Done[RequestUpdated]:
    """Keep it, in place of what was said under its kind and key before."""
    return once(tx, command.receipt, RequestUpdated, lambda: (_update(tx, command), False))


def _update(tx: Tx, command: UpdateRequest) -> RequestUpdated:
    if command.session is not None:
        hold(tx, command.session)
    asked = load_request(tx, command.request_id)
    run = load_run(tx, asked.run_id)
    if command.session is not None and run.session_no != command.session.session_no:
        raise NotFound(f"session {command.session.session_id!r} has no request {asked.request_id!r}")
    if not REQUESTS[asked.kind].submitted or asked.status != "pending":
        raise Rejected(
            f"request {asked.request_id} is a request of kind {asked.kind}, and {asked.status}: it takes no update",
            hint=f"pwf show {run.run_id}",
        )
    if command.request_revision not in (None, asked.revision):
        raise Conflict(
            f"request {asked.request_id} is at revision {asked.revision}, and this is for revision "
            f"{command.request_revision}: its run was resumed since",
            hint="look at the step again",
        )
    said = tx.one(Q.said, {"request_id": asked.request_id})
    if said is not None and said[0] >= SAID_MAX:
        raise Rejected(
            f"request {asked.request_id} has had {SAID_MAX:,} updates, and takes no more",
            hint="submit what it asks for; that is still taken",
        )
    which = Which(run.run_id, command.kind, command.key)
    if not look_up(tx, which)[1]:
        raise Rejected(
            f"the update {command.kind!r} {command.key!r} would be one more than the {UPDATES_MAX} current ones",
            hint="use a kind and key that are there already",
        )
    if len(command.data) > UPDATE_BYTES_MAX:
        raise ValueTooLarge(
            f"an update has at most {UPDATE_BYTES_MAX:,} bytes, and this has {len(command.data):,}"
        )
    with changing(tx, run):
        put_update(tx, which, command.data, asked.attempt)
        tx.run(Q.say, {"request_id": asked.request_id})
        facts: dict[str, object] = {"request": asked.request_id, "kind": command.kind, "key": command.key}
        moves.note(tx, run, "request_updated", command.actor, facts)
    return RequestUpdated(request_id=asked.request_id, run_id=run.run_id, revision=run.revision)
