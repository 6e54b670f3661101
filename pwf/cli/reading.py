"""What people type for an input or an answer, read as the declared type says. One reader for options and the prompt.

Promises: where the type is text, what was typed stays as it is; where it is not, a text that does not fit is refused
with what was expected. Where nothing is declared, what reads as JSON is JSON, unless it would be written otherwise
afterwards (`1.40`, `1e5`): then it stays text. Text in double quotes is that text. Fields that the type lacks are left
to the daemon, which refuses them with the nearest name.
"""

from __future__ import annotations

import math
import shlex
from typing import Any

from pwf.cli.out import UsageError
from pwf.cli.typed import json_argument
from pwf.errors import PwfError
from pwf.present import form
from pwf.values import canonical, parse

Schema = dict[str, Any] | None

_MISSING = object()
_YES_NO = {
    "yes": True,
    "y": True,
    "true": True,
    "on": True,
    "no": False,
    "n": False,
    "false": False,
    "off": False,
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def run_input(
    typed: str | None, sets: list[str], schema: Schema = None, *, option: str = "--input", base: Any = None
) -> Any:
    """The input of a run, or a spec: what `option` gave, else `base`, with each `--set` put into it in order."""
    value = base if typed is None else json_argument(typed, option)
    return _with_sets(value, sets, schema)


def read_answer(words: list[str], sets: list[str], schema: Schema) -> Any:
    """An answer: JSON, `@FILE`, `-`, plain words, or `field=value` words, as the type allows; `--set` goes into it."""
    if not words:
        return _with_sets(None, sets, schema)
    if len(words) == 1 and (words[0] == "-" or words[0].startswith("@")):
        return _with_sets(json_argument(words[0], "the answer"), sets, schema)
    if schema is not None and form.fields_of(schema, schema) and all(_is_pair(word) for word in words):
        return _with_sets(None, [*words, *sets], schema)
    typed = " ".join(words)
    if schema is None and typed.startswith(("{", "[", '"')):
        return _with_sets(json_argument(typed, "the answer"), sets, schema)
    return _with_sets(read_text(typed, schema, schema or {}, "the answer"), sets, schema)


def read_line(line: str, schema: Schema) -> Any:
    """The answer that was typed at the prompt: what `pwf answer` would take."""
    words = [line.strip()]
    if schema is not None and form.fields_of(schema, schema):
        try:
            split = shlex.split(line)
        except ValueError:  # a quote that is not closed: it is no list of words
            split = []
        if split and all(_is_pair(word) for word in split):
            words = split
    return read_answer(words, [], schema)


def read_text(typed: str, part: Any, root: dict[str, Any], what: str) -> Any:
    """The value that a text means under a type."""
    kinds = form.alternatives(part, root)
    found = _json(typed)
    if not kinds:
        return typed if found is _MISSING or _changes(found, typed) else found
    for kind in kinds:
        if typed in (form.choices(kind) or ()):
            return typed
    for kind in kinds:
        if found is not _MISSING and _fits(found, kind):
            return found
    if any(kind.get("type") == "string" and form.choices(kind) is None for kind in kinds):
        return typed
    if typed.lower() in _YES_NO and any(kind.get("type") == "boolean" for kind in kinds):
        return _YES_NO[typed.lower()]
    shown = typed if len(typed) <= 40 else typed[:37] + "..."
    raise UsageError(
        f"{what}: {shown!r} does not fit; it takes {form.words(part, root)}", hint=_how(part, root)
    )


def _how(part: Any, root: dict[str, Any]) -> str:
    if form.fields_of(part, root):
        return f"for example {form.example({**part, '$defs': root.get('$defs', {})})}, or JSON"
    return f"for example {form.example({**part, '$defs': root.get('$defs', {})})}"


def _fits(value: Any, kind: dict[str, Any]) -> bool:
    listed = form.choices(kind)
    if listed is not None:
        return any(type(value) is type(choice) and value == choice for choice in listed)
    name = kind.get("type", "object")
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _PYTHON.get(str(name), (object,)))


def _json(typed: str) -> Any:
    try:
        return parse(typed)
    except PwfError:
        return _MISSING


def _changes(value: Any, typed: str) -> bool:
    """Whether a number would be written otherwise than it was typed."""
    if not isinstance(value, float):
        return False
    return not math.isfinite(value) or canonical(value) != typed.strip().encode()


def _is_pair(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and bool(name) and name[0] not in "{[\"'"


# --- --set ----------------------------------------------------------------------------------------------------


def _with_sets(value: Any, sets: list[str], schema: Schema) -> Any:
    for item in sets:
        value = _set(value, item, schema)
    return value


def _set(value: Any, item: str, schema: Schema) -> Any:
    path, equals, typed = item.partition("=")
    if not equals or not path:
        raise UsageError(
            f"--set {item!r} has no KEY=VALUE", hint="for example --set version=1.2 or --set a.b=true"
        )
    keys = [key.replace("\0", ".") for key in path.replace("\\.", "\0").split(".")]
    if "" in keys:
        raise UsageError(f"--set {item!r} has an empty key", hint="write a dot inside a key as \\.")
    root = schema or {}
    new = read_text(typed, _part(schema, keys, root), root, f"--set {path}")
    if value is None:
        value = {}
    _put(value, keys, new, item)
    return value


def _part(schema: Any, keys: list[str], root: dict[str, Any]) -> Any:
    """The schema of what lies below these keys; None where it declares nothing."""
    part = schema
    for key in keys:
        found = None
        for kind in form.alternatives(part, root):
            if kind.get("type") == "array" and key.isdecimal():
                found = kind.get("items")
            else:
                found = kind.get("properties", {}).get(key, kind.get("additionalProperties"))
            if isinstance(found, dict):
                break
        part = found if isinstance(found, dict) else None
    return part


def _put(value: Any, keys: list[str], new: Any, item: str) -> None:
    at: Any = value
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        slot: Any = key
        if isinstance(at, list):
            if not key.isdecimal() or int(key) >= len(at):
                raise UsageError(
                    f"--set {item!r}: {'.'.join(keys[:depth]) or 'the input'} is a list of {len(at)}, "
                    f"which has no place {key!r}",
                    hint="use an index that exists",
                )
            slot = int(key)
        elif not isinstance(at, dict):
            raise UsageError(
                f"--set {item!r}: {'.'.join(keys[:depth]) or 'the whole'} is not an object",
                hint="set the whole of it, or check what it is set into",
            )
        if last:
            at[slot] = new
            return
        below = at[slot] if isinstance(at, list) else at.get(slot, _MISSING)
        if below is _MISSING:
            below = at[slot] = {}
        at = below
