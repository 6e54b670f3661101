"""What a manager says to a child run: changes of its settings, and follow-ups for its session.

Promises: only the owner of the resource's lease is heard; what was done under a key is done once for each run of the
child, and a repeat gets the first answer. A refusal is not kept: the key is free for a later try.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pwf.errors import NotFound
from pwf.protocol.follow_ups import FollowUpChanged
from pwf.protocol.settings import SettingsChanged
from pwf.store.children import FindChild, find_child
from pwf.store.follow_ups import Queue, Remove, queue_follow_up, remove_follow_up
from pwf.store.once import Done
from pwf.store.receipts import ReceiptKey
from pwf.store.resource_state import owned
from pwf.store.runners import Fence
from pwf.store.settings import ChangeSettings, change_settings
from pwf.store.tx import Tx
from pwf.values import canonical, digest

R = TypeVar("R")


class ChangeChild(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a child's settings that was checked. `change` is made on those of `run_id` in it."""

    fence: Fence
    change: ChangeSettings


def change_child(tx: Tx, command: ChangeChild) -> Done[SettingsChanged] | None:
    """As `change_settings`, for who owns the resource."""
    owned(tx, command.fence)
    done = change_settings(tx, command.change)
    return None if done is None else _sound(done)


class QueueForChild(msgspec.Struct, frozen=True, kw_only=True):
    """A follow-up for the session of the child `child`, once under `key`."""

    fence: Fence
    child: str
    key: str
    text: str


def queue_for_child(tx: Tx, command: QueueForChild) -> FollowUpChanged:
    """Put one behind those that are queued. Raises `Rejected` for a child without a session, or that has ended."""
    run_id = run_of_child(tx, FindChild(fence=command.fence, key=command.child))
    actor = actor_of(command.fence)
    receipt = child_receipt(command.fence, run_id, "follow_up.queue", command.key, [command.text])
    queue = Queue(run_id=run_id, text=command.text, actor=actor, person=False, manages=True, receipt=receipt)
    return _sound(queue_follow_up(tx, queue)).unwrap()


class RemoveForChild(msgspec.Struct, frozen=True, kw_only=True):
    """Remove one that the manager has queued, by its id."""

    fence: Fence
    child: str
    follow_up: str


def remove_for_child(tx: Tx, command: RemoveForChild) -> FollowUpChanged:
    """It is not sent. One that was removed or dropped before is left so."""
    run_id = run_of_child(tx, FindChild(fence=command.fence, key=command.child))
    actor = actor_of(command.fence)
    remove = Remove(run_id=run_id, follow_up=command.follow_up, actor=actor, person=False, manages=True)
    return _sound(remove_follow_up(tx, remove)).unwrap()


def run_of_child(tx: Tx, command: FindChild) -> str:
    """The run that goes under a key now."""
    child = find_child(tx, command)
    if child is None:
        raise NotFound(f"there is no child run under {command.key!r}", hint="ctx.workflows.ensure starts one")
    return child.run_id


def actor_of(fence: Fence) -> str:
    """As whom a manager acts in the history of a run."""
    return f"resource:{fence.run_id}"


def child_receipt(fence: Fence, run_id: str, operation: str, key: str, facts: list[object]) -> ReceiptKey:
    """What a repeat of a manager's word to one run of a child is known by."""
    return ReceiptKey(
        scope_key=f"{actor_of(fence)}/{run_id}/{operation}/{key}",
        operation=operation,
        payload_digest=digest(canonical(facts, what="what is said")),
    )


def _sound(done: Done[R]) -> Done[R]:
    """Raise a refusal, and so undo that it was kept."""
    if done.refusal is not None:
        raise done.refusal
    return done
