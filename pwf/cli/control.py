"""`pwf pause`, `resume`, `cancel`, `restart`: what a person does to a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.budget import add_budget, budget_of
from pwf.cli.commands import RUN_HELP, Commands, Parser, client
from pwf.cli.out import Out, print_error
from pwf.errors import PwfError
from pwf.present import text

if TYPE_CHECKING:
    import msgspec

    from pwf.client.core import CallReply


def add(commands: Commands) -> None:
    parser = commands.add(
        "pause",
        pause,
        "hold runs at their next boundary",
        example="pwf pause @last\npwf pause 3kq 7fd --now",
        more="The running step may end; --now stops it.",
    )
    _runs_argument(parser)
    parser.add_argument("--now", action="store_true", help="stop the running step")
    parser = commands.add(
        "resume",
        resume,
        "let held runs go on",
        example="pwf resume @last\npwf resume 3kq 7fd\npwf resume 3kq --budget tokens=100000 --budget money=2",
    )
    _runs_argument(parser)
    add_budget(parser, "so much more than its agents have used, of a run that is held for that")
    parser = commands.add(
        "cancel",
        cancel,
        "end runs",
        example='pwf cancel @last --reason "wrong branch"\npwf cancel 3kq 7fd\n'
        "pwf ls --status waiting --json | jq -r '.runs[].run_id' | xargs pwf cancel",
    )
    _runs_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", help="kept with the run")
    parser = commands.add(
        "restart",
        restart,
        "start a run anew from its input, with the current code",
        example="pwf restart @last-failed\npwf restart 3kq --agent coder",
        more="A run is restarted at the revision that is read just before, and printed. It begins anew: effects that\n"
        "have happened are made again, and a warning names them. pwf retry goes on from where it failed, and makes\n"
        "none twice.",
    )
    _run_argument(parser)
    add_who(parser)
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if the run is still at this revision (pwf show --json)",
    )


def add_who(parser: Parser) -> None:
    """Who does the steps of agents of a run that comes from another."""
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help="who does the steps of agents from now on: one of `pwf agents`, or person; as before unless it is said",
    )
    parser.add_argument("--session", metavar="ID", help="the same: the model of one of `pwf sessions`")


def _run_argument(parser: Parser) -> None:
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)


def _runs_argument(parser: Parser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=RUN_HELP)


def pause(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import PausePayload

    return _change_each("run.pause", PausePayload(now=options.now), options, out)


def resume(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.agents import ResumePayload

    return _change_each("run.resume", ResumePayload(budget=budget_of(options.budget)), options, out)


def cancel(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import CancelPayload

    return _change_each("run.cancel", CancelPayload(reason=options.reason), options, out)


def change(operation: str, payload: msgspec.Struct, options: argparse.Namespace, out: Out) -> int:
    """One operation on one run, at the revision that is asked for, if any."""
    with client() as daemon:
        reply = daemon.exchange(
            operation, payload, run_id=options.run_id, expected_revision=getattr(options, "revision", None)
        )
    _say_changed(reply, out)
    return exits.OK


def _change_each(operation: str, payload: msgspec.Struct, options: argparse.Namespace, out: Out) -> int:
    """The same to each run that is named, whatever becomes of the others. The exit code is the first refusal's."""
    code = exits.OK
    with client() as daemon:
        for run_id in options.run_ids:
            try:
                reply = daemon.exchange(operation, payload, run_id=run_id)
            except PwfError as refusal:
                if len(options.run_ids) == 1 or exits.of_error(refusal.code) == exits.UNAVAILABLE:
                    raise  # and what can't be reached now can't be for the next one
                refusal.message = f"{run_id}: {refusal.message}"
                print_error(refusal, as_json=out.as_json)
                code = code or exits.of_error(refusal.code)
            else:
                _say_changed(reply, out)
    return code


def _say_changed(reply: CallReply, out: Out) -> None:
    changed = reply.result
    if out.as_json:
        out.emit_reply(reply)
        return
    already = "already " if reply.outcome == "adopted" else ""
    note = f"  {text.line(changed.note)}" if changed.note else ""
    out.print(f"{text.line(changed.run_id)}  {already}{out.status(changed.status)}{note}")


def restart(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.forks import RestartPayload

    run_id, revision = options.run_id, options.revision
    with client() as daemon:
        if revision is None:
            seen = daemon.call("run.status", run_id=run_id).summary
            run_id, revision = seen.run_id, seen.revision
            out.note(f"restarting run {text.line(run_id)} at revision {revision}")
        payload = RestartPayload(agent=options.agent, session=options.session)
        reply = daemon.exchange("run.restart", payload, run_id=run_id, expected_revision=revision)
    started = reply.result
    where = f"restart {started.restart_no} of {text.line(started.restart_root or '')}"
    say_new_run(reply, out, where, adopted="it was restarted before; this is that run")
    return exits.OK


def say_new_run(reply: CallReply, out: Out, where: str, *, adopted: str) -> None:
    """A run that another one goes on as. `adopted`: what to say where it was there already."""
    if out.as_json:
        out.emit_reply(reply)
        return
    started = reply.result
    for warning in started.warnings:
        out.note(f"warning: {text.line(warning)}")
    if reply.outcome == "adopted":
        out.note(adopted)
    out.print(f"{text.line(started.run_id)}  {out.status(started.status)}  {where}")
    if started.took_over:
        out.note(f"taken over: {', '.join(map(text.line, started.took_over))}")
    out.note(f"watch it with:  pwf watch {text.line(started.run_id)}")
