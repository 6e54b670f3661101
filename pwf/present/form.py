"""What a JSON Schema asks of a person, in words: fields, types, choices, defaults, and what may be left out.

Promises: any schema gives bounded lines, also one that is odd or refers to itself. Reading what is typed is the
command line's (`pwf/cli/reading.py`), by the same alternatives.
"""

from __future__ import annotations

import json
from typing import Any

from pwf.present import text
from pwf.protocol.decision_spec import shown_of
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.views import Explanation, RequestView
from pwf.values import shortened

DEPTH_MAX = 4
REFERENCES_MAX = 50
DEFAULT_SHOWN = 60

TYPES = {
    "string": "text",
    "boolean": "yes or no",
    "integer": "whole number",
    "number": "number",
    "array": "list",
    "object": "object",
    "null": "null",
}


def input_lines(schema: dict[str, Any] | None) -> list[str]:
    """Like `version: text, required` and `top: whole number = 10`; nested fields are indented."""
    if schema is None:
        return ["input: any JSON"]
    fields = _fields(schema, schema, 1)
    return ["input:", *fields] if fields else [f"input: {words(schema, schema)}"]


def form_lines(schema: dict[str, Any] | None) -> list[str]:
    """What an answer must be: a line for each field, or one for a plain value."""
    if schema is None:
        return ["any JSON, or text"]
    return [line.removeprefix("  ") for line in _fields(schema, schema, 1)] or [words(schema, schema)]


def form_line(schema: dict[str, Any] | None) -> str:
    """The same in one line."""
    return "; ".join(line for line in form_lines(schema) if not line.startswith(" "))


def example(schema: dict[str, Any] | None) -> str:
    """What can be typed after `pwf answer REQUEST`, to show how; for a shell."""
    if schema is None:
        return "'any text, or JSON'"
    fields = fields_of(schema, schema)
    if not fields:
        return _sample(schema, schema)
    needed = [name for name in fields if name in _required(schema, schema)] or list(fields)[:1]
    return " ".join(f"{name}={_sample(fields[name], schema)}" for name in needed)


def commands(found: Explanation, request: RequestView | None) -> list[str]:
    """What can be typed, safe lines: a request's command with what it takes, where the request is at hand."""
    if request is None or request.status != "pending":
        return [text.line(command) for command in found.commands]
    bare, whole = REQUESTS[request.kind].how(request.request_id), answer_lines(request)[-1][1]
    return [whole if command == bare else text.line(command) for command in found.commands]


def answer_lines(request: RequestView) -> list[tuple[str, str]]:
    """What an open question takes, and a command that answers it: names and safe lines."""
    request_id = text.line(request.request_id)
    facts = REQUESTS[request.kind]
    if not (facts.plain or facts.submitted):
        chosen = _choices_of(request) if facts.decided else []
        command = facts.how(request_id) + (f" {text.line(chosen[0])}" if chosen else "")
        typed = ("type", command)
        return [("takes", text.line(" | ".join(chosen))), typed] if chosen else [typed]
    takes = [text.line(line) for line in form_lines(request.schema)]
    lines = [("takes", takes[0]), *(("", line) for line in takes[1:])]
    verb = "answer" if facts.plain else "submit"
    return [*lines, ("type", f"pwf {verb} {request_id} {text.line(example(request.schema))}")]


def _choices_of(request: RequestView) -> list[str]:
    """What there is to choose."""
    schema = request.schema or {}
    listed = choices(fields_of(schema, schema).get("choice", {}))
    return [str(choice) for choice in listed or ()]


def asked(request: RequestView, cells: int) -> str:
    """What is asked, as one safe line: of a decision its summary."""
    if not REQUESTS[request.kind].decided:
        return text.brief(request.prompt, cells)
    if request.prompt.json is None:
        return f"a proposal of {text.size(request.prompt.size)}"
    return text.headline(shown_of(request.prompt.json).summary, cells)


def waits(request: RequestView, now_ms: int) -> str:
    """How long it is open, and what follows then; `-` of one that is closed. A safe line."""
    if request.status != "pending":
        return "-"
    if request.left_ms is not None:
        until = f"another {text.duration(request.left_ms)} once its run goes on"
    elif request.deadline_ms is None:
        return "for ever"
    else:
        until = text.until(request.deadline_ms, now_ms)
    if request.default is None:
        return f"{until}, then timed out"
    return f"{until}, then the answer is {default_words(request)}"


def default_words(request: RequestView) -> str:
    """The default as one safe line: of a decision its choice."""
    assert request.default is not None, "whoever asks has looked"
    if REQUESTS[request.kind].decided and request.default.json is not None:
        return text.line(str(json.loads(bytes(request.default.json))["choice"]), DEFAULT_SHOWN)
    return text.brief(request.default, DEFAULT_SHOWN)


def alternatives(part: Any, root: dict[str, Any]) -> list[dict[str, Any]]:
    """The types that a value may have, references followed. Empty: any JSON."""
    found: list[dict[str, Any]] = []
    pending = [part]
    for _ in range(REFERENCES_MAX):
        if not pending:
            return found
        one = pending.pop(0)
        if not isinstance(one, dict):
            return []
        several = one.get("anyOf", one.get("oneOf"))
        kind = one.get("type")
        if isinstance(one.get("$ref"), str):
            pending.insert(0, resolved(one["$ref"], root))
        elif isinstance(several, list):
            pending = [*several, *pending]
        elif isinstance(kind, list):
            found += [{**one, "type": name} for name in kind]
        elif kind is None and "enum" not in one and "const" not in one and "properties" not in one:
            return []
        else:
            found.append(one)
    return found


def resolved(reference: str, root: dict[str, Any]) -> Any:
    """What a `#/…` reference stands for; an empty schema where it leads nowhere."""
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found


def fields_of(part: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The fields of the first alternative that is an object with fields."""
    return next((one["properties"] for one in alternatives(part, root) if _has_fields(one)), {})


def choices(one: dict[str, Any]) -> list[Any] | None:
    """The values of an alternative that lists them."""
    if isinstance(one.get("enum"), list):
        return list(one["enum"])
    return [one["const"]] if "const" in one else None


def words(part: Any, root: dict[str, Any]) -> str:
    """The type, for people."""
    found = [_word(one, root) for one in alternatives(part, root)]
    return " or ".join(dict.fromkeys(found)) or "any JSON"


def _word(one: dict[str, Any], root: dict[str, Any]) -> str:
    listed = choices(one)
    if listed is not None:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in listed)
    kind = one.get("type", "object")
    if kind == "array" and "items" in one:
        return f"list of {words(one['items'], root)}"
    return TYPES.get(str(kind), str(kind))


def _has_fields(one: dict[str, Any]) -> bool:
    return isinstance(one.get("properties"), dict) and bool(one["properties"])


def _required(part: Any, root: dict[str, Any]) -> set[str]:
    return next((set(one.get("required", ())) for one in alternatives(part, root) if _has_fields(one)), set())


def _fields(part: Any, root: dict[str, Any], depth: int) -> list[str]:
    lines = []
    required = _required(part, root)
    for name, field in fields_of(part, root).items():
        line = f"{'  ' * depth}{name}: {words(field, root)}"
        if name in required:
            line += ", required"
        elif isinstance(field, dict) and "default" in field:
            line += f" = {shortened(json.dumps(field['default'], ensure_ascii=False), DEFAULT_SHOWN)}"
        else:
            line += ", may be left out"
        lines.append(line)
        if depth < DEPTH_MAX:
            lines += _fields(field, root, depth + 1)
    return lines


def _sample(part: Any, root: dict[str, Any]) -> str:
    for one in alternatives(part, root):
        listed = choices(one)
        if listed:
            first = listed[0]
            return first if isinstance(first, str) and first.isidentifier() else f"'{json.dumps(first)}'"
        sample = _SAMPLES.get(str(one.get("type")))
        if sample is not None:
            return sample
    return "'JSON'"


_SAMPLES = {
    "string": "'some text'",
    "boolean": "yes",
    "integer": "1",
    "number": "1.5",
    "array": "'[]'",
    "object": "'{}'",
}
