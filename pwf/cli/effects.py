"""`pwf effects` and `pwf recover`: the ledger of side effects, and a person's verdict on an ambiguous one."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client, page_limit
from pwf.cli.out import Out, UsageError
from pwf.present import text

#: As in `EffectListPayload`; a test holds both equal.
STATUSES = ("applying", "applied", "rejected", "failed", "ambiguous", "cancelled")

EXAMPLE = """pwf recover @last observe
pwf recover 3kq applied --output '{"tag": "v1.2"}'
pwf recover 3kq retry"""


def add(commands: Commands) -> None:
    parser = commands.add(
        "effects", effects, "list side effects", example="pwf effects\npwf effects --status ambiguous"
    )
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=STATUSES,
        help="only these; may be repeated",
    )
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    parser = commands.add(
        "recover",
        recover,
        "decide an ambiguous effect",
        example=EXAMPLE,
        more="applied: it happened, go on with --output. retry: it did not happen, run it again.\n"
        "observe: ask the node's observe function again.",
    )
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("verdict", choices=("applied", "retry", "observe"), help="what is known about it")
    parser.add_argument("--output", metavar="JSON|@FILE|-", help="with applied: the node's output (null)")
    parser.add_argument(
        "--effect", metavar="KEY", help="the effect, where the run has several (pwf effects --json)"
    )
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if nothing has happened since this revision (pwf show --json)",
    )


def effects(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import EffectListPayload

    with client() as daemon:
        listed = daemon.call(
            "effect.list", EffectListPayload(statuses=tuple(options.status), limit=options.limit)
        )
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.effects:
        out.note("no effects")
        return exits.OK
    now_ms = out.now_ms()
    rows = [
        [
            text.line(effect.run_id, 24),
            text.line(effect.node, 24) + (f" ×{effect.visit}" if effect.visit > 1 else ""),
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
    out.table(["RUN", "NODE", "TYPE", "MODE", "STATUS", "TRIES", "AGE", "REF"], rows, list(styles))
    return exits.OK


def recover(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.cli.control import _change
    from pwf.cli.typed import json_argument
    from pwf.protocol.operations import RecoverPayload
    from pwf.values import canonical

    if options.output is not None and options.verdict != "applied":
        raise UsageError("--output goes only with applied", hint="pwf recover --help")
    value = None if options.output is None else json_argument(options.output, "--output")
    key = options.effect or _shown(options.run_id, out)
    payload = RecoverPayload(
        verdict=options.verdict, output=msgspec.Raw(canonical(value, what="the output")), effect_key=key
    )
    return _change("effect.recover", payload, options, out)


def _shown(run_id: str, out: Out) -> str | None:
    """The run's only ambiguous effect, which is shown, so that the word is about this one and no later one.

    None where there is none or several: the daemon then says so.
    """
    with client() as daemon:
        view = daemon.call("run.view", run_id=run_id)
    found = [effect for effect in view.effects if effect.status == "ambiguous"]
    if len(found) != 1:
        return None
    effect = found[0]
    began = text.ago(effect.reserved_ms or None, out.now_ms())
    out.note(f"{text.line(effect.type)}: effect {text.line(effect.effect_key)}, begun {began}")
    key: str = effect.effect_key
    return key
