"""`pwf managers`: what can be managed from here, and what one manager takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient
    from pwf.protocol.resources import ManagerLine


def add(commands: Commands) -> None:
    parser = commands.add(
        "managers",
        managers,
        "list the resource managers that are known here, or show one",
        example="pwf managers\npwf managers git-mirror",
    )
    parser.add_argument("manager", metavar="MANAGER", nargs="?", help="a name in .pwf/resources")


def managers(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.origin import origin
    from pwf.protocol.resources import ManagerListPayload

    with client() as daemon:
        if options.manager is not None:
            return _show(daemon, options.manager, out)
        listed = daemon.call("manager.list", ManagerListPayload(origin=origin(daemon.places)))
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.managers:
        out.note(f"no resource managers in {text.line(listed.root)}; write one in .pwf/resources/NAME.py")
        return exits.OK
    from pwf.cli.workflows import near

    rows = [
        [
            text.line(line.name, 32),
            str(line.resources),
            line.scope,
            _wakes(line),
            text.line(near(line.path)),
            f"error: {text.line(line.error)}" if line.error else text.line(line.doc),
        ]
        for line in listed.managers
    ]
    out.table(["MANAGER", "RESOURCES", "FROM", "LOOKS", "FILE", "ABOUT"], rows)
    return exits.OK


def _wakes(line: ManagerLine) -> str:
    """What wakes a settled resource by itself."""
    every = [] if line.every_ms is None else [f"every {text.duration(line.every_ms)}"]
    return ", ".join([*every, *(["on changes of files"] if line.watches else [])]) or "-"


def _show(daemon: SyncClient, manager: str, out: Out) -> int:
    from pwf.cli.run import described
    from pwf.errors import GraphError
    from pwf.present.form import form_lines

    found = described(daemon, manager, or_manager=True)
    facts = found.graph.manager
    if facts is None:
        raise GraphError(f"{found.path} is a workflow, not a resource manager", hint=f"pwf graph {manager}")
    if out.as_json:
        out.emit(found)
        return exits.OK
    about = f"  {text.line(found.graph.doc)}" if found.graph.doc else ""
    out.print(f"{out.paint(text.line(found.graph.name), 'bold')}{about}")
    out.print(f"  file       {text.line(found.path)}:{facts.line}")
    for name, schema in (("spec", facts.spec_schema), ("status", facts.status_schema)):
        for number, line in enumerate(form_lines(schema)):
            out.print(f"  {'' if number else name:<10} {text.line(line)}")
    if facts.every_ms is not None:
        out.print(f"  every      {text.duration(facts.every_ms)}")
    if facts.watches:
        out.print("  watches    files, which depend on the spec")
    out.print(f"  deadline   {text.duration(facts.deadline_ms)}")
    for warning in found.warnings:
        out.note(f"warning: {text.line(warning)}")
    return exits.OK
