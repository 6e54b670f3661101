"""Usage limits of agents' accounts: who waits for one, and who tries whether it has ended.

Promises: a limit that was met costs no retry and no capacity; while it lasts nobody asks, and when it is over one run
asks for all. Who waits stands in the queue, due when the limit ends, a little apart from the others.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import NamedTuple

from pwf.protocol.agents import AgentCommand, OnLimit
from pwf.protocol.runner import Finish, StepError
from pwf.store import moves, place
from pwf.store.budgets import add_today
from pwf.store.queries import load_queries
from pwf.store.state import RunState, encode
from pwf.store.tx import Tx

Q = load_queries(__file__)

APART_MS = 30_000  # over so long those are spread that wait for the same
PROBE_MS = 60_000  # from one look whether the one that tries has come through, to the next; each is an event
UNKNOWN_MS = 60_000  # the first wait for a limit whose end nobody has said; each further one is twice as long
UNKNOWN_MS_MAX = 30 * 60_000
UNKNOWN_MAX = 10  # so many in a row, in three hours, and what is taken for a limit is a failure as any other
FAR_MS = 31 * 86_400_000


def is_limited(tx: Tx, account: str) -> bool:
    """Whether a step of this account may not simply begin."""
    return tx.one(Q.known, {"account": account}) is not None


class Blocked(NamedTuple):
    """Why a step may not begin before then: its limit lasts, or another run `probes` whether it does."""

    until_ms: int
    probes: bool


def blocked(tx: Tx, run: RunState, account: str) -> Blocked | None:
    """None: a step of this account may begin, and perhaps tries for all others."""
    row = tx.one(Q.limit, {"account": account, "run_no": run.run_no})
    if row is None:
        return None
    until, others_try = row
    if tx.now.wall_ms < until:
        return Blocked(int(until), probes=False)
    if others_try:
        return Blocked(tx.now.wall_ms + PROBE_MS, probes=True)
    tx.run(Q.probe, {"account": account, "run_no": run.run_no, "attempt": run.attempts + 1})
    return None


def turn_away(tx: Tx, run: RunState, agent: AgentCommand, why: Blocked) -> None:
    """A run that would begin a step meets a limit that is known: what its agent's `on_limit` says.

    While another run probes, nobody knows of a limit, and all wait.
    """
    until_ms = why.until_ms
    error = StepError(code="limited", message=_text(agent.name, until_ms), node=run.node)
    if why.probes:
        _wait(tx, run, "resume", until_ms, f"another run tries whether agent {agent.name!r} may work again")
    elif agent.on_limit == "stop":
        moves.end_after(tx, run, "failed", moves.NOTHING, error)
    else:
        _wait(tx, run, agent.on_limit, until_ms, error.message)
    moves.note(tx, run, "limited", "daemon", {"account": agent.account_name, "until_ms": until_ms})


def is_turned_away(tx: Tx, run: RunState) -> bool:
    """Whether a paused run waits for its agent's account as well: its detail says so, or its last attempt."""
    return (
        run.hold_detail is not None
        or tx.one(Q.met, {"run_no": run.run_no, "attempt": run.attempts}) is not None
    )


def is_endless(tx: Tx, message: Finish) -> bool:
    """Whether what an attempt calls a limit was met too often in a row, and nobody has said until when it lasts."""
    limited = message.limited
    if limited is None or limited.until_wall_ms is not None:
        return False
    known = tx.one(Q.known, {"account": limited.account})
    return known is not None and known[1] >= UNKNOWN_MAX


def end_limited(tx: Tx, run: RunState, message: Finish) -> str:
    """The attempt has met a limit. The answer to its runner."""
    limited = message.limited
    assert limited is not None
    assert run.agent is not None
    until_ms = _note(tx, limited.account, limited.until_wall_ms)
    add_today(tx, run.agent, active_ms=message.active_ms)
    stops = limited.on_limit == "stop"
    verdict = "end" if stops else "park"
    moves.end_attempt(
        tx,
        run,
        "failed" if stops else "limited",
        error=None if message.error is None else encode(message.error),
        active_ms=message.active_ms,
        message=message,
        verdict=verdict,
    )
    if stops:
        moves.end_after(tx, run, "failed", moves.NOTHING, message.error)
    else:
        _wait(tx, run, limited.on_limit, until_ms, _text(run.agent, until_ms))
    facts = {"node": run.node, "attempt": run.attempts, "account": limited.account, "until_ms": until_ms}
    moves.note(tx, run, "limited", "runner", facts)
    return verdict


def lift(tx: Tx, account: str) -> bool:
    """An agent of it has worked, or a person says to try it now. Whether there was a limit."""
    lifted = tx.run(Q.lift, {"account": account}) > 0
    if lifted:
        tx.changed("queue")
    return lifted


def limits(tx: Tx, _: None = None) -> dict[str, int]:
    """Account -> until when."""
    return dict(tx.all(Q.all))


def _wait(tx: Tx, run: RunState, on_limit: OnLimit, until_ms: int, why: str) -> None:
    if on_limit == "ask":
        place.hold(tx, run, "paused", why)
    else:
        apart_ms = zlib.crc32(run.run_id.encode()) % APART_MS
        place.queue(tx, run, wall_ms=until_ms + apart_ms, detail=why)


def _note(tx: Tx, account: str, until_ms: int | None) -> int:
    """Store what was met; until when. Several that meet an unknown one at the same time are one refusal."""
    now = tx.now.wall_ms
    if until_ms is not None and now < until_ms <= now + FAR_MS:
        tx.run(Q.put, {"account": account, "until": until_ms, "refusals": 0})
        return until_ms
    known = tx.one(Q.known, {"account": account})
    if known is not None and now < known[0]:
        return int(known[0])
    refusals = 0 if known is None else known[1]
    until = now + min(UNKNOWN_MS_MAX, UNKNOWN_MS << min(refusals, 10))
    tx.run(Q.put, {"account": account, "until": until, "refusals": refusals + 1})
    return until


def _text(name: str, until_ms: int) -> str:
    until = datetime.fromtimestamp(until_ms / 1000, UTC)
    return f"agent {name!r} has met a usage limit, until {until:%Y-%m-%d %H:%M:%S} UTC"
