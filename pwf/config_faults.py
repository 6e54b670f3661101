"""What is wrong with a text of settings, and where: msgspec's words with key, section, file, line and a hint.

Knows shapes by their types alone, and of settings only what one section calls otherwise than another.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from pwf.errors import ConfigError

Table = dict[str, Any]
Keys = tuple[str, ...]
Shape = type[msgspec.Struct]

#: As other sections say it.
_MEANT = {"kind": "adapter"}


def fault(message: str, shape: Shape, values: Table, text: str, file: str) -> ConfigError:
    """Turn msgspec's text into an error with key, section, file and line."""
    wanted, _, at = message.partition(" - at ")
    path = _path(at, message, shape, values)
    named = re.search(r"(unknown|required) field `([^`]*)`", wanted)
    if named and named[1] == "required":
        section = f"[{'.'.join(path)}]" if path else "the file"
        line = line_of(path, text)
        tags = _tags(shape, (*path, named[2]))
        hint = f"add {named[2]} = …" + (f", one of: {tags}" if tags else "")
        return ConfigError(f"{file}:{line}: {section} has no {named[2]}", hint=hint)
    path = (*path, named[2]) if named else path
    *sections, key = path
    inside = f" in [{'.'.join(sections)}]" if sections else ""
    place = f"{file}:{line_of(path, text)}"
    value = _at(values, path)
    if named:
        what = "section" if isinstance(value, dict) else "key"
        return ConfigError(f"{place}: there is no {what} {key!r}{inside}", hint=_known(shape, path))
    said = "has a name that is not allowed" if at.startswith("`key`") else f"is {_shown(value)}"
    wanted = wanted[:1].lower() + wanted[1:]
    tags = _tags(shape, path)
    hint = f"it is one of: {tags}" if tags else f"change or remove {key}"
    return ConfigError(f"{place}: {key}{inside} {said}: {wanted}", hint=hint)


def _path(at: str, message: str, shape: Shape, values: Table) -> Keys:
    """The keys that lead to the fault, up to the first list. msgspec names an entry of a dict only as `[...]`: it is
    the one that is refused in the same words when it stands alone.
    """
    path: Keys = ()
    steps = re.findall(r"\.(\w+)|\[(\.\.\.|\d+)\]", at)
    for name, entry in [*steps, ("", "...")] if at.startswith("`key`") else steps:
        if entry.isdigit():
            break
        if entry:
            name = next(one for one in _at(values, path) if _says(values, path, one, shape) == message)
        path = (*path, name)
    return path


def _says(values: Table, path: Keys, entry: str, shape: Shape) -> str:
    """What is said of the file when, of the table at `path`, only this entry is there."""
    alone: Any = {entry: _at(values, path)[entry]}
    for depth in range(len(path), 0, -1):
        alone = {**_at(values, path[: depth - 1]), path[depth - 1]: alone}
    try:
        msgspec.convert(alone, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _at(values: Any, path: Keys) -> Any:
    for name in path:
        values = values[name]
    return values


def _known(shape: Shape, path: Keys) -> str:
    """A hint for a key that does not exist: the nearest, or all that do."""
    import difflib  # only needed to word an error

    keys = [field.encode_name for kind in _structs(shape, path[:-1]) for field in kind.fields]
    near = difflib.get_close_matches(path[-1], keys, n=1) or [
        name for name in keys if name == _MEANT.get(path[-1])
    ]
    return f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(keys)


def _tags(shape: Shape, path: Keys) -> str:
    """What a key may say that tells one kind of section from the others; nothing where it is no such key."""
    kinds = [kind for kind in _structs(shape, path[:-1]) if kind.tag_field == path[-1]]
    return ", ".join(str(kind.tag) for kind in kinds)


def _structs(shape: Shape, path: Keys) -> list[Any]:
    """The structs that a section may be."""
    import msgspec.inspect as inspect

    kinds: list[Any] = [inspect.type_info(shape)]
    for name in (*path, ""):
        kinds = [
            one for kind in kinds for one in (kind.types if isinstance(kind, inspect.UnionType) else (kind,))
        ]
        structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
        entries = [kind.value_type for kind in kinds if isinstance(kind, inspect.DictType)]
        kinds = [field.type for one in structs for field in one.fields if field.encode_name == name] + entries
    return structs


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def line_of(path: Keys, text: str) -> int:
    """The first line that sets this key, or as much of the way to it as the file has; 0 when it has nothing."""
    found, deepest = 0, 0
    for line, table in _statements(text):
        depth = 0
        while depth < len(path) and isinstance(table, dict) and path[depth] in table:
            table, depth = table[path[depth]], depth + 1
        if depth > deepest:
            found, deepest = line, depth
    return found


def _statements(text: str) -> Iterator[tuple[int, Table]]:
    """Each statement of a text that is TOML, with its first line, as the tables that it alone would give."""
    section: Keys = ()
    lines: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        lines.append(line)
        try:
            table = tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        first, opens, lines = number - len(lines) + 1, lines[0].lstrip().startswith("["), []
        if opens:
            section, inner = (), table
            while inner:  # [a.b] alone gives {"a": {"b": {}}}; [[a]] gives {"a": [{}]}
                ((name, inner),) = inner.items()
                section, inner = (*section, name), inner[0] if isinstance(inner, list) else inner
        else:
            for name in reversed(section):
                table = {name: table}
        if table:
            yield first, table
