"""An agent's program that is spoken to while it runs: lines to its stdin, lines from its stdout.

Promises: it has a process group of its own, and ends with all that it started, as a command of a shell node does; its
stderr is read and kept, also when nobody asks for it; SIGTERM to the runner ends it while it is spoken to.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pwf.protocol.agents import AgentCommand
from pwf.protocol.survivors import Survivor
from pwf.runner.base import descendants
from pwf.runner.base.steps import Step, StepTimedOut
from pwf.runner.base.survivors import WAIT_S
from pwf.runner.kinds.agent_port import AgentFailed, Told, command_shown, failure, not_started
from pwf.runner.kinds.agent_tool import Tool
from pwf.runner.kinds.capture import Capture, kept
from pwf.runner.kinds.command import Command, NotStarted, Running, Terminations, how_it_ended

LINE_BYTES_MAX = 64 * 1024 * 1024  # a message that repeats an answer of megabytes has to fit
END_S = 2.0  # from the end of its input to its own end


class Lines(Capture):
    """Whole lines, in order. `too_long`: one was over the limit, and nothing more is taken."""

    def __init__(self) -> None:
        super().__init__(0)
        self.ready: deque[bytes] = deque()
        self.too_long = False
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray) -> None:
        """Take the next bytes."""
        super().feed(data)
        first, *others = bytes(data).split(b"\n")
        self._rest += first
        if len(self._rest) > LINE_BYTES_MAX:
            self.too_long, self._rest = True, bytearray()
        for piece in others:
            self.ready.append(bytes(self._rest))
            self._rest = bytearray(piece)


class Program(Running):
    """See the module. It is spoken to under `attended` only."""

    def __init__(self, configured: AgentCommand, argv: list[str], step: Step, tool: Tool | None) -> None:
        self._step = step
        self._name = configured.name
        self._shown = command_shown(configured)
        self.lines = Lines()
        self._outgoing = bytearray()
        command = Command(
            argv=argv,
            cwd=step.launch.root or os.getcwd(),
            environment=dict(os.environ) if tool is None else tool.environment(),
            stdin=b"",
            stdout=self.lines,
            stderr=Capture(0, None, kept(step, "err")),
            timeout_s=0,
            grace_s=step.launch.stop_grace_ms / 1000,
        )
        try:
            with Terminations() as terminations:
                super().__init__(command, terminations)
                self._listen()
                self._poll.unregister(terminations.descriptor)
        except NotStarted as refusal:
            raise not_started(configured, refusal.error) from None
        if tool is not None:
            tool.serve(self)

    @contextmanager
    def attended(self) -> Iterator[None]:
        """SIGTERM to this process ends the program, and then this process, as long as this lasts."""
        with Terminations() as terminations:
            self._terminations = terminations
            self._poll.register(terminations.descriptor, select.POLLIN)
            try:
                yield
            finally:
                self._poll.unregister(terminations.descriptor)

    def send(self, data: bytes) -> None:
        """Give it bytes, as it takes them. What a program that has closed its input gets is lost."""
        self._outgoing += data
        if self._stdin is not None and self._outgoing:
            self._poll.register(self._stdin, select.POLLOUT)

    def wait(self, holds: Callable[[], object]) -> None:
        """Serve it until this holds, or no more lines can come. Raises `StepTimedOut`, or `AgentFailed` of a line."""

        def is_over() -> bool:
            lines = self.lines
            return bool(holds() or lines.ready or lines.too_long or self._is_shut() or self._ended())

        if not self._until(is_over, self._step.remaining_s, may_be_hurried=True):
            raise StepTimedOut
        if not self.lines.ready and self._ended():
            self._until(lambda: bool(self.lines.ready) or self._is_shut(), WAIT_S)
        if self.lines.too_long:
            raise AgentFailed(
                f"agent {self._name!r} has written a line of more than {LINE_BYTES_MAX:,} bytes"
            )

    @property
    def is_silent(self) -> bool:
        """Whether no more lines will come."""
        return not self.lines.ready and (self._is_shut() or self._ended())

    def _is_shut(self) -> bool:
        return all(output is not self.lines for output in self._outputs.values())

    def next_line(self) -> bytes:
        """Its next line. Raises as `wait`, and `AgentFailed` with how it ended when there is none."""
        self.wait(lambda: False)
        if not self.lines.ready:
            raise self.gone()
        return self.lines.ready.popleft()

    def gone(self) -> AgentFailed:
        """Why it can be spoken to no more."""
        self._until(self._ended, WAIT_S)
        said = self._command.stderr.tail() or self.lines.tail() or "it has said nothing"
        how = f"ended with {how_it_ended(self._code)}" if self._ended() else "has closed its output"
        return failure(f"agent {self._name!r} ({self._shown}) {how}:\n{said}", said)

    def end(self, *, at_once: bool) -> None:
        """Its input ends, and then it does, or is ended, with all that it started."""
        leftovers: tuple[Survivor, ...] = ()
        try:
            with self.attended():
                self._close_stdin()
                if not at_once and self._until(self._ended, END_S):
                    leftovers = self._settle()
                else:
                    self._stop(self._command.grace_s)
                self._drain()
        except BaseException:
            self.kill()
            raise
        finally:
            self.close()
        descendants.reap()
        self._step.survivors += leftovers

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            with suppress(KeyError):
                self._poll.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def _feed(self, descriptor: int) -> None:
        try:
            del self._outgoing[: os.write(descriptor, self._outgoing)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._close_stdin()
            return
        if not self._outgoing:
            self._poll.unregister(descriptor)


class ProgramAgent:
    """What adapters have in common whose agent is one program, and remembers, for all turns of a step."""

    remembers = True

    def __init__(self, configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> None:
        self._configured = configured
        self._step = step
        self._told = told
        self._tool = tool
        self._program: Program | None = None

    def end(self, *, at_once: bool) -> None:
        """End its process."""
        if self._program is not None:
            self._program.end(at_once=at_once)
            self._program = None
