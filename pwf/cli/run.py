"""`pwf run`: start a workflow, and follow it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.core import CallReply
    from pwf.client.sync import SyncClient
    from pwf.protocol.views import RunView


def add(commands: Commands) -> None:
    parser = commands.add(
        "run",
        run,
        "start a workflow and watch it to its end",
        example="pwf run hello --set name=Ada\npwf run ./release.py --input @release.json --detach\n"
        "pwf run nightly --at 2030-01-31T02:00 --key nightly-31 --input '{\"full\": true}'",
        more="Ctrl-C leaves the run going.",
    )
    parser.add_argument("workflow", metavar="WORKFLOW", help="a name in .pwf/workflows, or a path to a file")
    parser.add_argument("--input", metavar="JSON|@FILE|-", help="the input: JSON, a file, or - for stdin")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a part of the input (a.b=VALUE; JSON where it parses, else text); may be repeated",
    )
    parser.add_argument("--id", metavar="ID", help="the run's id; an equal run that has it is adopted")
    parser.add_argument("--key", metavar="IDEMPOTENCY_KEY", help="the same key never starts a second run")
    parser.add_argument("--at", metavar="TIME", help="start later: ISO 8601, or +10m, 2h30m")
    parser.add_argument("--detach", action="store_true", help="return as soon as the run is stored")


def run(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        reply = _start(daemon, options, out)
        started = reply.result
        if options.detach:
            _say_started(reply, out)
            return exits.OK
        try:
            return follow_to_end(daemon, started.run_id, out, started=reply)
        except KeyboardInterrupt:
            from pwf.cli.follow import come_back

            come_back(started.run_id, out)
            return exits.INTERRUPTED


def _start(daemon: SyncClient, options: argparse.Namespace, out: Out) -> CallReply:
    import msgspec

    from pwf.cli import typed
    from pwf.client.origin import origin
    from pwf.errors import InvalidInput
    from pwf.protocol.operations import StartPayload
    from pwf.values import canonical

    if options.id is not None:
        from pwf.ids import check_id

        check_id(options.id, "--id")
    if options.key is not None:
        from pwf.ids import check_key

        check_key(options.key, "--key")
    payload = StartPayload(
        workflow=options.workflow,
        origin=origin(daemon.places),
        input=msgspec.Raw(canonical(typed.run_input(options.input, options.set), what="input")),
        run_id=options.id,
        at_ms=None if options.at is None else typed.at_ms(options.at, out.now_ms(), out.note),
    )
    try:
        return daemon.exchange("run.start", payload, key=options.key)
    except InvalidInput as error:
        if options.set and 'not of type "string"' in error.message:
            quoted = "what reads as JSON is JSON; to pass it as text, quote it:  --set 'version=\"1\"'"
            raise InvalidInput(error.message, hint=quoted) from error
        raise
    except KeyboardInterrupt:
        out.note("\ninterrupted before the daemon answered; look for the run with:  pwf ls")
        raise


def _say_started(reply: CallReply, out: Out) -> None:
    started = reply.result
    if out.as_json:
        out.emit(
            {
                "run_id": started.run_id,
                "status": started.status,
                "revision": started.revision,
                "adopted": reply.outcome == "adopted",
                "code_is_older": started.code_is_older,
                "warnings": started.warnings,
            }
        )
        return
    _notes(reply, out)
    out.print(text.line(started.run_id))


def _notes(reply: CallReply, out: Out) -> None:
    started = reply.result
    for warning in started.warnings:
        out.note(f"warning: {text.line(warning)}")
    if reply.outcome == "adopted":
        older = ", with code that is older than the file" if started.code_is_older else ""
        out.note(f"adopted the run that exists{older}: {text.line(started.run_id)} ({started.status})")


def follow_to_end(daemon: SyncClient, run_id: str, out: Out, *, started: CallReply | None = None) -> int:
    """Follow a run, print how it ended; returns the exit code."""
    if out.as_json:
        result = daemon.wait(run_id)
        out.emit(result)
        return exits.of_status(result.summary.status)
    from pwf.cli.follow import follow

    if started is not None:
        _notes(started, out)
        if not out.is_terminal:
            out.print(f"run {text.line(run_id)}")
    view = follow(daemon, run_id, out, ask=True)
    print_end(daemon, view, out)
    return exits.of_status(view.summary.status)


OUTPUT_BYTES_SHOWN = 16 * 1024


def print_end(daemon: SyncClient, view: RunView, out: Out) -> None:
    """The last words about an ended run: output, or why it failed."""
    from pwf.present.tree import final_lines

    summary = view.summary
    if not out.is_terminal:
        took = text.duration((summary.ended_ms or out.now_ms()) - (summary.started_ms or summary.created_ms))
        out.print(f"{out.status(summary.status)} in {took}")
    for line in final_lines(view, out.now_ms()):
        out.print("".join(out.paint(piece.text, piece.style) for piece in line))
    if view.output is None or summary.status != "completed":
        return
    if view.output.size > OUTPUT_BYTES_SHOWN:
        shown = text.size(view.output.size)
        out.print(f"the output has {shown}; see it with:  pwf show {text.line(summary.run_id)} --output")
        return
    data = daemon.read_value(summary.run_id, view.output)
    if data != b"null":
        out.print(text.pretty(data))
