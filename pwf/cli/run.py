"""`pwf run`: start a workflow, and follow it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.budget import add_budget, budget_of
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.patience import Patience, add_patience, patience, say_what_to_type
from pwf.present import text
from pwf.protocol.views import ENDED

if TYPE_CHECKING:
    from pwf.client.core import CallReply
    from pwf.client.sync import SyncClient
    from pwf.protocol.operations import WorkflowDescription
    from pwf.protocol.views import RunView


def add(commands: Commands) -> None:
    parser = commands.add(
        "run",
        run,
        "start a workflow and watch it to its end",
        example="pwf run hello --set name=Ada\npwf run ./release.py --input @release.json --detach\n"
        "pwf run nightly --at 2030-01-31T02:00 --key nightly-31 --input '{\"full\": true}'\n"
        "pwf run nightly --until parked --timeout 2h --json < /dev/null\n"
        "pwf run release --env CI --env STAGE=test\npwf run review --agent coder",
        more="Ctrl-C leaves the run going. The run's id comes first. Without a terminal on stdin nobody can answer:\n"
        "run then returns with exit code 7 when the run needs a person, and says what to type (unless --until ended).\n"
        "--json prints lines: the run's id first, its last state at the end.",
    )
    parser.add_argument("workflow", metavar="WORKFLOW", help="a name in .pwf/workflows, or a path to a file")
    parser.add_argument("--input", metavar="JSON|@FILE|-", help="the input: JSON, a file, or - for stdin")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a part of the input (a.b=VALUE), read as its declared type says; may be repeated",
    )
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="pass a variable to the run, as it is set here or with this value; may be repeated; it is stored (secrets "
        "have a way of their own: docs/security.md)",
    )
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help="who does the steps of agents: one of `pwf agents`, or person (they wait for `pwf submit`)",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        help="one of `pwf sessions`: its model does the steps of agents, and is told how the run ends",
    )
    parser.add_argument(
        "--max-steps",
        metavar="N",
        type=int,
        help="how many steps it may take, in place of the workflow's own",
    )
    add_budget(parser, "what its agents may use")
    parser.add_argument("--id", metavar="ID", help="the run's id; an equal run that has it is adopted")
    parser.add_argument("--key", metavar="IDEMPOTENCY_KEY", help="the same key never starts a second run")
    parser.add_argument("--at", metavar="TIME", help="start later: ISO 8601, or +10m, 2h30m")
    parser.add_argument("--detach", action="store_true", help="return as soon as the run is stored")
    add_patience(parser, default="the default without a terminal on stdin")


def run(options: argparse.Namespace, out: Out) -> int:
    if options.detach and (options.until or options.timeout):
        raise UsageError(
            "--detach does not wait: it goes with neither --until nor --timeout", hint="pwf run --help"
        )
    waits = patience(options)
    with client() as daemon:
        reply = _start(daemon, options, out)
        _say_started(reply, out, detached=options.detach)
        return exits.OK if options.detach else follow_it(daemon, reply.result.run_id, out, waits.begun())


def _start(daemon: SyncClient, options: argparse.Namespace, out: Out) -> CallReply:
    import msgspec

    from pwf.cli import typed
    from pwf.client.origin import origin
    from pwf.protocol.operations import StartPayload
    from pwf.values import canonical

    if options.id is not None:
        from pwf.ids import check_id

        check_id(options.id, "--id")
    if options.key is not None:
        from pwf.ids import check_key

        check_key(options.key, "--key")
    at_ms: int | None = None
    if options.at is not None:
        at_ms = typed.at_ms(options.at, out.now_ms(), out.note)
        out.note(f"it starts at {typed.zoned(at_ms)}, {text.until(at_ms, out.now_ms())}")
    payload = StartPayload(
        workflow=options.workflow,
        origin=origin(daemon.places, options.workflow, more=_variables(options.env)),
        input=msgspec.Raw(canonical(typed_input(daemon, options), what="input")),
        run_id=options.id,
        at_ms=at_ms,
        agent=options.agent,
        session=options.session,
        max_steps=options.max_steps,
        budget=budget_of(options.budget),
    )
    try:
        return daemon.begin(payload, key=options.key)
    except KeyboardInterrupt:
        out.note("\ninterrupted before the daemon answered; look for the run with:  pwf ls")
        raise


def _variables(texts: list[str]) -> dict[str, str]:
    """What --env gives. Raises `UsageError` for a name that is not set here."""
    import os

    given: dict[str, str] = {}
    for text_given in texts:
        name, has_value, value = text_given.partition("=")
        if not has_value and name not in os.environ:
            raise UsageError(
                f"--env {name}: there is no variable of that name here", hint=f"--env {name}=VALUE"
            )
        given[name] = value if has_value else os.environ[name]
    return given


def typed_input(daemon: SyncClient, options: argparse.Namespace) -> Any:
    """The input that `--input` and `--set` give, read as the workflow declares it."""
    from pwf.cli.reading import run_input

    found = described_if_sound(daemon, options.workflow) if options.set else None
    return run_input(options.input, options.set, None if found is None else found.graph.input_schema)


def described_if_sound(
    daemon: SyncClient, workflow: str, *, or_manager: bool = False
) -> WorkflowDescription | None:
    """As `described`; None where its file can't be loaded: the start or the apply says why, or is a repeat."""
    from pwf.errors import PwfError

    try:
        return described(daemon, workflow, or_manager=or_manager)
    except PwfError as error:
        if exits.of_error(error.code) in (exits.UNSOUND, exits.NOT_FOUND):
            return None
        raise


def described(daemon: SyncClient, workflow: str, *, or_manager: bool = False) -> WorkflowDescription:
    """What the daemon knows of a workflow (or a resource manager), by name or path as seen from here."""
    from pwf.client.origin import origin
    from pwf.protocol.operations import WorkflowRef

    found: WorkflowDescription = daemon.call(
        "workflow.describe",
        WorkflowRef(workflow=workflow, origin=origin(daemon.places, workflow), or_manager=or_manager),
    )
    return found


def _say_started(reply: CallReply, out: Out, *, detached: bool) -> None:
    """The run's id before anything else, so that a script has it whatever comes; a live tree has it in its head."""
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
    if detached:
        out.print(text.line(started.run_id))
    elif not out.is_terminal:
        out.print(f"run {text.line(started.run_id)}")
    for warning in started.warnings:
        out.note(f"warning: {text.line(warning)}")
    if reply.outcome == "adopted":
        older = ", with code that is older than the file" if started.code_is_older else ""
        out.note(f"adopted the run that exists{older}: {text.line(started.run_id)} ({started.status})")


def follow_it(daemon: SyncClient, run_id: str, out: Out, waits: Patience, *, every: bool = False) -> int:
    """Follow a run and print where it arrived; returns the exit code. `every`: with --json, each state as a line."""
    from pwf.cli.follow import follow

    followed = follow(daemon, run_id, out, waits, every=every)
    if out.as_json:
        if not every:
            out.emit(followed.view)
    elif followed.done and followed.view.summary.status in ENDED:
        print_end(daemon, followed.view, out)
    else:
        say_what_to_type(followed, out)
    return followed.code


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
    if summary.status == "failed":
        out.note(f"what there is to do:  pwf explain {text.line(summary.run_id)}")
    if view.output is None or summary.status != "completed":
        return
    if view.output.size > OUTPUT_BYTES_SHOWN:
        shown = text.size(view.output.size)
        out.print(f"the output has {shown}; see it with:  pwf output {text.line(summary.run_id)}")
        return
    data = daemon.read_value(summary.run_id, view.output)
    if data != b"null":
        out.print(text.pretty(data))
