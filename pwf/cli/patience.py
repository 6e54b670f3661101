"""How long a command follows a run: until its end, or the moment that needs a person, and for how long at most.

`run`, `watch` and `wait` share the two options. Without a terminal on stdin nobody can answer, so `run` and `watch`
then stop where a person is needed, in place of standing there for ever.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from pwf.cli import exits
from pwf.cli.commands import Parser
from pwf.cli.out import Out
from pwf.present import form, text
from pwf.present.explained import reason_line
from pwf.protocol.views import ENDED, NEEDS_PERSON, RunView

if TYPE_CHECKING:
    import argparse

Until = Literal["ended", "parked"]


def add_patience(parser: Parser, *, default: str) -> None:
    """`--until` and `--timeout`; `default` says in words what holds without `--until`."""
    parser.add_argument(
        "--until",
        choices=("ended", "parked"),
        help=f"parked: stop also when the run needs a person ({default})",
    )
    parser.add_argument("--timeout", metavar="DURATION", help="follow it for this long at most (30s, 2h30m)")


class Patience(NamedTuple):
    """`deadline`: by the monotonic clock; None is for ever, as without a `timeout_s`."""

    until: Until
    timeout_s: float | None = None
    deadline: float | None = None

    def begun(self) -> Patience:
        """Its time begins now: with a run to follow, not with the start of a daemon, which has limits of its own."""
        return self if self.timeout_s is None else self._replace(deadline=time.monotonic() + self.timeout_s)

    def is_over(self, view: RunView) -> bool:
        """Whether the run has arrived where it is followed to."""
        status = view.summary.status
        return status in ENDED or (self.until == "parked" and status in NEEDS_PERSON)

    def left_s(self, tick_s: float | None = None) -> float | None:
        """How long to wait at most for the next news; None: as long as it takes."""
        if self.deadline is None:
            return tick_s
        left = max(0.0, self.deadline - time.monotonic())
        return left if tick_s is None else min(tick_s, left)

    @property
    def has_run_out(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


def patience(options: argparse.Namespace, *, default: Until | None = None) -> Patience:
    """From the options; without a `default` it depends on whether a person can type. `begun` starts its time."""
    until: Until = options.until or default or ("ended" if is_at_terminal() else "parked")
    if options.timeout is None:
        return Patience(until)
    from pwf.cli.typed import duration_ms

    return Patience(until, duration_ms(options.timeout, "--timeout") / 1000)


def is_at_terminal() -> bool:
    """Whether somebody can type."""
    return sys.stdin is not None and sys.stdin.isatty()


class Followed(NamedTuple):
    """The last state that was seen; `done` is False when the time ran out."""

    view: RunView
    done: bool

    @property
    def code(self) -> int:
        return exits.of_status(self.view.summary.status) if self.done else exits.TIME_OUT


def say_what_to_type(followed: Followed, out: Out) -> None:
    """Of a run that has not ended: why it is left, and how to go on with it."""
    view = followed.view
    run_id = text.line(view.summary.run_id)
    if not followed.done:
        out.note(f"the time ran out; the run goes on; come back with:  pwf watch {run_id}")
        return
    say_who_is_needed(view, out)
    out.note(f"and follow it again with:  pwf watch {run_id}")


def say_who_is_needed(view: RunView, out: Out) -> None:
    """Of a run that needs a person: why, and what to type."""
    out.note(f"the run needs a person: {reason_line(view.explanation)}; type one of")
    for command in form.commands(view.explanation, view.request):
        out.note(f"  {command}")
