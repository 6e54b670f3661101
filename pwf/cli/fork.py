"""`pwf retry`, `pwf fork`: go on from a step of a run, in a new run that takes over what came before."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, Parser, client
from pwf.cli.control import add_who, say_new_run
from pwf.cli.out import Out, UsageError
from pwf.present import text

if TYPE_CHECKING:
    import msgspec

    from pwf.client.sync import SyncClient
    from pwf.protocol.graph import WorkflowGraph
    from pwf.protocol.views import RunView


def add(commands: Commands) -> None:
    parser = commands.add(
        "retry",
        retry,
        "go on from where a run failed, in a new run, with the current code",
        example="pwf retry @last-failed\npwf retry 3kq --max-steps 500\npwf retry 3kq --agent coder\n"
        "pwf retry 3kq --code stored --json",
        more="The new run takes over the outputs of the steps before; effects and answers it does not. A run that\n"
        "reached max_steps is gone on with under a higher one. To begin anew instead:  pwf restart RUN",
    )
    _arguments(parser)
    parser = commands.add(
        "fork",
        fork,
        "go on from a step of a run, in a new run",
        example="pwf fork @last --from deploy\npwf fork 3kq --from 'review#2' --code stored\n"
        "pwf fork 3kq --from build --set version=1.5 --repeat-effects",
        more="The new run takes over the outputs of the steps before NODE (its newest visit, or NODE#VISIT) and runs\n"
        "NODE and what follows. The old run stays as it is: one that goes on does so.",
    )
    _arguments(parser)
    parser.add_argument(
        "--from", dest="node", metavar="NODE[#VISIT]", required=True, help="the step to go on with"
    )
    parser.add_argument("--input", metavar="JSON|@FILE|-", help="another input than the run's own")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a part of the input (a.b=VALUE): of the run's own, or of --input; may be repeated",
    )


def _arguments(parser: Parser) -> None:
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--code",
        choices=("current", "stored"),
        default="current",
        help="the files as they are now (the default), or the code that the run has executed",
    )
    parser.add_argument(
        "--max-steps", metavar="N", type=int, help="in place of the workflow's max_steps; earlier steps count"
    )
    parser.add_argument(
        "--repeat-effects", action="store_true", help="effects that happened may happen once more"
    )
    parser.add_argument(
        "--keep-answers", action="store_true", help="what you and others answered holds for the new run"
    )
    add_who(parser)
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if the run is still at this revision (pwf show --json)",
    )


def retry(options: argparse.Namespace, out: Out) -> int:
    return _fork(options, out, None, None)


def fork(options: argparse.Namespace, out: Out) -> int:
    node, mark, number = options.node.partition("#")
    if not node or (mark and not (number.isdecimal() and int(number) > 0)):
        raise UsageError(
            f"--from {options.node!r} names no visit of a step",
            hint="NODE for the newest visit, or NODE#2 for the second",
        )
    return _fork(options, out, node, int(number) if mark else None)


def _fork(options: argparse.Namespace, out: Out, node: str | None, visit: int | None) -> int:
    from pwf.protocol.forks import ForkPayload

    with client() as daemon:
        payload = ForkPayload(
            node=node,
            visit=visit,
            input=_input(daemon, options),
            code=options.code,
            max_steps=options.max_steps,
            repeat_effects=options.repeat_effects,
            keep_answers=options.keep_answers,
            agent=options.agent,
            session=options.session,
        )
        reply = daemon.exchange(
            "run.fork", payload, run_id=options.run_id, expected_revision=options.revision
        )
    started = reply.result
    where = f"goes on at {text.line(started.node or '')}, from run {text.line(started.forked_from or '')}"
    say_new_run(reply, out, where, adopted="it was asked for before, and goes on; this is that run")
    return exits.OK


def _input(daemon: SyncClient, options: argparse.Namespace) -> msgspec.Raw | None:
    """The new run's input; None where it is the old one's. `options.run_id` is the run's own id from then on."""
    import msgspec

    from pwf.cli.reading import run_input
    from pwf.values import canonical

    typed, sets = getattr(options, "input", None), getattr(options, "set", [])
    if typed is None and not sets:
        return None
    base, schema = None, None
    if sets:
        view = daemon.call("run.view", run_id=options.run_id)
        options.run_id = view.summary.run_id  # the run whose input is read is the one that is forked
        schema = _graph(daemon, view, options.code).input_schema
        if typed is None:
            base = msgspec.json.decode(daemon.read_value(options.run_id, view.input))
    return msgspec.Raw(canonical(run_input(typed, sets, schema, base=base), what="input"))


def _graph(daemon: SyncClient, view: RunView, code: str) -> WorkflowGraph:
    """The graph that the new run will have; where the file is gone, that of the old one: the daemon says why."""
    from pwf.cli.run import described_if_sound

    found = None if code == "stored" else described_if_sound(daemon, view.graph.file)
    return view.graph if found is None else found.graph
