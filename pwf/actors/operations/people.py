"""Whose word a request is: a person's, a session's, or that of a run's step. The one check for all that only a person
may say.

Owns nothing: it asks the system which processes stand behind the one that connected. Promises: a process that bears a
run's marker, or that descends from a runner, from the process that has attached a session or from this daemon, is never
taken for a person; a process that can not be looked at (it has ended, its pid is another's by now) isn't either. One
user id is no wall (docs/security.md).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import trio

from pwf.actors.operations.caller import Caller
from pwf.actors.sessions.session_coordinator import Attachment
from pwf.errors import InvalidArgument, PersonNeeded
from pwf.host.identity import Identity, Process
from pwf.protocol.runner import MARKER_VARIABLE, marked_run

GENERATIONS_MAX = 1_000  # of processes, from one to the first of all
LOOKS_MAX = 8  # at a process whose parent ends while it is looked at


class Processes(Protocol):
    """What is needed of `pwf.host`."""

    def read_process(self, pid: int) -> Process | None:
        """The process that has this pid now."""

    def read_variable(self, pid: int, variable: str) -> str | None:
        """What it was started with."""


class Relative(NamedTuple):
    """A process, or one that it descends from, with the marker that it bears."""

    identity: Identity
    marker: str | None


Lineage = Callable[[Identity], Awaitable[list[Relative] | None]]
Runners = Callable[[], list[tuple[str, Identity]]]
Sessions = Callable[[], list[Attachment]]


class People:
    """Tells people from steps and sessions. `runners`: marker and process of each that has a run; `sessions`: each
    that is attached. `servers`: processes of this daemon's by which people speak to it, themselves
    alone: what they start is the daemon's.
    """

    def __init__(
        self,
        lineage: Lineage,
        runners: Runners,
        sessions: Sessions,
        servers: Callable[[], list[Identity]],
        *,
        steps_may_answer: bool,
    ) -> None:
        self._lineage = lineage
        self._runners = runners
        self._sessions = sessions
        self._servers = servers
        self._steps_may_answer = steps_may_answer

    async def check(self, caller: Caller, what: str) -> None:
        """Raise `PersonNeeded` unless a person may be at the other end. `what` only a person may do."""
        await self._refuse(caller, what, "only a person may", session_may=False)

    async def check_no_run(self, caller: Caller, what: str) -> None:
        """The same for what an agent may do as well, but no step of a run."""
        await self._refuse(caller, what, "no step of a run may", session_may=True)

    async def _refuse(self, caller: Caller, what: str, who: str, *, session_may: bool) -> None:
        behind = await self._behind(caller, what)
        if isinstance(behind, _Session) and session_may:
            return
        if behind is not None:
            raise PersonNeeded(
                f"{who} {what}; this comes from {behind}",
                hint="type it in a terminal that no run and no agent has started",
            )

    async def check_host(self, peer: Identity) -> None:
        """Raise `PersonNeeded` unless it may be the person at an MCP host who speaks through this process.

        It is below its host, whose session it has attached: that alone makes it no agent's.
        """
        family = await self._family(peer, "decide")
        behind = run_behind(family, self._runners(), os.getpid()) or session_beside(family, self._sessions())
        if behind is not None:
            raise PersonNeeded(f"only a person may decide; this form comes from {behind}")

    async def ancestor(self, caller: Caller, pid: int) -> Identity:
        """The process of this pid that the caller descends from. Raises `InvalidArgument` where there is none."""
        family = None if caller.peer is None else await self._lineage(caller.peer)
        for relative in (family or [])[1:]:
            if relative.identity.pid == pid and pid > 1:
                return relative.identity
        raise InvalidArgument(f"process {pid} is none that has started this one")

    async def who_answers(self, caller: Caller, person: str) -> str:
        """Who the history shall say has answered: the person, or `run:ID` where steps may."""
        behind = await self._behind(caller, "answer a checkpoint")
        if behind is None:
            return person
        if not self._steps_may_answer:
            raise PersonNeeded(
                f"only a person may answer a checkpoint; this comes from {behind}",
                hint="type it in a terminal that no run and no agent has started, or set steps_may_answer = true in "
                "the section [people] of the configuration",
            )
        return behind.actor

    async def who_acts(self, caller: Caller, person: str) -> tuple[str, bool]:
        """Who the history shall say it was, and whether that is a person: else the run or the session behind it."""
        behind = await self._behind(caller, "act as a person")
        return (person, True) if behind is None else (behind.actor, False)

    async def _behind(self, caller: Caller, what: str) -> _Run | _Session | None:
        family = await self._family(caller.peer, what)
        if any(family[0].identity.is_same(server) for server in self._servers()):
            return None
        run = run_behind(family, self._runners(), os.getpid())
        return run or session_behind(family, self._sessions())

    async def _family(self, peer: Identity | None, what: str) -> list[Relative]:
        family = None if peer is None else await self._lineage(peer)
        if not family:
            raise PersonNeeded(
                f"only a person may {what}, and the process that asks for it can not be looked at any more",
                hint="it must live until it is answered",
            )
        return family


class _Run(NamedTuple):
    run_id: str
    pid: int

    @property
    def actor(self) -> str:
        return f"run:{self.run_id}"

    def __str__(self) -> str:
        of = "code of a workflow" if self.run_id == UNKNOWN else f"a step of run {self.run_id}"
        return f"{of} (pid {self.pid})"


class _Session(NamedTuple):
    session_id: str
    pid: int

    @property
    def actor(self) -> str:
        return f"session:{self.session_id}"

    def __str__(self) -> str:
        return f"the agent of session {self.session_id} (pid {self.pid})"


UNKNOWN = "unknown"  # code that runs while a file is loaded, for no run yet


def run_behind(family: list[Relative], runners: list[tuple[str, Identity]], daemon_pid: int) -> _Run | None:
    """The run that a process belongs to; None for a person's. `family`: the process, then its ancestors."""
    speaker = family[0].identity.pid
    known = {(identity.pid, identity.start_tick): marker for marker, identity in runners}
    for relative in family:
        identity = relative.identity
        marker = known.get((identity.pid, identity.start_tick)) or relative.marker
        if marker:
            return _Run(marked_run(marker) or UNKNOWN, speaker)
    if any(relative.identity.pid == daemon_pid for relative in family[1:]):
        return _Run(UNKNOWN, speaker)
    return None


def session_behind(family: list[Relative], sessions: list[Attachment]) -> _Session | None:
    """The session that a process belongs to: it has attached it, or descends from what has."""
    known = {(one.agent.pid, one.agent.start_tick): one.session_id for one in sessions}
    for relative in family:
        session_id = known.get((relative.identity.pid, relative.identity.start_tick))
        if session_id is not None:
            return _Session(session_id, family[0].identity.pid)
    return None


def session_beside(family: list[Relative], sessions: list[Attachment]) -> _Session | None:
    """The session whose agent may have started a process that shows forms; None where it is its host's own.

    Its own is the one that it has attached itself for a process above it. What a host's shell starts can do that as
    well: so of all that have attached a session of one host only the eldest, which the host began with, is believed.
    """
    speaker = family[0].identity
    own = next((one for one in sessions if one.by.is_same(speaker) and not one.agent.is_same(speaker)), None)
    others = [
        one
        for one in sessions
        if one is not own
        and not (own is not None and one.agent.is_same(own.agent) and _age(one.by) >= _age(speaker))
    ]
    return session_behind(family, others)


def _age(process: Identity) -> tuple[int, int]:
    return process.start_tick, process.pid


def lineage_by(processes: Processes) -> Lineage:
    """How the lineage of a process is read: in a thread, since a process within exec is waited for."""

    async def lineage(peer: Identity) -> list[Relative] | None:
        return await trio.to_thread.run_sync(read_lineage, processes, peer)

    return lineage


def read_lineage(processes: Processes, peer: Identity) -> list[Relative] | None:
    """The process and all that it descends from, nearest first; None when it is not there any more.

    A pid is used again. So a parent counts only if it is no younger than its child: otherwise it has ended meanwhile,
    its pid is another's, and the child, which has a new parent by now, is read again.
    """
    found: list[Relative] = []
    process = processes.read_process(peer.pid)
    if process is None or not peer.is_same(process.identity):
        return None
    while process is not None and len(found) < GENERATIONS_MAX:
        found.append(
            Relative(process.identity, processes.read_variable(process.identity.pid, MARKER_VARIABLE))
        )
        process = _parent(processes, process)
    now = processes.read_process(peer.pid)  # what was read in between was its own
    return found if now is not None and not now.dead and peer.is_same(now.identity) else None


def _parent(processes: Processes, child: Process) -> Process | None:
    for _ in range(LOOKS_MAX):
        if child.parent <= 0:
            return None
        parent = processes.read_process(child.parent)
        if parent is not None and parent.identity.start_tick <= child.identity.start_tick:
            return parent
        again = processes.read_process(child.identity.pid)
        if again is None or not again.identity.is_same(child.identity):
            return None
        child = again
    return None
