"""A step of an agent that works by itself: the conversation, and the judgement of what it gives.

Promises: only what fits the node's type, and what its `validate=` accepts, is the output; the agent is told what to
correct, at most `REJECTIONS_MAX` times. How an agent is spoken to is its adapter's (`Agent`, one file each). A further
adapter is such a file, a row in `ADAPTERS`, its name in `pwf/config.py` and `pwf/protocol/agents.py`, and a row in
`PLAYED` of the conformance suite (`tests/runner/test_agent_adapters.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pwf.errors import PwfError
from pwf.protocol.agents import AgentCommand, Limited
from pwf.protocol.kinds import KINDS
from pwf.runner.base.failure import plain_error
from pwf.runner.base.judging import judge
from pwf.runner.base.steps import Ended, Step, StepTimedOut, timed_out
from pwf.runner.kinds.agent_exec import ExecAgent
from pwf.runner.kinds.agent_pi import PiAgent
from pwf.runner.kinds.agent_port import Agent, AgentFailed, AgentLimited, Told
from pwf.values import canonical, parse
from pwf.workflow.schema import first_fault

REJECTIONS_MAX = 2  # each is the conversation's next prompt
ANSWER_SHOWN = 4_000  # characters of an answer that is given back
ANSWER_END = 1_000  # of the last one, in the error
INTERRUPTED = "This conversation was interrupted. Go on from where it was. The task was:"
_FENCE = "```"


class Adapter(Protocol):
    """How an agent is made for a step."""

    def __call__(self, configured: AgentCommand, step: Step, told: Told) -> Agent: ...


def _acp(configured: AgentCommand, step: Step, told: Told) -> Agent:
    from pwf.runner.kinds.agent_acp import AcpAgent  # with asyncio, which the other adapters do without

    return AcpAgent(configured, step, told)


ADAPTERS: Mapping[str, Adapter] = {"exec": ExecAgent, "acp": _acp, "pi-rpc": PiAgent}


def converse(step: Step, configured: AgentCommand, prompt: bytes) -> Ended:
    """Have the prompt (JSON text) answered. The first answer that is accepted is the output."""
    if not configured.command:
        name = configured.name
        message = f"no agent {name!r} is configured any more: add [agents.{name}] to the configuration"
        return _failed(step, "agent_missing", message)
    agent = ADAPTERS[configured.adapter](configured, step, Told(configured, step))
    at_once = True
    try:
        ended = _answered(step, agent, configured, str(msgspec.json.decode(prompt)))
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


def _answered(step: Step, agent: Agent, configured: AgentCommand, task: str) -> Ended:
    form = _form(step)
    said = f"{task}{form}"
    if agent.remembers and step.conversation is not None:
        said = f"{INTERRUPTED}\n\n{said}"
    answer = why_not = ""
    for _ in range(REJECTIONS_MAX + 1):
        if step.remaining_s <= 0:  # no agent begins to act only to be killed
            raise StepTimedOut
        answer = agent.ask(said)
        output, why_not = _judged(step, answer)
        if output is not None:
            return Ended(outcome="completed", output=output)
        before = "" if agent.remembers else f"{task}\n\nYou have answered:\n{_cut(answer)}\n\n"
        said = f"{before}That was not accepted: {why_not}{form}"
    nothing = _value_of(step, answer) is None
    code = "missing_submission" if nothing else "submission_rejected"
    told = f"nothing that agent {configured.name!r} gave was accepted; the last of {REJECTIONS_MAX + 1}: {why_not}"
    return _failed(step, code, f"{told}\nthe end of its answer:\n{answer[-ANSWER_END:]}")


def _form(step: Step) -> str:
    """What is said of the answer after each prompt."""
    if KINDS[step.node.kind].verbatim:
        return ""
    schema = msgspec.json.encode(step.node.spec.returns).decode()
    return f"\n\nAnswer with one JSON value that fits this JSON Schema, and with nothing else:\n{schema}"


def _judged(step: Step, answer: str) -> tuple[bytes | None, str]:
    """The output, or why there is none."""
    text = _value_of(step, answer)
    if text is None:
        return None, "it is no JSON value" if answer.strip() else "it is empty"
    try:
        data = canonical(parse(text), limit=step.launch.value_bytes_max, what="the answer")
    except PwfError as error:
        return None, error.message
    if step.node.spec.returns is not None:
        fault = first_fault(step.node.spec.returns, data)
        if fault is not None:
            return None, f"it does not fit: {fault}"
    if step.node.validate is not None:
        verdict = judge(step, data)
        if not verdict.accepted:
            return None, verdict.reason
    return data, ""


def _value_of(step: Step, answer: str) -> str | None:
    """The JSON text of an answer: all of it, or its only fenced block; of a reply, the reply as a text."""
    if KINDS[step.node.kind].verbatim:
        reply = answer.strip()
        return msgspec.json.encode(reply).decode() if reply else None
    return next((text for text in (answer.strip(), _fenced(answer)) if _is_json(text)), None)


def _fenced(answer: str) -> str:
    """What its only fenced block has; empty where there is none. One pass, whatever the text is."""
    parts = answer.split(_FENCE, 3)
    if len(parts) != 3:
        return ""
    language, _, text = parts[1].partition("\n")
    return text.strip() if language.strip() in ("", "json") else ""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _cut(answer: str) -> str:
    return answer if len(answer) <= ANSWER_SHOWN else answer[:ANSWER_SHOWN] + " […]"


def _failed(step: Step, code: str, message: str) -> Ended:
    return Ended(outcome="failed", error=plain_error(code, message, step.node.id))
