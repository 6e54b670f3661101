"""What --json prints is what docs/operations.md says: the struct that is named there, or the keys that are listed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.protocol import effects, operations, views
from pwf.protocol.operations import (
    Answered,
    Explained,
    PruneResult,
    RequestList,
    RunChanged,
    RunList,
    Submitted,
    VerifyResult,
    WaitResult,
    WorkflowLine,
    WorkflowList,
)
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

TEXT = (Path(__file__).parents[2] / "docs/operations.md").read_text("utf-8")
TABLE = TEXT[TEXT.index("### JSON") : TEXT.index("These print more than one line")]
ROWS = re.findall(r"^\| `([^`]+)` \| `(\w+|\{[^`]+\})`(.*) \|$", TABLE, re.M)
TYPED = {"RUN": "k3", "NODE": "collect", "REQUEST": "q1", "JSON": "1", "WORKFLOW": "release", "FILE": "x.py"}


@pytest.fixture
def answering(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon that answers every operation of the table."""
    summary = samples.summary()
    answers: dict[str, Any] = {
        "run.list": RunList(runs=(summary,)),
        "run.view": samples.run_view(),
        "run.status": Explained(summary=summary, explanation=samples.explanation()),
        "run.wait": WaitResult(summary=summary, done=True),
        "run.pause": RunChanged(run_id="k3", status="paused", revision=4),
        "run.restart": samples.started(),
        "request.list": RequestList(requests=(samples.request(),)),
        "request.answer": Answered(request_id="q1", run_id="k3", status="queued", revision=4),
        "request.submit": Submitted(request_id="q1", run_id="k3", status="queued", revision=4),
        "effect.list": effects.EffectList(effects=()),
        "workflow.list": WorkflowList(
            root="/p", workflows=(WorkflowLine(name="a", path="/p/a", scope="project"),)
        ),
        "workflow.describe": samples.described(),
        "daemon.status": samples.status(),
        "state.status": samples.state_status(),
        "state.verify": VerifyResult(violations=(), checked={}),
        "state.prune": PruneResult(before_ms=1),
    }
    for operation, result in answers.items():
        daemon.on(operation, lambda request, payload, result=result: result)
    return daemon


@pytest.mark.parametrize(("command", "what", "more"), ROWS, ids=[row[0] for row in ROWS])
def test_json_is_what_the_documentation_says(
    pwf: Pwf, answering: FakeDaemon, command: str, what: str, more: str
) -> None:
    printed = pwf(*(TYPED.get(word, word) for word in command.split()), "--json").out
    assert printed.count("\n") == 1
    found = json.loads(printed)
    if '"adopted"' in more:
        assert found.pop("adopted") in (True, False)
    if what.startswith("{"):
        assert set(found) == set(re.findall(r'"(\w+)"', what))
        inner = re.findall(r'"(\w+)"', more)
        if inner:
            assert all(set(inner) <= set(item) for values in found.values() for item in values)
        return
    struct = next(getattr(module, what) for module in (operations, views, effects) if hasattr(module, what))
    msgspec.json.decode(json.dumps(found), type=struct)


def test_the_table_has_every_command_that_prints_one_object() -> None:
    assert len(ROWS) >= 18
