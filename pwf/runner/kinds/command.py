"""Running one command of a shell node, and ending all of it.

The command gets a process group of its own, not a session: the session stays the runner's, by which the
daemon finds every process of a run. When the command's own process has ended, its step is over: what it
left behind is waited for briefly and then killed, so that a pipe kept open in the background never holds up
a run. On a timeout everything gets SIGTERM, and after the grace SIGKILL, also what left the group; the call
returns when all of it is dead.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pwf import host
from pwf.host import Identity
from pwf.protocol.survivors import Survivor, name_all
from pwf.runner.base import descendants
from pwf.runner.base.survivors import WAIT_S
from pwf.runner.kinds.capture import Capture
from pwf.runner.kinds.start import start_process

READ_BYTES = 64 * 1024
POLL_S = 0.005
POLL_S_MAX = 3_600.0  # what a poll can be told to wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run. `environment` is whole; `stdin` None is empty."""

    argv: list[str]
    cwd: str | None
    environment: dict[str, str]
    stdin: bytes | None
    stdout: Capture
    stderr: Capture
    timeout_s: float
    grace_s: float


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """`exit_code` is negative for a signal, None when nobody knows it; `leftovers`: what had to be killed after it."""

    exit_code: int | None
    timed_out: bool
    leftovers: tuple[Survivor, ...] = ()


def how_it_ended(exit_code: int | None) -> str:
    """In words."""
    if exit_code is None:
        return "an exit code that nobody knows"
    return f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"


class NotStarted(Exception):
    """Nothing of the command has run; `error` says why."""

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(str(error))
        self.error = error


def run_command(command: Command, begun: Callable[[Running], None] = lambda running: None) -> CommandEnd:
    """Run it to its end. Raises `NotStarted`; after anything else that it raises the command has run, and is killed.

    SIGTERM to the runner meanwhile ends the command as a timeout does, and then the runner. `begun` gets the command
    before it is served.
    """
    with Terminations() as terminations:
        running = Running(command, terminations)
        try:
            begun(running)
            end = running.supervise()
        except BaseException:
            running.kill()
            raise
        finally:
            running.close()
    descendants.reap()
    command.stdout.close()
    command.stderr.close()
    return end


class Terminations:
    """SIGTERM to this process makes `descriptor` readable while a command runs, and ends nothing by itself."""

    def __enter__(self) -> Terminations:
        try:
            self.descriptor, self._write = os.pipe()
        except OSError as error:
            raise NotStarted(error) from None
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)
        self._woke_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handler_before = signal.signal(signal.SIGTERM, _note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._handler_before)
        signal.set_wakeup_fd(self._woke_before)
        owed = self.heard()
        os.close(self.descriptor)
        os.close(self._write)
        if owed:  # it came when the command had ended
            signal.raise_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Signals do what they did before, for as long as code of the author's runs."""
        signal.signal(signal.SIGTERM, self._handler_before)
        signal.set_wakeup_fd(self._woke_before)
        try:
            yield
        finally:
            self._woke_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            self._handler_before = signal.signal(signal.SIGTERM, _note)

    def heard(self) -> bool:
        """Whether SIGTERM came. The descriptor tells of every signal that Python handles, so it may be another."""
        try:
            return signal.SIGTERM in os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return False


def _note(*_: object) -> None:
    """The signal's number is in the pipe."""


class Running:
    """A started command. `_serve` waits for its output, its end, room for its input, and SIGTERM."""

    def __init__(self, command: Command, terminations: Terminations) -> None:
        self._command = command
        self._terminations = terminations
        self._code: int | None = None
        self._is_reaped = False
        self._exit: int | None = None
        self._arrived = 0
        self._due = math.inf
        self._input = memoryview(command.stdin or b"")
        self._poll = select.poll()
        self._watched: dict[int, Callable[[], None]] = {}
        try:
            self._beside = descendants.snapshot()
            self._start(command)
        except TimeoutError:  # an alarm of the author's, mostly: it may have come when the command had begun
            raise
        except (OSError, ValueError) as error:
            raise NotStarted(error) from None

    def _start(self, command: Command) -> None:
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for reads in (False, True, True)[command.stdin is None :]:
                reading, writing = os.pipe()
                ours.append(reading if reads else writing)
                theirs.append(writing if reads else reading)
            stdin = None if command.stdin is None else theirs[0]
            self._pid = start_process(command.argv, command.cwd, command.environment, stdin, *theirs[-2:])
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._outputs = {ours[-2]: command.stdout, ours[-1]: command.stderr}
        self._stdin = None if command.stdin is None else ours[0]

    def _listen(self) -> None:
        self._exit = host.open_child_exit(self._pid)
        for descriptor in (*self._outputs, self._terminations.descriptor):
            self._poll.register(descriptor, select.POLLIN)
        if self._exit is not None:
            self._poll.register(self._exit, select.POLLIN)
        if self._stdin is not None:
            os.set_blocking(self._stdin, False)
            self._poll.register(self._stdin, select.POLLOUT)

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """While it is served, also see what can be read there."""
        self._watched[descriptor] = on_readable
        self._poll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """No more. The descriptor is still open."""
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """While code of the author's runs, signals are what they are in any step."""
        with self._terminations.lifted():
            yield

    def hurry(self, seconds: float) -> None:
        """It has done what it was started for: it has so long at most for the rest, however long it had."""
        self._due = min(self._due, time.monotonic() + seconds)

    def kill(self) -> None:
        """End it where it can be watched no longer. What has left its group is ended as what a step leaves behind."""
        if not self._ended():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of its pipes, whatever it is doing."""
        for descriptor in (*self._outputs, self._stdin, self._exit):
            if descriptor is not None:
                os.close(descriptor)

    # --- the order of its end ---

    def supervise(self) -> CommandEnd:
        """Wait for its end, for as long as it may take, and for all that it has left."""
        self._listen()
        late = not self._until(self._ended, self._command.timeout_s, may_be_hurried=True)
        leftovers: tuple[Survivor, ...] = ()
        if late:
            self._stop(self._command.grace_s)
        else:
            leftovers = self._settle()
        self._drain()
        return CommandEnd(self._code, timed_out=late, leftovers=leftovers)

    def _settle(self) -> tuple[Survivor, ...]:
        """After the command's own end: let the rest end by itself for a moment, then kill it; what it was."""
        began = time.monotonic()
        if self._until(self._quiet, WAIT_S) and self._until(self._gone, began + WAIT_S - time.monotonic()):
            return ()
        leftovers = name_all(self._living())
        self._stop(0)
        return leftovers

    def _drain(self) -> None:
        """Read what is still in the pipes: to their end, or until nothing comes any more."""
        before = -1  # else a process that is none of ours holds the pipe open
        while not self._quiet() and self._arrived != before:
            before = self._arrived
            self._until(self._quiet, WAIT_S)

    def _stop(self, grace_s: float) -> None:
        """SIGTERM, the grace, then SIGKILL until none is left. Takes as long as the kernel needs to end them."""
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            if self._until(self._gone, grace_s):
                return
        self._signal(signal.SIGKILL)
        while not self._until(self._gone, POLL_S * 4):
            self._signal(signal.SIGKILL)

    def _die_with_runner(self) -> None:
        """End the command within the time that the daemon gives us, and then this process."""
        self._stop(self._command.grace_s / 2)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    # --- what holds of it ---

    def _ended(self) -> bool:
        if not self._is_reaped:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has reaped it, and nobody can tell any more
                self._is_reaped = True
                return True
            if pid:
                self._is_reaped, self._code = True, os.waitstatus_to_exitcode(status)
        return self._is_reaped

    def _quiet(self) -> bool:
        return not self._outputs

    def _gone(self) -> bool:
        """Whether all that it started has ended. Only once it is reaped itself may others be."""
        return self._ended() and (descendants.reap() or not self._living())

    def _living(self) -> list[Identity]:
        """The step's processes that still execute."""
        return descendants.living(self._beside)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group, and each of the step's processes wherever it is."""
        if not self._ended():  # not reaped, so the group's number can't be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
        descendants.signal_all(self._living(), number)

    # --- what happens ---

    def _until(self, holds: Callable[[], bool], seconds: float, *, may_be_hurried: bool = False) -> bool:
        """Serve what happens until it holds, or until the time is over. Whether it holds."""
        deadline = time.monotonic() + seconds
        # The kernel tells nobody when a process that was adopted late ends, and not everywhere when a child does: look.
        while not holds():
            told = self._exit is not None and holds != self._gone
            left = (min(deadline, self._due) if may_be_hurried else deadline) - time.monotonic()
            if left <= 0:
                return False
            self._serve(min(left, POLL_S_MAX if told else POLL_S))
        return True

    def _serve(self, wait_s: float) -> None:
        terminated = False
        for descriptor, _ in self._poll.poll(math.ceil(wait_s * 1000)):
            if descriptor in self._outputs:
                self._read(descriptor)
            elif descriptor == self._terminations.descriptor:
                terminated = self._terminations.heard()
            elif (
                descriptor == self._exit
            ):  # it says so once, a moment before there is anything to reap perhaps
                self._poll.unregister(descriptor)
                self._exit = None
                os.close(descriptor)
            elif descriptor == self._stdin:
                self._feed(descriptor)
            elif descriptor in self._watched:  # another one that was served just now may have ended it
                self._watched[descriptor]()
        if terminated:
            self._die_with_runner()

    def _read(self, descriptor: int) -> None:
        data = os.read(descriptor, READ_BYTES)
        if data:
            self._arrived += len(data)
            self._outputs[descriptor].feed(data)
        else:
            self._poll.unregister(descriptor)
            del self._outputs[descriptor]
            os.close(descriptor)

    def _feed(self, descriptor: int) -> None:
        try:
            self._input = self._input[os.write(descriptor, self._input) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = self._input[:0]  # the command doesn't want the rest
        if not self._input:
            self._poll.unregister(descriptor)
            self._stdin = None
            os.close(descriptor)
