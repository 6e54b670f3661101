"""`pwf output RUN [NODE]`, and `pwf show RUN NODE`: what one step gave, said and did, whole."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.printed import STREAM_NAMES, printed_of, read_printed, size_of
from pwf.errors import NotFound
from pwf.present import progress, text

if TYPE_CHECKING:
    from pwf.client.asking import Asking
    from pwf.client.sync import SyncClient
    from pwf.protocol.printed import PrintedStep
    from pwf.protocol.runner import Value
    from pwf.protocol.views import RunView

T = TypeVar("T")
PRINTED_SHOWN = 16 * 1024  # of each stream; pwf logs has all of it
REJECTED_SHOWN = 5  # of the submissions of a step, the newest
OUTPUT_SHOWN = 64 * 1024


def add(commands: Commands) -> None:
    parser = commands.add(
        "output",
        output,
        "print the output of a run or of one of its steps",
        example="pwf output @last\npwf output 3kq build --raw > notes.txt\npwf output 3kq review --json | jq .verdict",
        more="Of a step: the output of its newest visit that completed. --raw prints a text without quotes and\n"
        "escapes, and anything else as one line of JSON.",
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("node", metavar="NODE", nargs="?", help="of this step; without it, of the run")
    parser.add_argument("--raw", action="store_true", help="the very value: a text without quotes")


def output(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.asking import output_value

    if options.raw and out.as_json:
        raise UsageError("--raw and --json exclude each other", hint="pwf output --help")
    with client() as daemon:
        run_id, value = _ask(daemon, output_value(options.run_id, options.node))
        print_value(daemon.read_value(run_id, value), out, raw=options.raw)
    return exits.OK


def _ask(daemon: SyncClient, asking: Asking[T]) -> T:
    from pwf.client.asking import ask_all

    return ask_all(asking, lambda operation, payload, run_id: daemon.call(operation, payload, run_id=run_id))


def print_value(data: bytes, out: Out, *, raw: bool = False) -> None:
    """JSON for people, as a line for programs, or with `raw` the very text."""
    if raw:
        plain = msgspec.json.decode(data)
        sys.stdout.buffer.write(
            plain.encode("utf-8", "surrogatepass") if isinstance(plain, str) else data + b"\n"
        )
        sys.stdout.buffer.flush()
    else:
        out.print(text.json_line(data) if out.as_json else text.pretty(data))


# --- pwf show RUN NODE ----------------------------------------------------------------------------------------


def show_step(run_id: str, node: str, out: Out) -> int:
    """All attempts of a node, and of the newest one everything."""
    from pwf.cli.sections import agent_usage, print_error_lines, section
    from pwf.client.asking import steps_of

    with client() as daemon:
        view = _ask(daemon, steps_of(run_id, node))
        run_id = view.summary.run_id
        effects = [effect for effect in view.effects if effect.node == node]
        if out.as_json:
            out.emit({"run_id": run_id, "node": node, "steps": view.steps, "effects": effects})
            return exits.OK
        if not view.steps:
            out.note(f"run {text.line(run_id)}: {text.line(node)} has not run yet")
            return exits.OK
        _attempts(view, out)
        newest = view.steps[-1]
        if newest.work is not None:
            section("Agent", out)
            out.print(f"  {text.line(newest.work.agent)}{agent_usage(newest.work.used)}")
            if newest.work.conversation is not None:
                out.print(f"  conversation {text.line(newest.work.conversation)}")
            if newest.work.afresh is not None:
                out.print(f"  begun afresh: {text.line(newest.work.afresh)}")
        _rejected(daemon, view, node, out)
        if newest.error is not None:
            section("Error", out)
            print_error_lines(newest.error, out)
        mount = view.graph.node(node).mount
        if newest.output is not None:
            _output(daemon, run_id, newest.output, node, out, "Output" if mount is None else "Input")
        if mount is not None:
            _left(daemon, run_id, node, out)
        for effect in effects:
            section("Effect", out)
            visit = f", visit {effect.visit}" if effect.visit > 1 else ""
            ref = f"  {text.line(effect.ref)}" if effect.ref else ""
            tries = text.count(effect.attempts, "attempt")
            out.print(f"  {text.line(effect.type)}  {effect.mode}  {effect.status}  {tries}{visit}{ref}")
            out.print(f"  {text.line(effect.effect_key)}")
        for one in printed_of(daemon, run_id, newest.attempt):
            _printed(daemon, run_id, one, out)
    return exits.OK


def _attempts(view: RunView, out: Out) -> None:
    now_ms = out.now_ms()
    rows, styles = [], []
    for step in view.steps:
        took = text.duration((step.ended_ms or now_ms) - step.started_ms)
        began = text.clock_time(step.started_ms, now_ms)
        summary = text.headline(step.summary, 200)
        rows.append(
            [
                str(step.attempt),
                str(step.visit),
                "-" if step.observed else str(step.tries),
                step.status,
                began,
                took,
                summary,
            ]
        )
        styles.append(progress.STEP_STYLE.get(step.status))
    out.table(["#", "VISIT", "TRY", "STATUS", "BEGAN", "TIME", "SUMMARY"], rows, styles)


def _rejected(daemon: SyncClient, view: RunView, node: str, out: Out) -> None:
    """What was submitted for it and rejected, also where another submission was accepted afterwards."""
    from pwf.cli.sections import section
    from pwf.client.asking import history
    from pwf.protocol.kinds import KINDS

    if not KINDS[view.graph.node(node).kind].headless:
        return
    events = _ask(daemon, history(view.summary.run_id, 0))
    facts = [(one, msgspec.json.decode(one.payload)) for one in events if one.kind == "submission_rejected"]
    found = [(one.at_ms, said["reason"]) for one, said in facts if said["node"] == node]
    if not found:
        return
    section(f"Rejected submissions ({len(found)})", out)
    for at_ms, reason in found[-REJECTED_SHOWN:]:
        first, *more = text.block(reason).splitlines() or [""]
        out.print(f"  {text.clock_time(at_ms, out.now_ms())}  {first}")
        for line in more:
            out.print(f"            {line}")


def _left(daemon: SyncClient, run_id: str, node: str, out: Out) -> None:
    """What an included workflow was left with."""
    from pwf.client.asking import output_value

    try:
        _, value = _ask(daemon, output_value(run_id, node))
    except NotFound as why:
        out.note(text.line(why.message))
    else:
        _output(daemon, run_id, value, node, out)


def _output(
    daemon: SyncClient, run_id: str, value: Value, node: str, out: Out, title: str = "Output"
) -> None:
    from pwf.cli.sections import section

    section(title, out)
    if value.size > OUTPUT_SHOWN:
        size = text.size(value.size)
        out.print(f"  {size}; see it with:  pwf output {text.line(run_id)} {text.line(node)}")
        return
    for line in text.pretty(daemon.read_value(run_id, value)).splitlines():
        out.print(f"  {line}")


def _printed(daemon: SyncClient, run_id: str, step: PrintedStep, out: Out) -> None:
    """The beginning of what the attempt printed to each stream."""
    from pwf.cli.sections import section

    for stream, name in STREAM_NAMES.items():
        size = size_of(step, stream)
        if not size:
            continue
        section(name.capitalize(), out)
        data = read_printed(daemon, run_id, step.attempt, stream).data
        words = data[:PRINTED_SHOWN].decode("utf-8", "replace")
        for line in text.block(words).splitlines():
            out.print(f"  {line}")
        if size > PRINTED_SHOWN:
            more = f"pwf logs {text.line(run_id)} --attempt {step.attempt} --{stream}"
            out.print(out.paint(f"  all {text.size(size)} of it: {more}", "dim"))
