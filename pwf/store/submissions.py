"""Submissions: what an agent was asked for is handed in, and becomes the output of the node that asked.

The value has been checked against the request's stored schema by the caller, who read it in `request_facts`.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Conflict, Rejected
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import Submitted
from pwf.store.once import Done, once
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import is_repeat, load_request, settle
from pwf.store.state import load_run
from pwf.store.tx import Tx


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is canonical JSON that fits the request's schema. `request_revision`: as it was seen."""

    request_id: str
    value: bytes
    request_revision: int | None = None
    actor: str
    receipt: ReceiptKey | None = None


def submit(tx: Tx, command: Submit) -> Done[Submitted]:
    """Accept a submission. One for an earlier revision, or a second, different one, is a `Conflict`."""
    return once(tx, command.receipt, Submitted, lambda: _submit(tx, command))


def _submit(tx: Tx, command: Submit) -> tuple[Submitted, bool]:
    asked = load_request(tx, command.request_id)
    if not REQUESTS[asked.kind].submitted:
        raise Rejected(
            f"request {asked.request_id} is a request of kind {asked.kind}; it takes no submission",
            hint=REQUESTS[asked.kind].how(asked.request_id),
        )
    run = load_run(tx, asked.run_id)
    again = is_repeat(tx, asked, run, command.value, "settled")
    if not again:
        if command.request_revision not in (None, asked.revision):
            raise Conflict(
                f"request {asked.request_id} is at revision {asked.revision}, and this is for revision "
                f"{command.request_revision}: its run was resumed since",
                hint=f"look at it again: pwf submit {asked.request_id}",
            )
        settle(tx, asked, run, command.value, command.actor)
    result = Submitted(
        request_id=asked.request_id,
        run_id=run.run_id,
        status=run.shown_status,  # type: ignore[arg-type]
        revision=run.revision,
    )
    return result, again
