"""What msgspec's JSON Schema leaves out of a type: formats of texts that only some texts have.

The daemon checks inputs and answers by the schema alone, and the runner decodes them by the type. So that both mean
the same, each text that is more than text gets a `format`; the daemon knows each (pwf/protocol/formats.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

_BYTES = (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType)
_RECORDS = (inspect.StructType, inspect.TypedDictType, inspect.DataclassType, inspect.NamedTupleType)
#: Keys of dicts are texts in JSON; of these types not any text is one.
_KEYS: dict[type[inspect.Type], str] = {
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.DateType: "date",
    inspect.TimeDeltaType: "duration",
    inspect.UUIDType: "uuid",
    inspect.DecimalType: "decimal",
}


def add_formats(type_: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that msgspec made of the type, with the formats that it lacks. Changes it in place."""
    _Refiner(schema.get("$defs", {})).refine(inspect.type_info(type_), schema)
    return schema


class _Refiner:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._done: set[str] = set()

    def refine(self, info: inspect.Type, part: Any) -> None:
        """Walk type and schema side by side. A part that looks otherwise than expected is left as it is."""
        while isinstance(info, inspect.Metadata):
            info = info.type
        if not isinstance(part, dict):
            return
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in self._done or name not in self._definitions:
                return
            self._done.add(name)
            part = self._definitions[name]
        if (found := _format_of(info)) is not None:
            part.setdefault("format", found)
        for inner, inner_part in self._below(info, part):
            self.refine(inner, inner_part)

    def _below(self, info: inspect.Type, part: dict[str, Any]) -> Iterator[tuple[inspect.Type, Any]]:
        match info:
            case inspect.CollectionType():
                yield info.item_type, part.get("items")
            case inspect.TupleType():
                yield from zip(info.item_types, part.get("prefixItems", ()), strict=False)
            case inspect.DictType():
                if (key := _KEYS.get(type(_plain(info.key_type)))) is not None:
                    part.setdefault("propertyNames", {"format": key})
                yield info.value_type, part.get("additionalProperties")
            case inspect.UnionType():
                yield from _members(info, part)
            case _ if isinstance(info, _RECORDS):
                properties, items = part.get("properties"), part.get("prefixItems")
                for index, field in enumerate(info.fields):
                    if properties is not None:
                        yield field.type, properties.get(getattr(field, "encode_name", field.name))
                    elif items is not None:
                        with contextlib.suppress(IndexError):
                            tagged = len(items) - len(info.fields)
                            yield field.type, items[index + tagged]


def _plain(info: inspect.Type) -> inspect.Type:
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def _format_of(info: inspect.Type) -> str | None:
    match info:
        case inspect.DateTimeType(tz=None):
            return "date-time-optional-zone"
        case inspect.DateTimeType(tz=False):
            return "partial-date-time"
        case inspect.TimeType(tz=None):
            return "time-optional-zone"
        case _ if isinstance(info, _BYTES):
            return "base64"
    return None


def _members(info: inspect.UnionType, part: dict[str, Any]) -> Iterator[tuple[inspect.Type, Any]]:
    """Members with their parts: first what is no object, in order, then the structs, then null."""
    parts = list(_flat(part))
    plain = [one for one in info.types if not isinstance(_plain(one), inspect.NoneType)]
    structs = [one for one in plain if isinstance(_plain(one), inspect.StructType)]
    others = [one for one in plain if one not in structs]
    yield from zip([*others, *structs], parts, strict=False)


def _flat(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    options = part.get("anyOf")
    if options is None:
        yield part
        return
    for option in options:
        if "anyOf" in option:
            yield from option["anyOf"]
        else:
            yield option
