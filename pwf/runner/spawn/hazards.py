"""Whether loading a workflow left something that a fork would break or share.

Looked for: kernel threads, open descriptors, children, changed signal handlers or masks, exit handlers, finalizers
that run at exit. One sentence each, as a person would want it in a log.
"""

from __future__ import annotations

import signal
import time
import weakref
from dataclasses import dataclass
from typing import Any

from pwf import host
from pwf.runner.sameness.process import exit_handlers, finalizers

#: The kinds of descriptors that may stay: opened by Python itself, and harmless to share.
_HARMLESS = ("/dev/urandom", "/dev/null")


SETTLE_ROUNDS_MAX = 25  # of 2 ms each


@dataclass(frozen=True)
class State:
    """What counts, read before and after loading."""

    threads: int
    descriptors: dict[int, str]
    handlers: dict[int, Any]
    kernel_signals: str
    wakeup: int
    exit_handlers: int
    finalizers: int


def prepare() -> None:
    """Once, in the zygote: have the exit handlers of the library itself registered before anybody counts them."""
    weakref.finalize(State, int).detach()


def settle(before: State) -> None:
    """Give a thread that was joined the moment that the kernel needs to end it."""
    for _ in range(SETTLE_ROUNDS_MAX):
        if host.kernel_threads() <= before.threads:
            return
        time.sleep(0.002)


def look() -> State:
    """Read the state of this process."""
    wakeup = signal.set_wakeup_fd(-1)
    if wakeup != -1:
        signal.set_wakeup_fd(wakeup)
    return State(
        threads=host.kernel_threads(),
        descriptors=host.open_descriptors(),
        handlers={signum: signal.getsignal(signum) for signum in signal.valid_signals()},
        kernel_signals=host.signal_state(),
        wakeup=wakeup,
        exit_handlers=exit_handlers(),
        finalizers=finalizers(),
    )


def hazards(before: State, after: State, has_children: bool) -> str | None:
    """Why forking is unsafe, or None."""
    found: list[str] = []
    if after.threads > before.threads:
        found.append(f"it started {_count(after.threads - before.threads, 'thread')}")
    opened = [
        f"{fd} ({target})"
        for fd, target in sorted(after.descriptors.items())
        if before.descriptors.get(fd) != target and target not in _HARMLESS
    ]
    if opened:
        found.append(f"it left descriptors open: {', '.join(opened)}")
    if has_children:
        found.append("it left a child process")
    changed = [_signal_name(n) for n in before.handlers if after.handlers[n] != before.handlers[n]]
    if changed:
        found.append(f"it changed the handler of {', '.join(changed)}")
    elif after.kernel_signals != before.kernel_signals or after.wakeup != before.wakeup:
        found.append("it changed the signal mask or a signal's handling")
    if after.exit_handlers > before.exit_handlers:
        found.append(f"it registered {_count(after.exit_handlers - before.exit_handlers, 'exit handler')}")
    if after.finalizers > before.finalizers:
        found.append(f"it left {_count(after.finalizers - before.finalizers, 'finalizer')} to run at exit")
    return "; ".join(found) or None


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
