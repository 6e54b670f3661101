"""After the storm: everything that was promised is held against the store and against the world outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pwf.client.sync import SyncClient
from pwf.errors import RunnerCrashed
from pwf.protocol.operations import RunListPayload
from pwf.protocol.views import ENDED, EffectView, RunSummary, RunView
from pwf.store.moves import DEATHS_MAX
from tests.storm.people import Promises
from tests.storm.plan import PlannedRun
from tests.storm.sink import Outside
from tests.storm.workflows import OUTPUTS

PAGE = 500


@dataclass
class Findings:
    """`faults` must be empty. The rest is figures."""

    faults: list[str] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    repeated: int = 0  # idempotent effects that were applied more than once

    def fault(self, text: str) -> None:
        self.faults.append(text)


def audit(client: SyncClient, promises: Promises, outside: Outside) -> Findings:
    """Look at every run, effect, answer and rule."""
    findings = Findings()
    known = {run.run_id: run for run in all_runs(client)}
    for run_id in promises.started:
        if run_id not in known:
            findings.fault(f"{run_id} was acknowledged, and is lost")
    planned = {**promises.asked_for, **promises.started}
    for run_id, summary in known.items():
        findings.runs[summary.status] += 1
        _audit_run(client, summary, planned[run_id], promises, outside, findings)
    for path in outside.folder.glob("*.overlap"):
        findings.fault(f"two attempts of {path.stem} had living processes at the same time")
    for violation in client.call("state.verify", timeout_s=600).violations:
        findings.fault(f"state verify: {violation}")
    return findings


def all_runs(client: SyncClient) -> Iterator[RunSummary]:
    """Every run there is, page by page."""
    cursor = None
    while True:
        page = client.call("run.list", RunListPayload(limit=PAGE, cursor=cursor))
        yield from page.runs
        cursor = page.next_cursor
        if cursor is None:
            return


def _audit_run(
    client: SyncClient,
    summary: RunSummary,
    planned: PlannedRun,
    promises: Promises,
    outside: Outside,
    findings: Findings,
) -> None:
    run_id = summary.run_id
    view: RunView = client.call("run.view", run_id=run_id)
    if view.summary.status not in ENDED:
        findings.reasons[view.explanation.code] += 1
        if not view.explanation.reason:
            findings.fault(f"{run_id} is {summary.status} without a reason")
    if run_id in promises.cancelled and view.summary.status != "cancelled":
        findings.fault(f"{run_id} was cancelled, and is {view.summary.status}")
    uncalled = view.summary.status == "cancelled" and run_id not in promises.cancelled
    if (
        uncalled
        or view.summary.status == "timed_out"
        or (view.summary.status == "failed" and not _was_killed(view))
    ):
        findings.fault(f"{run_id} ({planned.workflow}) is {view.summary.status}: {view.error}")
    twice = Counter((step.node, step.visit) for step in view.steps if step.status == "completed")
    for (node, visit), times in twice.items():
        if times > 1:
            findings.fault(f"{run_id}: {node} visit {visit} was committed {times} times")
    for step in view.steps:
        findings.attempts[step.status] += 1
    _audit_output(client, view, planned, findings)
    _audit_answers(client, view, promises, findings)
    for effect in view.effects:
        _audit_effect(view, effect, outside, findings)


def _was_killed(view: RunView) -> bool:
    """Whether the killer has met one step so often that it has no try left: its process died in each (X13)."""
    error = view.error
    if error is None or error.code != RunnerCrashed.code:
        return False
    tries = [step for step in view.steps if step.node == error.node and step.status == "failed"]
    return len(tries) >= DEATHS_MAX


def _audit_output(client: SyncClient, view: RunView, planned: PlannedRun, findings: Findings) -> None:
    expected = OUTPUTS.get(planned.workflow)
    if view.summary.status != "completed" or expected is None:
        return
    assert view.output is not None
    got: Any = msgspec.json.decode(client.read_value(view.summary.run_id, view.output))
    keys = [effect.outside_key for effect in view.effects if effect.outside_key is not None]
    outside_name = keys[0].partition(":")[0] if keys else view.summary.run_id
    if got != expected(planned.number, outside_name):
        findings.fault(f"{view.summary.run_id} ({planned.workflow}) has the output {got!r:.200}")


def _audit_answers(client: SyncClient, view: RunView, promises: Promises, findings: Findings) -> None:
    given = promises.answers.get(view.summary.run_id)
    if given is None:
        return
    steps = sorted(view.steps, key=lambda step: step.attempt)
    taken = [
        msgspec.json.decode(client.read_value(view.summary.run_id, step.output))
        for step in steps
        if step.node == "ask" and step.status == "completed" and step.output is not None
    ]
    if given != taken:
        findings.fault(f"{view.summary.run_id} was answered {given}, and took {taken}")


def _audit_effect(view: RunView, effect: EffectView, outside: Outside, findings: Findings) -> None:
    """Idempotent: at least once when applied, at most once an attempt. Manual: never twice, and settled right."""
    count = outside.count(effect.type, effect.outside_key or effect.effect_key)
    findings.effects[f"{effect.mode} {effect.status}"] += 1
    said = f"{effect.effect_key} ({effect.mode}, {effect.status}, {effect.attempts} attempts) happened {count} times"
    if effect.mode == "idempotent":
        findings.repeated += count > 1
        if count > effect.attempts or (effect.status == "applied" and count < 1):
            findings.fault(said)
        return
    legal = {"applied": (1,), "rejected": (0,), "applying": (0, 1), "ambiguous": (0, 1), "cancelled": (0,)}
    if count not in legal.get(effect.status, ()):
        findings.fault(said)
    if effect.status == "ambiguous" and view.summary.status not in ("ambiguous", "cancelled"):
        findings.fault(f"{said}, and its run is {view.summary.status}")
