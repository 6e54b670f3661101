"""\"Did you mean …\": one wording for every place that names things an author may have mistyped."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(text: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name, or all of them where none is near."""
    names = [str(name) for name in known]
    import difflib  # only for a mistake

    near = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(repr(name) for name in sorted(names))}" if names else "there are none"
