"""What `pwf crashlab` tells the runners of its runs, and what these write down for it.

A lab has a folder: `plans/<run id>.json` holds a `LabPlan`, `ledger.jsonl` takes one `LabRecord` a line, and
`reached/<run id>.<node>.<visit>.<phase>` is made when a run comes to a point of its plan. A runner looks for all
this only when `LAB_VARIABLE` names a folder whose plan names the runner's own home: never in anybody's real runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pwf.values import digest

LAB_VARIABLE = "PWF_CRASHLAB"
#: The name of a run's own agent in a lab. Nothing is started for it: the runner has the stand-in.
STAND_IN_AGENT = "stand-in"

#: Where a runner can end. `begun`: the step's attempt is committed, its function has not run. `done`: the function
#: has run, nobody knows of it. `reported`: the daemon was told, its answer was not read. And once for a run, `left`:
#: it is parked or has ended, and the runner is not yet gone.
PHASES = ("begun", "done", "reported")
PART_PHASES = ("applying", "applied", "settled")  # around each effect that a step makes in mid-step


class Point(NamedTuple):
    """A moment in a run. `part`: the effect of several that it is about."""

    node: str
    visit: int
    phase: str
    part: str = ""

    @property
    def file_name(self) -> str:
        part = f".{digest(self.part.encode())[:16]}" if self.part else ""  # a name may have any character
        return f"{self.node}.{self.visit}.{self.phase}{part}"


class LabPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one run of a lab goes.

    `kills`: at each of these points, once, the runner ends itself (`victim` runner) or waits for the daemon's end.
    `outputs`: what stand-ins give, also those of agents, by node, one for each visit (the last is used again); of a
    node that makes several effects, an object with their outputs by key. `twice`: pure functions are
    called a second time, to compare. `timer_ms`: the longest that a timer really waits.
    """

    home_id: str
    stand_ins: bool = True
    kills: tuple[Point, ...] = ()
    victim: Literal["runner", "daemon"] = "runner"
    outputs: dict[str, tuple[msgspec.Raw, ...]] = {}
    twice: bool = False
    timer_ms: int = 50


class ManagerPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the reconciles of one resource of a lab go: the process that comes to this boundary ends there. 0: none."""

    home_id: str
    kill_at: int = 0


class LabRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the ledger.

    `begun`: an attempt runs. `effect`: an effect function (or its stand-in) has run to its end; `output` is what it
    gave. `touched`: a function that must be pure touched the outside, `first` says how. `varies`: called twice, it
    gave `first` and then `second`. `part`: the effect of several.
    """

    run_id: str
    kind: Literal["begun", "effect", "touched", "varies"]
    node: str
    visit: int
    attempt: int
    part: str = ""
    first: str = ""
    second: str = ""
    output: msgspec.Raw = msgspec.Raw(b"null")


class LabFolder:
    """The paths of a lab."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self.ledger = self.path / "ledger.jsonl"

    def plan(self, run_id: str) -> Path:
        return self.path / "plans" / f"{run_id}.json"

    def passed(self, key: str) -> Path:
        """A byte for each boundary that the reconciles of a resource have come to."""
        return self.path / "reached" / f"{key}.count"

    def reached(self, run_id: str, point: Point) -> Path:
        return self.path / "reached" / f"{run_id}.{point.file_name}"


encode_plan = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(LabPlan).decode
encode_manager_plan = msgspec.json.Encoder().encode
decode_manager_plan = msgspec.json.Decoder(ManagerPlan).decode
encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(LabRecord).decode
