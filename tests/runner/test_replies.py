"""Assistant replies: what an agent says is the output of the node, as it stands."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import pytest

from pwf import GraphError, Workflow, assistant_message
from pwf.protocol.agents import AgentCommand
from pwf.protocol.runner import Finish
from pwf.testing import run
from tests.runner.peer import memory_run, run_inline

SAYS = (sys.executable, "-c", "import sys; print(eval(sys.stdin.readline()))")


def tells(says: str, **options: Any) -> Finish:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=assistant_message(max_chars=20), **options)
    def tell(ctx: Any) -> str:
        return says

    configured = AgentCommand(name="coder", command=SAYS)
    finish: Finish = run_inline(flow, memory_run(flow, agent=configured, root=os.getcwd())).last
    return finish


def output(finish: Finish) -> object:
    assert finish.output is not None, finish.error
    return msgspec.json.decode(finish.output.json or b"")


@pytest.mark.parametrize("said", ["It is out.", "42", "```\n{}\n```", '"quoted"'])
def test_what_a_headless_agent_says_is_the_output_whatever_it_looks_like(said: str) -> None:
    assert output(tells(repr(f"\n{said}\n"))) == said


def test_a_reply_is_not_told_of_json_and_is_judged_and_bounded() -> None:
    assert output(tells("sys.stdin.read() or 'nothing'")) == "nothing"
    too_long = tells("'x' * 21")
    assert too_long.error is not None
    assert "20" in too_long.error.message
    empty = tells("''")
    assert empty.error is not None
    assert empty.error.code == "missing_submission"
    judged = tells("'no'", validate=lambda ctx, value: "say yes" if value == "no" else None)
    assert judged.error is not None
    assert "say yes" in judged.error.message


def test_without_an_agent_of_its_own_the_run_takes_a_text_and_nothing_else() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=assistant_message())
    def tell(ctx: Any) -> str:
        return "Tell it."

    assert run(flow, answers={"tell": "It is out."}).output == "It is out."
    with pytest.raises(Exception, match="tell"):
        run(flow, answers={"tell": {"text": "It is out."}})


def test_a_limit_that_is_none_is_refused_where_it_stands() -> None:
    with pytest.raises(GraphError, match="max_chars=0"):
        assistant_message(0)
