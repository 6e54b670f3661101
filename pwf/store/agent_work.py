"""What agents report of their work: the conversation that a later attempt continues, and what they have used.

Promises: a report is stored before the run goes on, and counted once: it says the sums of its attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pwf.protocol.agents import AgentCommand
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import AgentReport
from pwf.protocol.views import AgentUsage, AgentWork, StepView
from pwf.store.budgets import add_today
from pwf.store.queries import load_queries
from pwf.store.state import RunState
from pwf.store.tx import Tx

Q = load_queries(__file__)


def agent_of(run: RunState, agents: Mapping[str, AgentCommand]) -> AgentCommand | None:
    """The run's own, as it is configured now; None: it has none."""
    return None if run.agent is None else agents.get(run.agent, AgentCommand(name=run.agent))


def begin_work(tx: Tx, run: RunState) -> None:
    """An attempt of the run's agent begins."""
    assert run.agent is not None
    tx.run(Q.begin_work, {"run_no": run.run_no, "attempt": run.attempts, "agent_name": run.agent})
    add_today(tx, run.agent, steps=int(run.tries == 1))


def put_work(tx: Tx, run_no: int, report: AgentReport) -> None:
    """Store a report of the runner that owns the run. One of an attempt that is over is left out."""
    which = {"run_no": run_no, "attempt": report.attempt}
    tokens, cost = tx.one(Q.reported, which) or (0, 0)
    stored = tx.run(
        Q.put_work,
        {
            "run_no": run_no,
            "attempt": report.attempt,
            "agent_name": report.agent,
            "conversation": report.conversation,
            "afresh": report.afresh,
            "input_tokens": report.input_tokens,
            "output_tokens": report.output_tokens,
            "cost_micros": report.cost_micros,
        },
    )
    if stored:
        now_tokens, now_cost = tx.one(Q.reported, which) or (0, 0)
        add_today(tx, report.agent, tokens=now_tokens - tokens, cost_micros=now_cost - cost)


def conversation_of(tx: Tx, run: RunState) -> tuple[str | None, int]:
    """The conversation that the attempt at the position is to continue, and what it has cost, in millionths."""
    if run.agent is None or run.tries <= 1:
        return None, 0
    which = {"run_no": run.run_no, "agent_name": run.agent, "node": run.node, "visit": run.visit}
    return tx.one(Q.conversation, which) or (None, 0)


def usage_of(tx: Tx, run_no: int) -> AgentUsage | None:
    """What a run's agents have used; None where none has said."""
    row = tx.one(Q.sums, {"run_no": run_no})
    if row is None or row[0] is None:
        return None
    return AgentUsage(input_tokens=row[0], output_tokens=row[1], cost_micros=row[2])


def with_work(tx: Tx, run_no: int, steps: tuple[StepView, ...]) -> tuple[StepView, ...]:
    """A page of attempts with what was reported of each."""
    if not any(KINDS[step.kind].headless for step in steps):
        return steps
    which = {"run_no": run_no, "first": steps[0].attempt, "last": steps[-1].attempt}
    works = {row[0]: _work(*row[1:]) for row in tx.all(Q.works, which)}
    return tuple(
        msgspec.structs.replace(step, work=works[step.attempt]) if step.attempt in works else step
        for step in steps
    )


def _work(
    agent: str, conversation: str | None, afresh: str | None, input_tokens: int, output_tokens: int, cost: int
) -> AgentWork:
    used = AgentUsage(input_tokens=input_tokens, output_tokens=output_tokens, cost_micros=cost)
    return AgentWork(agent=agent, conversation=conversation, afresh=afresh, used=used)
