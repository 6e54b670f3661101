"""Tokens of the answer pages: who may look at a page, and decide on it.

Owns the table `web_tokens`, which has hashes alone. Promises: a link to a decision is bound to what was proposed,
decides once, and is over with its decision; a link to sign in works once and for `SIGN_IN_MS`; a browser stays signed
in for `BROWSER_MS`. What is unknown or over is refused, and that leaves no trace. The caller has made sure that a
person makes links.
"""

from __future__ import annotations

import msgspec

from pwf.errors import Rejected, TokenRefused
from pwf.protocol.kinds import DECIDED
from pwf.protocol.web import Left, LinkMade, Purpose, SignIn, TokenView, hash_of
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.requests import resolve_request
from pwf.store.tx import Tx

Q = load_queries(__file__)

MINUTE_MS = 60_000
SIGN_IN_MS = 10 * MINUTE_MS
BROWSER_MS = 30 * 24 * 60 * MINUTE_MS
LINKS_MAX = 100  # to one decision
SIGN_INS_MAX = 100


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One that holds. `request_id`, `digest`: of a link to a decision."""

    token_hash: str
    purpose: Purpose
    request_id: str | None
    digest: str | None
    made_by: str
    expires_ms: int | None
    used_ms: int | None


def find_token(tx: Tx, token: str) -> Token:
    """What a token is for. Raises `TokenRefused` where it is unknown, or over."""
    token_hash = hash_of(token)
    row = tx.one(Q.token, {"token_hash": token_hash})
    if row is not None:
        purpose, request_id, digest, made_by, expires_ms, used_ms = row
        if expires_ms is None or expires_ms > tx.now.wall_ms:
            return Token(
                token_hash=token_hash,
                purpose=purpose,
                request_id=request_id,
                digest=digest,
                made_by=made_by,
                expires_ms=expires_ms,
                used_ms=used_ms,
            )
    raise TokenRefused(hint="pwf web --link makes a link to sign in, pwf decide --link one to a decision")


def look_token(tx: Tx, token: str) -> TokenView:
    """The same, for a client."""
    found = find_token(tx, token)
    return TokenView(
        purpose=found.purpose,
        decision_id=found.request_id,
        digest=found.digest,
        used_ms=found.used_ms,
        expires_ms=found.expires_ms,
    )


def deciding_token(tx: Tx, token: str, request_id: str) -> Token:
    """The token of who decides this: a link to it, or a browser that has signed in."""
    found = find_token(tx, token)
    if found.purpose == "browser" or found.request_id == request_id:
        return found
    raise TokenRefused("the link is to another decision", hint="open the link again")


def spend(tx: Tx, token: Token) -> None:
    """It has decided. A browser goes on being signed in."""
    if token.purpose == "answer":
        tx.run(Q.spend, {"token_hash": token.token_hash, "now": tx.now.wall_ms})


# --- making and using up --------------------------------------------------------------------------------------


class MakeLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a decision, for whoever gets it from `actor`."""

    decision: str
    token_hash: str
    actor: str
    receipt: ReceiptKey | None = None


def make_link(tx: Tx, command: MakeLink) -> Done[LinkMade]:
    """Bind a token to what an open decision proposes."""
    return once(tx, command.receipt, LinkMade, lambda: (_make_link(tx, command), False))


def _make_link(tx: Tx, command: MakeLink) -> LinkMade:
    request_id = resolve_request(tx, command.decision, DECIDED)
    proposed = tx.one(Q.proposed, {"request_id": request_id})
    if proposed is None:
        raise Rejected(f"{request_id} is no open decision", hint="pwf decisions lists what is open")
    made = tx.one(Q.links_of, {"request_id": request_id})
    if made is not None and made[0] >= LINKS_MAX:
        raise Rejected(f"there are {LINKS_MAX} links to decision {request_id}", hint="use one of them")
    _add(tx, "answer", command.token_hash, command.actor, request_id=request_id, digest=proposed[0])
    return LinkMade(decision_id=request_id, run_id=proposed[1])


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """A link by which a browser can sign in as `actor`."""

    token_hash: str
    actor: str
    receipt: ReceiptKey | None = None


def invite(tx: Tx, command: Invite) -> Done[SignIn]:
    """Make the link. What is over goes."""

    def act() -> tuple[SignIn, bool]:
        tx.run(Q.drop_over, {"now": tx.now.wall_ms})
        row = tx.one(Q.expiring, {"now": tx.now.wall_ms})
        if row is not None and row[0] >= SIGN_INS_MAX:
            raise Rejected(
                f"there are {SIGN_INS_MAX} browsers that are signed in, or may be",
                hint="pwf web --sign-out signs all of them out",
            )
        expires_ms = tx.now.wall_ms + SIGN_IN_MS
        _add(tx, "sign_in", command.token_hash, command.actor, expires_ms=expires_ms)
        return SignIn(expires_ms=expires_ms), False

    return once(tx, command.receipt, SignIn, act)


class Enter(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody uses a link to sign in."""

    token: str
    browser_hash: str
    receipt: ReceiptKey | None = None


def enter(tx: Tx, command: Enter) -> Done[SignIn]:
    """Use the link up, for a browser that is signed in from now on. Raises `TokenRefused`."""

    def act() -> tuple[SignIn, bool]:
        link = find_token(tx, command.token)
        if link.purpose != "sign_in":
            raise TokenRefused("this is no link to sign in", hint="pwf web --link makes one")
        tx.run(Q.drop_token, {"token_hash": link.token_hash})
        expires_ms = tx.now.wall_ms + BROWSER_MS
        _add(tx, "browser", command.browser_hash, link.made_by, expires_ms=expires_ms)
        return SignIn(expires_ms=expires_ms), False

    return once(tx, command.receipt, SignIn, act)


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Sign out; without a token, everybody."""

    token: str | None = None
    receipt: ReceiptKey | None = None


def leave(tx: Tx, command: Leave) -> Done[Left]:
    """What was signed in is not any more. Of nobody: nothing."""

    def act() -> tuple[Left, bool]:
        if command.token is None:
            return Left(count=tx.run(Q.drop_sign_ins)), False
        return Left(count=tx.run(Q.drop_token, {"token_hash": hash_of(command.token)})), False

    return once(tx, command.receipt, Left, act)


def _add(
    tx: Tx,
    purpose: Purpose,
    token_hash: str,
    made_by: str,
    *,
    request_id: str | None = None,
    digest: str | None = None,
    expires_ms: int | None = None,
) -> None:
    if tx.one(Q.token, {"token_hash": token_hash}) is not None:
        raise Rejected("there is such a token already", hint="make another one")
    tx.run(
        Q.add_token,
        {
            "token_hash": token_hash,
            "purpose": purpose,
            "request_id": request_id,
            "digest": digest,
            "made_by": made_by,
            "expires_ms": expires_ms,
            "now": tx.now.wall_ms,
        },
    )
