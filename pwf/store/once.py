"""A state-changing client command, done once: its receipt is committed with it.

A repeat gives back the first outcome: `adopted` where that was accepted, otherwise the same refusal. A refusal is a
result here, not an exception, because its receipt must be committed; what the command wrote before it refused is
rolled back first. Anything else that is raised leaves no receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from pwf.errors import Ambiguous, Conflict, NotFound, PwfError, Rejected, by_code
from pwf.protocol.frames import ErrorBody
from pwf.store.receipts import ReceiptKey, find_receipt, save_receipt
from pwf.store.state import encode
from pwf.store.tx import Tx

R = TypeVar("R")

REFUSALS = (Rejected, Conflict, NotFound, Ambiguous)


@dataclass(frozen=True)
class Done(Generic[R]):
    """How a command ended: `result`, with `adopted` where nothing had to be done; or `refusal`.

    An adopted result may be that of an earlier time, by its receipt; since then anything may have happened.
    """

    result: R | None = None
    adopted: bool = False
    refusal: PwfError | None = None

    def unwrap(self) -> R:
        """The result; raises the refusal."""
        if self.refusal is not None:
            raise self.refusal
        assert self.result is not None
        return self.result


def once(tx: Tx, key: ReceiptKey | None, result_type: type[R], act: Callable[[], tuple[R, bool]]) -> Done[R]:
    """Run `act` unless the receipt says that it was done; `act` returns (result, adopted) or raises a refusal."""
    known = known_answer(tx, key, result_type)
    if known is not None:
        return known
    try:
        with tx.savepoint():
            result, adopted = act()
    except REFUSALS as refusal:
        return refused(tx, key, refusal)
    if key is not None:
        run_id: Any = getattr(result, "run_id", None)
        save_receipt(tx, key, outcome="accepted", response=encode(result), run_id=run_id)
    return Done(result=result, adopted=adopted)


def known_answer(tx: Tx, key: ReceiptKey | None, result_type: type[R]) -> Done[R] | None:
    """What a repeat is answered; None for a command that is new, or has no key."""
    if key is None:
        return None
    try:
        receipt = find_receipt(tx, key)
    except Conflict as conflict:
        return Done(refusal=conflict)
    return None if receipt is None else _again(receipt.outcome, receipt.response, result_type)


@dataclass(frozen=True)
class FirstDone:
    """Ask what a command under this key was answered first."""

    key: ReceiptKey
    result_type: type[Any]


def first_done(tx: Tx, query: FirstDone) -> Done[Any] | None:
    """The answer; None where no such command was, or another one under its key."""
    try:
        receipt = find_receipt(tx, query.key)
    except Conflict:
        return None
    return None if receipt is None else _again(receipt.outcome, receipt.response, query.result_type)


def refused(tx: Tx, key: ReceiptKey | None, refusal: PwfError) -> Done[Any]:
    """Keep a refusal, so that a repeat gets it again. The command has written nothing."""
    if key is not None:
        body = ErrorBody(code=refusal.code, message=refusal.message, hint=refusal.hint)
        save_receipt(tx, key, outcome="refused", response=encode(body))
    return Done(refusal=refusal)


@dataclass(frozen=True)
class KeepRefusal:
    """What was found outside of the store, after a look and before the act."""

    key: ReceiptKey | None
    result_type: type[Any]
    refusal: PwfError


def keep_refusal(tx: Tx, command: KeepRefusal) -> Done[Any]:
    """Keep a refusal; the answer is that of another under the same key, where one came first."""
    return known_answer(tx, command.key, command.result_type) or refused(tx, command.key, command.refusal)


def _again(outcome: str, response: bytes, result_type: type[R]) -> Done[R]:
    if outcome == "accepted":
        return Done(result=msgspec.json.decode(response, type=result_type), adopted=True)
    body = msgspec.json.decode(response, type=ErrorBody)
    return Done(refusal=by_code(body.code)(body.message, hint=body.hint))
