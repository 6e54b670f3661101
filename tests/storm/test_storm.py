"""A short storm with a fresh seed, and the audit itself: it must be able to fail. `make storm` is the long one."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.runner import Value
from pwf.protocol.views import EffectView, Explanation, RunSummary, RunView
from tests.storm import plan
from tests.storm.audit import Findings, _audit_effect
from tests.storm.sink import Ledger, Outside
from tests.storm.storm import storm

KILLING_S = 10.0


@pytest.mark.rest
def test_after_kills_at_random_instants_every_run_has_ended_and_every_effect_count_is_legal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        print(f"\n  python -m tests.storm --seconds {KILLING_S:g} --seed {seed} --pause 0.15", end=" ")
    result = storm(tmp_path, seed=seed, seconds=KILLING_S, pause_s=0.15, runners=6, say=print)
    assert result.findings.faults == []
    assert result.findings.reasons == Counter()
    assert sum(result.findings.runs.values()) >= 10
    assert sum(result.kills.values()) >= 10


def test_the_same_seed_plans_the_same_storm() -> None:
    def first(seed: int) -> list[object]:
        runs, kills = plan.runs(seed), plan.kills(seed, 0.2)
        return [*(next(runs) for _ in range(50)), *(next(kills) for _ in range(50))]

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_a_fenced_attempt_is_refused_and_a_later_one_is_not() -> None:
    ledger = Ledger()
    assert ledger.look("k", 2) == 0
    assert not ledger.apply("k", 1)
    assert ledger.apply("k", 2)
    assert ledger.look("k", 3) == 1


RUN = RunView(
    summary=RunSummary(run_id="r", workflow="w", status="completed", revision=1, generation=1, created_ms=0),
    explanation=Explanation(code="ended", reason="", changes_when=""),
    graph=WorkflowGraph(name="w", start="a", nodes=()),
    root="",
    input=Value(),
)


@pytest.mark.parametrize(
    ("mode", "status", "attempts", "happened", "legal"),
    [
        ("idempotent", "applied", 1, 1, True),
        ("idempotent", "applied", 3, 2, True),
        ("idempotent", "applied", 1, 0, False),
        ("idempotent", "applied", 1, 2, False),
        ("idempotent", "failed", 2, 0, True),
        ("manual", "applied", 2, 1, True),
        ("manual", "applied", 2, 2, False),
        ("manual", "applied", 1, 0, False),
        ("manual", "rejected", 1, 1, False),
        ("manual", "ambiguous", 1, 1, False),  # its run has ended as completed
    ],
)
def test_the_audit_knows_a_legal_count(
    tmp_path: Path, mode: str, status: str, attempts: int, happened: int, legal: bool
) -> None:
    outside = Outside(tmp_path / "outside")
    effect = msgspec.convert(
        {
            "effect_key": "r:a:1",
            "run_id": "r",
            "node": "a",
            "visit": 1,
            "type": "file",
            "mode": mode,
            "status": status,
            "attempts": attempts,
        },
        EffectView,
    )
    for _ in range(happened):
        with (outside.folder / "r_a_1").open("a") as file:
            file.write("x\n")
    findings = Findings()
    outside.close()
    _audit_effect(RUN, effect, outside, findings)
    assert (findings.faults == []) is legal
