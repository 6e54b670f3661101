"""What a step is told of a secret, and what of the run is kept without it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pwf.errors import Rejected, SecretMissing
from pwf.protocol.runner import Ask, Finish, Publish
from pwf.runner.engine import Engine
from pwf.workflow.decisions import Choice
from pwf.workflow.effects import idempotent, manual
from pwf.workflow.workflow import Workflow
from tests.runner import peer
from tests.runner.peer import memory_run, run_inline

CANARY = 'canary-\u00fc-"41'


def canary_flow() -> Workflow[Any]:
    return Workflow("w", secrets=["TOKEN"])


def run_with_secret(flow: Workflow[Any]) -> peer.MemoryRun:
    run = memory_run(flow)
    run.secrets["TOKEN"] = CANARY
    return run_inline(flow, run)


def test_a_step_gets_the_value_and_what_it_returns_is_kept_without_it() -> None:
    flow = canary_flow()
    seen: list[str] = []

    @flow.action(effect=idempotent("http"))
    def call(ctx: Any) -> dict[str, Any]:
        seen.append(ctx.secret("TOKEN"))
        ctx.publish("said", "a", {"token": seen[0]})
        return {"header": f"Bearer {seen[0]}", "length": len(seen[0])}

    @flow.checkpoint
    def ask(ctx: Any) -> str:
        return f"is {ctx[call]['header']} or {seen[0]} right?"

    flow.graph(call >> ask)
    run = run_with_secret(flow)
    assert seen == [CANARY]
    (published,) = (one for one in run.received if isinstance(one, Publish))
    (finish,) = (one for one in run.received if isinstance(one, Finish))
    (asked,) = (one for one in run.received if isinstance(one, Ask))
    assert bytes(published.data) == b'{"token":"***"}'
    assert finish.output is not None
    assert finish.output.json is not None
    assert bytes(finish.output.json) == b'{"header":"Bearer ***","length":12}'
    assert asked.prompt.json is not None
    assert bytes(asked.prompt.json) == b'"is Bearer *** or *** right?"'


def test_an_error_and_a_reference_are_kept_without_it() -> None:
    flow = canary_flow()

    @flow.action(effect=manual("http"))
    def call(ctx: Any) -> None:
        raise RuntimeError(f"401 for {ctx.secret('TOKEN')}")

    (finish,) = (one for one in run_with_secret(flow).received if isinstance(one, Finish))
    assert finish.error is not None
    assert finish.error.message == "401 for ***"
    assert CANARY not in finish.error.traceback


def test_one_that_the_workflow_does_not_declare_is_refused() -> None:
    flow = canary_flow()
    refused: list[BaseException] = []

    @flow.compute
    def look(ctx: Any) -> None:
        with pytest.raises(Rejected, match="does not declare the secret 'OTHER'") as caught:
            ctx.secret("OTHER")
        refused.append(caught.value)

    run_with_secret(flow)
    assert len(refused) == 1


def test_one_that_can_not_be_had_fails_the_step_with_what_the_daemon_says() -> None:
    flow = canary_flow()

    @flow.compute
    def look(ctx: Any) -> None:
        with pytest.raises(SecretMissing, match="there is no TOKEN"):
            ctx.secret("TOKEN")
        ctx.secret("TOKEN")

    run = run_inline(flow, memory_run(flow))
    (finish,) = (one for one in run.received if isinstance(one, Finish))
    assert finish.outcome == "failed"
    assert finish.error is not None
    assert "there is no TOKEN" in finish.error.message


def test_a_process_that_was_told_a_secret_takes_no_further_run(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = canary_flow()
    engines: list[Engine] = []

    @flow.compute
    def look(ctx: Any) -> int:
        return len(ctx.secret("TOKEN")) + os.getpid() * 0

    def made(*of: Any) -> Engine:
        engines.append(Engine(*of))
        return engines[-1]

    monkeypatch.setattr(peer, "Engine", made)
    run_with_secret(flow)
    assert engines[0].stained == "it was told a secret"


def test_what_a_decision_is_about_is_kept_without_it() -> None:
    flow = canary_flow()

    @flow.decision(audience="operator", choices=[Choice("go", "Go")], timeout=None)
    def approve(ctx: Any) -> Any:
        return ctx.present(summary=ctx.secret("TOKEN"), subject={"token": ctx.secret("TOKEN")})

    (asked,) = (one for one in run_with_secret(flow).received if isinstance(one, Ask))
    assert asked.subject is not None
    assert asked.subject.json is not None
    assert bytes(asked.subject.json) == b'{"token":"***"}'
    assert asked.prompt.json is not None
    assert b"canary" not in bytes(asked.prompt.json)
