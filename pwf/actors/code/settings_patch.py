"""A JSON Patch (RFC 6902) on the settings of a run: what each actor may do, and what comes of it. Pure.

Promises: what an actor may not change stays as it was, also below a path that the patch names as a whole; what an
actor may not read is neither shown, copied nor tested. In a list a rule guards a place: nothing moves out of it or into
it that the actor may not. The work is in proportion to patch, settings and what is copied. The library applies; this
decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import jsonpatch
import jsonpointer

from pwf.errors import Conflict, InvalidArgument, Rejected, ValueTooLarge
from pwf.protocol.settings import (
    PATCH_BYTES_MAX,
    PATCH_OPERATIONS_MAX,
    SETTINGS_BYTES_MAX,
    Access,
    SettingsActor,
    SettingsSpec,
)
from pwf.values import canonical, parse, shortened

Tokens = tuple[str, ...]
ABSENT = object()
INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
WHAT = "the settings"
HINT = "pwf settings get RUN shows what may be changed"
NAMES: Mapping[SettingsActor, str] = {"human": "a person", "session": "an agent", "manager": "a manager"}


def patch_of(text: bytes) -> list[dict[str, Any]]:
    """The operations of a patch. Raises `InvalidArgument` or `ValueTooLarge`."""
    if len(text) > PATCH_BYTES_MAX:
        raise ValueTooLarge(f"the patch has {len(text):,} bytes, more than {PATCH_BYTES_MAX:,}")
    patch = parse(text, what="the patch")
    if not isinstance(patch, list) or not all(isinstance(one, dict) for one in patch):
        raise InvalidArgument(
            "a patch is a list of operations",
            hint='[{"op": "replace", "path": "/workers", "value": 4}]',
        )
    if len(patch) > PATCH_OPERATIONS_MAX:
        raise InvalidArgument(f"the patch has {len(patch)} operations, more than {PATCH_OPERATIONS_MAX}")
    return patch


def patched(spec: SettingsSpec, value: bytes, patch: list[dict[str, Any]], actor: SettingsActor) -> bytes:
    """The settings after the whole patch. Raises `InvalidArgument`, `Rejected` for what the actor may not do, and
    `Conflict` where a `test` fails or a path is not there.
    """
    rules = Rules(spec, actor)
    document = parse(value, what=WHAT)
    copies = Copies()
    for number, operation in enumerate(patch, 1):
        document = _step(rules, copies, document, operation, number)
    return canonical(document, limit=SETTINGS_BYTES_MAX, what=WHAT)


def visible(spec: SettingsSpec, value: bytes, actor: SettingsActor) -> tuple[Any, bool]:
    """What the actor may read, and whether there is more. An item of a list that it may not read is null."""
    rules = Rules(spec, actor)
    document = parse(value, what=WHAT)
    if rules.reads_all(()):
        return document, False
    shown = _seen(rules, document, ())
    return (None if shown is ABSENT else shown), True


class Rules:
    """What one actor may do, by path: the longest rule decides, alone."""

    def __init__(self, spec: SettingsSpec, actor: SettingsActor) -> None:
        self._may = {tokens_of(rule.path): frozenset(rule.may.get(actor, ())) for rule in spec.paths}
        self._actor = actor

    def may(self, access: Access, at: Tokens) -> bool:
        """Whether it may do that there."""
        return next(
            (
                access in self._may[at[:length]]
                for length in range(len(at), -1, -1)
                if at[:length] in self._may
            ),
            False,
        )

    def need(self, access: Access, at: Tokens) -> None:
        """Raise `Rejected` where it may not."""
        if not self.may(access, at):
            raise Rejected(
                f"{NAMES[self._actor]} may not {access} {shortened(pointer(at), 200)!r} of the settings",
                hint=HINT,
            )

    def need_of(self, document: Any, access: Access, at: Tokens) -> None:
        """The same for what a patch names. Where nothing stands there, that is said, with the nearest name that the
        actor may read: it is mistyped more often than forbidden.
        """
        parent = _at(document, at[:-1]) if at and not self.may(access, at) else None
        known = (
            [name for name in parent if self.may("read", (*at[:-1], name))]
            if isinstance(parent, dict)
            else []
        )
        if known and isinstance(parent, dict) and at[-1] not in parent:
            added = f", and {NAMES[self._actor]} may not add it" if access == "add" else ""
            raise Rejected(
                f"there is no {shortened(pointer(at), 200)!r} in the settings{added}{_nearest(at, known)}",
                hint=HINT,
            )
        self.need(access, at)

    def below(self, at: Tokens) -> Iterator[Tokens]:
        """The longer paths that have rules of their own."""
        return (path for path in self._may if len(path) > len(at) and path[: len(at)] == at)

    def reads_all(self, at: Tokens) -> bool:
        """Whether it may read everything there."""
        return self.may("read", at) and all(self.may("read", path) for path in self.below(at))


class Copies:
    """How much one patch may still copy: `copy` is the one operation that makes much of little."""

    def __init__(self) -> None:
        self._left = SETTINGS_BYTES_MAX

    def take(self, value: Any, number: int) -> None:
        """Raise `ValueTooLarge` where the operation of that number copies more than is left."""
        self._left -= len(canonical(value, what=f"what operation {number} copies"))
        if self._left < 0:
            raise ValueTooLarge(
                f"operation {number} copies too much: the copies of one patch have at most "
                f"{SETTINGS_BYTES_MAX:,} bytes in all",
                hint="copy less, or make several changes of it",
            )


def tokens_of(path: object) -> Tokens:
    """A JSON Pointer in its parts. Raises `InvalidArgument`."""
    try:
        if not isinstance(path, str):
            raise TypeError
        return tuple(jsonpointer.JsonPointer(path).parts)
    except (TypeError, jsonpointer.JsonPointerException):
        raise InvalidArgument(
            f"{shortened(repr(path), 200)} is no JSON Pointer", hint='write "/workers" or "/limits/cpu"'
        ) from None


def pointer(at: Tokens) -> str:
    """The text of a path."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in at)


def _nearest(at: Tokens, known: list[str]) -> str:
    import difflib  # only for a mistake

    near = difflib.get_close_matches(at[-1], known, n=1)
    return f"; did you mean {pointer((*at[:-1], near[0]))!r}?" if near else ""


def _step(rules: Rules, copies: Copies, document: Any, operation: dict[str, Any], number: int) -> Any:
    op = operation.get("op")
    path = tokens_of(operation.get("path"))
    source = tokens_of(operation.get("from")) if op in ("move", "copy") else None
    if op in ("test", "copy"):
        _need_read(rules, document, path if source is None else source)
    if op in ("remove", "replace"):
        rules.need_of(document, op, path)
    if op == "move":
        assert source is not None
        rules.need_of(document, "remove", source)
        _need_read(rules, document, source)
    if op in ("add", "move", "copy"):
        access: Access = "replace" if _is_member(document, path) else "add"
        if op == "add":
            rules.need_of(document, access, path)
        else:
            rules.need(access, path)
    touched = [] if op == "test" else [path] if source is None or op == "copy" else [path, source]
    guarded = [at for one in touched for at in rules.below(one)]
    before = [_was(document, at, source if op == "move" else None) for at in guarded]
    shifted = _shifted(rules, document, touched) if op in ("add", "remove", "move", "copy") else []
    if op in ("add", "move", "copy") and _at(document, path) is not ABSENT and not _is_member(document, path):
        _need_read(rules, document, path)  # what stands there gets another place
    filled = [_at(document, at) is not ABSENT for at in shifted]
    if op == "test" and not _same(_at(document, path), operation.get("value", ABSENT)):
        raise Conflict(f"operation {number} tests {pointer(path)!r}, which has another value")
    if source is not None and op == "copy" and (copied := _at(document, source)) is not ABSENT:
        copies.take(copied, number)
    document = _applied(document, operation, number)
    for at, was in zip(guarded, before, strict=True):
        now = _at(document, at)
        hidden = not rules.may("read", at) and (was is not ABSENT or now is not ABSENT)
        if hidden or not _same(was, now):  # of what is hidden, none learns by trying whether it is the same
            rules.need("add" if was is ABSENT else "remove" if now is ABSENT else "replace", at)
    for at, was_there in zip(shifted, filled, strict=True):
        is_there = _at(document, at) is not ABSENT
        if was_there:
            rules.need("read", at)
        if was_there or is_there:
            rules.need("add" if not was_there else "replace" if is_there else "remove", at)
    return document


def _applied(document: Any, operation: dict[str, Any], number: int) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(document, in_place=True)
    except (
        jsonpatch.JsonPatchConflict,
        jsonpatch.JsonPatchTestFailed,
        jsonpointer.JsonPointerException,
    ) as error:
        raise Conflict(f"operation {number} does not apply: {shortened(str(error), 300)}") from None
    except (jsonpatch.JsonPatchException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"operation {number} is wrong: {shortened(str(error), 300)}") from None


def _was(document: Any, at: Tokens, moved: Tokens | None) -> Any:
    """What stands there, to be compared later. Only what is moved out of it changes it: the rest takes its place."""
    found = _at(document, at)
    return deepcopy(found) if moved is not None and len(moved) > len(at) and moved[: len(at)] == at else found


def _need_read(rules: Rules, document: Any, at: Tokens) -> None:
    rules.need("read", at)
    for path in rules.below(at):
        if _at(document, path) is not ABSENT:
            rules.need("read", path)


def _shifted(rules: Rules, document: Any, touched: list[Tokens]) -> list[Tokens]:
    """The paths with rules of their own that lead through items of a list which get another index, or a new item."""
    found = []
    for path in touched:
        items = _at(document, path[:-1]) if path else None
        if not isinstance(items, list):
            continue
        index = _index(path[-1])
        first = len(items) if index is None else index
        found += [
            at
            for at in rules.below(path[:-1])
            if at not in touched and (own := _index(at[len(path) - 1])) is not None and own >= first
        ]
    return found


def _is_member(document: Any, path: Tokens) -> bool:
    """Whether an `add` there takes the place of what is there: the whole, or a member of an object."""
    if not path:
        return True
    parent = _at(document, path[:-1])
    return isinstance(parent, dict) and path[-1] in parent


def _at(document: Any, path: Tokens) -> Any:
    for token in path:
        if isinstance(document, dict) and token in document:
            document = document[token]
        elif isinstance(document, list) and (index := _index(token)) is not None and index < len(document):
            document = document[index]
        else:
            return ABSENT
    return document


def _index(token: str) -> int | None:
    """The index of an item, as RFC 6901 writes it: `01` is none, nor is one that no list is long enough for."""
    return int(token) if INDEX.fullmatch(token) else None


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: numbers by their value, and true is not 1, which Python and the library take for equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _seen(rules: Rules, value: Any, at: Tokens) -> Any:
    if rules.reads_all(at):
        return value
    if not rules.may("read", at) and not any(rules.may("read", path) for path in rules.below(at)):
        return ABSENT
    if isinstance(value, dict):
        members = ((key, _seen(rules, inner, (*at, key))) for key, inner in value.items())
        return {key: inner for key, inner in members if inner is not ABSENT}
    if isinstance(value, list):
        items = (_seen(rules, inner, (*at, str(index))) for index, inner in enumerate(value))
        return [None if item is ABSENT else item for item in items]
    return value if rules.may("read", at) else ABSENT
