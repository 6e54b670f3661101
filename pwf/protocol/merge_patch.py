"""JSON merge patches (RFC 7386): how a view's revision follows from the one before.

A merge patch can not set a null inside an object: there, null means "remove". For the fields of our own
views null and absent mean the same, so that is no loss. In what people wrote (outputs, answers, payloads,
schemas) it would be one; `diff` answers None then, and the daemon sends a whole snapshot.
"""

from __future__ import annotations

from typing import Any

#: Fields that carry JSON from outside, in which null is not the same as absent.
OPAQUE_FIELDS = frozenset(
    {"json", "data", "payload", "answer", "schema", "input_schema", "returns", "details", "value"}
)


def apply(document: Any, patch: Any) -> Any:
    """The document after the patch; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result


def diff(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """A patch with which `apply` makes `new` out of `old`; None when no merge patch can say it."""
    return _diff(old, new, opaque=False)


def _diff(old: dict[str, Any], new: dict[str, Any], *, opaque: bool) -> dict[str, Any] | None:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        below = opaque or key in OPAQUE_FIELDS
        if isinstance(value, dict) and isinstance(before, dict):
            inner = _diff(before, value, opaque=below)  # compared on the way down, and not at each level anew
            if inner is None:
                return None
            if inner:
                patch[key] = inner
            continue
        if key in old and _same(before, value):
            continue
        if value is None:
            if below:
                return None
            if before is not None:
                patch[key] = None
        elif isinstance(value, dict) and _loses_null(value, opaque=below):
            return None
        else:
            patch[key] = value
    return patch


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: True is not 1, and 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _loses_null(value: dict[str, Any], *, opaque: bool) -> bool:
    """Whether setting this object by a patch would drop a null that means something (arrays are kept
    whole).
    """
    for key, item in value.items():
        below = opaque or key in OPAQUE_FIELDS
        if item is None and below:
            return True
        if isinstance(item, dict) and _loses_null(item, opaque=below):
            return True
    return False
