"""One run of the lab while it goes, and what is known of it when it is over."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import msgspec

from pwf.client.sync import SyncClient
from pwf.crashlab.experiments import Crash
from pwf.protocol.crashlab import LabRecord
from pwf.protocol.operations import StepsPayload
from pwf.protocol.views import RunView, StepView

COMPARED_BYTES_MAX = 1024 * 1024
Key = tuple[str, int]  # node and visit
EffectKey = tuple[str, int, str]  # and the part


@dataclass
class Parked:
    """A run needed a person: which hold, and what it said."""

    node: str
    hold: str
    reason: str


@dataclass
class LabRun:
    """A run. `arrived`: it has come to the point where the daemon is to be killed."""

    run_id: str
    crash: Crash
    scratch: FilePath
    over: bool = False
    arrived: bool = False
    struck: bool = False  # the daemon was killed for it
    answers: dict[Key, object] = field(default_factory=dict)
    requests: dict[Key, set[str]] = field(default_factory=dict)
    parked: list[Parked] = field(default_factory=list)
    stuck: str = ""
    refused_answer: str = ""
    moved_at: float = 0.0
    last_seen: tuple[object, ...] = ()
    view: RunView | None = None
    steps: list[StepView] = field(default_factory=list)
    outputs: dict[Key, str] = field(default_factory=dict)
    begun: Counter[Key] = field(default_factory=Counter)
    effects: Counter[EffectKey] = field(default_factory=Counter)
    touched: list[LabRecord] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def effects_of(self, key: Key) -> list[EffectKey]:
        """Those that a visit made, in their order."""
        return [one for one in self.effects if one[:2] == key]

    @property
    def status(self) -> str:
        return self.view.summary.status if self.view is not None else "unknown"

    def plain(self, text: str) -> str:
        """Without what differs between any two runs: its id and its name outside, and its scratch folder."""
        return re.sub(self.names, "RUN", text).replace(str(self.scratch), "SCRATCH")

    @property
    def names(self) -> str:
        """What matches the run's id, and its name outside, which has a random part."""
        return rf"{re.escape(self.run_id)}(\.[0-9a-z]{{12}})?"


def look_back(run: LabRun, client: SyncClient, records: Iterable[LabRecord]) -> None:
    """Gather everything about a run that is over."""
    run.view = client.call("run.view", run_id=run.run_id)
    run.steps = all_steps(client, run.view)
    for step in run.steps:
        if step.status == "completed" and step.output is not None:
            run.outputs[step.node, step.visit] = run.plain(_text(client, run.run_id, step))
    for record in records:
        key = (record.node, record.visit)
        if record.kind == "begun":
            run.begun[key] += 1
        elif record.kind == "effect":
            run.effects[*key, record.part] += 1
        else:
            run.touched.append(record)
    run.files = snapshot(run)


def all_steps(client: SyncClient, view: RunView) -> list[StepView]:
    """Every attempt, in order."""
    found = {step.attempt: step for step in view.steps}
    while found and len(found) < view.steps_total:
        page: RunView = client.call(
            "run.view", StepsPayload(before_attempt=min(found)), run_id=view.summary.run_id
        )
        if not page.steps:
            break
        found |= {step.attempt: step for step in page.steps}
    return [found[number] for number in sorted(found)]


def _text(client: SyncClient, run_id: str, step: StepView) -> str:
    assert step.output is not None
    if step.output.size > COMPARED_BYTES_MAX:
        return f"digest {step.output.digest}"
    return client.read_value(run_id, step.output).decode()


def snapshot(run: LabRun) -> dict[str, bytes]:
    """The files of the run's scratch folder, without the run's own id in names and texts."""
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(run.scratch):
        for name in names:
            path = FilePath(folder) / name
            try:
                data = path.read_bytes()
            except OSError:
                continue
            data = re.sub(run.names.encode(), b"RUN", data).replace(str(run.scratch).encode(), b"SCRATCH")
            found[run.plain(str(path.relative_to(run.scratch)))] = data
    return found


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
