"""The lab: tries the paths of a workflow, crashes each at every boundary, compares, and reports.

Owns the order of things. Promises: it works in a scratch home with a daemon of its own, which it ends; with stand-ins
no effect of the workflow is done; each crash is SIGKILL, of a real runner or a real daemon.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import msgspec

from pwf.client.origin import origin
from pwf.config import load_config
from pwf.crashlab import experiments
from pwf.crashlab.compare import Baseline, has_repeated, judge, judge_baseline, judge_stray, part_modes
from pwf.crashlab.drive import Driver
from pwf.crashlab.experiments import Crash, Path, Seen, Traced
from pwf.crashlab.home import ScratchHome
from pwf.crashlab.managers import ManagerLab
from pwf.crashlab.observe import LabRun, as_json
from pwf.crashlab.report import Findings, PathReport, Report, StepReport, StoodIn
from pwf.discovery import Found, find_manager_file, find_workflow_file
from pwf.errors import InvalidArgument, InvalidInput, NotFound
from pwf.places import Places, places
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS
from pwf.protocol.operations import WorkflowRef
from pwf.values import canonical

BATCH = 8
APART_S = 1.1  # between two undisturbed runs: what has a time of whole seconds in it differs then, and is not compared
ALONE_MS = 10_000  # steps with a shorter timeout are not kept waiting for others

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user asked for. `given`: answers and stand-in outputs by node, one for each visit."""

    workflow: str
    read_input: Callable[[dict[str, Any] | None], Any] = lambda schema: (
        None
    )  # what was typed, under this schema
    given: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    real: bool = False
    headless: bool = False  # a stand-in in the runner does the steps of agents; else they are submitted
    paths_max: int = 6
    crashes_max: int = 400
    keep: bool = False


def run_lab(settings: Settings, tell: Tell, at: Places | None = None) -> Report:
    """Do it all. Raises `PwfError` where the workflow can't be run at all."""
    own = places() if at is None else at
    found = _find(settings.workflow, own)
    config = load_config(own.config)
    whose = origin(own, settings.workflow)
    home = ScratchHome(config, own.config.parent / "workflows", runners=BATCH)
    try:
        with home:
            ref = WorkflowRef(workflow=str(found.path), origin=home.origin(whose), or_manager=True)
            graph: WorkflowGraph = home.client.call("workflow.describe", ref).graph
            if graph.manager is None:
                lab = _Lab(settings, tell, home, ref, graph)
                findings, report = lab.findings, lab.report()
            else:
                findings = Findings()
                report = _manager_report(settings, tell, home, ref, graph, findings)
            _note_left(home.end(), findings)
            return msgspec.structs.replace(report, findings=findings.all(), verdict=findings.verdict)
    finally:
        if settings.keep:
            tell(f"kept: {home.folder}")
        else:
            home.remove()


def _find(name: str, own: Places) -> Found:
    """The file of a workflow, else of a resource manager."""
    try:
        return find_workflow_file(name, FilePath.cwd(), own.config.parent)
    except NotFound as none:
        try:
            return find_manager_file(name, FilePath.cwd(), own.config.parent)
        except NotFound:
            raise none from None


def _manager_report(
    settings: Settings, tell: Tell, home: ScratchHome, ref: WorkflowRef, graph: WorkflowGraph, found: Findings
) -> Report:
    """Of a resource manager. Raises `InvalidArgument` unless it was said that its effects may be done."""
    assert graph.manager is not None
    if not settings.real or settings.given:
        raise InvalidArgument(
            f"{graph.name!r} is a resource manager, which is run as it is: its effects are done",
            hint="say --effects real, and name {scratch} in the spec (--input, --set) in place of a real folder",
        )
    spec = settings.read_input(graph.manager.spec_schema)
    lab = ManagerLab(home, graph, ref.workflow, ref.origin, {} if spec is None else spec)
    return lab.report(found, settings.crashes_max, tell)


class _Lab:
    def __init__(
        self, settings: Settings, tell: Tell, home: ScratchHome, ref: WorkflowRef, graph: WorkflowGraph
    ) -> None:
        self.findings = Findings()
        self._settings = settings
        self._tell = tell
        self._home = home
        self._graph = graph
        self._check_given()
        self._given = settings.read_input(self._graph.input_schema)
        self._input = self._given
        self._driver = Driver(
            home,
            graph,
            ref.workflow,
            ref.origin,
            self._input,
            stand_ins=not settings.real,
            headless=settings.headless,
        )
        self._crashed: list[tuple[LabRun, Baseline]] = []
        self._left_out = 0

    def _check_given(self) -> None:
        can = {node.id for node in self._graph.nodes if KINDS[node.kind].asks}
        if not self._settings.real:
            can |= {node.id for node in self._graph.nodes if KINDS[node.kind].has_effect}
        for name in self._settings.given:
            if name in can:
                continue
            node = next((node for node in self._graph.nodes if node.id == name), None)
            why = f"has no node {name!r}"
            if node is not None:
                why = f"gives {name!r} nothing: its kind is {node.kind}, and it is run as it is"
            names = ", ".join(sorted(can)) or "none"
            hint = f"--answer is for questions, to people and agents, --output for stand-ins of effects; here: {names}"
            raise InvalidArgument(f"workflow {self._graph.name!r} {why}", hint=hint)

    # --- the whole ------------------------------------------------------------------------------------------

    def report(self) -> Report:
        began = time.monotonic()
        found = experiments.paths(
            self._graph,
            stand_ins=not self._settings.real,
            given=self._settings.given,
            most=self._settings.paths_max,
        )
        bases = list(self._baselines(found.tried))
        self._strays(bases)
        self._crash_all(bases)
        for violation in self._home.violations():
            self.findings.add(
                "fault", "store_rule", "", f"state verify: {violation.rule}: {violation.message}"
            )
        victims = Counter(run.crash.victim for run, _ in self._crashed)
        return Report(
            workflow=self._graph.name,
            effects="real" if self._settings.real else "stand-in",
            input=msgspec.Raw(canonical(self._input)),
            seconds=round(time.monotonic() - began, 1),
            runs=self._driver.runs,
            runner_crashes=sum(
                len(run.crash.points) for run, _ in self._crashed if run.crash.victim == "runner"
            ),
            daemon_crashes=victims["daemon"],
            crashes_left_out=self._left_out,
            paths_left_out=found.left_out,
            paths=tuple(_path_report(base) for base in bases),
            steps=tuple(self._step_reports(bases)),
            stood_in=() if self._settings.real else tuple(self._stood_in(bases)),
            findings=(),
            verdict="passed",
        )

    # --- without crashes ------------------------------------------------------------------------------------

    def _baselines(self, tried: Sequence[Path]) -> Iterator[Baseline]:
        routes: set[tuple[object, ...]] = set()
        for path in tried:
            self._tell(f"path {path.index + 1} of {len(tried)} without a crash")
            first = self._first(path)
            if self._settings.real:
                time.sleep(APART_S)
            second = self._driver.batch([Crash(path)])[0]
            twice = self._driver.batch([Crash(path, twice=True)])[0]  # which may leave more outside
            base = Baseline(first, second, twice)
            if not judge_baseline(
                base, self._graph, stand_ins=not self._settings.real, findings=self.findings
            ):
                continue
            route = tuple((step.node, step.visit, step.status) for step in first.steps)
            if route not in routes:
                routes.add(route)
                yield base

    def _first(self, path: Path) -> LabRun:
        """Run a path once. Without an input: null, or the smallest that its type allows."""
        crash = Crash(path)
        try:
            return self._driver.batch([crash])[0]
        except InvalidInput:
            if self._given is not None:
                raise
        self._input = self._driver.input = experiments.sample_input(self._graph)
        self._tell(f"the input is made from its type: {as_json(self._input)}")
        return self._driver.batch([crash])[0]

    def _strays(self, bases: list[Baseline]) -> None:
        """Give each question that has cases an answer that is none of them."""
        tried: set[str] = set()
        for base in bases:
            for step in base.first.steps:
                node = self._graph.node(step.node)
                way = node.way("completed")
                if not self._is_asked(node) or way is None or not way.cases or node.id in tried:
                    continue
                tried.add(node.id)
                crash = Crash(base.first.crash.path, stray_at=node.id)
                judge_stray(self._driver.batch([crash])[0], self.findings)

    def _is_asked(self, node: NodeSpec) -> bool:
        """Whether the lab itself gives the answer to it."""
        facts = KINDS[node.kind]
        return facts.asks is not None and not (self._settings.headless and facts.headless)

    # --- with crashes ---------------------------------------------------------------------------------------

    def _crash_all(self, bases: list[Baseline]) -> None:
        planned: list[tuple[Crash, Baseline]] = []
        seen = Seen()
        for base in bases:
            trace = _trace(base.first, self._graph, headless=self._settings.headless)
            planned += [(crash, base) for crash in experiments.crashes(base.first.crash.path, trace, seen)]
        self._left_out = max(0, len(planned) - self._settings.crashes_max)
        if self._left_out:
            planned = _spread(planned, self._settings.crashes_max)
        base_of = {id(crash): base for crash, base in planned}
        done = 0
        for batch in self._batches([crash for crash, _ in planned]):
            for run in self._driver.batch(batch):
                base = base_of[id(run.crash)]
                judge(run, base, self._graph, self.findings)
                self._crashed.append((run, base))
            done += len(batch)
            self._tell(f"{done} of {len(planned)} crashes; the last: {batch[-1].words}")

    def _batches(self, crashes: list[Crash]) -> Iterator[list[Crash]]:
        """Runner and daemon apart; one by one where runs could meet outside, or where a step's time is short."""
        for victim in ("runner", "daemon"):
            group: list[Crash] = []
            for crash in crashes:
                if crash.victim != victim:
                    continue
                if self._alone(crash):
                    yield [crash]
                    continue
                group.append(crash)
                if len(group) == BATCH:
                    yield group
                    group = []
            if group:
                yield group

    def _alone(self, crash: Crash) -> bool:
        if self._settings.real and "{scratch}" not in as_json(self._given):
            return True
        timeout = min(self._graph.node(point.node).timeout_ms or ALONE_MS for point in crash.points)
        return crash.victim == "daemon" and timeout < ALONE_MS

    # --- the report -----------------------------------------------------------------------------------------

    def _step_reports(self, bases: list[Baseline]) -> Iterator[StepReport]:
        for base in bases:
            for step in _trace(base.first, self._graph, headless=self._settings.headless):
                effect = self._graph.node(step.node).effect
                key = (step.node, step.visit)
                modes = part_modes(base.first, key)
                runs = [
                    run
                    for run, of in self._crashed
                    if of is base and any((p.node, p.visit) == key for p in run.crash.points)
                ]
                if not any(len(run.crash.points) == 1 for run in runs):
                    continue  # as on an earlier path
                yield StepReport(
                    path=base.first.crash.path.index + 1,
                    node=step.node,
                    visit=step.visit,
                    kind=step.kind,
                    effect=effect.mode if effect is not None else "",
                    crashes=len(runs),
                    ran_again=sum(run.begun[key] > base.first.begun[key] for run in runs),
                    effect_again=sum(
                        has_repeated(run, base, key, modes if effect and effect.mode == "parts" else None)
                        for run in runs
                    ),
                    needs_person=sum(any(one.node == step.node for one in run.parked) for run in runs),
                )

    def _stood_in(self, bases: list[Baseline]) -> Iterator[StoodIn]:
        """What of the steps that were reached was not done."""
        for name in dict.fromkeys(step.node for base in bases for step in base.first.steps):
            effect = self._graph.node(name).effect
            if effect is not None:
                yield StoodIn(node=name, mode=effect.mode, observe=effect.observable)


def _note_left(pids: list[int], findings: Findings) -> None:
    """Processes of the lab's runs that were still there when their daemon had ended."""
    if pids:
        said = f"{len(pids)} processes that steps had started were left over"
        findings.add("fault", "process_left", "", said)


def _trace(run: LabRun, graph: WorkflowGraph, *, headless: bool) -> list[Traced]:
    visits: dict[tuple[str, int], Traced] = {}
    for step in run.steps:
        node = graph.node(step.node)
        deaths = 2 if node.retry is None else node.retry.times
        parts = tuple(part for _, _, part in run.effects_of((step.node, step.visit)) if part)
        visits[step.node, step.visit] = Traced(
            step.node, step.visit, node.kind, deaths, parts, headless and KINDS[node.kind].headless
        )
    return list(visits.values())


def _path_report(base: Baseline) -> PathReport:
    answers = tuple(f"{node}: {as_json(answer)}" for (node, _), answer in base.first.answers.items())
    nodes = tuple(dict.fromkeys(f"{step.node}" for step in base.first.steps))
    return PathReport(status=base.first.status, nodes=nodes, answers=answers)


def _spread(planned: list[tuple[Crash, Baseline]], most: int) -> list[tuple[Crash, Baseline]]:
    """An even choice of `most`."""
    return [planned[index * len(planned) // most] for index in range(most)]
