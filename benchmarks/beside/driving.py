"""The pairs in turn, with what they are measured by, and the report.

The measuring code is the same for both versions wherever it can be: the working tree's benchmarks, with the pwf of
either version. Where they don't fit the former version (a module has moved, say), each version is measured by the
benchmarks of its own commit, and the report says so. Which it is shows in a first pair, which warms both up and does
not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.beside.pairs import Compared, Pair, before_first, compared, table
from benchmarks.beside.sides import Failed, Side, at_commit, measure, shared_harness, working_tree
from benchmarks.machine import busy, machine
from benchmarks.rows import Missing, Report

#: Sixteen pairs of them take some ten minutes on an idle machine with two cores.
NAMES = ("start_to_finish", "durable_steps", "accepting", "admissions", "recovery")

Measure = Callable[[Side, str, Path], Report]  # raises `Failed`


class Beside(msgspec.Struct, kw_only=True):
    """What was found. `own`: questions that each version's own benchmarks answered."""

    before: str
    after: str
    machine: dict[str, str]
    rows: list[Compared] = []
    missing: list[Missing] = []
    own: list[str] = []
    notes: list[str] = []


class Session:
    """Measures `names` for both sides in turn; `run` gives what was found, also when it is interrupted."""

    def __init__(
        self,
        before: Side,
        after: Side,
        *,
        shared: Path,
        measure: Measure,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._before, self._after, self._shared = before, after, shared
        self._measure, self._say, self._clock = measure, say, clock
        self._own: list[str] = []
        self._missing: list[Missing] = []
        self._notes: list[str] = []

    def run(self, names: Sequence[str], pairs: int) -> Beside:
        """So many pairs of every question, after one pair that does not count."""
        facts, warning = machine(), busy()
        if warning is not None:
            self._note(warning)
        taken: dict[str, list[Pair]] = {name: [] for name in names}
        try:
            ready = [name for name in names if self._warm_up(name)]
            self._all_pairs(ready, pairs, taken)
        except KeyboardInterrupt:
            self._note(f"interrupted: fewer than {pairs} pairs were measured")
        return Beside(
            before=self._before.name,
            after=self._after.name,
            machine=facts,
            rows=[row for name in names for row in compared(taken[name])],
            missing=self._missing,
            own=self._own,
            notes=self._notes,
        )

    def _all_pairs(self, names: Sequence[str], pairs: int, taken: dict[str, list[Pair]]) -> None:
        began = self._clock()
        for pair in range(pairs):
            left = (self._clock() - began) / pair * (pairs - pair) if pair else None
            self._say(f"pair {pair + 1} of {pairs}" + ("" if left is None else f", {_minutes(left)} left"))
            for name in names:
                try:
                    taken[name].append(self._pair(name, first_before=before_first(pair)))
                except Failed as failure:
                    self._note(f"pair {pair + 1} of {name} does not count: {failure}")

    def _warm_up(self, name: str) -> bool:
        """Measure once, by the shared benchmarks or else by each version's own. False when neither can."""
        self._say(f"{name}: a pair that does not count")
        try:
            self._pair(name, first_before=True)
            return True
        except Failed as failure:
            self._say(f"  not by the working tree's benchmarks: {failure}")
        self._own.append(name)
        try:
            self._pair(name, first_before=True)
        except Failed as failure:
            self._own.remove(name)
            self._missing.append(Missing(name=name, why=str(failure)))
            return False
        return True

    def _pair(self, name: str, *, first_before: bool) -> Pair:
        if first_before:
            before = self._one(self._before, name)
            return before, self._one(self._after, name)
        after = self._one(self._after, name)
        return self._one(self._before, name), after

    def _one(self, side: Side, name: str) -> Report:
        try:
            return self._measure(side, name, side.tree if name in self._own else self._shared)
        except Failed as failure:
            raise Failed(f"{side.name}: {failure}") from failure

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._say(f"note: {text}")


def beside(
    commit: str, names: Sequence[str], *, pairs: int, options: Sequence[str], say: Callable[[str], None]
) -> Beside:
    """The working tree beside a commit. `Failed` or `CanNotInstall` where one of the two can't be prepared."""
    say(f"preparing {commit} and the working tree")
    before, after = at_commit(commit), working_tree()

    def one(side: Side, name: str, harness: Path) -> Report:
        return measure(side, name, harness, options)

    with shared_harness() as shared:
        session = Session(before, after, shared=shared, measure=one, say=say)
        return session.run(names, pairs)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def markdown(found: Beside) -> str:
    """The whole report."""
    facts = ", ".join(f"{name} {value}" for name, value in found.machine.items())
    parts = [f"# {found.after} beside {found.before}", f"{facts}."]
    parts += [f"**Note:** {note}." for note in found.notes]
    if found.own:
        parts.append(f"Measured by each version's own benchmarks: {', '.join(found.own)}.")
    if found.rows:
        parts += ["Medians; a ratio above 1 is better.", table(found.rows)]
    if found.missing:
        parts.append(
            "\n".join(f"- **{missing.name}** was not measured: {missing.why}" for missing in found.missing)
        )
    return "\n\n".join(parts) + "\n"
