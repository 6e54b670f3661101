"""Formats of texts in JSON Schema, as pwf checks them: a text has one exactly when a runner can decode it.

Those of msgspec's own schemas, and those that pwf adds where msgspec gives none (pwf/workflow/schema_formats.py).
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

_TYPES: dict[str, Any] = {
    "date-time": Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    "date-time-optional-zone": datetime.datetime,
    "partial-date-time": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    "date": datetime.date,
    "time": Annotated[datetime.time, msgspec.Meta(tz=True)],
    "time-optional-zone": datetime.time,
    "partial-time": Annotated[datetime.time, msgspec.Meta(tz=False)],
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
    "base64": bytes,
}
#: Of the keys of a dict, which are texts in JSON.
_KEY_TYPES: dict[str, Any] = {"integer": int, "number": float}


def _checker(type_: Any, *, strict: bool = True) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            msgspec.convert(text, type_, strict=strict)
        except msgspec.ValidationError:
            return False
        return True

    return fits


#: Format -> whether a text has it.
FORMATS: dict[str, Callable[[str], bool]] = {
    **{name: _checker(type_) for name, type_ in _TYPES.items()},
    **{name: _checker(type_, strict=False) for name, type_ in _KEY_TYPES.items()},
}
