"""`pwf resource ls`, `get`, `explain`, `events`, and `pwf managers`: looking at resources."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, add_cursor, client, page_limit, say_where_a_page_ends
from pwf.cli.history import print_event
from pwf.cli.out import Out
from pwf.cli.resource_name import add_reference, reference
from pwf.present import resources as present
from pwf.present import text
from pwf.present.explained import why

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.protocol.resources import ResourceSummary, ResourceView

LIST_LIMIT = 100
LIVE_LIMIT = 200
NO_RESOURCES = "no resources; what can be managed from here is listed by:  pwf managers"


def add_looks(group: Commands) -> None:
    from typing import get_args

    from pwf.protocol.resources import ResourceState

    parser = group.add(
        "ls",
        ls,
        "list resources",
        example="pwf resource ls\npwf resource ls git-mirror --state held\npwf resource ls --here",
    )
    parser.add_argument("manager", metavar="MANAGER", nargs="?", help="only those of this manager")
    parser.add_argument(
        "--state",
        metavar="S",
        action="append",
        default=[],
        choices=get_args(ResourceState),
        help="only these; may be repeated; gone ones are listed only so",
    )
    parser.add_argument("--here", action="store_true", help="only those of this folder's project")
    parser.add_argument(
        "--limit", metavar="N", type=page_limit, default=LIST_LIMIT, help=f"at most so many ({LIST_LIMIT})"
    )
    add_cursor(parser)
    parser = group.add(
        "get",
        get,
        "show one resource whole",
        example="pwf resource get git-mirror website\npwf resource get 3kq\npwf resource get 3kq --spec > spec.json",
    )
    add_reference(parser)
    part = parser.add_mutually_exclusive_group()
    for name in ("spec", "status"):
        part.add_argument(
            f"--{name}",
            action="store_const",
            dest="part",
            const=name,
            help=f"only its {name}, whole, as JSON",
        )
    parser = group.add(
        "explain",
        explain,
        "say why a resource is where it is",
        example="pwf resource explain git-mirror website\npwf explain git-mirror/website",
    )
    add_reference(parser)
    parser = group.add(
        "watch",
        watch,
        "print a line for each change of a resource, or of all",
        example="pwf resource watch git-mirror website\npwf resource watch",
        more="Of one resource until it is gone. Ctrl-C stops watching.",
    )
    parser.add_argument(
        "manager", metavar="MANAGER", nargs="?", help="only those of this manager, or with KEY that one"
    )
    parser.add_argument("key", metavar="KEY", nargs="?", help="the resource's key")
    parser = group.add(
        "events", events, "print a resource's history", example="pwf resource events git-mirror website"
    )
    add_reference(parser)
    parser.add_argument("--after", metavar="VERSION", type=int, default=0, help="only what came after it")


def watch(options: argparse.Namespace, out: Out) -> int:
    """A line for each change; of one resource, until it is gone."""
    from pwf.protocol.resources import ResourceList, ResourceListPayload, ResourceRef, ResourceView

    said: dict[str, tuple[object, ...]] = {}
    with client() as daemon:
        if options.manager is not None and (options.key is not None or "/" in options.manager):
            one = daemon.subscribe("resource", about=ResourceRef(**reference(options)))
        else:
            about = ResourceListPayload(manager=options.manager, limit=LIVE_LIMIT)
            one = daemon.subscribe("resources", about=about)
        seen = 0
        while daemon.next_news(one, seen, None):
            seen = one.news
            value = one.value()
            assert isinstance(value, ResourceView | ResourceList)
            summaries = (value.summary,) if isinstance(value, ResourceView) else value.resources
            for summary in reversed(summaries):
                stand = (summary.state, summary.resource_version, summary.generation, summary.failures)
                if said.get(summary.uid) != stand:
                    said[summary.uid] = stand
                    say_where(summary, out)
            if isinstance(value, ResourceView) and value.summary.state == "gone":
                return exits.OK
    return exits.OK


def say_where(summary: ResourceSummary, out: Out) -> None:
    """One line of where a resource stands."""
    if out.as_json:
        out.emit(summary)
        return
    state = out.paint(summary.state, present.STATE_STYLE.get(summary.state))
    ready = out.paint(f"ready {summary.ready}", present.READY_STYLE.get(summary.ready))
    out.print(f"{present.name_of(summary)}  {state}  {ready}  {present.note(summary, out.now_ms())}".rstrip())


def ls(options: argparse.Namespace, out: Out) -> int:
    import os

    from pwf.protocol.resources import ResourceListPayload

    payload = ResourceListPayload(
        manager=options.manager,
        cwd=os.getcwd() if options.here else None,
        states=tuple(options.state),
        limit=options.limit,
        cursor=options.cursor,
    )
    with client() as daemon:
        listed = daemon.call("resource.list", payload)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.resources:
        narrowed = options.manager or options.state or options.here
        out.note("no such resources" if narrowed else NO_RESOURCES)
        return exits.OK
    now_ms = out.now_ms()
    rows = [present.row(one, now_ms) for one in listed.resources]
    out.table(present.HEADS, rows, [present.STATE_STYLE.get(one.state) for one in listed.resources])
    say_where_a_page_ends(listed.next_cursor, out)
    return exits.OK


def get(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        view = _view(daemon, options)
        if options.part is not None:
            from pwf.cli.step import print_value

            print_value(daemon.read_value(view.summary.uid, getattr(view, options.part)), out)
            return exits.OK
    if out.as_json:
        out.emit(view)
    else:
        print_resource(view, out)
    return exits.OK


def explain(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        view = _view(daemon, options)
    if out.as_json:
        out.emit({"summary": view.summary, "explanation": view.explanation})
        return exits.OK
    _head(view, out)
    for name, value in why(view.explanation, out.now_ms()):
        out.print(f"{name + ':':<9} {value}")
    return exits.OK


def _view(daemon: SyncClient, options: argparse.Namespace) -> ResourceView:
    from pwf.protocol.resources import ResourceRef

    view: ResourceView = daemon.call("resource.get", ResourceRef(**reference(options)))
    return view


def _head(view: ResourceView, out: Out) -> None:
    summary = view.summary
    state = out.paint(summary.state, present.STATE_STYLE.get(summary.state))
    ready = out.paint(f"ready {summary.ready}", present.READY_STYLE.get(summary.ready))
    out.print(f"{out.paint(present.name_of(summary), 'bold')}  {state}  {ready}")


def print_resource(view: ResourceView, out: Out) -> None:
    """Identity, why it is where it is, spec and status, conditions, children, effects."""
    from pwf.cli.sections import fact, print_error_lines, section

    now_ms = out.now_ms()
    _head(view, out)
    for name, value in present.identity(view, now_ms):
        fact(name, value, out)
    section("Now", out)
    for name, value in why(view.explanation, now_ms):
        fact(name, value, out)
    for title, kept in (("Spec", view.spec), ("Status", view.status)):
        if kept.json is not None and bytes(kept.json) != b"{}":
            section(title, out)
            for line in text.pretty(bytes(kept.json)).splitlines():
                out.print(f"  {line}")
        elif kept.json is None:
            section(title, out)
            command = f"pwf resource get {present.name_of(view.summary)} --{title.lower()}"
            out.print(f"  {text.size(kept.size)}; see it with:  {command}")
    _lists(view, now_ms, out)
    if view.error is not None:
        section("Error of the last reconcile", out)
        print_error_lines(view.error, out)
        out.print(out.paint(f"  what it printed: pwf resource logs {present.name_of(view.summary)}", "dim"))


def _lists(view: ResourceView, now_ms: int, out: Out) -> None:
    from pwf.cli.sections import section

    if view.conditions:
        section("Conditions", out)
        rows = [
            [
                text.line(one.type, 32),
                one.status,
                text.age(one.changed_ms or None, now_ms),
                text.line(one.reason, 32),
                text.headline(one.message, 200),
            ]
            for one in view.conditions
        ]
        styles = [present.READY_STYLE.get(one.status) for one in view.conditions]
        out.table(["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"], rows, styles)
    if view.children:
        section("Child runs", out)
        rows = [
            [
                text.line(child.request_key, 32),
                text.line(child.run_id),
                text.line(child.workflow, 32),
                child.status,
                text.headline(child.reason or "", 120),
            ]
            for child in view.children
        ]
        out.table(["KEY", "RUN", "WORKFLOW", "STATUS", ""], rows)
    if view.effects:
        section("Effects", out)
        rows = [
            [text.line(one.effect_key, 80), text.line(one.type, 32), one.status, text.line(one.ref or "", 80)]
            for one in view.effects
        ]
        styles = ["magenta" if one.status == "ambiguous" else None for one in view.effects]
        out.table(["KEY", "TYPE", "STATUS", "REF"], rows, list(styles))


def events(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.resources import ResourceEventsPayload

    fields, after = reference(options), options.after
    with client() as daemon:
        while True:
            page = daemon.call("resource.events", ResourceEventsPayload(**fields, after_revision=after))
            for event in page.events:
                print_event(event, out)
            if page.next_after is None:
                return exits.OK
            fields, after = {"uid": page.uid}, page.next_after
