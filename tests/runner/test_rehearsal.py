"""Before the first fork the runner's way is walked once, and only Python remembers it."""

from __future__ import annotations

import os
import sys
import time

from pwf import host
from pwf.runner.spawn import hazards
from pwf.runner.spawn.rehearsal import rehearse
from tests.runner.forked import forked

BOUND_S = 1.0  # it takes some milliseconds; this machine may have other things to do


def test_rehearsing_leaves_no_trace() -> None:
    before, after = forked(_around)
    assert after == before


def _around() -> tuple[object, object]:
    hazards.prepare()
    rehearse(rounds=1)  # what is imported or made once is there then
    before = _state()
    rehearse()
    return before, _state()


def _state() -> object:
    looked = hazards.look()
    return (
        looked.threads,
        looked.descriptors,
        looked.kernel_signals,
        looked.wakeup,
        looked.exit_handlers,
        looked.finalizers,
        {signum: repr(handler) for signum, handler in looked.handlers.items()},
        host.has_children(),
        os.getcwd(),
        dict(os.environ),
        sorted(sys.modules),
        list(sys.path),
    )


def test_rehearsing_takes_no_time_to_speak_of() -> None:
    assert forked(_seconds) < BOUND_S


def _seconds() -> float:
    start = time.monotonic()
    rehearse()
    return time.monotonic() - start
