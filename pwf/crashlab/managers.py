"""The lab of a resource manager: its process is killed at every boundary of a resource's life, and ends are compared.

Promises: each crash is SIGKILL of a real process; a resource that nobody disturbed says what the end is, and a second
one what of it differs by itself. The effects of a manager are done: only what its spec names is touched, and
`{scratch}` in it is an empty folder of each resource.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pwf.crashlab.drive import with_scratch
from pwf.crashlab.home import ScratchHome
from pwf.crashlab.report import Findings, Report
from pwf.protocol.crashlab import ManagerPlan, encode_manager_plan
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.origin import Origin
from pwf.protocol.resources import (
    Applied,
    ApplyPayload,
    DeletePayload,
    ResourceRef,
    ResourceView,
    ResourceWaited,
    ResourceWaitPayload,
)
from pwf.values import canonical, digest

SETTLES_S_MAX = 60.0
QUIET_S = 0.2  # settled for so long: nothing is about to begin
APART_S = 1.1  # between the two that nobody disturbs: a time of whole seconds differs then
BATCH = 8


@dataclass
class Life:
    """One resource, from its apply to its end. `end`: what is compared, by what it is; empty where it came to none."""

    number: int
    kill_at: int
    scratch: Path
    uid: str = ""
    end: dict[str, object] = field(default_factory=dict)
    passed: int = 0
    why: str = ""  # it came to no end
    needs_person: bool = False

    @property
    def key(self) -> str:
        return f"lab-{self.number}"


class ManagerLab:
    """One manager with one spec."""

    def __init__(
        self, home: ScratchHome, graph: WorkflowGraph, manager: str, origin: Origin, spec: object
    ) -> None:
        self._home, self._graph, self._manager, self._origin, self._spec = home, graph, manager, origin, spec
        self._lives = 0

    def report(self, findings: Findings, crashes_max: int, tell: Callable[[str], None]) -> Report:
        """Two lives without a crash, then one for each boundary."""
        began = time.monotonic()
        tell("a resource without a crash")
        (first,) = self._live([0])
        time.sleep(APART_S)
        (second,) = self._live([0])
        crashes = 0
        for life in (first, second):
            if life.why:
                findings.add("fault", "comes_to_no_end", "", f"without any crash: {life.why}")
        if first.end and second.end:
            stable = {name for name, value in first.end.items() if second.end.get(name) == value}
            points = list(range(1, first.passed + 1))
            chosen = points[:: -(-len(points) // crashes_max)]
            size = BATCH if "{scratch}" in canonical(self._spec).decode() else 1
            for start in range(0, len(chosen), size):
                for life in self._live(chosen[start : start + size]):
                    crashes += 1
                    self._judge(life, first, stable, findings)
                tell(f"{crashes} of {len(chosen)} crashes")
        for violation in self._home.violations():
            findings.add("fault", "store_rule", "", f"state verify: {violation.rule}: {violation.message}")
        return Report(
            workflow=self._graph.name,
            manager=True,
            effects="real",
            input=msgspec.Raw(canonical(self._spec)),
            seconds=round(time.monotonic() - began, 1),
            runs=self._lives,
            runner_crashes=crashes,
            daemon_crashes=0,
            crashes_left_out=max(0, first.passed - crashes),
            paths_left_out=0,
            paths=(),
            steps=(),
            findings=(),
            verdict="passed",
        )

    def _judge(self, life: Life, first: Life, stable: set[str], findings: Findings) -> None:
        after = f"its process was killed at boundary {life.kill_at} of {first.passed}"
        if life.needs_person:
            hint = "give the effect an observer: docs/resources.md"
            findings.add("person", "waits", "", f"a person is needed: {life.why}", hint=hint, after=after)
        elif life.why:
            findings.add("fault", "comes_to_no_end", "", life.why, after=after)
        for name in sorted(stable) if life.end else ():
            if life.end.get(name) == first.end[name]:
                continue
            said = f"{name} is {life.end.get(name)!r:.120}, without a crash {first.end[name]!r:.120}"
            if name.startswith("status."):
                hint = (
                    "a status is what the manager remembers: let it say what it finds, in place of counting"
                )
                findings.add("note", "status_differs", "", said, same=name, hint=hint, after=after)
            else:
                said = f"the end is another: {said}"
                findings.add("fault", "end_differs", "", said, same=name, after=after)

    # --- a life ---------------------------------------------------------------------------------------------

    def _live(self, kills: list[int]) -> list[Life]:
        """Resources at the same time, from apply to gone, each with its crash (0: none)."""
        lives = [self._apply(kill_at) for kill_at in kills]
        for life in lives:
            self._settle(life)
        for life in lives:
            self._home.client.call("resource.delete", DeletePayload(uid=life.uid, abandon=bool(life.why)))
        for life in lives:
            if not life.why and not self._wait(life, "gone").done:
                life.why = f"it is not gone within {SETTLES_S_MAX:g} s: {self._view(life).explanation.reason}"
            life.end |= {f"after the end, {name}": value for name, value in _files(life)} if life.end else {}
            counter = self._home.lab.passed(life.key)
            life.passed = counter.stat().st_size if counter.exists() else 0
        return lives

    def _apply(self, kill_at: int) -> Life:
        self._lives += 1
        life = Life(self._lives, kill_at, self._home.scratch / f"lab-{self._lives}")
        life.scratch.mkdir()
        plan = ManagerPlan(home_id=self._home.home_id, kill_at=kill_at)
        self._home.lab.plan(life.key).write_bytes(encode_manager_plan(plan))
        spec = canonical(with_scratch(self._spec, str(life.scratch)), what="the spec")
        payload = ApplyPayload(
            manager=self._manager, key=life.key, spec=msgspec.Raw(spec), origin=self._origin
        )
        applied: Applied = self._home.client.call("resource.apply", payload)
        life.uid = applied.uid
        return life

    def _settle(self, life: Life) -> None:
        """Wait until it is at rest, and keep how it is then."""
        while True:
            done = self._wait(life, "settled").done
            view = self._view(life)
            if not done or view.summary.state != "settled":
                life.needs_person = done
                life.why = view.explanation.reason
                return
            time.sleep(QUIET_S)
            again = self._view(life)
            if (again.summary.state, again.reconciles) == ("settled", view.reconciles):
                break
        status = self._home.client.read_value(life.uid, again.status)
        life.end = {
            f"status.{name}": value for name, value in msgspec.json.decode(_plain(status, life)).items()
        }
        for one in again.conditions:
            life.end[f"condition {one.type}"] = (one.status, one.reason)
        life.end["finalizers"] = again.finalizers
        life.end |= dict(_files(life))

    def _wait(self, life: Life, until: Any) -> ResourceWaited:
        wait = ResourceWaitPayload(uid=life.uid, until=until, timeout_ms=int(SETTLES_S_MAX * 1000))
        waited: ResourceWaited = self._home.client.call("resource.wait", wait, timeout_s=2 * SETTLES_S_MAX)
        return waited

    def _view(self, life: Life) -> ResourceView:
        view: ResourceView = self._home.client.call("resource.get", ResourceRef(uid=life.uid))
        return view


def _plain(data: bytes, life: Life) -> bytes:
    """Without what differs between any two lives."""
    for name, word in ((str(life.scratch), b"SCRATCH"), (life.uid, b"UID"), (life.key, b"KEY")):
        data = data.replace(name.encode(), word)
    return data


def _files(life: Life) -> Iterator[tuple[str, str]]:
    """The files of its folder, by a digest of what they hold."""
    for path in sorted(life.scratch.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"file {path.relative_to(life.scratch)}", digest(_plain(path.read_bytes(), life))[:16]
