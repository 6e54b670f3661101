"""Values in the store: small ones in their row, larger ones content-addressed, in verified chunks.

A value is a pair of columns, `(inline, digest)`; both NULL is no value. An upload is held for its run and
generation until a transition names the digest; what is neither held nor referenced is pruned. The references
are the schema's foreign keys to `contents`, repeated in one query (`is_used`); a test holds both equal.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from pwf.errors import ClaimLost, DiskFull, InvalidValue, NotFound, ValueDamaged, ValueTooLarge
from pwf.protocol.runner import Value, ValueChunk
from pwf.store.queries import load_queries
from pwf.store.tx import Tx
from pwf.values import CHUNK_BYTES, INLINE_BYTES_MAX, VALUE_BYTES_MAX, digest

Q = load_queries(__file__)

LOOK_PAGE = 500

#: What a row raises that is not of the form that the schema gives it.
UNREADABLE = (ValueError, TypeError, LookupError, msgspec.MsgspecError, ValueDamaged)


class PutValueChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of an upload: chunks 0, 1, 2 … of `CHUNK_BYTES` each, only the last may be shorter.

    `limit` is the largest value that is taken, in bytes.
    """

    entity_no: int
    generation: int
    digest: str
    index: int
    data: bytes
    last: bool = False
    limit: int = VALUE_BYTES_MAX


class ReadValueChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of a stored value."""

    digest: str
    index: int = 0


class UnusedValues(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for unused values among the next `limit`, after a digest."""

    after: str = ""
    limit: int = LOOK_PAGE


class UnusedPage(msgspec.Struct, frozen=True, kw_only=True):
    """(digest, size) of each; `after` is where to go on, None at the end."""

    values: tuple[tuple[str, int], ...]
    after: str | None


def store_value(tx: Tx, data: bytes) -> tuple[bytes | None, str | None]:
    """Keep canonical bytes; the pair for their columns. The same command refers to the digest.

    Raises `DiskFull` for a larger value while the disk is full: the last space is for what can't wait.
    """
    if len(data) <= INLINE_BYTES_MAX:
        return data, None
    return None, store_content(tx, data)


def store_content(tx: Tx, data: bytes) -> str:
    """Keep bytes of any size (a source file, a larger value) under their digest, which is returned."""
    if len(data) > CHUNK_BYTES:
        tx.lengthy()
    name = digest(data)
    if _complete_size(tx, name) is None:
        _refuse_while_full(tx)
        tx.run(Q.add_content, {"digest": name, "size": len(data), "wall_ms": tx.now.wall_ms})
        chunks = _chunk_count(len(data))
        for index in range(chunks):
            _put(tx, name, index, data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
        _finish(tx, name, chunks - 1, len(data))
    return name


def keep_for(tx: Tx, data: bytes, entity_no: int, generation: int) -> str:
    """Keep bytes as if this generation of the entity had uploaded them; their digest."""
    name = store_content(tx, data)
    tx.run(Q.hold, {"digest": name, "entity_no": entity_no, "generation": generation})
    return name


def load_value(tx: Tx, inline: bytes | None, name: str | None) -> bytes:
    """The whole value of a pair of columns, its digest checked; `null` for no value.

    Raises `NotFound` for a digest that is not here, `ValueDamaged` for bytes that are not what was stored.
    """
    if name is None:
        return b"null" if inline is None else inline
    return load_content(tx, name)


def load_content(tx: Tx, name: str) -> bytes:
    """The bytes under a digest, checked. Errors as `load_value`."""
    size = _complete_size(tx, name)
    if size is None:
        raise NotFound(f"there is no value {name}")
    if size > CHUNK_BYTES:
        tx.lengthy()
    data = b"".join(_checked_chunk(tx, name, index) for index in range(_chunk_count(size)))
    if len(data) != size or digest(data) != name:
        raise ValueDamaged(f"value {name} is damaged", hint="restore the database from a backup")
    return data


def value_fault(tx: Tx, name: str, size: int) -> str | None:
    """What is wrong with a stored value, chunk by chunk; None: it is what was stored."""
    chunks = _chunk_count(size)
    count, last = tx.one(Q.chunks_of, {"digest": name}) or (0, -1)
    if count != chunks or last != chunks - 1:
        return f"it has {count:,} of {chunks:,} chunks"
    hasher = hashlib.sha256()
    total = 0
    for index in range(chunks):
        data, crc32 = tx.one(Q.read_chunk, {"digest": name, "chunk": index}) or (None, None)
        if not isinstance(data, bytes) or zlib.crc32(data) != crc32:
            return f"chunk {index + 1} of {chunks:,} is not what was stored"
        hasher.update(data)
        total += len(data)
    if total != size:
        return f"it has {total:,} of {size:,} bytes"
    return None if hasher.hexdigest() == name else "its bytes are not those of its digest"


def value_of(inline: bytes | None, name: str | None, size: int | None) -> Value:
    """The wire form of a pair of columns. `size` is that of the content, when there is a digest."""
    if name is not None:
        return Value(digest=name, size=size or 0)
    data = b"null" if inline is None else inline
    return Value(json=msgspec.Raw(data), size=len(data))


def stored_value(tx: Tx, inline: bytes | None, name: str | None) -> Value:
    """The wire form of a pair of columns, with the size that its content has here."""
    row = None if name is None else tx.one(Q.content, {"digest": name})
    return value_of(inline, name, None if row is None else int(row[0]))


def value_size(tx: Tx, name: str) -> int:
    """The size in bytes of a stored value; `NotFound` when it is not here, whole."""
    size = _complete_size(tx, name)
    if size is None:
        raise NotFound(f"there is no value {name}")
    return size


def put_chunk(tx: Tx, command: PutValueChunk) -> int:
    """Take one chunk of an upload; after the last one the whole is verified. Returns the bytes taken so far.

    Safe to repeat, from any earlier chunk on. Raises `ClaimLost` for another generation, `ValueTooLarge`,
    `InvalidValue` when the whole does not have the digest (right chunks may be sent again), and `DiskFull`
    while the disk is full.
    """
    owner = tx.one(Q.owner, {"entity_no": command.entity_no})
    if owner is None or owner[0] != command.generation:
        raise ClaimLost(f"generation {command.generation} of entity {command.entity_no} is over")
    taken = command.index * CHUNK_BYTES + len(command.data)
    if taken > command.limit:
        raise ValueTooLarge(f"the value has at least {taken:,} bytes; the limit is {command.limit:,}")
    if command.index < 0 or len(command.data) > CHUNK_BYTES:
        raise InvalidValue(
            f"chunk {command.index} has {len(command.data):,} bytes; a chunk has {CHUNK_BYTES:,}"
        )
    if not command.last and len(command.data) < CHUNK_BYTES:
        raise InvalidValue(f"chunk {command.index} has {len(command.data):,} bytes, and is not the last")
    held = {"digest": command.digest, "entity_no": command.entity_no, "generation": command.generation}
    if _complete_size(tx, command.digest) is not None:
        tx.run(Q.hold, held)
        return taken
    _refuse_while_full(tx)
    tx.run(Q.add_content, {"digest": command.digest, "size": 0, "wall_ms": tx.now.wall_ms})
    tx.run(Q.hold, held)
    _put(tx, command.digest, command.index, command.data)
    return _verify(tx, command) if command.last else taken


def claim_value(tx: Tx, name: str, entity_no: int, generation: int) -> int:
    """A transition names an uploaded value: its size in bytes. The same command refers to the digest.

    Raises `InvalidValue` when this entity and generation has not uploaded it, whole: a runner can name no value
    that it doesn't have.
    """
    held = {"digest": name, "entity_no": entity_no, "generation": generation}
    size = _complete_size(tx, name)
    if size is None or tx.one(Q.is_held, held) is None:
        raise InvalidValue(f"value {name} was not uploaded before it was named")
    # The hold stays: another output of this generation may have the same bytes. It ends with the lease.
    return size


def read_chunk(tx: Tx, query: ReadValueChunk) -> ValueChunk:
    """One chunk, its checksum verified; `missing` when there is no such value.

    Who may read it, the caller decides. Whoever joins all chunks checks the digest of the whole.
    """
    size = _complete_size(tx, query.digest)
    if size is None or not 0 <= query.index < _chunk_count(size):
        return ValueChunk(missing=True, last=True)
    data = _checked_chunk(tx, query.digest, query.index)
    return ValueChunk(data=data, last=query.index == _chunk_count(size) - 1)


def unused_values(tx: Tx, query: UnusedValues) -> UnusedPage:
    """Which of the next `limit` values nothing refers to or holds. Changes nothing."""
    page = tx.all(Q.contents_after, {"after": query.after, "limit": query.limit})
    found = tuple((str(name), int(size)) for name, size in page if not _is_used(tx, name))
    return UnusedPage(values=found, after=str(page[-1][0]) if len(page) == query.limit else None)


def drop_values(tx: Tx, digests: tuple[str, ...]) -> int:
    """Drop those of the values that are still unused; how many went."""
    return sum(tx.run(Q.drop_content, {"digest": name}) for name in digests if not _is_used(tx, name))


def is_referenced(tx: Tx, name: str) -> bool:
    """Whether any row has the value."""
    row = tx.one(Q.is_referenced, {"digest": name})
    return row is None or bool(row[0])


def stored_chunk(tx: Tx, name: str, index: int) -> bytes | None:
    """A piece of a value that is here, whole; None where that isn't so. Raises `ValueDamaged`."""
    size = _complete_size(tx, name)
    if size is None:
        return None
    return _checked_chunk(tx, name, index) if 0 <= index < _chunk_count(size) else b""


def _is_used(tx: Tx, name: str) -> bool:
    kept = tx.one(Q.is_kept, {"digest": name})
    return kept is None or bool(kept[0]) or is_referenced(tx, name)


def _refuse_while_full(tx: Tx) -> None:
    if tx.disk_full:
        raise DiskFull(
            "the disk is full: no larger value is taken until there is space",
            hint="free some space; pwf goes on by itself",
        )


def _verify(tx: Tx, command: PutValueChunk) -> int:
    hasher, size = hashlib.sha256(), 0
    for index in range(command.index + 1):
        row = tx.one(Q.read_chunk, {"digest": command.digest, "chunk": index})
        if row is None:
            raise InvalidValue(f"chunk {index} of value {command.digest} is missing")
        hasher.update(row[0])
        size += len(row[0])
    if hasher.hexdigest() != command.digest:
        raise InvalidValue(f"the uploaded bytes have digest {hasher.hexdigest()}, not {command.digest}")
    _finish(tx, command.digest, command.index, size)
    return size


def _put(tx: Tx, name: str, index: int, data: bytes) -> None:
    tx.run(Q.put_chunk, {"digest": name, "chunk": index, "data": data, "crc32": zlib.crc32(data)})


def _finish(tx: Tx, name: str, last_index: int, size: int) -> None:
    tx.run(Q.drop_chunks_after, {"digest": name, "chunk": last_index})
    tx.run(Q.complete_content, {"digest": name, "size": size})


def _complete_size(tx: Tx, name: str) -> int | None:
    row = tx.one(Q.content, {"digest": name})
    return int(row[0]) if row is not None and row[1] else None


def _chunk_count(size: int) -> int:
    # An empty value has one empty chunk: who reads it asks for chunk 0, as for any other.
    return max(1, -(-size // CHUNK_BYTES))


def _checked_chunk(tx: Tx, name: str, index: int) -> bytes:
    row = tx.one(Q.read_chunk, {"digest": name, "chunk": index})
    if row is None or zlib.crc32(row[0]) != row[1]:
        raise ValueDamaged(
            f"chunk {index} of value {name} is damaged", hint="restore the database from a backup"
        )
    return bytes(row[0])
