"""Operations for the answer pages: links to a decision, and browsers that sign in.

Whoever makes a token keeps it, and tells the daemon its hash alone: so no token is stored with what is answered. The
daemon sees a token only to judge it.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec

from pwf.protocol.bounds import Name
from pwf.protocol.operation import Operation
from pwf.values import digest

TOKEN_BYTES = 32
Purpose = Literal["answer", "sign_in", "browser"]
#: SHA-256 as hex.
TokenHash = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9a-f]{64}$")]


def new_token() -> str:
    """One that nobody guesses, as it stands in a link."""
    return os.urandom(TOKEN_BYTES).hex()


def hash_of(token: str) -> str:
    """What the daemon keeps of a token: it has too many bits for a slower hash to matter."""
    return digest(token.encode("utf-8", "surrogatepass"))


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LinkPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link to an open decision. `decision_id` as in `decision.list`."""

    decision_id: Name
    token_hash: TokenHash


class LinkMade(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision_id: str
    run_id: str


class InvitePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link by which one browser can sign in, once."""

    token_hash: TokenHash


class EnterPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Use such a link up. `browser_hash`: of the token that the browser gets for it."""

    token: Name
    browser_hash: TokenHash


class SignIn(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until when it holds."""

    expires_ms: int


class LeavePayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sign out: the browser with this token, or all of them."""

    token: Name | None = None


class Left(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: int


class TokenPayload(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Name


class TokenView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token is for. `decision_id`, `digest`: of a link to a decision. `used_ms`: when it has decided that."""

    purpose: Purpose
    decision_id: str | None = None
    digest: str | None = None
    used_ms: int | None = None
    expires_ms: int | None = None


WEB_OPERATIONS: dict[str, Operation] = {
    "decision.link": Operation(LinkPayload, LinkMade, changes=True),
    "web.invite": Operation(InvitePayload, SignIn, changes=True),
    "web.enter": Operation(EnterPayload, SignIn, changes=True),
    "web.leave": Operation(LeavePayload, Left, changes=True),
    "web.token": Operation(TokenPayload, TokenView),
}
