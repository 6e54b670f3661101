"""What clients send before a request names it: chunks of a value, held for an hour for the daemon's own entity.

Promises: what waits is bounded in number and bytes; what nobody names is dropped. A daemon that starts has nothing of
what was sent to the one before. A digest opens nothing that was not sent whole, piece by piece, even if it is here.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ContentWanted, InvalidValue, Unavailable, ValueTooLarge
from pwf.protocol.uploads import ContentTaken, PutContent
from pwf.store.queries import load_queries
from pwf.store.space import refuse_over_budget
from pwf.store.tx import DAEMON_NO, Tx
from pwf.store.values import PutValueChunk, is_referenced, put_chunk, stored_chunk
from pwf.values import CHUNK_BYTES

Q = load_queries(__file__)

HELD_MS = 3_600_000
WAITING_MAX = 64
WAITING_VALUES = 4  # of the largest size
NAMED_MS = 60_000  # what a request has named may be named by the next until then


class PutUpload(msgspec.Struct, frozen=True, kw_only=True):
    """A piece, for the daemon of `epoch`. `limit`: of a value in bytes. `state_bytes_max`: the state's budget."""

    piece: PutContent
    epoch: int
    limit: int
    state_bytes_max: int | None = None


def put_upload(tx: Tx, command: PutUpload) -> ContentTaken:
    """Take a piece. Raises `ValueTooLarge` before anything is kept, `ContentWanted` where an earlier piece is missing,
    and what `put_chunk` does.
    """
    piece = command.piece
    if piece.size > command.limit:
        raise ValueTooLarge(f"the {piece.what} has {piece.size:,} bytes; the limit is {command.limit:,}")
    if piece.index * CHUNK_BYTES + len(piece.data) > piece.size:
        raise InvalidValue(
            f"piece {piece.index} is beyond the {piece.size:,} bytes that the {piece.what} is to have"
        )
    row = tx.one(Q.sent, {"digest": piece.digest, "epoch": command.epoch})
    sent = 0 if row is None else int(row[0])
    if piece.index > sent:
        raise ContentWanted(f"piece {sent} of the {piece.what} comes first", details={"digest": piece.digest})
    _refuse(tx, command)
    here = stored_chunk(tx, piece.digest, piece.index)
    if here is not None and here != piece.data:
        raise InvalidValue(f"piece {piece.index} is none of value {piece.digest}")
    chunk = PutValueChunk(
        entity_no=DAEMON_NO,
        generation=command.epoch,
        digest=piece.digest,
        index=piece.index,
        data=piece.data,
        last=piece.last,
        limit=command.limit,
    )
    taken = put_chunk(tx, chunk)
    sent = max(sent, piece.index + 1)
    tx.run(Q.held, {"digest": piece.digest, "epoch": command.epoch, "now": tx.now.wall_ms, "sent": sent})
    whole = tx.one(Q.uploaded, {"digest": piece.digest}) is not None
    return ContentTaken(digest=piece.digest, taken=taken, whole=whole)


def _refuse(tx: Tx, command: PutUpload) -> None:
    """Raise why no value is taken now. What requests have named counts no longer."""
    drop_uploads(tx)
    refuse_over_budget(tx, command.state_bytes_max)
    count = size = 0
    for name, held_ms, length in tx.all(Q.waiting, {"digest": command.piece.digest}):
        if not is_referenced(tx, name):
            count, size = count + 1, size + length
        elif held_ms < tx.now.wall_ms - NAMED_MS:
            tx.run(Q.drop_named, {"digest": name})
    if count >= WAITING_MAX or size + command.piece.size > WAITING_VALUES * command.limit:
        raise Unavailable(
            f"{count:,} values of {size:,} bytes were sent, and no request has named them yet",
            hint="they are dropped after an hour; then try again",
        )


def drop_uploads(tx: Tx, _: None = None) -> int:
    """Give up what nobody has named for an hour; how many values."""
    return tx.run(Q.drop_old, {"before_ms": tx.now.wall_ms - HELD_MS})


def uploaded_size(tx: Tx, name: str) -> int:
    """The size of a value that a request names. Raises `ContentWanted` where it was not sent whole, to this daemon."""
    row = tx.one(Q.uploaded, {"digest": name})
    if row is None:
        raise ContentWanted(f"the value {name} was not sent", details={"digest": name})
    return int(row[0])
