"""Turning what a step raised into a `StepError`: what, where, in the author's own source.

Everything here is bounded and never raises: an exception whose text can not be made still gets a report.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pwf.errors import PwfError
from pwf.protocol.masking import Masks
from pwf.protocol.runner import StepError
from pwf.workflow.effects import NotApplied

if TYPE_CHECKING:
    import traceback

MESSAGE_BYTES_MAX = 16 * 1024
TRACEBACK_BYTES_MAX = 46 * 1024  # with the message and the rest: at most 64 KiB
NAME_BYTES_MAX = 512

_OURS = str(Path(__file__).resolve().parents[2]) + os.sep


def step_error(error: BaseException, node: str, *, code: str = "node_failed", message: str = "") -> StepError:
    """Describe an exception of user code. A group of one is described as that one."""
    inner = sole(error)
    return StepError(
        code=code,
        message=bounded(message or _message(inner), MESSAGE_BYTES_MAX),
        type=bounded(type_name(inner), NAME_BYTES_MAX),
        # A refusal says why in its message, and nothing is to be looked for in the code.
        traceback=""
        if isinstance(inner, NotApplied)
        else bounded(user_traceback(error), TRACEBACK_BYTES_MAX),
        node=node,
    )


def plain_error(code: str, message: str, node: str) -> StepError:
    """An error that no exception of the author's stands behind."""
    return StepError(code=code, message=bounded(message, MESSAGE_BYTES_MAX), node=node)


def error_without(error: StepError, masks: Masks) -> StepError:
    """The error as it may be kept."""
    text = masks.text
    return msgspec.structs.replace(
        error, message=text(error.message), traceback=text(error.traceback), type=text(error.type)
    )


def sole(error: BaseException) -> BaseException:
    """Unwrap exception groups that hold exactly one exception, as nurseries and task groups make them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however nested; the exception itself when it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def type_name(error: BaseException) -> str:
    """The class as the author would write it: built-in names bare, others with their module."""
    kind = type(error)
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def bounded(text: str, limit: int) -> str:
    """Valid UTF-8 of at most `limit` bytes; what is too long loses its middle, and says how much."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > limit:
        half = (limit - 64) // 2
        cut = len(data) - 2 * half
        data = data[:half] + f"\n[… {cut:,} bytes left out …]\n".encode() + data[-half:]
    return data.decode("utf-8", "ignore")


def user_traceback(error: BaseException) -> str:
    """The traceback without pwf's and trio's own frames, where any other is left."""
    import traceback  # when something failed

    try:
        shown = traceback.TracebackException.from_exception(error, compact=True)
        _trim(shown, depth=0)
        return "".join(shown.format())
    except Exception as fault:  # noqa: BLE001 - user code: __str__, __repr__ or __notes__ of an exception
        return f"(the traceback could not be made: {type(fault).__name__})"


def _trim(shown: traceback.TracebackException, depth: int) -> None:
    if depth > 20:
        return
    import traceback

    kept = [frame for frame in shown.stack if not _is_machinery(frame.filename)]
    if kept:
        shown.stack = traceback.StackSummary.from_list(kept)
    for inner in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if inner is not None:
            _trim(inner, depth + 1)


def _is_machinery(filename: str) -> bool:
    return filename.startswith(_OURS) or f"{os.sep}site-packages{os.sep}trio{os.sep}" in filename


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, SystemExit):
            return f"the step called sys.exit({error.code!r}); return a value or raise an exception instead"
        text = str(error)
        hint = error.hint if isinstance(error, PwfError) else None
    except Exception as fault:  # noqa: BLE001 - user code: __str__ of an exception
        return f"{type_name(error)} (its text could not be made: {type(fault).__name__})"
    if isinstance(error, RuntimeError) and text == "no running event loop":
        hint = "async steps run on trio; call an asyncio library through pwf.run_asyncio(fn, ...)"
    if not text:
        text = type_name(error)
    return f"{text} ({hint})" if hint else text
