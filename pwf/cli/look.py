"""`pwf ls`, `show`, `explain`, `events`: reading what is stored."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from pwf.cli import exits
from pwf.cli.commands import (
    RUN_HELP,
    Commands,
    add_cursor,
    client,
    page_limit,
    say_where_a_page_ends,
)
from pwf.cli.history import print_event
from pwf.cli.out import Out, UsageError
from pwf.present import form, text
from pwf.present.explained import reason_line
from pwf.present.marks import STATUS_STYLE

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.protocol.views import RequestView, RunSummary

HEADS = ["RUN", "WORKFLOW", "STATUS", "NODE", "AGE", "NOTE"]
ID_CELLS = 24
LIST_LIMIT = 20
NO_RUNS = "no runs yet; what can be run from here is listed by:  pwf workflows"


def add(commands: Commands) -> None:
    from pwf.protocol.views import Status

    parser = commands.add(
        "ls",
        ls,
        "list runs, newest first",
        example="pwf ls\npwf ls --status held --status waiting\npwf ls --workflow release --since 1d\n"
        "pwf ls --title 1.4 --json | jq -r '.runs[].run_id'",
    )
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=get_args(Status),
        help="only these; may be repeated",
    )
    parser.add_argument("--workflow", metavar="W", help="only runs of this workflow")
    parser.add_argument(
        "--since", metavar="TIME", help="only runs made since then: ISO 8601, or a distance back (2h, 7d)"
    )
    parser.add_argument("--title", metavar="TEXT", help="only runs whose title has this text in it")
    parser.add_argument(
        "--limit", metavar="N", type=page_limit, default=LIST_LIMIT, help="at most so many (20)"
    )
    add_cursor(parser)

    parser = commands.add(
        "show",
        show,
        "show one run, or one of its steps",
        example="pwf show @last\npwf show 3kq build\npwf show 3kq --input",
        more="With NODE: all attempts of that step, and of the newest one error, output, effect, stdout and stderr.",
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("node", metavar="NODE", nargs="?", help="only this step, whole")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--events", action="store_const", dest="part", const="events", help="only its history")
    part.add_argument("--output", action="store_const", dest="part", const="output", help="as pwf output RUN")
    part.add_argument(
        "--input", action="store_const", dest="part", const="input", help="only its input, as JSON"
    )
    part.add_argument("--graph", action="store_const", dest="part", const="graph", help="only its graph")

    parser = commands.add(
        "explain",
        explain,
        "say why a run, or a resource, is where it is",
        example="pwf explain @last\npwf explain git-mirror/website",
    )
    parser.add_argument("run_id", metavar="RUN", help=f"{RUN_HELP}; or MANAGER/KEY of a resource")

    parser = commands.add(
        "events", events, "print a run's history", example="pwf events @last\npwf events 3kq --follow"
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--after", metavar="REVISION", type=int, default=0, help="only what came after it")


def ls(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.protocol.operations import RunListPayload

    payload = RunListPayload(
        statuses=tuple(options.status),
        workflow=options.workflow,
        since_ms=_since_ms(options.since, out),
        title=options.title,
        limit=options.limit,
        cursor=options.cursor,
    )
    with client() as daemon:
        listed = daemon.call("run.list", payload)
        if not listed.runs and options.workflow and (name := _name_of(daemon, options.workflow)):
            listed = daemon.call("run.list", msgspec.structs.replace(payload, workflow=name))
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.runs:
        narrowed = options.status or options.workflow or options.since or options.title
        out.note("no such runs" if narrowed else NO_RUNS)
        return exits.OK
    now_ms = out.now_ms()
    rows = [run_row(run, now_ms) for run in listed.runs]
    out.table(HEADS, rows, [STATUS_STYLE.get(run.status) for run in listed.runs])
    say_where_a_page_ends(listed.next_cursor, out)
    return exits.OK


def _since_ms(typed: str | None, out: Out) -> int | None:
    if typed is None:
        return None
    from pwf.cli.typed import past_ms

    return past_ms(typed, out.now_ms(), "--since", out.note)


def _name_of(daemon: SyncClient, typed: str) -> str | None:
    """The name of the workflow that this file's name or path means; None where it means none."""
    from pwf.cli.run import described
    from pwf.errors import PwfError

    try:
        name = described(daemon, typed).graph.name
    except PwfError:
        return None
    return name if name != typed else None


def run_row(run: RunSummary, now_ms: int) -> list[str]:
    """The cells under `HEADS`."""
    if run.due_ms is not None and run.status == "queued" and run.due_ms > now_ms:
        note = text.until(run.due_ms, now_ms)
    elif run.request_id is not None:
        note = f"request {text.line(run.request_id, ID_CELLS)}"
    else:
        note = text.headline(run.reason or "", 200)
    if run.restarted_from is not None:
        restart = f"restart of {text.line(run.restarted_from, ID_CELLS)}"
        note = f"{restart}; {note}" if note else restart
    if run.forked_from is not None:
        fork = f"fork of {text.line(run.forked_from, ID_CELLS)}"
        note = f"{fork}; {note}" if note else fork
    if run.gone_on_as is not None:
        later = f"gone on as {text.line(run.gone_on_as, ID_CELLS)}"
        note = f"{later}; {note}" if note else later
    name = text.line(run.workflow, 24)
    if run.title:
        name += f" ({text.line(run.title, 32)})" if run.title != run.workflow else ""
    node = text.line(run.node or "-", 24)
    return [text.line(run.run_id, ID_CELLS), name, run.status, node, text.age(run.created_ms, now_ms), note]


def show(options: argparse.Namespace, out: Out) -> int:
    if options.node is not None:
        if options.part is not None:
            hint = f"pwf output {options.run_id} {options.node} prints the step's output"
            raise UsageError(f"--{options.part} is of a run, not of a step", hint=hint)
        from pwf.cli.step import show_step

        return show_step(options.run_id, options.node, out)
    if options.part == "events":
        options.follow, options.after = False, 0
        return events(options, out)
    with client() as daemon:
        view = daemon.call("run.view", run_id=options.run_id)
        if options.part in ("output", "input"):
            from pwf.cli.step import print_value
            from pwf.client.asking import run_output

            value = run_output(view) if options.part == "output" else view.input
            print_value(daemon.read_value(view.summary.run_id, value), out)
        elif out.as_json:
            out.emit(view.graph if options.part == "graph" else view)
        elif options.part == "graph":
            from pwf.present.graph_text import draw

            out.print(draw(view.graph))
        else:
            from pwf.cli.sections import print_run

            print_run(view, out)
    return exits.OK


def explain(options: argparse.Namespace, out: Out) -> int:
    if "/" in options.run_id and not options.run_id.startswith("@"):  # MANAGER/KEY: no run's id has one
        from pwf.cli.resource_look import explain as explain_resource

        return explain_resource(argparse.Namespace(manager=options.run_id, key=None), out)
    with client() as daemon:
        explained = daemon.call("run.status", run_id=options.run_id)
        if out.as_json:
            out.emit(explained)
            return exits.OK
        asked = _asked(daemon, explained.summary)
    summary, why = explained.summary, explained.explanation
    title = text.line(summary.title or summary.workflow, 60)
    out.print(f"{out.paint(title, 'bold')}  {text.line(summary.run_id)}  {out.status(summary.status)}")
    out.print(f"why:      {reason_line(why)}  ({text.line(why.code)})")
    if why.changes_when:
        when = text.line(why.changes_when)
        if why.changes_at_ms is not None:
            now_ms = out.now_ms()
            when += (
                f"  ({text.clock_time(why.changes_at_ms, now_ms)}, {text.until(why.changes_at_ms, now_ms)})"
            )
        out.print(f"changes:  {when}")
    if asked is not None:
        out.print(f"asks:     {form.asked(asked, 200)}")
        for name, line in form.answer_lines(asked)[:-1]:
            out.print(f"{name + ':' if name else '':<8}  {line}")
    for number, command in enumerate(form.commands(why, asked)):
        out.print(f"{'' if number else 'type:':<8}  {command}")
    return exits.OK


def _asked(daemon: SyncClient, summary: RunSummary) -> RequestView | None:
    """The open question of a run."""
    if summary.request_id is None:
        return None
    from pwf.protocol.operations import RequestListPayload

    found = daemon.call("request.list", RequestListPayload(request=summary.request_id)).requests[0]
    return found if found.status == "pending" else None


def events(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        try:
            _events(daemon, options, out)
        except KeyboardInterrupt:
            return exits.INTERRUPTED
    return exits.OK


def _events(daemon: SyncClient, options: argparse.Namespace, out: Out) -> None:
    run_id, after = _print_from(daemon, options.run_id, options.after, out)
    if not options.follow:
        return
    # Each new state of the view is only the sign to read on, so that no event is missed or doubled.
    for _ in daemon.view(run_id):
        _, after = _print_from(daemon, run_id, after, out)


def _print_from(daemon: SyncClient, run_id: str, after: int, out: Out) -> tuple[str, int]:
    """Print all events after a revision; returns the run's own id and the last revision printed."""
    from pwf.protocol.operations import LIST_PAGE_MAX, EventsPayload

    while True:
        payload = EventsPayload(after_revision=after, limit=min(500, LIST_PAGE_MAX))
        page = daemon.call("run.events", payload, run_id=run_id)
        for event in page.events:
            print_event(event, out)
            after = event.revision
        run_id = page.run_id
        if page.next_after is None:
            return run_id, after
        after = page.next_after
