"""The process around a run's code: what a run may have changed of it, or left in it, besides the project's modules.

Owns the list of what is looked at. Promises: each item is one short word of the kernel's or of the interpreter's, so
that a whole look takes tens of microseconds; what differs is named. Must never restore anything: it only looks.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]  # `signal` wraps each of its functions in enums
import atexit
import builtins
import contextvars
import gc
import os
import resource
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from pwf import host
from pwf.protocol.runner import MARKER_VARIABLE

MEMORY_GROWTH_BYTES_MAX = (
    64 * 1024 * 1024
)  # what Python's allocator and the pages that a fork copies may take
SETTLE_ROUNDS_MAX, SETTLE_S = 10, 0.001
_MARKER = os.fsencode(MARKER_VARIABLE)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SIGNALS = range(1, _signal.NSIG)
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
_LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))
_LOGGING_AS_IMPORTED = (30, (), (), 0, ())


class Process:
    """As it is now. `differs` names the first thing that is otherwise by then."""

    def __init__(self) -> None:
        self.audited = 0  # audit hooks that were added, as whoever hears audit events has counted
        self._kept_alive: list[object] = []  # so that no other object gets the number of one that was here
        self._variables = _variables().copy()
        self._context = contextvars.copy_context()
        self._builtins = dict(vars(builtins))
        self._descriptors = _descriptors()
        self._threads = _threads()
        self._memory_bytes = _memory_bytes()
        self._looks = tuple((what, look, look(self._kept_alive.append)) for what, look in _LOOKS)
        self._looked_before = self.audited

    def differs(self) -> str | None:
        """What is not as it was, in words; None when nothing is."""
        if (opened := _descriptors()) != self._descriptors:
            return _named_descriptors(self._descriptors, opened)
        if self._has_threads():
            return "its threads"
        for what, look, before in self._looks:
            if look(_forget) != before:
                return what
        return self._differs_inside()

    def _has_threads(self) -> bool:
        """Whether there are others than before. One that was joined has a moment, which the kernel needs to end it."""
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
        len(before) == len(now) and all(map(_is, before.values(), now.values())) and list(before) == list(now)
    )


def exit_handlers() -> int:
    """How many there are, without the one of `logging`, whose work a runner does when it leaves."""
    return int(atexit._ncallbacks()) - ("logging" in sys.modules)


def finalizers() -> int:
    """How many are to run at exit."""
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    return sum(1 for info in registry.values() if info.atexit)


# --- what is looked at. `note` keeps an object that is compared by its number ---------------------------------------

Note = Callable[[object], object]


def _forget(_: object) -> None:
    pass


def _number(found: object, note: Note) -> int:
    note(found)
    return id(found)


def _numbers(found: Iterable[object], note: Note) -> tuple[int, ...]:
    return tuple([_number(one, note) for one in found])


def _threads() -> int:
    """Those of trio's cache that wait for work do nothing, and end by themselves."""
    cache = getattr(sys.modules.get("trio._core._thread_cache"), "THREAD_CACHE", None)
    return host.kernel_threads() - len(getattr(cache, "_idle_workers", ()))


def _handlers(note: Note) -> object:
    return _numbers(map(_signal.getsignal, _SIGNALS), note)


def _mask(_: Note) -> object:
    return frozenset(_signal.pthread_sigmask(_signal.SIG_BLOCK, ()))


def _wakeup(_: Note) -> object:
    found = _signal.set_wakeup_fd(-1)
    if found != -1:
        _signal.set_wakeup_fd(found)
    return found


def _timers(_: Note) -> object:
    return [_signal.getitimer(timer) for timer in _TIMERS]


def _umask(_: Note) -> object:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _streams(note: Note) -> object:
    found = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    ways = [
        (getattr(one, "line_buffering", 0), getattr(one, "errors", 0), getattr(one, "encoding", 0))
        for one in found
    ]
    return _numbers(found, note), ways


def _at_exit(_: Note) -> object:
    threading = sys.modules.get("threading")
    return exit_handlers(), finalizers(), len(getattr(threading, "_threading_atexits", ()))


def _hooks(note: Note) -> object:
    threading = sys.modules.get("threading")
    found = (
        sys.gettrace(),
        sys.getprofile(),
        sys.excepthook,
        sys.unraisablehook,
        sys.displayhook,
        sys.breakpointhook,
        *sys.get_asyncgen_hooks(),
        *(getattr(threading, name, None) for name in ("_trace_hook", "_profile_hook")),
        *sys.meta_path,
        *sys.path_hooks,
        *gc.callbacks,
    )
    return _numbers(found, note), sys.get_coroutine_origin_tracking_depth()


def _limits(_: Note) -> object:
    return [resource.getrlimit(kind) for kind in _LIMITS]


def _interpreter(_: Note) -> object:
    return (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        gc.isenabled(),
        gc.get_threshold(),
        sys.dont_write_bytecode,
    )


def _users(_: Note) -> object:
    return os.getresuid(), os.getresgid(), os.getgroups()


def _session(_: Note) -> object:
    return os.getpid(), os.getsid(0), os.getpgrp(), host.is_subreaper()


def _scheduling(_: Note) -> object:
    return os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)


def _path(note: Note) -> object:
    return _number(sys.path, note), list(sys.path), _number(sys.argv, note), list(sys.argv)


def _locales(_: Note) -> object:
    return _locale.setlocale(_locale.LC_ALL, None)


def _logging(note: Note) -> object:
    logging = sys.modules.get("logging")
    if logging is None:
        return _LOGGING_AS_IMPORTED
    root = logging.root
    others = [
        (
            name,
            one.level,
            one.propagate,
            one.disabled,
            _written_to(one.handlers, note),
            _numbers(one.filters, note),
        )
        for name, one in root.manager.loggerDict.items()
        if hasattr(one, "handlers")
        and (one.level or one.handlers or one.filters or one.disabled or not one.propagate)
    ]
    handlers = _written_to(root.handlers, note)
    return root.level, handlers, _numbers(root.filters, note), root.manager.disable, tuple(others)


def _written_to(handlers: Iterable[Any], note: Note) -> tuple[object, ...]:
    return tuple((_number(one, note), one.level, _number(one.formatter, note)) for one in handlers)


def _warnings(note: Note) -> object:
    return _numbers(getattr(sys.modules.get("warnings"), "filters", ()), note)


_LOOKS: tuple[tuple[str, Callable[[Note], object]], ...] = (
    ("the signal handlers", _handlers),
    ("the signal mask", _mask),
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
    ("the locale", _locales),
    ("logging", _logging),
    ("the filters of warnings", _warnings),
)


def _is(one: object, other: object) -> bool:
    return one is other


def _variables() -> dict[bytes, bytes]:
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]  # its public face decodes each of them
    return variables


def _descriptors() -> dict[str, tuple[int, int, bool]]:
    """Each open descriptor, and what it is open on."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            state = os.fstat(number)
        except OSError:  # the descriptor of the listing itself
            continue
        found[name] = state.st_dev, state.st_ino, os.get_inheritable(number)
    return found


def _named_descriptors(
    before: dict[str, tuple[int, int, bool]], now: dict[str, tuple[int, int, bool]]
) -> str:
    names = host.open_descriptors()
    opened = [f"{fd} ({names.get(int(fd), 'closed')})" for fd in now if before.get(fd) != now[fd]]
    return f"descriptors: {', '.join(opened or [fd for fd in before if fd not in now])}"


def _memory_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
