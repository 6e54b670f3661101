"""Budgets: what the agents of a run may use, alone and with all others on a day, and what they have used.

Promises: no step of an agent begins beyond a budget, and one that goes beyond is ended at its next report; then the run
is held until a person says more. What is nearest decides, for each of tokens, money, minutes and steps: a person's word
for the run, else its workflow's, else the configuration's.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from pwf.budgets import Budget
from pwf.protocol.agents import AgentCommand
from pwf.store import place
from pwf.store.queries import load_queries
from pwf.store.state import Graph, RunState
from pwf.store.tx import Tx

Q = load_queries(__file__)

DAYS_KEPT_MS = 3 * 86_400_000  # a clock that is set back finds its day again
_decode = msgspec.json.Decoder(Budget).decode
_encode = msgspec.json.Encoder().encode


class Used(NamedTuple):
    tokens: int = 0
    cost_micros: int = 0
    active_ms: int = 0
    steps: int = 0


class _Said(NamedTuple):
    at_start: Budget = Budget()
    raised: Budget = Budget()
    over_day: bool = False


def said_at_start(tx: Tx, run_no: int, budget: Budget | None, parent: str | None) -> None:
    """Keep what a person said for a new run; or what they said for the one that it comes from."""
    if budget is not None:
        tx.run(Q.start, {"run_no": run_no, "budget": _encode(budget)})
    elif parent is not None:
        tx.run(Q.inherit, {"run_no": run_no, "parent": parent})


def say_more(tx: Tx, run: RunState, more: Budget) -> None:
    """So much more than it has used by now. It may go beyond the day's budget, too."""
    used, before = _used(tx, run), _said(tx, run).raised
    raised = Budget(
        tokens=None if more.tokens is None else used.tokens + more.tokens,
        money=None if more.money is None else used.cost_micros / 1e6 + more.money,
        minutes=None if more.minutes is None else used.active_ms / 60_000 + more.minutes,
        steps=None if more.steps is None else used.steps + more.steps,
    )
    tx.run(Q.say_more, {"run_no": run.run_no, "budget": _encode(raised.over(before))})


def why_spent(
    tx: Tx,
    run: RunState,
    graph: Graph,
    agent: AgentCommand,
    *,
    within: bool = False,
    ended_ms: int | None = None,
) -> str | None:
    """Which budget leaves nothing for the step at the position; None: there is some left.

    `within`: that step goes on, and may use all that there is, but no more. `ended_ms`: it ends now, after so long, and
    another one follows.
    """
    said = _said(tx, run)
    written = graph.graph.budget or Budget()
    budget = said.raised.over(said.at_start).over(written).over(agent.budget)
    if budget != Budget() and (what := _spent(budget, _used(tx, run, ended_ms), within)):
        return f"its agents have used {what}, their budget in this run"
    if said.over_day or agent.day_budget == Budget():
        return None
    what = _spent(agent.day_budget, used_today(tx, agent.name), within)
    return f"agent {agent.name!r} has used {what}, its budget of a day" if what else None


def hold_spent(tx: Tx, run: RunState, why: str) -> None:
    """The run waits for a person's word."""
    place.hold(tx, run, "budget", why)


def used_today(tx: Tx, agent: str) -> Used:
    """What all runs of an agent have used since midnight, by the daemon's local time."""
    row = tx.one(Q.day, {"agent_name": agent, "day": _day(tx.now.wall_ms)})
    return Used() if row is None else Used(*row)


def used_by_all(tx: Tx, agents: tuple[str, ...]) -> dict[str, Used]:
    """The same for each of them."""
    return {agent: used_today(tx, agent) for agent in agents}


def add_today(
    tx: Tx, agent: str, *, tokens: int = 0, cost_micros: int = 0, active_ms: int = 0, steps: int = 0
) -> None:
    """Count what was used now."""
    if not (tokens or cost_micros or active_ms or steps):
        return
    counts = {"tokens": tokens, "cost_micros": cost_micros, "active_ms": active_ms, "steps": steps}
    tx.run(Q.add, {"agent_name": agent, "day": _day(tx.now.wall_ms), **counts})
    if steps:
        tx.run(Q.forget, {"agent_name": agent, "day": _day(tx.now.wall_ms - DAYS_KEPT_MS)})


def _day(wall_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(max(0, wall_ms) / 1000))


def _said(tx: Tx, run: RunState) -> _Said:
    row = tx.one(Q.said, {"run_no": run.run_no})
    if row is None:
        return _Said()
    at_start, raised, over_day = row
    return _Said(_budget(at_start), _budget(raised), bool(over_day))


def _budget(said: bytes | None) -> Budget:
    return Budget() if said is None else _decode(said)


def _used(tx: Tx, run: RunState, ended_ms: int | None = None) -> Used:
    """By the run. The step at the position counts as none, unless it ends now."""
    row = tx.one(
        Q.used, {"run_no": run.run_no, "node": run.node, "visit": run.visit, "ends": ended_ms is not None}
    )
    assert row is not None
    tokens, cost_micros, active_ms, steps = row
    return Used(tokens, cost_micros, active_ms + (ended_ms or 0), steps)


def _spent(budget: Budget, used: Used, within: bool) -> str | None:
    """What of it is used up, in words."""
    amounts = (
        (budget.tokens, used.tokens, "{:,.0f} tokens of {:,}"),
        (budget.money, used.cost_micros / 1e6, "${:,.4f} of ${:,.2f}"),
        (budget.minutes, used.active_ms / 60_000, "{:,.1f} minutes of {:,g}"),
        (None if within else budget.steps, used.steps, "{:,} steps of {:,}"),
    )
    for limit, amount, words in amounts:
        if limit is not None and (amount > limit if within else amount >= limit):
            return words.format(amount, limit)
    return None
