"""A step of an agent that works by itself: the conversation, and the judgement of what it gives.

Promises: only what `Submissions` accepts is the output, and it stays the output whatever becomes of the agent then; the
agent is told what to correct. It hands its result in by a tool (`Tool`) where it can; else its last answer is taken.

How an agent is spoken to is its adapter's (`Agent`, one file each). A further
adapter is such a file, a row in `ADAPTERS`, its name in `pwf/config.py` and `pwf/protocol/agents.py`, and a row in
`PLAYED` of the conformance suite (`tests/runner/test_agent_adapters.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pwf.protocol.agents import AgentCommand, Limited
from pwf.runner.base.failure import plain_error
from pwf.runner.base.steps import Ended, Step, StepTimedOut, timed_out
from pwf.runner.kinds.agent_exec import ExecAgent
from pwf.runner.kinds.agent_pi import PiAgent
from pwf.runner.kinds.agent_port import Agent, AgentFailed, AgentLimited, Told
from pwf.runner.kinds.agent_tool import Tool
from pwf.runner.kinds.submissions import REJECTIONS_MAX, Submissions, is_verbatim

ANSWER_SHOWN = 4_000  # characters of an answer that is given back
ANSWER_END = 1_000  # of the last one, in the error
INTERRUPTED = "This conversation was interrupted. Go on from where it was. The task was:"


class Adapter(Protocol):
    """How an agent is made for a step."""

    def __call__(self, configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> Agent: ...


def _acp(configured: AgentCommand, step: Step, told: Told, tool: Tool | None) -> Agent:
    from pwf.runner.kinds.agent_acp import AcpAgent  # with asyncio, which the other adapters do without

    return AcpAgent(configured, step, told, tool)


ADAPTERS: Mapping[str, Adapter] = {"exec": ExecAgent, "acp": _acp, "pi-rpc": PiAgent}


def converse(step: Step, configured: AgentCommand, prompt: bytes) -> Ended:
    """Have the prompt (JSON text) answered. The first result that is accepted is the output."""
    if not configured.command:
        name = configured.name
        message = f"no agent {name!r} is configured any more: add [agents.{name}] to the configuration"
        return _failed(step, "agent_missing", message)
    given = Submissions(step)
    tool = _tool(step, given)
    try:
        ended = _conversed(step, configured, str(msgspec.json.decode(prompt)), given, tool)
    finally:
        if tool is not None:
            tool.close()
    return ended if given.accepted is None else Ended(outcome="completed", output=given.accepted)


def _tool(step: Step, given: Submissions) -> Tool | None:
    """None for a reply, which is what the agent says, and where no socket can be had: the last answer counts then."""
    if is_verbatim(step):
        return None
    try:
        return Tool(given.by_tool, _schema(step), step.launch.value_bytes_max)
    except OSError:
        return None


def _conversed(
    step: Step, configured: AgentCommand, task: str, given: Submissions, tool: Tool | None
) -> Ended:
    agent = ADAPTERS[configured.adapter](configured, step, Told(configured, step), tool)
    at_once = True
    try:
        ended = _answered(step, agent, configured, task, given)
        at_once = False
    except AgentLimited as met:
        limited = Limited(
            account=configured.account_name, on_limit=configured.on_limit, until_wall_ms=met.until_ms
        )
        ended = Ended(outcome="failed", error=plain_error("limited", str(met), step.node.id), limited=limited)
    except AgentFailed as failure:
        ended = _failed(step, "agent_failed", str(failure))
    except StepTimedOut as late:
        agent.end(at_once=True)  # with the time that it is given to end
        ended = timed_out(step, late)
    finally:
        agent.end(at_once=at_once)
    return ended


def _answered(step: Step, agent: Agent, configured: AgentCommand, task: str, given: Submissions) -> Ended:
    form = _form(step, agent)
    said = f"{task}{form}"
    if agent.remembers and step.conversation is not None:
        said = f"{INTERRUPTED}\n\n{said}"
    answer = ""
    for _ in range(REJECTIONS_MAX + 1):
        if step.remaining_s <= 0:  # no agent begins to act only to be killed
            raise StepTimedOut
        given.begin_turn()
        answer = agent.ask(said)
        given.by_answer(answer)
        if given.accepted is not None:
            return Ended(outcome="completed", output=given.accepted)
        if given.is_closed:
            break
        before = "" if agent.remembers else f"{task}\n\nYou have answered:\n{_cut(answer)}\n\n"
        said = f"{before}That was not accepted: {given.why_not}{form}"
    code = "missing_submission" if given.is_missing else "submission_rejected"
    told = f"nothing that agent {configured.name!r} gave was accepted; the last of {given.rejected}: {given.why_not}"
    return _failed(step, code, f"{told}\nthe end of its answer:\n{answer[-ANSWER_END:]}")


def _schema(step: Step) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(step.node.spec.returns))


def _form(step: Step, agent: Agent) -> str:
    """What is said of the answer after each prompt."""
    if is_verbatim(step):
        return ""
    schema = bytes(_schema(step)).decode()
    wanted = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{schema}"
    return f"\n\n{wanted}\n\n{agent.hands_in}" if agent.hands_in else f"\n\n{wanted}"


def _cut(answer: str) -> str:
    return answer if len(answer) <= ANSWER_SHOWN else answer[:ANSWER_SHOWN] + " […]"


def _failed(step: Step, code: str, message: str) -> Ended:
    return Ended(outcome="failed", error=plain_error(code, message, step.node.id))
