"""Following one run: a live tree on a terminal, a line per change elsewhere, nothing for programs.

The view comes from a subscription, so a daemon that is restarted meanwhile is seen as a pause. Interrupting
leaves the run going. With a terminal on both sides, open checkpoints are asked on the spot. `Patience` says when the
following ends.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from pwf.cli.out import Out
from pwf.cli.patience import Followed, Patience
from pwf.errors import Unavailable
from pwf.present import form, progress, text
from pwf.protocol.views import RunView, StepView, UpdateView

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient


class Screen(Protocol):
    """Shows a run's states."""

    def show(self, view: RunView, now_ms: int) -> None:
        """Draw this state."""

    def tick_s(self, view: RunView) -> float | None:
        """How soon to draw again though nothing changed; None: never."""

    def suspend(self) -> None:
        """Leave the terminal to a question; the next `show` takes it back."""

    def close(self) -> None:
        """Leave the last state standing."""


def follow(client: SyncClient, run_id: str, out: Out, patience: Patience, *, every: bool = False) -> Followed:
    """Show the run until `patience` is over; return the last view. `every`: with --json, each state as a line.

    Where people are on both sides, and the run is followed to its end, open checkpoints are asked here. Raises what
    ends the subscription, `Unavailable` when the time ran out before the first view, and KeyboardInterrupt.
    """
    from pwf.cli.ask import Asker

    subscription = client.subscribe("run", run_id=run_id)
    asks = patience.until == "ended" and out.is_terminal and not out.as_json and sys.stdin.isatty()
    asker = Asker(client, out, subscription) if asks else None
    screen = _screen(out, every=every)
    view: RunView | None = None
    seen = 0
    try:
        while True:
            tick = None if view is None else screen.tick_s(view)
            if client.next_news(subscription, seen, patience.left_s(tick)):
                seen = subscription.news
                value = subscription.value()
                assert isinstance(value, RunView)
                view = value
            elif subscription.ended:
                raise Unavailable("the daemon ended the view", hint=f"pwf watch {run_id}")
            if view is not None:
                screen.show(view, out.now_ms())
                if patience.is_over(view):
                    return Followed(view, done=True)
            if patience.has_run_out:
                if view is None:
                    raise Unavailable(
                        f"the time ran out before run {run_id} could be read", hint="pwf status"
                    )
                return Followed(view, done=False)
            if view is not None and asker is not None and asker.wants(view):
                screen.suspend()
                asker.ask(view)
    except KeyboardInterrupt:
        screen.close()  # first: what is drawn once more would cover the words
        come_back(run_id if view is None else view.summary.run_id, out)
        raise
    finally:
        screen.close()


def come_back(run_id: str, out: Out) -> None:
    """After Ctrl-C: the run goes on, and this is how to see it again."""
    shown = text.line(run_id)
    out.note(f"\nthe run goes on; come back with:  pwf watch {shown}\nor end it with:  pwf cancel {shown}")


def _screen(out: Out, *, every: bool) -> Screen:
    if out.as_json:
        return JsonScreen(out, every=every)
    if not out.is_terminal:
        return PlainScreen(out)
    from pwf.cli.live import LiveScreen

    return LiveScreen(out)


class JsonScreen:
    """Each state as a line of JSON, or none of them."""

    def __init__(self, out: Out, *, every: bool) -> None:
        self._out = out
        self._every = every
        self._said: RunView | None = None

    def show(self, view: RunView, now_ms: int) -> None:
        if self._every and view is not self._said:
            self._said = view
            self._out.emit(view)

    def tick_s(self, view: RunView) -> float | None:
        return None

    def suspend(self) -> None:
        """Nothing holds the terminal."""

    def close(self) -> None:
        """Nothing holds the terminal."""


class PlainScreen:
    """One line per change, for logs and pipes."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._said: dict[int, str] = {}
        self._position = ""
        self._updates: dict[tuple[str, str], UpdateView] = {}  # as they were said

    def show(self, view: RunView, now_ms: int) -> None:
        for step in sorted(view.steps, key=lambda step: step.attempt):
            self._step(view, step, now_ms)
        for update in view.updates:
            if progress.is_news(update, self._updates.get((update.kind, update.key))):
                self._updates[update.kind, update.key] = update
                self._out.print(progress.plain(progress.update_lines((update,), 120, now_ms)[0]))
        self._where(view, now_ms)

    def tick_s(self, view: RunView) -> float | None:
        return None

    def suspend(self) -> None:
        """Nothing holds the terminal."""

    def close(self) -> None:
        """Nothing holds the terminal."""

    def _step(self, view: RunView, step: StepView, now_ms: int) -> None:
        if self._said.get(step.attempt) == step.status:
            return
        self._said[step.attempt] = step.status
        visit = f" (visit {step.visit})" if step.visit > 1 else ""
        if step.adopted is not None:
            self._out.print(f"{progress.STEP_MARK[step.status]} {text.line(step.node)}{visit}: taken over")
            return
        tries = f" ({progress.try_of(view, step)})" if step.tries > 1 else ""
        name = text.line(step.node) + visit + tries
        if step.status == "active":
            self._out.print(f"▶ {name}: started")
            return
        took = text.duration((step.ended_ms or now_ms) - step.started_ms)
        summary = f"  {text.headline(step.summary, 100)}" if step.summary else ""
        self._out.print(f"{progress.STEP_MARK[step.status]} {name}: {step.status} in {took}{summary}")

    def _where(self, view: RunView, now_ms: int) -> None:
        """Say it when the run stands still, once per standstill."""
        summary = view.summary
        lines: list[str] = []
        if summary.status == "queued" and summary.due_ms is not None and summary.due_ms > now_ms:
            node = text.line(summary.node or "the first step")
            lines = [
                f"◷ {node}: {text.until(summary.due_ms, now_ms)} ({text.clock_time(summary.due_ms, now_ms)})"
            ]
            position = f"due {summary.due_ms}"
        elif view.request is not None and summary.status == "waiting":
            asked = form.asked(view.request, 200)
            lines = [f"? {text.line(view.request.node)} asks: {asked}"]
            lines += [f"  {name:<6} {line}" for name, line in form.answer_lines(view.request)]
            position = f"request {view.request.request_id}"
        elif summary.status in ("paused", "ambiguous", "held"):
            lines = [progress.plain(line) for line in progress.reason_lines(view, now_ms)]
            position = f"{summary.status} {summary.hold}"
        else:
            position = ""
        if position != self._position and lines:
            self._out.print("\n".join(lines))
        self._position = position
