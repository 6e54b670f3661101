"""Runners forked ahead: a template that is used keeps one ready, so that the next run need not wait for a fork.

A spare has done what every runner does first (a session of its own, closed descriptors, new random numbers) and then
waits for its sockets, environment and marker. It has no run and runs nothing of the workflow before them. It ends
when its template does. Once handed over it is a runner as any other.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import NamedTuple

from pwf import host
from pwf.host import Identity
from pwf.protocol.spawn import ForkRunner
from pwf.runner.spawn_io import SpawnSocket

SPARES_MAX = 1
HAND_OVER_WAIT_MS = 1_000


class Spare(NamedTuple):
    """A waiting child, and the socket over which it is told what to be."""

    identity: Identity
    hand_over: SpawnSocket


class Spares:
    """`fork` starts a child that runs `wait_to_be_used` on the given descriptor, and says who it is."""

    def __init__(self, fork: Callable[[int], Identity | None]) -> None:
        self._fork = fork
        self._waiting: list[Spare] = []
        self._handed: list[SpawnSocket] = []
        self._is_used = False

    def wanted(self) -> bool:
        """Whether one more should be forked when there is nothing else to do."""
        return self._is_used and len(self._waiting) < SPARES_MAX

    def refill(self) -> None:
        """Fork one."""
        ours, theirs = socket.socketpair()
        try:
            identity = self._fork(theirs.fileno())
        except OSError:  # no memory, or too many processes: runners can do without
            identity = None
            self._is_used = False
        finally:
            theirs.close()
        if identity is None:
            ours.close()
        else:
            self._waiting.append(Spare(identity, SpawnSocket(ours)))

    def use(self, request: ForkRunner, descriptors: list[int]) -> Identity | None:
        """Hand a request over to a spare that still lives. None when there is none."""
        self._is_used = True
        self._forget_taken()
        while self._waiting:
            spare = self._waiting.pop()
            try:
                spare.hand_over.send(request, descriptors)
            except ConnectionError:  # it died; were it not dead, two processes would have the run's sockets
                host.kill_identity(spare.identity)
                spare.hand_over.close()
                continue
            self._handed.append(spare.hand_over)
            return spare.identity
        return None

    def settle(self) -> None:
        """Before the template ends: see that each one that was handed over bears its run's marker by now."""
        for hand_over in self._handed:
            poll = select.poll()
            poll.register(hand_over.fileno(), select.POLLIN)
            poll.poll(HAND_OVER_WAIT_MS)

    def _forget_taken(self) -> None:
        """Drop the sockets that their other ends have closed, which they do once they are runners."""
        for hand_over in list(self._handed):
            if hand_over.is_closed_there():
                self._handed.remove(hand_over)
                hand_over.close()


def wait_to_be_used(hand_over: SpawnSocket) -> tuple[ForkRunner, list[int]] | None:
    """In the spare: wait for the request; None when the template is gone. The caller closes `hand_over`."""
    received = hand_over.receive()
    if received is None or not isinstance(received[0], ForkRunner):
        return None
    return received[0], received[1]
