"""`pwf pause`, `resume`, `cancel`, `restart`: what a person does to a run."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, Parser, client
from pwf.cli.out import Out
from pwf.present import text


def add(commands: Commands) -> None:
    parser = commands.add(
        "pause",
        pause,
        "hold a run at its next boundary",
        example="pwf pause @last\npwf pause @last --now",
        more="The running step may end; --now stops it.",
    )
    _run_argument(parser)
    parser.add_argument("--now", action="store_true", help="stop the running step")
    parser = commands.add("resume", resume, "let a held run go on", example="pwf resume @last")
    _run_argument(parser)
    parser = commands.add("cancel", cancel, "end a run", example='pwf cancel @last --reason "wrong branch"')
    _run_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", help="kept with the run")
    parser = commands.add(
        "restart",
        restart,
        "start a run anew from its input, with the current code",
        example="pwf restart @last-failed",
        more="A run is restarted at the revision that is read just before, and printed.",
    )
    _run_argument(parser)
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if the run is still at this revision (pwf show --json)",
    )


def _run_argument(parser: Parser) -> None:
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)


def pause(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import PausePayload

    return _change("run.pause", PausePayload(now=options.now), options, out)


def resume(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import Nothing

    return _change("run.resume", Nothing(), options, out)


def cancel(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import CancelPayload

    return _change("run.cancel", CancelPayload(reason=options.reason), options, out)


def _change(operation: str, payload: object, options: argparse.Namespace, out: Out) -> int:
    import msgspec

    assert isinstance(payload, msgspec.Struct)
    with client() as daemon:
        reply = daemon.exchange(
            operation, payload, run_id=options.run_id, expected_revision=getattr(options, "revision", None)
        )
    changed = reply.result
    if out.as_json:
        out.emit({**msgspec.to_builtins(changed), "adopted": reply.outcome == "adopted"})
        return exits.OK
    already = "already " if reply.outcome == "adopted" else ""
    note = f"  {text.line(changed.note)}" if changed.note else ""
    out.print(f"{text.line(changed.run_id)}  {already}{out.status(changed.status)}{note}")
    return exits.OK


def restart(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    run_id, revision = options.run_id, options.revision
    with client() as daemon:
        if revision is None:
            seen = daemon.call("run.status", run_id=run_id).summary
            run_id, revision = seen.run_id, seen.revision
            out.note(f"restarting run {text.line(run_id)} at revision {revision}")
        reply = daemon.exchange("run.restart", run_id=run_id, expected_revision=revision)
    started = reply.result
    if out.as_json:
        out.emit({**msgspec.to_builtins(started), "adopted": reply.outcome == "adopted"})
        return exits.OK
    for warning in started.warnings:
        out.note(f"warning: {text.line(warning)}")
    if reply.outcome == "adopted":
        out.note("it was restarted before; this is that run")
    chain = f"restart {started.restart_no} of {text.line(started.restart_root or '')}"
    out.print(f"{text.line(started.run_id)}  {out.status(started.status)}  {chain}")
    out.note(f"watch it with:  pwf watch {text.line(started.run_id)}")
    return exits.OK
