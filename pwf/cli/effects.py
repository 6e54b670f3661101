"""`pwf effects` and `pwf recover`: the ledger of side effects, and a person's word on one whose outcome is unknown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, Parser, client, page_limit, say_where_a_list_ends
from pwf.cli.out import Out, UsageError
from pwf.cli.printed import STREAM_NAMES, printed_of, read_printed, size_of
from pwf.errors import Rejected
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.protocol.effects import EffectDetail
    from pwf.protocol.printed import PrintedStep
    from pwf.protocol.views import EffectView, RunSummary, StepView

#: As in `EffectStatus`; a test holds both equal.
STATUSES = ("applying", "applied", "rejected", "failed", "ambiguous", "cancelled", "abandoned")
VERDICTS = ("happened", "not-happened", "observe", "give-up")
TAIL_BYTES = 1_000  # of what an attempt has printed
VALUE_CELLS = 300
WORDS = """happened: it did; the node's output is --output (of one of several effects of a step: its own output), which
the steps after it get: null where it gives nothing.
not-happened: it did not; the node runs again. observe: ask its observe function again. give-up: nobody will know; the
attempt has failed, without retry. A run of which several are ambiguous goes on when each is settled."""


def add(commands: Commands) -> None:
    parser = commands.add(
        "effects", effects, "list side effects, show one, or say what became of it", example=LIST_EXAMPLE
    )
    parser.add_argument(
        "--ambiguous", action="store_true", help="only those whose outcome nobody knows, oldest first"
    )
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=STATUSES,
        help="only these; may be repeated",
    )
    parser.add_argument(
        "--messages", action="store_true", help="also what channels have sent (pwf channel status)"
    )
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    inner = Commands(parser.add_subparsers(dest="inner", metavar="[COMMAND]", required=False), commands.whole)
    parser = inner.add(
        "show", show, "show all that is known of one effect", example="pwf effects show 3kq:pay:1"
    )
    parser.add_argument("key", metavar="KEY", help="the effect's key: RUN:NODE:VISIT, or RUN:NODE:VISIT/NAME")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--request", action="store_true", help="only what was wanted of it, all of it (of ctx.effect)"
    )
    which.add_argument("--output", action="store_true", help="only what it gave, all of it (of ctx.effect)")
    parser = inner.add(
        "resolve", resolve, "say what became of an effect", example=RESOLVE_EXAMPLE, more=WORDS
    )
    parser.add_argument("key", metavar="KEY", help="the effect's key: RUN:NODE:VISIT, or RUN:NODE:VISIT/NAME")
    _add_word(parser)
    parser = commands.add(
        "recover", recover, "say what became of a run's ambiguous effect", example=RECOVER_EXAMPLE, more=WORDS
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    _add_word(parser, nargs="?")


LIST_EXAMPLE = "pwf effects --ambiguous\npwf effects show 3kq:pay:1"
RESOLVE_EXAMPLE = """pwf effects resolve 3kq:pay:1 happened --output '{"tag": "v1.2"}' --ref 4711
pwf effects resolve 3kq:pay:1 not-happened --note "the bank has nothing\""""
RECOVER_EXAMPLE = """pwf recover @last observe
pwf recover 3kq happened --output '{"tag": "v1.2"}'
pwf recover 3kq not-happened"""


def _add_word(parser: Parser, nargs: str | None = None) -> None:
    parser.add_argument("verdict", choices=VERDICTS, nargs=nargs, help="what is known about it")
    parser.add_argument(
        "--output",
        metavar="JSON|@FILE|-",
        help="with happened: the node's output; null: nothing",
    )
    parser.add_argument("--ref", metavar="R", help="with happened: what it is known by outside")
    parser.add_argument("--note", metavar="TEXT", help="why you say so; kept with the effect")
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if nothing has happened since this revision (pwf effects show); else as read just before",
    )


def effects(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.effects import EffectListPayload

    statuses = tuple(dict.fromkeys([*options.status, *(["ambiguous"] if options.ambiguous else [])]))
    with client() as daemon:
        payload = EffectListPayload(statuses=statuses, messages=options.messages, limit=options.limit)
        listed = daemon.call("effect.list", payload)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.effects:
        out.note("no effects")
        return exits.OK
    now_ms = out.now_ms()
    rows = [
        [
            text.line(effect.effect_key, 80),
            text.line(effect.type, 24),
            effect.mode,
            effect.status,
            str(effect.attempts),
            text.age(effect.reserved_ms or None, now_ms),
            text.line(effect.ref or "", 80),
        ]
        for effect in listed.effects
    ]
    styles = ["magenta" if effect.status == "ambiguous" else None for effect in listed.effects]
    out.table(["KEY", "TYPE", "MODE", "STATUS", "TRIES", "AGE", "REF"], rows, list(styles))
    say_where_a_list_ends(len(listed.effects), options.limit, out)
    if any(effect.status == "ambiguous" for effect in listed.effects):
        out.note("what is known of one, and what each word would do:  pwf effects show KEY")
    return exits.OK


def show(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.effects import EffectRef

    with client() as daemon:
        found = daemon.call("effect.get", EffectRef(effect_key=options.key))
        if options.request or options.output:
            _print_value(found, "request" if options.request else "output", daemon, out)
        elif out.as_json:
            out.emit(found)
        else:
            _show(found, daemon, out)
    return exits.OK


def _print_value(found: EffectDetail, which: str, daemon: SyncClient, out: Out) -> None:
    from pwf.cli.step import print_value
    from pwf.errors import NotFound

    value = found.request if which == "request" else found.output
    if value is None:
        raise NotFound(
            f"no {which} of effect {found.effect.effect_key} is kept",
            hint=f"pwf effects show {found.effect.effect_key}",
        )
    print_value(daemon.read_value(found.run.run_id, value), out)


def _show(found: EffectDetail, daemon: SyncClient, out: Out) -> None:
    effect, now_ms = found.effect, out.now_ms()
    facts = {
        "effect": text.line(effect.effect_key),
        "outside": effect.outside_key,
        "type": f"{text.line(effect.type)}  ({effect.mode})",
        "status": out.paint(effect.status, "magenta") if effect.status == "ambiguous" else effect.status,
        "known": text.line(found.known),
        "run": f"{text.line(found.run.run_id)}  {text.line(found.run.workflow)}  {out.status(found.run.status)}",
        "made by": f"{text.line(found.made_at)}  (its input: pwf show {text.line(found.run.run_id)})",
        "request": None if found.request is None else text.brief(found.request, VALUE_CELLS),
        "fingerprint": effect.fingerprint,
        "output": None if found.output is None else text.brief(found.output, VALUE_CELLS),
        "error": None if effect.error is None else text.headline(effect.error.message, VALUE_CELLS),
        "begun": f"{text.ago(effect.reserved_ms or None, now_ms)}, {text.count(effect.attempts, 'attempt')}",
        "settled": None if effect.settled_ms is None else text.ago(effect.settled_ms, now_ms),
        "reference": effect.ref,
        "said by": effect.settled_by,
        "note": effect.note,
    }
    for name, value in facts.items():
        if value is not None:
            said = name in ("outside", "reference", "said by", "note")
            out.print(f"{name:<11} {text.line(value) if said else value}")
    for name, kept in (("request", found.request), ("output", found.output)):
        if kept is not None and kept.size > VALUE_CELLS:
            whole = f"pwf effects show {text.line(effect.effect_key)} --{name}"
            out.print(out.paint(f"all of its {name}: {whole}", "dim"))
    for step in found.steps:
        _show_step(step, found, daemon, out)
    for word in found.words:
        out.print(f"\n{out.paint(text.line(word.command), 'bold')}\n  {text.line(word.does)}")


def _show_step(step: StepView, found: EffectDetail, daemon: SyncClient, out: Out) -> None:
    began = text.ago(step.started_ms, out.now_ms())
    line = f"\nattempt {step.attempt}  {step.status}, in generation {step.generation}, begun {began}"
    out.print(line + (f": {text.line(step.summary)}" if step.error is not None else ""))
    if not step.printed_bytes and step.status != "active":
        return
    run_id = found.run.run_id
    for one in printed_of(daemon, run_id, step.attempt):
        for stream in STREAM_NAMES:
            for printed in _tail(run_id, one, stream, daemon):
                out.print(out.paint(f"  {stream}  {printed}", "dim"))


def _tail(run_id: str, step: PrintedStep, stream: str, daemon: SyncClient) -> list[str]:
    """The end of what an attempt has printed there, by lines."""
    size = size_of(step, stream)
    if not size:
        return []
    piece = read_printed(daemon, run_id, step.attempt, stream, max(0, size - TAIL_BYTES))
    return [text.line(line) for line in piece.data.decode("utf-8", "replace").splitlines()]


def resolve(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.effects import EffectRef

    _check(options, "pwf effects resolve --help")
    with client() as daemon:
        found = daemon.call("effect.get", EffectRef(effect_key=options.key))
    _about(options, found.run)
    return _say_of(options, found.effect, found.run, out)


def recover(options: argparse.Namespace, out: Out) -> int:
    """The short form: the run's only ambiguous effect is shown, and the word is about that one and no later one."""
    _check(options, "pwf recover --help")
    with client() as daemon:
        view = daemon.call("run.view", run_id=options.run_id)
    _about(options, view.summary)
    found: list[EffectView] = [effect for effect in view.effects if effect.status == "ambiguous"]
    if options.verdict is None:
        for effect in found:
            out.note(_line_of(effect, out))
        run_id = text.line(options.run_id)
        if not found:
            raise Rejected(f"nothing of run {run_id} is in doubt", hint=f"pwf explain {run_id}")
        raise UsageError("say what became of it", hint=f"pwf recover {run_id} {'|'.join(VERDICTS)}")
    if len(found) != 1:
        return _say(options, None, out)  # the daemon says so
    return _say_of(options, found[0], view.summary, out)


def _about(options: argparse.Namespace, seen: RunSummary) -> None:
    """The word is about this run as it is shown now, whatever @last means and whatever has happened when it arrives."""
    options.run_id = seen.run_id
    options.revision = seen.revision if options.revision is None else options.revision


def _say_of(options: argparse.Namespace, effect: EffectView, seen: RunSummary, out: Out) -> int:
    """Raises `UsageError` where an output is wanted and not given: what is said can't be taken back."""
    out.note(_line_of(effect, out))
    wanted = effect.status == "ambiguous" and seen.ended_ms is None and options.verdict == "happened"
    if wanted and options.output is None:
        raise UsageError(
            "say what it gave: the steps after it get that, and it can not be changed later",
            hint="--output JSON; --output null where it gives nothing",
        )
    return _say(options, effect.effect_key, out)


def _line_of(effect: EffectView, out: Out) -> str:
    began = text.ago(effect.reserved_ms or None, out.now_ms())
    tries = text.count(effect.attempts, "attempt")
    return f"{text.line(effect.type)}: effect {text.line(effect.effect_key)}, begun {began}, {tries}"


def _check(options: argparse.Namespace, hint: str) -> None:
    for name in ("output", "ref"):
        if getattr(options, name) is not None and options.verdict != "happened":
            raise UsageError(f"--{name} goes only with happened", hint=hint)


def _say(options: argparse.Namespace, key: str | None, out: Out) -> int:
    import msgspec

    from pwf.cli.control import change
    from pwf.cli.typed import json_argument
    from pwf.protocol.effects import ResolvePayload
    from pwf.values import canonical

    value = None if options.output is None else json_argument(options.output, "--output")
    payload = ResolvePayload(
        verdict=options.verdict.replace("-", "_"),
        effect_key=key,
        output=msgspec.Raw(canonical(value, what="the output")),
        ref=options.ref,
        note=options.note,
    )
    return change("effect.resolve", payload, options, out)
