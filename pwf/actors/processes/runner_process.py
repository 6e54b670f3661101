"""One runner process, as the daemon holds it: its sockets, its end, and the proof that nothing of it is left.

Owns its descriptors. The end is learned with its status from whoever reaped it, or else from the kernel, which says
it even when nobody is left to reap; the status comes within a short bound then, or never. Whoever holds it calls
`aclose` at last; sockets that close make the runner end itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable

import trio

from pwf import host
from pwf.actors.base.socket_stream import SocketStream
from pwf.actors.processes.custody import PROOF_TIMEOUT_S, CustodyHandle
from pwf.actors.processes.link import ExitReport, Exits
from pwf.actors.processes.output_ends import OutputEnds
from pwf.host import Identity
from pwf.protocol.runner import EXIT_UNFIT, WAITING_MARKER
from pwf.protocol.survivors import Survivor, name_all

REPORT_FIRST_S = 0.25  # a runner so short-lived costs no descriptor: whoever reaps it says so
STATUS_WAIT_S = 0.25  # from the end of the process to the report of whoever reaped it
LEAVE_S = 1.0  # one second to exit after being asked
NO_DESCRIPTOR = -1
DESCRIPTOR_WAIT_S = 0.1


class RunnerProcess:
    """`stream` carries messages, `values` reads of larger values, `prints` what it prints. `isolated`: started by exec,
    for itself.
    """

    def __init__(
        self,
        identity: Identity,
        marker: str,
        messages: socket.socket,
        values: socket.socket,
        prints: OutputEnds,
        *,
        exits: Exits,
        custody: CustodyHandle,
        isolated: bool = False,
    ) -> None:
        self.identity = identity
        self.marker = marker
        self.isolated = isolated
        self.stream = SocketStream(messages)
        self.values = SocketStream(values)
        self.prints = prints
        self.stands_by = False  # it waits for a run, and nobody has it
        self.on_exit: Callable[[], object] | None = None  # for its holder
        self.goes_back: Callable[[RunnerProcess], None] | None = None  # to those that stand by, where it can
        self._exits = exits
        self._custody = custody
        self._report: ExitReport = exits.expect(identity)
        self._died_tick: int | None = None
        self._was_signalled = False
        self._left: tuple[Survivor, ...] = ()
        self._exited = trio.Event()
        self._status: int | None = None

    async def watch(self) -> None:
        """The task that waits for the end of the process. Runs once, a task of the pool."""
        with trio.move_on_after(REPORT_FIRST_S):
            await self._report.arrived.wait()
        if not self._report.arrived.is_set():
            await self._kernel_says()
        self._died_tick = host.now_tick()
        self._hear_no_more()
        if not self._report.arrived.is_set():
            with trio.move_on_after(STATUS_WAIT_S):
                await self._report.arrived.wait()
        self._exits.forget(self.identity)
        self._status = self._report.status
        self._exited.set()
        if self.on_exit is not None:
            self.on_exit()

    async def _kernel_says(self) -> None:
        """Wait for the end by the kernel's word, which comes even when nobody is left who would reap it."""
        while (descriptor := self._open_exit()) == NO_DESCRIPTOR:  # noqa: ASYNC110 - nobody says when
            await trio.sleep(DESCRIPTOR_WAIT_S)
        if descriptor is not None:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)

    def _hear_no_more(self) -> None:
        """End both streams behind what was said: a process that the step forked may hold the other ends open."""
        if sys.platform != "linux":
            return  # there it would throw away what is still to be read
        for stream in (self.stream, self.values):
            with contextlib.suppress(OSError):  # closed by now
                stream.socket.shutdown(socket.SHUT_RD)

    def _open_exit(self) -> int | None:
        try:
            return host.open_exit(self.identity)
        except OSError:  # too many are open
            return NO_DESCRIPTOR

    @property
    def has_exited(self) -> bool:
        """Whether `exited` would answer at once."""
        return self._exited.is_set()

    @property
    def has_left(self) -> bool:
        """Whether it has ended, and not by our hand."""
        return self._exited.is_set() and not self._was_signalled

    async def exited(self) -> int | None:
        """Wait until the process has ended.

        Its status as `os.waitstatus_to_exitcode` (negative is a signal), or None when nobody could tell.
        """
        await self._exited.wait()
        return self._status

    @property
    def was_unfit(self) -> bool:
        """Whether it ended because it could not become its run's: no step had begun."""
        return self._status == EXIT_UNFIT

    @property
    def died_of(self) -> str:
        """How it ended, in words; empty while it lives, and where nobody could tell."""
        if self._status is None:
            return ""
        if self._status >= 0:
            return f"exit status {self._status}"
        try:
            return signal.Signals(-self._status).name
        except ValueError:  # a real-time signal
            return f"signal {-self._status}"

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """What outlived it, and was ended: as we or whoever reaped it have seen it."""
        found: dict[int, Survivor] = {}
        for one in (*self._report.survivors, *self._left):
            known = found.get(one.pid)
            if known is None or len(known.command) < len(
                one.command
            ):  # one of the two looked when it was dying
                found[one.pid] = one
        return tuple(found.values())

    def terminate(self) -> None:
        """SIGTERM to exactly this process, if it is still there. It stops its step's children itself."""
        self._was_signalled = True
        with contextlib.suppress(OSError):
            host.kill_identity(self.identity, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to exactly this process and what is below it now. What flees is left to `prove_dead`."""
        died, self._was_signalled = not self._was_signalled, True
        below: list[Identity] = []
        with contextlib.suppress(OSError):  # no descriptors just now
            below = host.descendants(self.identity.pid) if host.is_alive(self.identity) else []
        if died:  # it is about to end by itself, and these are what it leaves
            self._left = name_all(below)
        for identity in (self.identity, *below):
            with contextlib.suppress(OSError):
                host.kill_identity(identity)

    async def last_words(self) -> int:
        """Keep what it printed and could not keep itself any more; how many bytes its attempt's files have then."""
        return await trio.to_thread.run_sync(self.prints.keep)

    async def prove_dead(
        self, childless: bool = False, *, grace_s: float = 0.0, timeout_s: float = PROOF_TIMEOUT_S
    ) -> bool:
        """End the runner and all that it started, wherever it went, until it is shown that nothing is left.

        `grace_s`: how long after a SIGTERM before SIGKILL; with 0 there is no SIGTERM. `childless`: the runner said
        itself that no descendant is left, which saves the scan when it also exits by itself. False when something
        can not be shown dead within the bound.
        """
        by = trio.current_time() + grace_s + timeout_s
        with trio.move_on_at(by):
            if childless:
                await self._leaves(LEAVE_S)
            elif grace_s > 0:
                self.terminate()
                await self._leaves(grace_s)
            if not self.has_exited:
                childless = False
                self.kill()
                await self._exited.wait()
            if childless or self._report.clean:
                return True
        remaining = max(0.0, by - trio.current_time())
        return await self._custody.prove_dead(
            self.identity, self.marker, died_tick=self._died_tick, timeout_s=remaining
        )

    async def _leaves(self, seconds: float) -> None:
        """Give the runner the time to end by itself."""
        with trio.move_on_after(seconds):
            await self._exited.wait()

    def stay(self) -> None:
        """Its run is over, its row is gone, and it has said that it waits for another. Its holder has it no more.

        One to which a value could not be given has hung up with its daemon, whatever it says: it is ended.
        """
        assert self.goes_back is not None
        if self.values.is_closed:
            self.discard()
            return
        self.marker, self.on_exit = WAITING_MARKER, None
        self.prints.folder, self.prints.attempt = "", 0
        self.goes_back(self)

    def discard(self) -> None:
        """For a runner that nobody wants: it has no run, and nothing of one, so nothing of it needs a proof."""
        self.kill()  # one that was stopped would not see that its sockets close
        self.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """Close what we hold of it. A runner that is still there ends itself and its children."""
        self.stream.close()
        self.values.close()
        self.prints.close()
