"""What a campaign has reached, and what it never did: commands, moves of runs, faults, marked branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pwf.store.at_run import AtRun
from pwf.store.batch import Job, JobResult
from pwf.store.once import Done
from tests.sim.branches import BRANCHES
from tests.store.arrows import Arrow, drawn


def commands(jobs: Sequence[Job], answers: Iterable[JobResult]) -> Iterator[str]:
    """The commands of a batch, each with its outcome."""
    for job, answer in zip(jobs, answers, strict=True):
        value: Any = answer.value
        error: Exception | None = answer.error
        if isinstance(value, Done):
            error = value.refusal
        how = "" if error is None else f": {type(error).__name__}"
        handler = job.command.handler if isinstance(job.command, AtRun) else job.handler
        yield f"{handler.__name__}{how}"


def move(arrow: Arrow) -> str:
    """A move of a run, as the report names it."""
    return f"{arrow.before} --> {arrow.after}: {arrow.event}"


class Reached:
    """Counts of each kind. Adds up over seeds."""

    def __init__(self) -> None:
        self.commands: Counter[str] = Counter()
        self.moves: Counter[str] = Counter()
        self.branches: Counter[str] = Counter()

    def add(self, other: Reached) -> None:
        """Another seed's."""
        for mine, theirs in zip(self._all(), other._all(), strict=True):
            mine.update(theirs)

    def _all(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        return self.commands, self.moves, self.branches

    @property
    def never(self) -> list[str]:
        """Marked branches that were not reached."""
        return [branch.name for branch in BRANCHES if not self.branches[branch.name]]

    def report(self, faults: Counter[str]) -> Iterator[str]:
        """Lines for people."""
        yield _line("faults", faults)
        yield from _missing("faults that never happened", COUNTED, faults)
        yield _line("commands", self.commands)
        yield _line("moves of runs", self.moves)
        yield from _missing(
            "moves that docs/states.md draws and no run made", set(map(move, drawn())), self.moves
        )
        yield "branches:"
        for branch in BRANCHES:
            yield f"{self.branches[branch.name]:>12,}  {branch.name}"


#: Faults that `World.fault` counts. The others are drawn where they happen, and count as commands and branches do.
COUNTED = frozenset(
    {
        "crash",
        "drain",
        "second_daemon",
        "runner_kill",
        "runner_stop",
        "unprovable",
        "launch_refused",
        "immortal",
        "killed_by_step",
        "backup",
        "edit",
    }
    | {"disconnect", "session_dropped", "wall_step", "sleep", "reboot", "stall", "disk_full", "io_error"}
    | {"undone", "batch_lost", "reader", "lock"}
    | {"call_error", "call_full", "call_dropped", "call_short", "call_power", "slow_call"}
)


def _line(title: str, counts: Counter[str]) -> str:
    return f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def _missing(title: str, wanted: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    missing = sorted(name for name in wanted if not counts[name])
    if missing:
        yield f"{title}: " + ", ".join(missing)
