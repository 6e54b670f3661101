"""Running one command of a shell node, and ending all of it.

The command gets a process group of its own, not a session: the session stays the runner's, by which the
daemon finds every process of a run. When the command's own process has ended, its step is over: what it
left behind is waited for briefly and then killed, so that a pipe kept open in the background never holds up
a run. On a timeout everything gets SIGTERM, and after the grace SIGKILL, also what left the group; the call
returns when all of it is dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import trio

from pwf.host import Identity
from pwf.protocol.survivors import Survivor, name_all
from pwf.runner.base import descendants
from pwf.runner.base.survivors import WAIT_S
from pwf.runner.kinds.capture import Capture

READ_BYTES = 64 * 1024
POLL_S = 0.005


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


@dataclass(slots=True)
class Running:
    """A started command: its process, and which of the runner's descendants are not its own."""

    command: Command
    process: trio.Process
    beside: descendants.Names
    open_pipes: int = 2
    quiet: trio.Event = field(default_factory=trio.Event)  # both pipes have reached their end
    arrived: int = 0

    def living(self) -> list[Identity]:
        """The step's processes that still execute."""
        return descendants.living(self.beside)

    def signal(self, number: signal.Signals) -> None:
        """Signal the group, and each of the step's processes wherever it is."""
        if self.process.returncode is None:  # not reaped, so the group's number can't be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
        descendants.signal_all(self.living(), number)


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """`exit_code` is negative for a signal; `leftovers`: what had to be killed after it."""

    exit_code: int
    timed_out: bool
    leftovers: tuple[Survivor, ...] = ()


def run_command(command: Command) -> CommandEnd:
    """Run it to its end. Raises `OSError` or `ValueError` when it can't be started: then nothing has run.

    SIGTERM to the runner meanwhile ends the command as a timeout does, and then the runner.
    """
    end = trio.run(_run, command)
    descendants.reap()
    command.stdout.close()
    command.stderr.close()
    return end


async def _run(command: Command) -> CommandEnd:
    beside = descendants.snapshot()
    with trio.open_signal_receiver(signal.SIGTERM) as terminations:
        process = await trio.lowlevel.open_process(
            command.argv,
            stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=command.environment,
            process_group=0,
        )
        running = Running(command, process, beside)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_die_with_runner, running, terminations)
            nursery.start_soon(_feed, running)
            nursery.start_soon(_read, running, process.stdout, command.stdout)
            nursery.start_soon(_read, running, process.stderr, command.stderr)
            end = await _supervise(running)
            nursery.cancel_scope.cancel()
    return end


async def _supervise(running: Running) -> CommandEnd:
    with trio.move_on_after(max(0.0, running.command.timeout_s)) as scope:
        await running.process.wait()
    if scope.cancelled_caught:
        await _stop(running, running.command.grace_s)
        await _drain(running)
        return CommandEnd(running.process.returncode or 0, timed_out=True)
    leftovers = await _settle(running)
    await _drain(running)
    return CommandEnd(running.process.returncode or 0, timed_out=False, leftovers=leftovers)


async def _settle(running: Running) -> tuple[Survivor, ...]:
    """After the command's own end: let the rest end by itself for a moment, then kill it; what it was."""
    with trio.move_on_after(WAIT_S):
        await running.quiet.wait()
        await _gone(running)
        return ()
    leftovers = name_all(running.living())
    await _stop(running, 0)
    return leftovers


async def _drain(running: Running) -> None:
    """Read what is still in the pipes: to their end, or until nothing comes any more."""
    while not running.quiet.is_set():
        before = running.arrived
        with trio.move_on_after(WAIT_S):
            await running.quiet.wait()
        if running.arrived == before:
            return  # a process that is none of ours holds the pipe open


async def _stop(running: Running, grace_s: float) -> None:
    """SIGTERM, the grace, then SIGKILL until none is left. Takes as long as the kernel needs to end them."""
    if grace_s > 0:
        running.signal(signal.SIGTERM)
        with trio.move_on_after(grace_s):
            await _gone(running)
            return
    while True:
        running.signal(signal.SIGKILL)
        with trio.move_on_after(POLL_S * 4):
            await _gone(running)
            return


async def _gone(running: Running) -> None:
    await running.process.wait()
    # The kernel tells nobody when a process that was adopted late ends: look.
    while not descendants.reap() and running.living():  # noqa: ASYNC110
        await trio.sleep(POLL_S)


async def _die_with_runner(running: Running, terminations: AsyncIterator[int]) -> None:
    async for _ in terminations:
        with trio.CancelScope(shield=True):
            await _stop(running, running.command.grace_s / 2)  # within the time that the daemon gives us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


async def _feed(running: Running) -> None:
    stream, data = running.process.stdin, running.command.stdin
    if stream is None or data is None:
        return
    async with stream:
        try:
            await stream.send_all(data)
        except trio.BrokenResourceError:
            return  # the command doesn't want the rest


async def _read(running: Running, stream: trio.abc.ReceiveStream | None, capture: Capture) -> None:
    assert stream is not None
    async with stream:
        while data := await stream.receive_some(READ_BYTES):
            running.arrived += len(data)
            capture.feed(data)
    running.open_pipes -= 1
    if running.open_pipes == 0:
        running.quiet.set()
