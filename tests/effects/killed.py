"""A request that is applied by a process which is killed before any one line of the product's code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pwf.effects
from pwf.effects.prepared import Request

FOLDER = str(Path(pwf.effects.__file__).parent)
KEY = "run1:save:1"
LINES_MAX = 500


def killed_before_line(request: Request[Any], number: int) -> bool:
    """Apply it in a process of its own, which dies before its nth line in `pwf/effects`. False: it had fewer."""
    pid = os.fork()
    if pid == 0:
        try:
            sys.settrace(_dies_before(number))
            request.apply(KEY)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def _dies_before(number: int) -> Callable[[FrameType, str, Any], Any]:
    left = number

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def is_told_right_wherever_it_is_killed(
    make: Callable[[int], Request[Any]], happened: Callable[[int], int], *, may_be_unknown: bool = False
) -> None:
    """`make(n)`: a request of its own for each kill. `happened(n)`: how often it did, as the outside shows.

    What `observe` says is true, and who goes by it ends with exactly one.
    """
    for number in range(LINES_MAX):
        request = make(number)
        if not killed_before_line(request, number):
            assert number > 3, "the product's lines were counted"
            assert happened(number) == 1
            return
        verdict = request.observe(KEY).verdict
        if verdict == "unknown":
            assert may_be_unknown, f"killed before line {number}: nobody knows"
            continue
        assert happened(number) == (verdict == "applied"), f"killed before line {number}: {verdict}"
        if verdict == "not_applied":
            request.apply(KEY)
        assert happened(number) == 1
        assert request.observe(KEY).verdict == "applied"
    raise AssertionError("it never came to its end")
