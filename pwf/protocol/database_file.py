"""What others than the store may know of the database's file: by its first bytes, whether it is one of pwf."""

from __future__ import annotations

APPLICATION_ID = 0x70776631  # "pwf1"
HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"


def is_ours(header: bytes) -> bool:
    """Whether a file that begins so is a database of pwf, of whatever version."""
    application_id = int.from_bytes(header[68:72], "big")
    return len(header) >= HEADER_BYTES and header.startswith(_MAGIC) and application_id == APPLICATION_ID
