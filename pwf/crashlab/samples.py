"""Values made from JSON Schema: the smallest that fits, one for each case of a switch, and one that no case takes."""

from __future__ import annotations

from typing import Any

from pwf.protocol.graph import NodeSpec

DEPTH_MAX = 20
STRAY = "crashlab: no case takes this"

_BY_FORMAT = {
    "date-time": "1970-01-01T00:00:00Z",
    "date-time-optional-zone": "1970-01-01T00:00:00Z",
    "partial-date-time": "1970-01-01T00:00:00",
    "time-optional-zone": "00:00:00Z",
    "partial-time": "00:00:00",
    "decimal": "0",
    "date": "1970-01-01",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "email": "nobody@example.org",
    "uri": "https://example.org/",
}


def sample(schema: dict[str, Any] | None) -> Any:
    """The smallest value that the schema takes, as far as that can be told; null for no schema."""
    return None if schema is None else _sample(schema, schema, 0)


def choices(node: NodeSpec) -> list[Any]:
    """Outputs (or answers) of a node that lead to each case of its switch; one value where it has none."""
    way = node.way("completed")
    if way is None or not way.cases:
        return [sample(node.returns)]
    return [_with_case(node.returns, way.on, case.value) for case in way.cases]


def stray(node: NodeSpec) -> Any:
    """An answer that no case of the node's switch takes."""
    way = node.way("completed")
    return _with_case(node.returns, way.on, STRAY) if way is not None and way.on is not None else STRAY


def _with_case(schema: dict[str, Any] | None, field: str | None, value: Any) -> Any:
    if field is None:
        return value
    if schema is None:
        return {field: value}
    options = list(_alternatives(schema, schema, 0))
    fitting = [part for part in options if _allows(part.get("properties", {}).get(field), schema, value)]
    base = _sample((fitting or options)[0], schema, 0)
    return {**(base if isinstance(base, dict) else {}), field: value}


def _allows(part: Any, root: dict[str, Any], value: Any) -> bool:
    """Whether the schema of a field may take this value."""
    if not isinstance(part, dict):
        return False
    for option in _alternatives(part, root, 0):
        if "enum" in option and value not in option["enum"]:
            continue
        if "const" in option and option["const"] != value:
            continue
        return True
    return False


def _alternatives(part: dict[str, Any], root: dict[str, Any], depth: int) -> list[dict[str, Any]]:
    if depth > DEPTH_MAX:
        return [{}]
    if "$ref" in part:
        return _alternatives(_resolve(part["$ref"], root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(part.get(key), list) and part[key]:
            return [found for option in part[key] for found in _alternatives(option, root, depth + 1)]
    return [part]


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _sample(part: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        return None
    options = _alternatives(part, root, depth)
    part = next((option for option in options if option.get("type") != "null"), options[0])
    for parts in (part.get("allOf"),):
        if isinstance(parts, list):
            merged: dict[str, Any] = {}
            for one in parts:
                merged |= _alternatives(one, root, depth + 1)[0]
            part = {**merged, **{key: value for key, value in part.items() if key != "allOf"}}
    if "const" in part:
        return part["const"]
    if part.get("enum"):
        return part["enum"][0]
    kind = part.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None and "properties" in part:
        kind = "object"
    return _of_kind(kind, part, root, depth)


def _of_kind(kind: Any, part: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = part.get("properties", {})
        return {name: _sample(properties.get(name, {}), root, depth + 1) for name in part.get("required", ())}
    if kind == "array":
        first = [_sample(item, root, depth + 1) for item in part.get("prefixItems", ())]
        items = part.get("items")
        item = _sample(items, root, depth + 1) if isinstance(items, dict) else None
        return first + [item] * max(0, int(part.get("minItems", 0)) - len(first))
    if kind in ("integer", "number"):
        return _number(part, whole=kind == "integer")
    if kind == "string":
        found = _BY_FORMAT.get(part.get("format", ""), "")
        return found or "x" * int(part.get("minLength", 0))
    return False if kind == "boolean" else None


def _within(key: str, number: float, bound: float) -> bool:
    return {
        "maximum": number <= bound,
        "exclusiveMaximum": number < bound,
        "minimum": number >= bound,
        "exclusiveMinimum": number > bound,
    }[key]


def _number(part: dict[str, Any], *, whole: bool) -> float:
    step = part.get("multipleOf") or (1 if whole else 0.5)
    found: float = 0
    for key, away in (
        ("maximum", 0),
        ("exclusiveMaximum", -step),
        ("minimum", 0),
        ("exclusiveMinimum", step),
    ):
        bound = part.get(key)
        if bound is not None and not _within(key, found, bound):
            found = bound + away
    if found % step:
        found += step - found % step
    return int(found) if whole else found
