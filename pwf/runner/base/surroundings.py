"""What a step finds around it: working folder, environment, umask, signal handlers and mask, open descriptors.

Promises that each step of a runner finds what the first one found, as it would in a runner of its own after a crash.
The one difference is descriptors that a step left open, which are named and not closed: a library may still need them.
Must stay cheap, for quick steps come by the thousand: about 5 µs a step when nothing has changed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps each of its functions in enums
import contextlib
import os
import sys
import time

from pwf import host

_SIGNALS = range(1, _signal.NSIG)
_HARMLESS = ("/dev/null", "/dev/urandom", "/memfd:pwf")  # Python's own, and pwf's


class Surroundings:
    """As they are now."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._environ = os.environ
        self._variables = dict(_variables())
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers = tuple(map(_signal.getsignal, _SIGNALS))
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._first_own = self._lowest = (
            _lowest_free()
        )  # a runner's own have the lowest numbers, without a gap
        self._named: dict[int, str] = {}

    def restore(self, node: str) -> bool:
        """Make them so again, after a step at this node. True: it left something open, which is named on stderr."""
        os.umask(self._umask)
        if _folder() != self._folder:
            with contextlib.suppress(OSError):  # it is gone: the next runner says so
                os.chdir(self._folder)
        if os.environ is not self._environ or _variables() != self._variables:
            self._restore_variables()
        if tuple(map(_signal.getsignal, _SIGNALS)) != self._handlers:
            self._restore_handlers()
        if _signal.pthread_sigmask(_signal.SIG_BLOCK, ()) != self._mask:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        return _lowest_free() != self._lowest and self._name_descriptors(node)

    def _restore_variables(self) -> None:
        os.environ = self._environ  # noqa: B003 - the object, which a step may have replaced
        present = _variables()
        zone = present.get(b"TZ")
        for name in present.keys() - self._variables.keys():
            del os.environb[name]
        for name, value in self._variables.items():
            if present.get(name) != value:
                os.environb[name] = value
        if zone != self._variables.get(b"TZ"):
            time.tzset()

    def _restore_handlers(self) -> None:
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            if handler is not None and _signal.getsignal(number) != handler:  # None: not set by Python
                _signal.signal(number, handler)

    def _name_descriptors(self, node: str) -> bool:
        """A descriptor that is opened takes the lowest number, so one that stays open has moved that."""
        before, self._named = self._named, {}
        for number, target in host.open_descriptors().items():
            if number >= self._first_own and not target.startswith(_HARMLESS):
                self._named[number] = target
        self._lowest = _lowest_free()
        left = [f"{fd} ({target})" for fd, target in self._named.items() if before.get(fd) != target]
        if left:
            sys.stderr.write(f"pwf: step {node!r} left descriptors open: {', '.join(left)}\n")
        return bool(left)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _variables() -> dict[bytes, bytes]:
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]  # its public face decodes each of them
    return variables


def _lowest_free() -> int:
    try:
        descriptor = os.dup(2)  # opening something costs four times as much
    except OSError:  # no descriptor is left, or a step has closed this one
        return -1
    os.close(descriptor)
    return descriptor
