"""A template, as the daemon holds it: a process that has loaded one workflow, and from which its runners are forked.

Owns its control socket, and the pairs of sockets that runners are given.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

import trio

from pwf import host
from pwf.actors.processes.link import Exits, LinkClosed, SpawnLink
from pwf.actors.processes.output_ends import OutputEnds
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import Loaded, StandingBy
from pwf.errors import RunnerCrashed
from pwf.host import Identity
from pwf.protocol.runner import WAITING_MARKER
from pwf.protocol.spawn import FORKED_MAX, Forked, ForkRunners
from pwf.watch import Watched

FORK_TIMEOUT_S = 10.0
WAITING_MAX = 1  # runners that wait for a run
WAITING_HURRIED_MAX = FORKED_MAX  # and no more than the capacity asks for
FILES_FEW_MAX = 100  # a look at one takes a microsecond; at more than these
LOOKED_AT_NS = 50_000_000  # a look so short ago is enough: nobody edits and starts within that


class Sockets(NamedTuple):
    """Both ends of a runner's two sockets, and of the pipes that it prints to."""

    messages: socket.socket
    values: socket.socket
    prints: OutputEnds
    runner_ends: tuple[socket.socket, socket.socket]

    @property
    def runner_descriptors(self) -> tuple[int, ...]:
        """What the runner gets."""
        messages, values = self.runner_ends
        return messages.fileno(), values.fileno(), *self.prints.of_runner

    def close_runner_ends(self) -> None:
        """Once the runner has them."""
        for end in self.runner_ends:
            end.close()
        self.prints.close_written()

    def close(self) -> None:
        """There is no runner after all."""
        self.close_runner_ends()
        self.messages.close()
        self.values.close()
        self.prints.close()


def open_sockets() -> Sockets:
    """All closed on exec. Raises `RunnerCrashed` when no more descriptors can be had."""
    with ExitStack() as made:
        ends = [made.enter_context(end) for _ in range(2) for end in socket_pair()]
        prints = OutputEnds()
        made.pop_all()
    messages, runner_messages, values, runner_values = ends
    return Sockets(messages, values, prints, (runner_messages, runner_values))


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends. Raises `RunnerCrashed` when no more descriptors can be had."""
    try:
        return socket.socketpair()
    except OSError as error:  # too many are open
        raise RunnerCrashed(f"no socket could be made: {error}") from error


class Spawner(Protocol):
    """What runners come from: a zygote or a template."""

    runners: set[RunnerProcess]  # that live


class Origin(Spawner, Loaded, Protocol):
    """A zygote, as its templates need it."""


class Template:
    """A process that has loaded one workflow and forks its runners. `unsafe`: why it must not (it is gone then).

    `standing_by`: runners that have no run yet, which are ended when it is closed. `runners`: all that live.
    """

    def __init__(self, zygote: Origin, link: SpawnLink, identity: Identity, exits: Exits) -> None:
        self.zygote = zygote
        self.identity = identity
        self.unsafe: str | None = None
        self.files = Watched({})  # that it has loaded code from, besides the project's
        self.standing_by = StandingBy(self)
        self.runners: set[RunnerProcess] = set()
        self.is_used = False
        self.hurries_until = 0.0
        self.hurried_max = WAITING_HURRIED_MAX
        self._link = link
        self._exits = exits
        link.when_closed(self.standing_by.close)

    @property
    def used_at(self) -> float:
        """When a runner that stood by was taken last."""
        return self.standing_by.taken_at

    @property
    def is_open(self) -> bool:
        """Whether it may live: nobody has closed it."""
        return not self._link.closed.is_set()

    @property
    def is_current(self) -> bool:
        """Whether its interpreter, and what it has loaded, are still what stands in the files."""
        asked_ns = time.monotonic_ns() - LOOKED_AT_NS if len(self.files) > FILES_FEW_MAX else None
        return self.zygote.is_current and self.files.hold(asked_ns)

    @property
    def is_usable(self) -> bool:
        """Whether it lives, and still stands for what its files are. Its zygote may be gone."""
        return self.is_open and self.is_current

    @property
    def wanted(self) -> int:
        """How many runners should wait for a run now."""
        return self.hurried_max if trio.current_time() < self.hurries_until else WAITING_MAX

    @property
    def missing(self) -> int:
        """How many to fork now, so that as many wait as are wanted: half of them together, as each costs less then."""
        wanted = self.wanted
        missing = wanted - len(self.standing_by)
        return missing if missing >= max(1, wanted // 2) else 0

    async def fork_runners(self, sockets: Sequence[Sockets]) -> tuple[Identity, ...]:
        """Fork runners, each of which gets its messages and values sockets: at least one, perhaps fewer than these.

        Raises `LinkClosed` when the template is gone, or is ended because it did not fork in time; `RunnerCrashed` when
        it can fork nothing.
        """
        descriptors = [descriptor for pairs in sockets for descriptor in pairs.runner_descriptors]
        request = ForkRunners(call=self._link.next_call(), marker=WAITING_MARKER)
        try:
            with trio.fail_after(FORK_TIMEOUT_S):
                answer = await self._link.call(request, Forked, descriptors)
        except trio.TooSlowError:
            self.close()
            with contextlib.suppress(OSError):  # one that was stopped does not see that its socket closes
                host.kill_identity(self.identity)
            raise LinkClosed(f"the template did not fork within {FORK_TIMEOUT_S:g} s") from None
        if not answer.identities:
            raise RunnerCrashed(f"no runner could be forked: {answer.error}")
        return answer.identities

    def close(self) -> None:
        """Close its socket: the template ends; its runners go on, but for those that wait for a run."""
        self._link.close()
        self._exits.forget(self.identity)


def describe_status(status: int | None) -> str:
    """An exit status as a person would say it."""
    if status is None:
        return "it was ended from outside"
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exit status {status}"
