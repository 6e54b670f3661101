"""JSON text that passes through unread, where it may also be absent.

msgspec decodes a union with `Raw` as null only, and could not tell an absent value from a JSON null. So at
run time the field's type is plain `Raw`, its default is None, and its struct is declared with
`omit_defaults`: absent is None, and null is `Raw(b"null")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    OptionalRaw = msgspec.Raw | None
else:
    OptionalRaw = msgspec.Raw


def empty() -> msgspec.Raw:
    """The default of a body: no fields. A factory, since a JSON Schema can't show a Raw as a default."""
    return msgspec.Raw(b"{}")


def null() -> msgspec.Raw:
    """The default of a value: JSON null."""
    return msgspec.Raw(b"null")
