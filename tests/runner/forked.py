"""Runs a function in a forked process of its own, as resolvers and templates are, and gives back what it returned."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class ForkedError(AssertionError):
    """The function raised: its traceback as text."""


def forked(function: Callable[..., T], *arguments: Any, seconds: float = 30.0) -> T:
    """`function(*arguments)` in a fork; picklable results only."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            result: tuple[bool, Any] = (True, function(*arguments))
        except BaseException:  # noqa: BLE001 - reported to the test
            result = (False, traceback.format_exc())
        with os.fdopen(writer, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(writer)
    data = _read(reader, pid, seconds)
    os.waitpid(pid, 0)
    if not data:
        raise ForkedError("the forked process ended without a result")
    ok, value = pickle.loads(data)
    if not ok:
        raise ForkedError(value)
    return value


def _read(reader: int, pid: int, seconds: float) -> bytes:
    end = time.monotonic() + seconds
    pieces = []
    with os.fdopen(reader, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, end - time.monotonic()))[0]:
            piece = file.read(65536)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    os.kill(pid, signal.SIGKILL)
    raise ForkedError(f"no answer within {seconds} s")
