"""Walks a workflow in this process, without daemon or runner: to show that examples do what they say.

It keeps the rules that an author relies on (types of outputs, routes, retries, `NotApplied`, `observe`) and nothing
of durability. Waits are not waited for; checkpoints take their answers from a list.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import trio

from pwf.protocol.graph import route
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import PastStep, StepError, Value
from pwf.workflow.nodes import NodeDef
from pwf.workflow.shell import Captured
from pwf.workflow.timing import due_of
from pwf.workflow.workflow import Workflow
from tests.workflow.author import context


@dataclass
class Walked:
    """What happened: (node, outcome) in order, the last output or error, prompts and updates."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    output: Any = None
    error: str = ""
    prompts: list[Any] = field(default_factory=list)
    updates: list[tuple[str, str, Any]] = field(default_factory=list)
    waited: list[timedelta] = field(default_factory=list)


def walk(flow: Workflow[Any], input: object = None, answers: tuple[Any, ...] = ()) -> Walked:
    """Run from the start to the end of the run."""
    graph, walked = flow.to_graph(), Walked()
    past: dict[str, PastStep] = {}
    waiting = list(answers)
    at: str | None = graph.start
    while at is not None:
        assert len(walked.steps) < graph.max_steps
        node = flow.nodes[at]
        tries = 1 + (node.retry.times if node.retry is not None else 0)
        for _ in range(tries):
            outcome, data, error = _attempt(flow, node, input, past, waiting, walked)
            walked.steps.append((node.id, outcome))
            if outcome == "completed":
                break
        visit = _visit(past, node.id)
        past.pop(node.id, None)
        past[node.id] = PastStep(
            node=node.id,
            visit=visit,
            outcome=outcome,  # type: ignore[arg-type]  # one of two
            output=Value(json=msgspec.Raw(data)) if outcome == "completed" else None,
            error=None if outcome == "completed" else StepError(code="node_failed", message=error),
        )
        walked.output, walked.error = (msgspec.json.decode(data) if data else None), error
        at = route(node.spec, outcome, walked.output)
    return walked


def _visit(past: dict[str, PastStep], node: str) -> int:
    return past[node].visit + 1 if node in past else 1


def _attempt(
    flow: Workflow[Any],
    node: NodeDef,
    input: object,
    past: dict[str, PastStep],
    answers: list[Any],
    walked: Walked,
) -> tuple[str, bytes, str]:
    def publish(type: str, key: str, data: bytes) -> None:
        walked.updates.append((type, key, msgspec.json.decode(data)))

    def make_effect(key: str, request: object, *, apply: Any, **_: Any) -> Any:
        return apply(request, f"run1:{node.id}:1/{key}")

    ctx = context(
        flow,
        node.id,
        input=input,
        past=tuple(past.values()),
        visit=_visit(past, node.id),
        effect_key=f"run1:{node.id}:1",
        publish=publish if node.effect is not None else None,
        make_effect=make_effect if node.effect is not None and node.effect.mode == "parts" else None,
        settings=_settings(flow),
    )
    try:
        value = trio.run(node.fn, ctx) if node.is_async else node.fn(ctx)
        if node.kind == "wait":
            due = due_of(value, node.id)
            walked.waited.append(timedelta(milliseconds=due.delay_ms or 0))
            return "completed", node.output_bytes({"due_ms": due.wall_ms or 0}), ""
        if KINDS[node.kind].asks is not None:
            walked.prompts.append(value)
            return "completed", node.output_bytes(answers.pop(0)), ""
        if node.shell is not None:
            value = _run(node, ctx, value)
        return "completed", node.output_bytes(value), ""
    except Exception as error:  # noqa: BLE001 - user code
        return "failed", b"", str(error)


def _settings(flow: Workflow[Any]) -> tuple[Any, bytes] | None:
    declared, spec = flow.declared_settings, flow.to_graph().settings
    return None if declared is None or spec is None else (declared.decoded_type, spec.initial.encode())


def _run(node: NodeDef, ctx: Any, command: object) -> object:
    assert node.shell is not None
    done = subprocess.run(
        node.shell.argv(command),
        cwd=node.shell.folder(ctx),
        input=node.shell.input_bytes(ctx) or b"",
        env={"PATH": "/usr/bin:/bin", **node.shell.variables(ctx)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
        for line in data.decode(errors="replace").splitlines():
            update = node.shell.update(ctx, line, name)
            if update is not None:
                ctx.publish(update.type, update.key, update.data)
    if done.returncode not in node.shell.ok_exit_codes:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.decode(errors='replace')}")
    return node.shell.result(done.returncode, Captured.of(done.stdout), Captured.of(done.stderr))
