"""Refusals as exceptions: the error of a response becomes the class of `pwf.errors` with its code."""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost, Conflict, NotFound, PwfError, Rejected, Unavailable, by_code
from pwf.protocol.frames import ErrorBody, Response

GOOD = frozenset({"accepted", "adopted"})
_BY_OUTCOME: dict[str, type[PwfError]] = {
    "rejected": Rejected,
    "conflict": Conflict,
    "not_found": NotFound,
    "claim_lost": ClaimLost,
    "unavailable": Unavailable,
}


def error_from(body: ErrorBody) -> PwfError:
    """The exception that this error means; its `code` is the wire's even where this version doesn't know
    it.
    """
    details = None
    if body.details is not None:
        try:
            details = msgspec.json.decode(body.details)
        except msgspec.MsgspecError:
            details = None  # it only adds to the message
    error = by_code(body.code)(body.message, hint=body.hint, details=details)
    error.code = body.code
    return error


def failure_of(response: Response) -> PwfError | None:
    """The exception of a response that is neither accepted nor adopted."""
    if response.outcome in GOOD:
        return None
    if response.error is not None:
        return error_from(response.error)
    return _BY_OUTCOME[response.outcome]()
