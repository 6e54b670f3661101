"""Views and results to script a fake daemon with."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from pwf.protocol import resources
from pwf.protocol.decision_spec import ChoiceSpec, TextSpec
from pwf.protocol.decisions import DecisionView
from pwf.protocol.graph import Case, EffectSpec, NodeSpec, Way, WorkflowGraph
from pwf.protocol.notices import NoticeView
from pwf.protocol.operations import DaemonStatus, RunStarted, StateStatus, Submitted, WorkflowDescription
from pwf.protocol.runner import Value
from pwf.protocol.views import EffectView, EventView, Explanation, RequestView, RunSummary, RunView, StepView

RUN = "k3v9x2m4p7qa"
NOW = int(time.time() * 1000)


def value(data: Any) -> Value:
    raw = msgspec.json.encode(data)
    return Value(json=msgspec.Raw(raw), size=len(raw))


def graph() -> WorkflowGraph:
    """collect -> review (switch: ship, back to collect) ; collect fails -> apologise."""
    return WorkflowGraph(
        name="release",
        start="collect",
        file="/p/.pwf/workflows/release.py",
        nodes=(
            NodeSpec(
                id="collect",
                kind="shell",
                effect=EffectSpec(mode="idempotent", type="read"),
                ways=(
                    Way(outcome="completed", target="review"),
                    Way(outcome="failed", target="apologise"),
                ),
            ),
            NodeSpec(
                id="review",
                kind="checkpoint",
                ways=(
                    Way(
                        outcome="completed",
                        on="verdict",
                        cases=(Case(value="ship", target="ship"), Case(value="again", target="collect")),
                    ),
                ),
            ),
            NodeSpec(id="ship", kind="action", effect=EffectSpec(mode="manual", type="deploy")),
            NodeSpec(id="apologise", kind="compute"),
        ),
    )


def summary(**changes: Any) -> RunSummary:
    facts: dict[str, Any] = {
        "run_id": RUN,
        "workflow": "release",
        "title": "release 1.2",
        "status": "running",
        "revision": 3,
        "generation": 1,
        "node": "collect",
        "created_ms": NOW - 5_000,
        "started_ms": NOW - 4_000,
        "steps": 1,
    }
    return RunSummary(**{**facts, **changes})


def step(node: str, attempt: int = 1, **changes: Any) -> StepView:
    facts: dict[str, Any] = {
        "attempt": attempt,
        "node": node,
        "visit": 1,
        "tries": 1,
        "kind": "shell",
        "status": "completed",
        "generation": 1,
        "started_ms": NOW - 4_000,
        "ended_ms": NOW - 3_000,
        "summary": '{"exit_code":0}',
    }
    return StepView(**{**facts, **changes})


def effect(**changes: Any) -> EffectView:
    """The deployment of `ship`, of which nobody knows."""
    facts: dict[str, Any] = {
        "effect_key": "k:ship:2",
        "run_id": RUN,
        "node": "ship",
        "visit": 1,
        "type": "deploy",
        "mode": "manual",
        "status": "ambiguous",
        "attempts": 1,
    }
    return EffectView(**(facts | changes))


def state_status(**changes: Any) -> StateStatus:
    facts: dict[str, Any] = {
        "database": "/h/pwf.db",
        "schema": 1,
        "home_id": "h1",
        "page_bytes": 4096,
        "file_bytes": 8192,
        "wal_bytes": 0,
        "free_bytes": 0,
        "rows": {},
        "settings": {},
        "sqlite": "3.50",
    }
    return StateStatus(**(facts | changes))


def request(**changes: Any) -> RequestView:
    facts: dict[str, Any] = {
        "request_id": "q1w2e3r4t5y6",
        "run_id": RUN,
        "workflow": "release",
        "node": "review",
        "kind": "checkpoint",
        "status": "pending",
        "prompt": value("Ship it?"),
        "created_ms": NOW - 1_000,
    }
    return RequestView(**{**facts, **changes})


def notice(**changes: Any) -> NoticeView:
    facts: dict[str, Any] = {
        "run_id": RUN,
        "workflow": "release",
        "node": "tell",
        "visit": 1,
        "attempt": 2,
        "kind": "final",
        "text": "Version 3 is out.",
        "at_ms": NOW - 60_000,
    }
    return NoticeView(**{**facts, **changes})


def decision(**changes: Any) -> DecisionView:
    facts: dict[str, Any] = {
        "request": request(
            kind="decision", prompt=value({"title": "review", "summary": "Ship it?", "blocks": []})
        ),
        "title": "review",
        "audience": "operator",
        "choices": (
            ChoiceSpec(id="ship", label="Ship it"),
            ChoiceSpec(id="fix", label="Fix first", text=TextSpec(label="What must change?")),
        ),
        "digest": "d" * 64,
        "visit": 1,
    }
    return DecisionView(**{**facts, **changes})


def explanation(code: str = "executing") -> Explanation:
    return Explanation(
        code=code,
        reason="node 'collect' is running",
        changes_when="the step ends",
        commands=(f"pwf cancel {RUN}",),
    )


def run_view(**changes: Any) -> RunView:
    head = changes.pop("summary", None) or summary()
    facts: dict[str, Any] = {
        "summary": head,
        "explanation": explanation(),
        "graph": graph(),
        "root": "/p",
        "input": value({"version": "1.2"}),
        "steps": (step("collect", status="active", ended_ms=None, summary=""),),
        "steps_total": 1,
        "controls": ("pause", "cancel"),
        "interpreter": "/p/.venv/bin/python",
        "python": "3.11.7",
        "pwf": "0.1.0",
    }
    return RunView(**{**facts, **changes})


def event(**changes: Any) -> EventView:
    facts: dict[str, Any] = {"revision": 1, "kind": "started", "actor": "client", "generation": 0, "at_ms": 1}
    return EventView(**{**facts, "payload": msgspec.Raw(b"{}"), **changes})


def resource_summary(state: Any = "settled", **changes: Any) -> resources.ResourceSummary:
    facts: dict[str, Any] = {"uid": "u1", "manager": "disk", "key": "a", "root": "/p", "state": state}
    facts |= {"resource_version": 7, "generation": 2, "observed_generation": 2, "ready": "True"}
    return resources.ResourceSummary(**{**facts, "created_ms": NOW - 60_000, **changes})


def resource_view(**changes: Any) -> resources.ResourceView:
    facts: dict[str, Any] = {
        "summary": resource_summary(),
        "explanation": explanation(),
        "spec": value({"size": 3}),
        "status": value({"made": 1}),
        "conditions": (
            resources.Condition(type="Ready", status="True", reason="InSync", message="all there"),
        ),
        "finalizers": ("disk",),
        "children": (
            resources.ChildView(request_key="build-1", run_id="r1", workflow="build", status="running"),
        ),
        "reconciles": 4,
        "path": "/p/.pwf/resources/disk.py",
    }
    return resources.ResourceView(**{**facts, **changes})


def applied(change: resources.Change = "changed", **changes: Any) -> resources.Applied:
    facts: dict[str, Any] = {"uid": "u1", "manager": "disk", "key": "a", "root": "/p", "state": "queued"}
    return resources.Applied(**{**facts, "change": change, "resource_version": 8, "generation": 3, **changes})


def resource_changed(**changes: Any) -> resources.ResourceChanged:
    facts: dict[str, Any] = {"uid": "u1", "manager": "disk", "key": "a", "state": "queued"}
    return resources.ResourceChanged(**{**facts, "resource_version": 8, "generation": 3, **changes})


def started(**changes: Any) -> RunStarted:
    facts: dict[str, Any] = {"run_id": RUN, "status": "queued", "revision": 1}
    return RunStarted(**{**facts, **changes})


def submitted(**changes: Any) -> Submitted:
    facts: dict[str, Any] = {"request_id": "q1", "run_id": RUN, "status": "queued", "revision": 4}
    return Submitted(**{**facts, **changes})


def described(**changes: Any) -> WorkflowDescription:
    """`changes` are of the graph."""
    return WorkflowDescription(
        graph=msgspec.structs.replace(graph(), **changes),
        root="/p",
        path="/p/release.py",
        definition_id="d" * 64,
        interpreter="/py",
        sources=("/p/release.py",),
        warnings=("/p/release.py:3: reads other.txt as it is",),
    )


def status(**changes: Any) -> DaemonStatus:
    facts: dict[str, Any] = {
        "state": "serving",
        "version": "0.1.0",
        "pid": 4242,
        "epoch": 3,
        "home": "/h",
        "socket": "/h/pwf.sock",
        "started_ms": NOW - 3_600_000,
        "renewed_ms": NOW - 2_000,
        "lease_left_ms": 28_000,
        "clients": 1,
        "runs": {"running": 1, "completed": 12},
        "held": {"paused": 1},
        "requests_open": 1,
        "request_oldest_ms": 60_000,
        "runners": 1,
        "capacity": 4,
        "store_bytes": 4_096_000,
    }
    return DaemonStatus(**{**facts, **changes})
