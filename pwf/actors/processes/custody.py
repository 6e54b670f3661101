"""Custody: proof that every process of a runner is dead, before its run may be admitted again.

Owns the scans of the process table: proofs that run at the same time share one. Promises: a proof that says True
rests on a scan that began after the runner had ended; only processes that are exactly the ones meant are signalled;
what can not be attributed for sure is never killed, and makes the proof fail. Holds no state worth keeping.
In: `prove_dead`, and the scans that it needs. Out: signals. If it dies: the daemon ends, and the next one proves anew
from the recorded identity and marker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import trio

from pwf import host
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.errors import Unavailable
from pwf.host import Bearer, Identity
from pwf.protocol.runner import MARKER_VARIABLE

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 1_024
PROOF_TIMEOUT_S = 5.0
PAUSE_S_MIN, PAUSE_S_MAX = 0.002, 0.1  # between a kill and the next scan
SCANS = 2  # that find nothing: one alone may miss what hops from fork to fork while it goes by


class Suspects(NamedTuple):
    """What a scan says about one runner. `doubtful`: in its session by number, but perhaps a stranger."""

    ours: list[Identity]
    doubtful: list[Identity]


def suspects(bearers: Iterable[Bearer], runner: Identity, marker: str, died_tick: int | None) -> Suspects:
    """Which living processes are, or may be, the runner's.

    The marker proves it. The session proves it while the runner itself is there, or while a member is there that
    started before the runner's death was seen (`died_tick`): as long as a session has members, its number is not
    used again. A later session of the same number has another leader, or members that are all younger.
    """
    ours: list[Identity] = []
    members: list[Identity] = []
    session_is_ours = False
    session_is_taken = False
    for identity, _, found in bearers:
        is_runner = identity.is_same(runner)
        if identity.pid == runner.pid and not is_runner:
            session_is_taken = (
                True  # the kernel gives a session's number to nobody while the session has members
            )
        if is_runner or found == marker:
            ours.append(identity)
        if is_runner:
            session_is_ours = True
        elif identity.session == runner.session and found != marker:
            members.append(identity)
            session_is_ours |= died_tick is not None and identity.start_tick <= died_tick
    if session_is_taken:
        return Suspects(ours, [])
    return Suspects(ours + members, []) if session_is_ours else Suspects(ours, members)


class Sought(NamedTuple):
    """A runner that is to be dead, and the marker of all that it started."""

    runner: Identity
    marker: str


def without_trace(bearers: Iterable[Bearer], sought: Iterable[Sought]) -> list[bool]:
    """Of which runners there is nothing: neither the marker, nor pid or session, if only as a stranger's number."""
    pids: set[int] = set()
    sessions: set[int] = set()
    markers: set[str | None] = set()
    for identity, _, marker in bearers:
        pids.add(identity.pid)
        sessions.add(identity.session)
        markers.add(marker)
    return [
        marker not in markers and runner.pid not in pids and runner.session not in sessions
        for runner, marker in sought
    ]


# --- messages -------------------------------------------------------------------------------------------------


class Scan(Message[list[Bearer]], frozen=True, kw_only=True, eq=False):
    """Look at the processes that started at this tick or later."""

    since_tick: int


# --- the handle -----------------------------------------------------------------------------------------------


class CustodyHandle:
    """What others hold of it. A proof is the asker's own work; the scans that it needs are the actor's."""

    def __init__(self, inbox: Mailbox[Scan]) -> None:
        self._inbox = inbox

    async def prove_dead(
        self,
        runner: Identity,
        marker: str,
        *,
        died_tick: int | None = None,
        timeout_s: float = PROOF_TIMEOUT_S,
    ) -> bool:
        """Kill the runner, the members of its session and the bearers of its marker until none is left.

        False when that can not be shown within the bound: a process of another user, one that the kernel can not
        end, or one that may be a stranger. `died_tick` is the tick (`host.now_tick`) at which the runner was seen
        to have ended, when this daemon saw it. Safe to repeat, and to cancel.
        """
        if runner.boot_id != host.boot_id():
            return True  # nothing outlives a boot
        scans_needed = SCANS
        pause_s = PAUSE_S_MIN
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    scanned = await self.scan(runner.start_tick)
                except OSError:  # no descriptors or memory just now
                    await trio.sleep(PAUSE_S_MAX)
                    continue
                found = suspects(scanned, runner, marker, died_tick)
                if not found.ours and not found.doubtful:
                    scans_needed -= 1
                    if scans_needed == 0:
                        return True
                    continue
                if found.ours:
                    scans_needed = SCANS
                    died_tick = host.now_tick() if not found.doubtful else died_tick
                    _kill(found.ours)
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
        return False

    async def left_nothing(self, sought: Sequence[Sought]) -> list[bool]:
        """Which of these runners are dead, as far as a look at all of them together can tell. Signals nobody.

        True is a proof. False: something was found that may be theirs, and `prove_dead` has to look closer.
        """
        present = [one.runner.boot_id == host.boot_id() for one in sought]
        gone = [True] * len(present)  # nothing outlives a boot
        if any(present):
            since_tick = min(one.runner.start_tick for one in sought)
            try:
                for _ in range(SCANS):
                    clear = without_trace(await self.scan(since_tick), sought)
                    gone = [known and now for known, now in zip(gone, clear, strict=True)]
            except OSError:  # no descriptors or memory just now
                gone = [False] * len(present)
        return [nothing or not here for nothing, here in zip(gone, present, strict=True)]

    async def scan(self, since_tick: int) -> list[Bearer]:
        """A scan that begins after this call. Raises `OSError` when the process table could not be read."""
        return await ask(self._inbox, Scan(since_tick=since_tick))


# --- the actor ------------------------------------------------------------------------------------------------


class Custody:
    """The actor. One instance per daemon, so that proofs share their scans."""

    def __init__(self) -> None:
        self._inbox: Mailbox[Scan] = Mailbox(INBOX_MAX, "the keeper of custody")
        self.handle = CustodyHandle(self._inbox)

    async def run(self) -> None:
        """Serve until cancelled. All who ask while one scan runs share the next."""
        with self._inbox.open():
            while True:
                await self._handle_scans(await self._inbox.take(INBOX_MAX))

    async def _handle_scans(self, messages: list[Scan]) -> None:
        since_tick = min(message.since_tick for message in messages)
        try:
            bearers = await trio.to_thread.run_sync(host.find_bearers, MARKER_VARIABLE, since_tick)
        except OSError as error:
            for message in messages:
                message.reply.fail(OSError(*error.args))
        except BaseException:
            for message in messages:
                message.reply.fail(Unavailable("the keeper of custody has stopped"))
            raise
        else:
            for message in messages:
                message.reply.give(bearers)


def _kill(identities: Iterable[Identity]) -> None:
    for identity in identities:
        with contextlib.suppress(OSError):  # another user's, or no descriptors: alive, so the proof goes on
            host.kill_identity(identity)
