"""What can be known of an author's function before it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    call = getattr(fn, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def misfit(fn: Callable[..., Any], names: Sequence[str]) -> str | None:
    """Why a function can't be called with exactly these positional arguments; None when it can."""
    try:
        inspect.signature(fn).bind(*names)
    except TypeError as error:
        return f"can not be called as f({', '.join(names)}): {error}"
    except ValueError:
        return None  # a builtin that shows no signature
    return None
