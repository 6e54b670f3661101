"""Types as JSON Schema, and what a schema tells about the values of a switch."""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pwf.errors import InvalidArgument, PwfError
from pwf.values import canonical
from pwf.workflow.schema_formats import add_formats

Scalar = str | int | float | bool | None

_REFERENCES_MAX = 50  # a schema that refers in circles ends here


Values = set[tuple[type, Scalar]]


class NoSuchField(Exception):
    """The type, or an alternative of it, has no such field."""


def schema_of(type_: Any, *, written: bool = False) -> dict[str, Any]:
    """The JSON Schema of a type; a dict is taken as one already, once it proves to be valid.

    `written`: the type is that of values which pwf writes, so that bytes have no place in it.
    `InvalidArgument` says what the type has that JSON hasn't.
    """
    if isinstance(type_, dict):
        return _checked(type_)
    try:
        schema = add_formats(type_, msgspec.json.schema(type_))
        msgspec.json.Decoder(type_)
    except (TypeError, ValueError, NameError) as error:
        first_line = str(error).splitlines()[-1]
        raise InvalidArgument(
            f"{name_of(type_)} has no form in JSON: {first_line}", hint=TYPES_HINT
        ) from error
    if written and '"contentEncoding": "base64"' in json.dumps(schema):
        raise InvalidArgument(f"{name_of(type_)} holds bytes, which JSON has no room for", hint=TYPES_HINT)
    return schema


def closed(type_: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of what people give: an object that was made from a type has no fields but its type's.

    A type's own schema lets any more pass, which its decoder then drops: a mistyped name would be lost in silence. A
    schema that an author wrote stays as it is.
    """
    return schema if isinstance(type_, dict) else _close(schema)


_MAPS, _LISTS, _SINGLE = (
    ("properties", "$defs"),
    ("anyOf", "oneOf", "prefixItems"),
    ("items", "additionalProperties"),
)


def _close(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    found = dict(part)
    for key in _MAPS:
        if isinstance(part.get(key), dict):
            found[key] = {name: _close(inner) for name, inner in part[key].items()}
    for key in _LISTS:
        if isinstance(part.get(key), list):
            found[key] = [_close(inner) for inner in part[key]]
    for key in _SINGLE:
        if key in part:
            found[key] = _close(part[key])
    if "properties" in part and "allOf" not in part:
        found.setdefault("additionalProperties", False)
    return found


TYPES_HINT = (
    "use a msgspec Struct, a dataclass, a TypedDict, Literal, an enum, str, int, float, bool, list or dict"
)


def name_of(type_: Any) -> str:
    """How the author would write the type."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_)


#: What looking at an annotation may raise.
ANNOTATION_ERRORS = (NameError, TypeError, AttributeError, SyntaxError)


def annotation_of(fn: Callable[..., Any], local_names: dict[str, Any] | None = None) -> Any:
    """The type that a function says it returns; None where it says nothing (or Any).

    Raises one of `ANNOTATION_ERRORS` when the annotation can not be resolved.
    """
    target = inspect.unwrap(fn)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if not hasattr(target, "__annotations__"):
        target = type(target).__call__  # an object that can be called
    annotations = getattr(target, "__annotations__", {})
    if "return" not in annotations:
        return None

    def only_return() -> None:  # so that a broken annotation of a parameter harms nobody
        pass

    only_return.__annotations__ = {"return": annotations["return"]}
    names = getattr(target, "__globals__", {})
    found = typing.get_type_hints(only_return, names, local_names, include_extras=True)["return"]
    return None if found in (Any, object, typing.NoReturn, typing.Never) else found


def possible_values(schema: dict[str, Any], field: str | None, *, exact: bool) -> Values | None:
    """The values that an output (or its `field`) may have, each with its type; None when there is no end of
    them.

    Raises `NoSuchField` when an alternative of the type is surely without the field. `exact`: the schema was
    made from a type, so that nothing but its fields is ever there.
    """
    found: Values = set()
    for part in _alternatives(schema, schema, 0):
        if field is None:
            values = _closed(part)
        else:
            inner = _property(part, field, exact)
            values = (
                None
                if inner is None
                else possible_values({**inner, "$defs": schema.get("$defs", {})}, None, exact=exact)
            )
        if values is None:
            return None
        found |= values
    return found


def fields_of(schema: dict[str, Any]) -> list[str]:
    """The fields of all alternatives that are objects."""
    found: dict[str, None] = {}
    for part in _alternatives(schema, schema, 0):
        found.update(dict.fromkeys(part.get("properties", {})))
    return list(found)


def never_scalar(schema: dict[str, Any]) -> bool:
    """Whether the value is an object or an array in any case."""
    return all(part.get("type") in ("object", "array") for part in _alternatives(schema, schema, 0))


def may_lack(type_: Any, field: str) -> bool:
    """Whether the JSON of a type that has the field may be without it."""
    if isinstance(type_, dict):
        return any(
            field in part.get("properties", {}) and field not in part.get("required", ())
            for part in _alternatives(type_, type_, 0)
        )
    if typing.is_typeddict(type_):
        return field in type_.__optional_keys__
    config = getattr(type_, "__struct_config__", None)
    if config is None or field not in type_.__struct_encode_fields__:
        return False
    info = next(info for info in msgspec.structs.fields(type_) if info.encode_name == field)
    return info.default is msgspec.UNSET or (bool(config.omit_defaults) and not info.required)


def _alternatives(part: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    if depth > _REFERENCES_MAX:
        yield {}
    elif "$ref" in part:
        yield from _alternatives(_resolve(part["$ref"], root), root, depth + 1)
    elif isinstance(options := part.get("anyOf", part.get("oneOf")), list):
        for option in options:
            yield from _alternatives(option if isinstance(option, dict) else {}, root, depth + 1)
    else:
        yield part


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _property(part: dict[str, Any], field: str, exact: bool) -> dict[str, Any] | None:
    """The schema of a field; None when the schema leaves it open."""
    properties = part.get("properties", {})
    if field in properties:
        found = properties[field]
        return found if isinstance(found, dict) else None
    closed = part.get("additionalProperties") is False or (exact and "properties" in part)
    if (
        closed
        or part.get("type") in ("string", "integer", "number", "boolean", "null", "array")
        or "enum" in part
    ):
        raise NoSuchField
    return None


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


def decoder_of(type_: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of JSON text into the type; None stands for any JSON."""
    return msgspec.json.Decoder() if type_ is None else msgspec.json.Decoder(type_)
