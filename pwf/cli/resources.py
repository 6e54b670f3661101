"""`pwf resource`: what should be (`apply`, `delete`), and a person's hand on it (`reconcile`, `pause`, `resume`)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Literal

from pwf.cli import exits, resource_logs, resource_look
from pwf.cli.commands import Commands, Parser, client
from pwf.cli.out import Out, UsageError, print_error
from pwf.cli.resource_name import add_reference, reference
from pwf.errors import PwfError
from pwf.present import resources as present
from pwf.present import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pwf.cli.resource_file import Wanted
    from pwf.client.core import CallReply
    from pwf.client.sync import SyncClient
    from pwf.protocol.origin import Origin
    from pwf.protocol.resources import ApplyPayload, ResourceRef, ResourceSummary, ResourceWaited

APPLY_EXAMPLE = """pwf resource apply note greeting --spec '{"path": "/tmp/hello.txt", "text": "Hello"}'
pwf resource apply git-mirror website --set upstream=/srv/website.git --set mirror=/backup/website.git --wait
pwf resource apply -f resources.toml --dry-run"""


def add(commands: Commands) -> None:
    group = commands.group(
        "resource",
        "keep things as you want them, by resource managers",
        example="pwf managers\npwf resource apply note greeting --set path=/tmp/hello.txt --wait\npwf resource ls",
    )
    _add_apply(group)
    resource_look.add_looks(group)
    resource_logs.add_logs(group)
    parser = group.add(
        "reconcile",
        reconcile,
        "have a resource looked at now",
        example="pwf resource reconcile git-mirror website --wait",
    )
    add_reference(parser)
    _add_wait(parser, "until it is settled")
    parser = group.add(
        "delete",
        delete,
        "let a resource go, once its manager has cleaned up",
        example="pwf resource delete git-mirror website --wait\npwf resource delete service web --abandon",
        more="Its manager undoes what its finalizers stand for, and its child runs are cancelled. --abandon lets\n"
        "it go at once where that can't be: what was not undone is named in its history.",
    )
    add_reference(parser)
    _add_wait(parser, "until it is gone")
    parser.add_argument(
        "--leave-children", action="store_true", help="let its child runs go on in place of cancelling them"
    )
    parser.add_argument("--abandon", action="store_true", help="let it go without its manager's clean-up")
    parser.add_argument("--note", metavar="TEXT", help="with --abandon: why; kept in its history")
    parser = group.add(
        "pause",
        pause,
        "stop looking at a resource until it is resumed",
        example="pwf resource pause git-mirror website",
        more="A reconcile that is under way may end. Wake-ups are kept, and seen when it is resumed.",
    )
    add_reference(parser)
    parser = group.add(
        "resume", resume, "look at a paused or held resource again", example="pwf resource resume service web"
    )
    add_reference(parser)


def _add_apply(group: Commands) -> None:
    parser = group.add(
        "apply",
        apply,
        "say what should be: make a resource, or change its spec",
        example=APPLY_EXAMPLE,
        more="The spec replaces the one before, whole. It is checked against the type that the manager declares.\n"
        "With -f the file has a list `resource` of tables with manager, key and spec, as TOML or JSON. All are\n"
        "checked before any is applied.",
    )
    parser.add_argument("manager", metavar="MANAGER", nargs="?", help="a name in .pwf/resources")
    parser.add_argument("key", metavar="KEY", nargs="?", help="what this resource is called")
    parser.add_argument("--spec", metavar="JSON|@FILE|-", help="the spec: JSON, a file, or - for stdin")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a part of the spec (a.b=VALUE), read as its declared type says; may be repeated",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="a file of resources; - for stdin")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    parser.add_argument(
        "--version",
        dest="expected",
        metavar="N",
        type=int,
        help="only if its resource_version is still this (pwf resource get)",
    )
    _add_wait(parser, "until it is settled")


def _add_wait(parser: Parser, what: str) -> None:
    parser.add_argument("--wait", action="store_true", help=f"wait {what}, or a person is needed")
    parser.add_argument("--timeout", metavar="DURATION", help="wait for this long at most (30s, 2h30m)")


# --- apply ----------------------------------------------------------------------------------------------------


def apply(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.origin import origin

    wait_s = _wait_s(options)
    if options.file is not None:
        return _apply_file(options, wait_s, out)
    if not options.manager or not options.key:
        raise UsageError("apply needs MANAGER and KEY, or -f FILE", hint=APPLY_EXAMPLE.splitlines()[0])
    with client() as daemon:
        wanted = _typed(daemon, options)
        payload = _payload(wanted, origin(daemon.places), dry_run=options.dry_run)
        reply = _exchange(daemon, payload, options.expected)
        _say_applied(reply, wanted, options.dry_run, out)
        if not options.wait or options.dry_run:
            return exits.OK
        return wait_for(daemon, reply.result.uid, "settled", wait_s, out)


def _typed(daemon: SyncClient, options: argparse.Namespace) -> Wanted:
    from pwf.cli.reading import run_input
    from pwf.cli.resource_file import Wanted
    from pwf.cli.run import described_if_sound
    from pwf.values import canonical

    found = described_if_sound(daemon, options.manager, or_manager=True) if options.set else None
    manager = None if found is None else found.graph.manager
    schema = None if manager is None else manager.spec_schema
    spec = run_input(options.spec, options.set, schema, option="--spec")
    return Wanted(options.manager, options.key, canonical({} if spec is None else spec, what="the spec"))


def _payload(wanted: Wanted, origin: Origin, *, dry_run: bool) -> ApplyPayload:
    import msgspec

    from pwf.protocol.resources import ApplyPayload

    return ApplyPayload(
        manager=wanted.manager,
        key=wanted.key,
        spec=msgspec.Raw(wanted.spec),
        origin=origin,
        dry_run=dry_run,
    )


def _exchange(daemon: SyncClient, payload: ApplyPayload, expected: int | None = None) -> CallReply:
    """`resource.apply`, also with the variables that the manager declares, as far as they are set here."""
    from pwf.client.origin import with_wanted
    from pwf.errors import VariablesWanted

    try:
        return daemon.exchange("resource.apply", payload, expected_revision=expected)
    except VariablesWanted as wanted:
        more = with_wanted(payload, wanted)
        return daemon.exchange("resource.apply", more, expected_revision=expected)


def _apply_file(options: argparse.Namespace, wait_s: float | None, out: Out) -> int:
    """Each is checked first, so that a mistake in the last one changes nothing."""
    from pwf.cli.resource_file import read_resources
    from pwf.client.origin import origin

    for name in ("manager", "key", "spec", "set", "expected"):
        if getattr(options, name):
            raise UsageError(
                "-f FILE goes with no other resource", hint="pwf resource apply -f FILE --dry-run"
            )
    wanted = read_resources(options.file)
    with client() as daemon:
        here = origin(daemon.places)
        checked = list(_checked(daemon, wanted, here, out))
        if len(checked) < len(wanted):
            out.note("nothing was applied")
            return exits.USAGE
        counts: dict[str, int] = {}
        uids: list[str] = []
        for one, reply in zip(wanted, checked, strict=True):
            if not options.dry_run:
                reply = _exchange(daemon, _payload(one, here, dry_run=False))
                uids.append(reply.result.uid)
            counts[reply.result.change] = counts.get(reply.result.change, 0) + 1
            _say_applied(reply, one, options.dry_run, out)
        would = "would be " if options.dry_run else ""
        out.note(", ".join(f"{count} {would}{change}" for change, count in sorted(counts.items())))
        if not options.wait or options.dry_run:
            return exits.OK
        return exits.worst([wait_for(daemon, uid, "settled", wait_s, out) for uid in uids])


def _checked(daemon: SyncClient, wanted: list[Wanted], here: Origin, out: Out) -> Iterator[CallReply]:
    """What applying each would do; what is wrong with one is printed."""
    for one in wanted:
        try:
            yield _exchange(daemon, _payload(one, here, dry_run=True))
        except PwfError as error:
            if exits.of_error(error.code) == exits.UNAVAILABLE:
                raise
            error.message = f"{one.manager}/{one.key}: {error.message}"
            print_error(error, as_json=out.as_json)


def _say_applied(reply: CallReply, wanted: Wanted, dry_run: bool, out: Out) -> None:
    import msgspec

    applied = reply.result
    before = None
    if applied.before is not None and applied.before.json is not None:
        before = msgspec.json.decode(applied.before.json)
    lines: list[str] = []
    if applied.change != "unchanged":
        lines = present.changes({} if before is None else before, msgspec.json.decode(wanted.spec))
    if out.as_json:
        found = msgspec.json.decode(msgspec.json.encode(applied))
        out.emit({**found, "dry_run": dry_run, "diff": lines})
        return
    would = "would be " if dry_run and applied.change != "unchanged" else ""
    change = out.paint(applied.change, present.CHANGE_STYLE[applied.change])
    name = f"{text.line(applied.manager)}/{text.line(applied.key)}"
    code = ", with its manager's newer code" if applied.new_code else ""
    code += ", in another environment" if applied.new_environment else ""
    out.print(f"{out.paint(name, 'bold')}  {would}{change}  generation {applied.generation}{code}")
    for line in lines:
        out.print("  " + out.paint(line, {"-": "red", "+": "green"}.get(line[0])))
    for warning in applied.warnings:
        out.note(f"warning: {text.line(warning)}")


# --- acts on one ----------------------------------------------------------------------------------------------


def reconcile(options: argparse.Namespace, out: Out) -> int:
    return _act("resource.reconcile", options, out, until="settled")


def pause(options: argparse.Namespace, out: Out) -> int:
    return _act("resource.pause", options, out)


def resume(options: argparse.Namespace, out: Out) -> int:
    return _act("resource.resume", options, out)


def delete(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.resources import DeletePayload

    if options.note is not None and not options.abandon:
        raise UsageError("--note goes only with --abandon", hint="pwf resource delete --help")
    payload = DeletePayload(
        **reference(options),
        children="leave" if options.leave_children else "cancel",
        abandon=options.abandon,
        note=options.note,
    )
    return _act("resource.delete", options, out, until="gone", payload=payload)


def _act(
    operation: str,
    options: argparse.Namespace,
    out: Out,
    *,
    until: Literal["settled", "gone"] = "settled",
    payload: ResourceRef | None = None,
) -> int:
    from pwf.protocol.resources import ResourceRef

    wait_s = _wait_s(options)
    with client() as daemon:
        reply = daemon.exchange(operation, payload or ResourceRef(**reference(options)))
        changed = reply.result
        if out.as_json:
            out.emit_reply(reply)
        else:
            already = "already " if reply.outcome == "adopted" else ""
            state = out.paint(changed.state, present.STATE_STYLE.get(changed.state))
            words = f"  {text.line(changed.note)}" if changed.note else ""
            out.print(f"{text.line(changed.manager)}/{text.line(changed.key)}  {already}{state}{words}")
        if not getattr(options, "wait", False):
            return exits.OK
        return wait_for(daemon, changed.uid, until, wait_s, out)


# --- waiting --------------------------------------------------------------------------------------------------


def _wait_s(options: argparse.Namespace) -> float | None:
    from pwf.cli.typed import duration_ms

    typed = getattr(options, "timeout", None)
    if typed is None:
        return None
    if not options.wait:
        raise UsageError("--timeout goes only with --wait", hint="add --wait")
    return duration_ms(typed, "--timeout") / 1000


def wait_for(
    daemon: SyncClient,
    uid: str,
    until: Literal["settled", "gone"],
    wait_s: float | None,
    out: Out,
) -> int:
    """Wait, say where it arrived, and give the exit code."""
    from pwf.client.sync import CALL_S_MAX
    from pwf.protocol.resources import ResourceWaitPayload

    payload = ResourceWaitPayload(
        uid=uid, until=until, timeout_ms=None if wait_s is None else int(wait_s * 1000)
    )
    patience_s = None if wait_s is None else wait_s + CALL_S_MAX
    try:
        waited: ResourceWaited = daemon.call("resource.wait", payload, timeout_s=patience_s)
    except KeyboardInterrupt:
        out.note("\nno longer waiting; it goes on")
        return exits.INTERRUPTED
    resource_look.say_where(waited.summary, out)
    if not waited.done:
        out.note(f"the time ran out; see what it does with:  pwf resource explain {waited.summary.uid}")
        return exits.TIME_OUT
    return code_of(waited.summary, until)


def code_of(summary: ResourceSummary, until: Literal["settled", "gone"]) -> int:
    """0: settled and not unready, or gone; 1: settled as not ready; 7: a person is needed."""
    if summary.state == "gone":
        return exits.OK if until == "gone" else exits.NO
    if summary.state in ("paused", "ambiguous", "held"):
        return exits.NEEDS_PERSON
    return exits.NO if until == "gone" or summary.ready == "False" else exits.OK
