"""A file of several resources, as `pwf resource apply -f` reads it: TOML or JSON.

Both come with Python, and both say exactly what type a value has. YAML would need a library of its own, and takes `no`
for false and `1.10` for 1.1.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pwf.cli.out import UsageError
from pwf.errors import PwfError
from pwf.values import canonical, parse

RESOURCES_MAX = 1_000
FILE_BYTES_MAX = 16 * 1024 * 1024
_KEYS = frozenset({"manager", "key", "spec"})
EXAMPLE = """[[resource]]
manager = "git-mirror"
key = "website"
[resource.spec]
upstream = "/srv/website.git"
mirror = "/backup/website.git\""""


class Wanted(NamedTuple):
    """One resource of a file. `spec` is canonical JSON."""

    manager: str
    key: str
    spec: bytes


def read_resources(typed: str) -> list[Wanted]:
    """The resources of a file, in its order; `-` is stdin (JSON or TOML). Raises `UsageError` that names the place."""
    where = "stdin" if typed == "-" else typed
    items = _items(_text(typed), where, Path(typed).suffix.lower())
    if not items:
        raise UsageError(f"{where} has no resources", hint=f"write for example\n{EXAMPLE}")
    if len(items) > RESOURCES_MAX:
        raise UsageError(f"{where} has {len(items):,} resources; the limit is {RESOURCES_MAX:,}")
    found = [_wanted(item, f"{where}: resource {number}") for number, item in enumerate(items, 1)]
    seen: set[tuple[str, str]] = set()
    for one in found:
        if (one.manager, one.key) in seen:
            raise UsageError(f"{where} names {one.manager}/{one.key} twice", hint="keep one of the two")
        seen.add((one.manager, one.key))
    return found


def _text(typed: str) -> str:
    import sys

    try:
        if typed == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(typed).expanduser().open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise UsageError(f"{typed} has more than the limit of {FILE_BYTES_MAX:,} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(
            f"{typed} can not be read: {error.strerror}", hint="check the path after -f"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{typed} is not UTF-8", hint="save it as UTF-8") from error


def _items(text: str, where: str, suffix: str) -> list[Any]:
    if suffix in (".yaml", ".yml"):
        raise UsageError(f"{where} is YAML, which is not read", hint="write it as TOML or JSON")
    if suffix == ".json" or (suffix != ".toml" and text.lstrip().startswith(("{", "["))):
        if suffix != ".json" and text.lstrip().startswith("[["):
            return _of_table(_toml(text, where), where)
        data = parse(text, what=where)
        return data if isinstance(data, list) else _of_table(data, where)
    return _of_table(_toml(text, where), where)


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}", hint="fix that line") from error


def _of_table(data: Any, where: str) -> list[Any]:
    """The list under `resource`, or the table itself where it is one resource."""
    if isinstance(data, dict) and _KEYS & data.keys():
        return [data]
    items = data.get("resource") if isinstance(data, dict) else None
    if not isinstance(items, list) or len(data) > 1:
        extra = sorted(set(data) - {"resource"}) if isinstance(data, dict) else []
        what = f"has {extra[0]!r} beside" if items is not None and extra else "has no list of"
        raise UsageError(f"{where} {what} its resources", hint=f"write for example\n{EXAMPLE}")
    return items


def _wanted(item: Any, where: str) -> Wanted:
    if not isinstance(item, dict):
        raise UsageError(f"{where} is {str(item)[:40]!r}", hint="give a table with manager, key and spec")
    unknown = sorted(item.keys() - _KEYS)
    if unknown:
        raise UsageError(
            f"{where} has an unknown field {unknown[0]!r}", hint="its fields are manager, key and spec"
        )
    for name in ("manager", "key"):
        if not isinstance(item.get(name), str) or not item[name]:
            raise UsageError(f"{where} has no {name}", hint=f'add {name} = "…"')
    try:
        spec = canonical(item.get("spec", {}), what="spec")
    except PwfError as error:
        raise UsageError(
            f"{where} ({item['manager']}/{item['key']}): {error.message}", hint=error.hint
        ) from error
    return Wanted(item["manager"], item["key"], spec)
