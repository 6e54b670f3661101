"""The process around a run's code: what a run may have changed of it, or left in it, besides the project's modules.

Owns the list of what is looked at. Promises: each item is one short word of the kernel's or of the interpreter's, so
that a whole look takes tens of microseconds; what differs is named. Must never restore anything: it only looks.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]  # `signal` wraps each of its functions in enums
import _socket
import atexit
import builtins
import contextvars
import fcntl
import gc
import os
import resource
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from pwf import host
from pwf.protocol.runner import MARKER_VARIABLE

MEMORY_GROWTH_BYTES_MAX = (
    64 * 1024 * 1024
)  # what Python's allocator and the pages that a fork copies may take
MONITORS = 6  # tools that Python has room for
SETTLE_ROUNDS_MAX, SETTLE_S = 10, 0.001
_MARKER = os.fsencode(MARKER_VARIABLE)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SIGNALS = range(1, _signal.NSIG)
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
_LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))
_STREAM_WAYS = ("line_buffering", "write_through", "encoding", "errors")
_LOGGING_AS_IMPORTED: object = (0, [("", 30, True, False, 0)], [])  # the level of its root is WARNING


class ProcessState:
    """As it is now. `differs` names the first thing that is otherwise by then."""

    def __init__(self) -> None:
        self.audited = 0  # audit hooks that were added, as whoever hears audit events has counted
        self._variables = _variables().copy()
        self._context = contextvars.copy_context()
        self._builtins = dict(vars(builtins))
        self._descriptors = _descriptors()
        self._threads = _threads()
        self._memory_bytes = _memory_bytes()
        self._looks = tuple((what, look, *look()) for what, look in _LOOKS)
        self._looked_before = self.audited

    def differs(self) -> str | None:
        """What is not as it was, in words; None when nothing is."""
        if (opened := _descriptors()) != self._descriptors:
            return _named_descriptors(self._descriptors, opened)
        for what, look, objects, values in self._looks:
            found, state = look()
            if state != values or len(found) != len(objects) or not all(map(is_, found, objects)):
                return what
        return self._differs_inside()

    def has_threads(self) -> bool:
        """Whether there are others than before. One that was joined has a moment, which the kernel needs to end it.

        To be asked before `differs`: one that is about to end may change the rest until then.
        """
        for _ in range(SETTLE_ROUNDS_MAX):
            if _threads() == self._threads:
                return False
            time.sleep(SETTLE_S)
        return True

    def _differs_inside(self) -> str | None:
        variables = _variables()
        if _MARKER in variables:
            self._variables[_MARKER] = variables[_MARKER]  # it is each run's own
        if variables != self._variables:
            return "the environment"
        if not is_same(self._builtins, vars(builtins)):
            return "the built-in names"
        if not is_same(self._context, contextvars.copy_context()):
            return "a context variable"
        if self.audited != self._looked_before:
            return "an audit hook"
        if (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self._memory_bytes
            <= MEMORY_GROWTH_BYTES_MAX
        ):
            return None  # it never had more
        grown = _memory_bytes() - self._memory_bytes
        return f"its memory, which grew by {grown:,} bytes" if grown > MEMORY_GROWTH_BYTES_MAX else None


def is_same(before: Any, now: Any) -> bool:
    """Whether two mappings hold the very same objects in the same order."""
    return (
        len(before) == len(now) and all(map(is_, before.values(), now.values())) and list(before) == list(now)
    )


def exit_handlers() -> int:
    """How many there are, without the one of `logging`, whose work a runner does when it leaves."""
    return int(atexit._ncallbacks()) - ("logging" in sys.modules)


def finalizers() -> int:
    """How many are to run at exit."""
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    return sum(1 for info in registry.values() if info.atexit)


# --- what is looked at: objects, which are compared by identity, and values ------------------------------------------

Look = tuple[Sequence[object], object]
Descriptor = tuple[int, int, bool, int]


def _threads() -> int:
    """Those of trio's cache that wait for work do nothing, and end by themselves."""
    cache = getattr(sys.modules.get("trio._core._thread_cache"), "THREAD_CACHE", None)
    return host.kernel_threads() - len(getattr(cache, "_idle_workers", ()))


def _handlers() -> Look:
    return tuple(map(_signal.getsignal, _SIGNALS)), None


def _kernel_signals() -> Look:
    return (), host.signal_state()  # with handlers of C code


def _wakeup() -> Look:
    found = _signal.set_wakeup_fd(-1)
    if found != -1:
        _signal.set_wakeup_fd(found)
    return (), found


def _timers() -> Look:
    return (), [_signal.getitimer(timer) for timer in _TIMERS]


def _umask() -> Look:
    found = os.umask(0o077)
    os.umask(found)
    return (), found


def _streams() -> Look:
    found = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return found, [[getattr(one, name, 0) for name in _STREAM_WAYS] for one in found[:3]]


def _at_exit() -> Look:
    threading = sys.modules.get("threading")
    return (), (exit_handlers(), finalizers(), len(getattr(threading, "_threading_atexits", ())))


def _hooks() -> Look:
    threading = sys.modules.get("threading")
    found = (
        sys.gettrace(),
        sys.getprofile(),
        sys.excepthook,
        sys.unraisablehook,
        sys.displayhook,
        sys.breakpointhook,
        *sys.get_asyncgen_hooks(),
        getattr(threading, "_trace_hook", None),
        getattr(threading, "_profile_hook", None),
        *sys.meta_path,
        *sys.path_hooks,
        *gc.callbacks,
    )
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    if monitoring is not None:
        found += tuple(map(monitoring.get_tool, range(MONITORS)))
    return found, sys.get_coroutine_origin_tracking_depth()


def _limits() -> Look:
    return (), list(map(resource.getrlimit, _LIMITS))


def _interpreter() -> Look:
    switch, recursion = sys.getswitchinterval(), sys.getrecursionlimit()
    return (), (recursion, switch, gc.isenabled(), gc.get_threshold(), sys.dont_write_bytecode)


def _users() -> Look:
    return (), (os.getresuid(), os.getresgid(), os.getgroups())


def _session() -> Look:
    return (), (os.getpid(), os.getsid(0), os.getpgrp(), host.is_subreaper())


def _scheduling() -> Look:
    return (), (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0))


def _path() -> Look:
    return (sys.path, sys.argv), (list(sys.path), list(sys.argv))


def _timeouts() -> Look:
    return (), _socket.getdefaulttimeout()


def _locales() -> Look:
    return (), _locale.setlocale(_locale.LC_ALL, None)


def _logging() -> Look:
    logging = sys.modules.get("logging")
    if logging is None:
        return (), _LOGGING_AS_IMPORTED
    manager = logging.root.manager
    changed = [
        (name, one)
        for name, one in (("", logging.root), *manager.loggerDict.items())
        if hasattr(one, "handlers")
        and (one.level or one.handlers or one.filters or one.disabled or not one.propagate)
    ]
    handlers = [handler for _, one in changed for handler in one.handlers]
    filters = [found for _, one in changed for found in one.filters]
    levels = [(name, one.level, one.propagate, one.disabled, len(one.handlers)) for name, one in changed]
    formatters = [handler.formatter for handler in handlers]
    return (*handlers, *formatters, *filters), (manager.disable, levels, [one.level for one in handlers])


def _warnings() -> Look:
    return tuple(getattr(sys.modules.get("warnings"), "filters", ())), None


_LOOKS: tuple[tuple[str, Callable[[], Look]], ...] = (
    ("the signal handlers", _handlers),
    ("the signal mask or a signal's handling", _kernel_signals),
    ("the wake-up descriptor of signals", _wakeup),
    ("a timer", _timers),
    ("the umask", _umask),
    ("the standard streams", _streams),
    ("the exit handlers", _at_exit),
    ("a hook of the interpreter", _hooks),
    ("a limit of the process", _limits),
    ("a setting of the interpreter", _interpreter),
    ("the user or group", _users),
    ("the session", _session),
    ("the priority or the processors", _scheduling),
    ("sys.path or sys.argv", _path),
    ("the timeout of sockets", _timeouts),
    ("the locale", _locales),
    ("logging", _logging),
    ("the filters of warnings", _warnings),
)


def _variables() -> dict[bytes, bytes]:
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]  # its public face decodes each of them
    return variables


def _descriptors() -> dict[str, Descriptor]:
    """Each open descriptor, what it is open on, and how."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            state = os.fstat(number)
        except OSError:  # the descriptor of the listing itself
            continue
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        found[name] = state.st_dev, state.st_ino, os.get_inheritable(number), flags
    return found


def _named_descriptors(before: dict[str, Descriptor], now: dict[str, Descriptor]) -> str:
    names = host.open_descriptors()
    opened = [f"{fd} ({names.get(int(fd), 'closed')})" for fd in now if before.get(fd) != now[fd]]
    return f"descriptors: {', '.join(opened or [fd for fd in before if fd not in now])}"


def _memory_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
