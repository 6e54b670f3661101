"""What a forked child does before it is anybody: a session of its own, no inherited state, a way out by `os._exit`.

Each page that a forked process touches first is copied for it, and a Python object is touched by being looked at. So
what every runner passes here is as plain as it can be: few objects, few calls.

Owns the order of these acts. Must never return into the frames of the process that forked it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps each of its functions in enums
import contextlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence

from pwf import host
from pwf.protocol.runner import MARKER_VARIABLE

EXIT_CRASHED = 70  # sysexits.h: an internal error
LOAD_DATA_BYTES_MAX = 4 * 1024**3  # memory that loading a workflow may take (soft: a runner gets it lifted)
FIRST_OWN_DESCRIPTOR = 3

#: Signals that whoever started the daemon may have ignored; a runner starts with the defaults of a program.
_RESTORED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def fork(body: Callable[[], int]) -> int:
    """Fork; the child runs `body` and leaves with its status. Returns the child's pid, in the parent only.

    The caller has flushed what it wrote, or the child would write it once more.

    What the child raises is written to stderr and becomes `EXIT_CRASHED`.
    """
    pid = os.fork()
    if pid:
        return pid
    status = EXIT_CRASHED
    try:
        status = body()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else EXIT_CRASHED
    except BaseException:  # noqa: BLE001 - nothing may go on in the parent's frames
        with contextlib.suppress(Exception):
            import traceback

            traceback.print_exc()
    finally:
        leave(status)
    raise AssertionError("unreachable")


def leave(status: int) -> None:
    """End this process without the exit handlers that it inherited, after flushing what it wrote."""
    try:
        flush()
        logging = sys.modules.get("logging")
        if logging is not None:
            logging.shutdown()
    finally:
        os._exit(status)


def detach(keep: Sequence[int], name: str) -> list[int]:
    """Become a process of its own: session, subreaper, signals; close all descriptors but `keep` and 0, 1, 2.

    Returns the kept descriptors' new numbers, which are 3, 4, … in the order given.
    """
    os.setsid()
    host.set_subreaper()
    _signal.set_wakeup_fd(-1)
    _signal.signal(_SIGCHLD, _SIG_DFL)  # all that a spawner changes
    host.set_process_name(name)
    return keep_descriptors(keep)


def restore_signals() -> None:
    """Once, in the zygote, which is in a session of its own and gets no signal from a terminal."""
    for signum in _RESTORED:
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def default_termination() -> None:
    """SIGTERM ends this process from now on, whatever was loaded."""
    _signal.signal(_SIGTERM, _SIG_DFL)


def keep_descriptors(keep: Sequence[int], *, inheritable: bool = False) -> list[int]:
    """Close all descriptors but 0, 1, 2 and `keep`, which get the numbers 3, 4, … in the order given."""
    end = FIRST_OWN_DESCRIPTOR + len(keep)
    if min(keep) < end:  # one may stand where another has to go
        clear = max(end, max(keep) + 1)
        keep = [os.dup2(fd, clear + index, False) for index, fd in enumerate(keep)]
    wanted = [os.dup2(fd, FIRST_OWN_DESCRIPTOR + index, inheritable) for index, fd in enumerate(keep)]
    os.closerange(end, _DESCRIPTORS_END)
    return wanted


def set_environment(environment: dict[str, str], marker: str) -> None:
    """Replace `os.environ` by these variables and the marker."""
    os.environ.clear()
    os.environ.update(environment)
    os.environ[MARKER_VARIABLE] = marker
    time.tzset()


def reseed() -> None:
    """Give known generators of random numbers a state of their own, where they don't see to it at a fork themselves."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def reseed_all() -> None:
    """The same for Python's own generator, which sees to it at a fork alone."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    reseed()


def bound_loading() -> None:
    """Bound the memory that loading may take."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = LOAD_DATA_BYTES_MAX if hard == resource.RLIM_INFINITY else min(LOAD_DATA_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def unbound_loading() -> None:
    """Lift the bound again, as far as the one that the daemon itself has."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def print_to(out: int, err: int) -> None:
    """From here on, what this process and its children print goes there. What it printed before has been flushed."""
    os.dup2(out, 1)
    os.dup2(err, 2)


def print_nowhere() -> None:
    """For a process whose word nobody is to read any more."""
    flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    print_to(nowhere, nowhere)
    os.close(nowhere)


def write_lines_at_once() -> None:
    """A line that a step prints is seen when it is written, and not with the next that fills a buffer."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")


def flush() -> None:
    """Write what is still in the buffers of stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or replaced by something else
            continue


def _descriptors_end() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    return max(known, default=1_048_576)


_DESCRIPTORS_END = _descriptors_end()  # the hard limit, which no process here can raise
_SIGCHLD, _SIGTERM, _SIG_DFL = int(signal.SIGCHLD), int(signal.SIGTERM), int(signal.SIG_DFL)
