"""`pwf watch` and `pwf wait`: looking on, and waiting."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.patience import add_patience, patience, say_who_is_needed
from pwf.errors import Unavailable
from pwf.present import text
from pwf.present.marks import STATUS_STYLE
from pwf.protocol.views import NEEDS_PERSON

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.protocol.operations import RunList, WaitResult

LIVE_ROWS = 200


def add(commands: Commands) -> None:
    parser = commands.add(
        "watch",
        watch,
        "watch a run, or all runs",
        example="pwf watch @last\npwf watch\npwf watch @last --until parked --timeout 10m",
        more="Without RUN: a live list of runs. Ctrl-C stops watching; runs go on. Without a terminal on stdin it\n"
        "ends with exit code 7 when the run needs a person (unless --until ended).",
    )
    parser.add_argument("run_id", metavar="RUN", nargs="?", help=RUN_HELP)
    add_patience(parser, default="the default without a terminal on stdin")
    parser = commands.add(
        "wait",
        wait,
        "wait until runs have ended",
        example="pwf wait @last\npwf wait 3kq 9mz --timeout 10m\npwf wait @last --until parked",
        more="The exit code tells how they ended: 0 completed, 1 failed or timed out, 6 cancelled, "
        "7 needs a person, 9 the time ran out.",
    )
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=RUN_HELP)
    add_patience(parser, default="the default is ended")


def watch(options: argparse.Namespace, out: Out) -> int:
    if options.run_id is None and (options.until or options.timeout):
        raise UsageError("--until and --timeout need a RUN", hint="pwf watch @last --until parked")
    waits = patience(options)
    with client() as daemon:
        if options.run_id is None:
            return _watch_all(daemon, out)
        from pwf.cli.run import follow_it

        return follow_it(daemon, options.run_id, out, waits.begun(), every=True)


def _watch_all(daemon: SyncClient, out: Out) -> int:
    from pwf.protocol.operations import RunList, RunListPayload

    rows = max(5, out.height - 3) if out.is_terminal else LIVE_ROWS
    subscription = daemon.subscribe("runs", query=RunListPayload(limit=min(rows, LIVE_ROWS)))
    screen: Any = _LiveList(out) if out.is_terminal and not out.as_json else _LineList(out)
    seen = 0
    listed: RunList | None = None
    try:
        while True:
            if daemon.next_news(subscription, seen, 1.0 if listed is not None and out.is_terminal else None):
                seen = subscription.news
                value = subscription.value()
                assert isinstance(value, RunList)
                listed = value
            elif subscription.ended:
                raise Unavailable("the daemon ended the view", hint="pwf watch")
            if listed is not None:
                screen.show(listed)
    finally:
        screen.close()


class _LineList:
    """A line for each run that changed."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._known: dict[str, int] = {}

    def show(self, listed: RunList) -> None:
        for run in reversed(listed.runs):
            if self._known.get(run.run_id) == run.revision:
                continue
            self._known[run.run_id] = run.revision
            if self._out.as_json:
                self._out.emit(run)
                continue
            node = f"  {text.line(run.node)}" if run.node else ""
            title = text.line(run.title or run.workflow, 60)
            self._out.print(f"{text.line(run.run_id)}  {title}  {self._out.status(run.status)}{node}")

    def close(self) -> None:
        """Nothing holds the terminal."""


class _LiveList:
    """The list, redrawn in place."""

    def __init__(self, out: Out) -> None:
        from rich.console import Console
        from rich.live import Live

        self._out = out
        console = Console(highlight=False, markup=False, emoji=False, no_color=not out.color)
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, listed: RunList) -> None:
        from pwf.cli.live import render
        from pwf.cli.look import HEADS, NO_RUNS, run_row
        from pwf.present.progress import Line, Piece

        now_ms = self._out.now_ms()
        rows = [run_row(run, now_ms) for run in listed.runs]
        widths = [max(text.width(row[at]) for row in [HEADS, *rows]) for at in range(len(HEADS))]
        lines: list[Line] = [[Piece("  ".join(map(text.pad, HEADS, widths)), "dim")]]
        for run, row in zip(listed.runs, rows, strict=True):
            styles = [STATUS_STYLE.get(run.status) if head == "STATUS" else None for head in HEADS]
            lines.append(
                [
                    Piece(text.pad(cell, size) + "  ", style)
                    for cell, size, style in zip(row, widths, styles, strict=True)
                ]
            )
        if not rows:
            lines.append([Piece(NO_RUNS, "dim")])
        self._live.update(render(lines, styled=self._out.color), refresh=True)

    def close(self) -> None:
        self._live.stop()


def wait(options: argparse.Namespace, out: Out) -> int:
    waits = patience(options, default="ended")
    results: list[WaitResult] = []
    try:
        with client() as daemon:
            # All must be known before any is waited for; and `@last` is one run, whatever starts meanwhile.
            named = [daemon.call("run.status", run_id=run_id) for run_id in options.run_ids]
            waits = waits.begun()
            for run_id in [one.summary.run_id for one in named]:
                result = daemon.wait(run_id, until=waits.until, timeout_s=waits.left_s())
                results.append(result)
                _say(result, out)
                if result.done and result.summary.status in NEEDS_PERSON and not out.as_json:
                    say_who_is_needed(daemon.call("run.view", run_id=run_id), out)
    except KeyboardInterrupt:
        out.note("\nno longer waiting; the runs go on")
        return exits.INTERRUPTED
    if out.as_json:
        out.emit({"runs": results})
    return exits.worst([_code(result) for result in results])


def _code(result: WaitResult) -> int:
    return exits.of_status(result.summary.status) if result.done else exits.TIME_OUT


def _say(result: WaitResult, out: Out) -> None:
    if out.as_json:
        return
    summary = result.summary
    more = "" if result.done else "  (the time ran out)"
    reason = f"  {text.headline(summary.reason, 100)}" if summary.reason else ""
    title = text.line(summary.title or summary.workflow, 60)
    run_id = text.line(summary.run_id)
    out.print(f"{run_id}  {title}  {out.status(summary.status)}{more}{reason}")
