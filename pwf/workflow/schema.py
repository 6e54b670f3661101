"""Types as JSON Schema, and what a schema tells about the values of a switch."""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pwf.errors import InvalidArgument, PwfError
from pwf.values import canonical

Scalar = str | int | float | bool | None

_REFERENCES_MAX = 50  # a schema that refers in circles ends here


class FieldMissing(Exception):
    """The type has no such field. `known` are those that it has."""

    def __init__(self, known: list[str]) -> None:
        self.known = known
        super().__init__(", ".join(known))


class FieldOptional(Exception):
    """The type has the field, but its JSON may be without it."""


def schema_of(type_: Any, *, written: bool = False) -> dict[str, Any]:
    """The JSON Schema of a type; a dict is taken as one already, once it proves to be valid.

    `written`: the type is that of values which pwf writes, so that bytes have no place in it. `InvalidArgument` says
    what the type has that JSON hasn't.
    """
    if isinstance(type_, dict):
        return _checked(type_)
    try:
        schema = msgspec.json.schema(type_)
        msgspec.json.Decoder(type_)
    except (TypeError, ValueError, NameError) as error:
        first_line = str(error).splitlines()[-1]
        raise InvalidArgument(f"{name_of(type_)} has no form in JSON: {first_line}", hint=TYPES_HINT) from error
    if written and '"contentEncoding": "base64"' in json.dumps(schema):
        raise InvalidArgument(f"{name_of(type_)} holds bytes, which JSON has no room for", hint=TYPES_HINT)
    return schema


TYPES_HINT = "use a msgspec Struct, a dataclass, a TypedDict, Literal, an enum, str, int, float, bool, list or dict"


def name_of(type_: Any) -> str:
    """How the author would write the type."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_)


def annotation_of(fn: Callable[..., Any]) -> Any:
    """The type that a function says it returns; None where it says nothing (or Any). NameError as it comes."""
    target = fn if hasattr(fn, "__annotations__") else type(fn).__call__
    if "return" not in getattr(target, "__annotations__", {}):
        return None
    found = typing.get_type_hints(_only_return(target), include_extras=True).get("return")
    return None if found in (Any, object, typing.NoReturn, typing.Never) else found


def _only_return(fn: Callable[..., Any]) -> Any:
    """A stand-in with nothing but the return annotation, so that a broken one of a parameter harms nobody."""

    class _Holder:
        pass

    holder = _Holder()
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    holder.__annotations__ = {"return": fn.__annotations__["return"]}
    holder.__globals__ = getattr(fn, "__globals__", {})  # type: ignore[attr-defined]  # get_type_hints reads it
    return holder


def possible_values(schema: dict[str, Any], field: str | None) -> set[tuple[type, Scalar]] | None:
    """The values that an output (or its `field`) may have, each with its type; None when there is no end of them.

    Raises `FieldMissing` or `FieldOptional` when the type is an object that has no such field, or may lack it.
    """
    found: set[tuple[type, Scalar]] = set()
    for part in _alternatives(schema, schema, 0):
        if field is not None:
            part = _property(part, field)
            if part is None:
                return None
            values = possible_values({**part, "$defs": schema.get("$defs", {})}, None)
        else:
            values = _closed(part)
        if values is None:
            return None
        found |= values
    return found


def _alternatives(part: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    if depth > _REFERENCES_MAX:
        yield {}
    elif "$ref" in part:
        yield from _alternatives(_resolve(part["$ref"], root), root, depth + 1)
    elif isinstance(part.get("anyOf", part.get("oneOf")), list):
        for option in part.get("anyOf", part.get("oneOf")):  # type: ignore[union-attr]  # a list: tested above
            yield from _alternatives(option if isinstance(option, dict) else {}, root, depth + 1)
    else:
        yield part


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _property(part: dict[str, Any], field: str) -> dict[str, Any] | None:
    """The schema of a field; None when the schema leaves it open."""
    properties = part.get("properties")
    if not isinstance(properties, dict):
        return None
    if field not in properties:
        if part.get("additionalProperties") is False or "title" in part:  # a title: made from a Python type
            raise FieldMissing([str(name) for name in properties])
        return None
    found = properties[field]
    if not isinstance(found, dict):
        return None
    if field not in part.get("required", ()) and "default" not in found:
        raise FieldOptional
    return found


def _closed(part: dict[str, Any]) -> set[tuple[type, Scalar]] | None:
    if isinstance(part.get("enum"), list):
        return {(type(value), value) for value in part["enum"] if isinstance(value, Scalar)}
    if "const" in part and isinstance(part["const"], Scalar):
        return {(type(part["const"]), part["const"])}
    if part.get("type") == "boolean":
        return {(bool, True), (bool, False)}
    if part.get("type") == "null":
        return {(type(None), None)}
    return None


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema that an author wrote, proved valid."""
    import jsonschema_rs  # slow to import, and only schemas written by hand need it

    try:
        canonical(schema, what="the JSON Schema")
        jsonschema_rs.validator_for(schema)
    except (ValueError, PwfError) as error:
        first_line = str(error).splitlines()[0]
        raise InvalidArgument(f"the JSON Schema is not valid: {first_line}") from error
    return schema


def first_fault(schema: dict[str, Any], data: bytes) -> str | None:
    """What is wrong with JSON text under a schema, with the path; None when nothing is."""
    value = msgspec.json.decode(data)
    for fault in _validator(msgspec.json.encode(schema)).iter_errors(value):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.instance_path)
        return f"{fault.message} - at `${path}`"
    return None


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs  # as above

    return jsonschema_rs.validator_for(msgspec.json.decode(schema))
