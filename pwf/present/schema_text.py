"""The input of a workflow as lines that a person can read, from its JSON Schema. One line for each field."""

from __future__ import annotations

import json
from typing import Any

from pwf.values import shortened

DEPTH_MAX = 4


def input_lines(schema: dict[str, Any] | None) -> list[str]:
    """Like `version: string, required` and `top: integer = 10`; nested fields are indented."""
    if schema is None:
        return ["input: any JSON"]
    fields = _fields(_resolved(schema, schema), schema, 1)
    return ["input:", *fields] if fields else [f"input: {_type(schema, schema)}"]


def _fields(part: dict[str, Any], root: dict[str, Any], depth: int) -> list[str]:
    lines = []
    required = set(part.get("required", ()))
    for name, field in part.get("properties", {}).items():
        line = f"{'  ' * depth}{name}: {_type(field, root)}"
        if name in required:
            line += ", required"
        elif isinstance(field, dict) and "default" in field:
            line += f" = {shortened(json.dumps(field['default'], ensure_ascii=False), 60)}"
        lines.append(line)
        if depth < DEPTH_MAX:
            lines += _fields(_resolved(field, root), root, depth + 1)
    return lines


def _resolved(part: Any, root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(DEPTH_MAX):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        part = root
        for key in reference[2:].split("/"):
            part = part.get(key, {}) if isinstance(part, dict) else {}
    return part if isinstance(part, dict) else {}


def _type(part: Any, root: dict[str, Any]) -> str:
    part = _resolved(part, root)
    for several in ("anyOf", "oneOf"):
        if several in part:
            return " or ".join(_type(one, root) for one in part[several])
    if "enum" in part or "const" in part:
        values = part.get("enum", [part.get("const")])
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    kind = part.get("type", "any JSON")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and "items" in part:
        return f"array of {_type(part['items'], root)}"
    return str(kind)
