"""Hearing from the kernel that the wall clock was set, or that the machine has slept.

Linux: a timer far in the future, armed with TFD_TIMER_CANCEL_ON_SET, becomes readable when the real-time
clock jumps, which includes the end of a suspend (timerfd_create(2)). It costs nothing while nothing
happens. Elsewhere there is no such descriptor, and whoever asks compares the clocks from time to time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time

_CLOCK_REALTIME = 0
_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)  # TFD_NONBLOCK and TFD_CLOEXEC are these on Linux
_ABSTIME, _CANCEL_ON_SET = 1, 2
_FAR_S = 400 * 24 * 3600


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class ClockSteps:
    """A descriptor that becomes readable when the clock was set. `take` says so and arms it again."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.timerfd_create(_CLOCK_REALTIME, _FLAGS)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._arm()

    def take(self) -> None:
        """Read the news away and arm again."""
        try:
            os.read(self.descriptor, 8)
        except OSError as error:
            if error.errno not in (errno.ECANCELED, errno.EAGAIN):
                raise
        self._arm()

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)

    def _arm(self) -> None:
        timer = _Timer(value=_Timespec(int(time.time()) + _FAR_S, 0))
        flags = _ABSTIME | _CANCEL_ON_SET
        if self._libc.timerfd_settime(self.descriptor, flags, ctypes.byref(timer), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")


def open_clock_steps() -> ClockSteps | None:
    """The notifier, or None where the system has none."""
    if sys.platform != "linux":
        return None
    try:
        return ClockSteps()
    except (OSError, AttributeError):
        return None
