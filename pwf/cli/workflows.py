"""`pwf workflows`, `check`, `graph`: what can be run, whether it is sound, and what it looks like."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.cli.run import described as describe
from pwf.errors import PwfError
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient

NOT_OF_THE_FILE = frozenset({"daemon_unreachable", "unavailable", "config_error", "protocol_rejected"})


def add(commands: Commands) -> None:
    commands.add(
        "workflows", workflows, "list the workflows that can be run from here", example="pwf workflows"
    )
    parser = commands.add(
        "check",
        check,
        "load the files of workflows and resource managers, and check them",
        example="pwf check .pwf/workflows/*.py .pwf/resources/*.py",
        more="Prints every error and warning with file and line; the exit code is 1 when there is an error.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="the file or name of a workflow or manager")
    parser = commands.add(
        "graph",
        graph,
        "draw a workflow",
        example="pwf graph release\npwf graph release --format svg > release.svg",
    )
    parser.add_argument("workflow", metavar="WORKFLOW", help="a name, or a path to a file")
    formats = ("text", "mermaid", "svg")
    parser.add_argument("--format", choices=formats, default="text", help="text is the default")


def workflows(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.origin import origin
    from pwf.protocol.operations import WorkflowListPayload

    with client() as daemon:
        listed = daemon.call("workflow.list", WorkflowListPayload(origin=origin(daemon.places)))
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.workflows:
        out.note(f"no workflows in {text.line(listed.root)}; write one in .pwf/workflows/NAME.py")
        return exits.OK
    rows: list[list[str]] = []
    for line in listed.workflows:
        about = (
            f"error: {text.line(line.error)}" if line.error else text.line(line.doc.strip().split("\n")[0])
        )
        nodes = "-" if line.error else str(line.nodes)
        rows.append([text.line(line.name, 32), nodes, line.scope, text.line(near(line.path)), about])
    out.table(["WORKFLOW", "NODES", "FROM", "FILE", "ABOUT"], rows)
    return exits.OK


def near(path: str) -> str:
    """The path from here, where that is shorter."""
    try:
        here = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return here if len(here) < len(path) else path


def check(options: argparse.Namespace, out: Out) -> int:
    found: list[dict[str, Any]] = []
    with client() as daemon:
        for file in options.files:
            found.append(_check_one(daemon, file))
            if not out.as_json:
                _print_check(found[-1], out)
    if out.as_json:
        out.emit({"files": found})
    return exits.NO if any(item["error"] for item in found) else exits.OK


def _check_one(daemon: SyncClient, file: str) -> dict[str, Any]:
    try:
        described = describe(daemon, file, or_manager=True)
    except PwfError as error:
        if error.code in NOT_OF_THE_FILE:
            raise
        refused = {"code": error.code, "message": error.message, "hint": error.hint}
        return {"file": file, "error": refused, "warnings": [], "workflow": None, "manager": None, "nodes": 0}
    return {
        "file": file,
        "error": None,
        "warnings": list(described.warnings),
        "workflow": None if described.graph.manager is not None else described.graph.name,
        "manager": None if described.graph.manager is None else described.graph.name,
        "nodes": len(described.graph.nodes),
        "sources": list(described.sources),
        "kept": described.kept,
    }


def _print_check(item: dict[str, Any], out: Out) -> None:
    name = text.line(item["file"])
    if item["error"]:
        message = text.block(item["error"]["message"])
        # The message names the place itself when the file loaded far enough to have one.
        where = "" if Path(item["file"]).name in message else f"{name}: "
        out.print(f"{out.paint('error', 'red')}    {where}{message}")
        if item["error"]["hint"]:
            out.print(f"         hint: {text.block(item['error']['hint'])}")
    for warning in item["warnings"]:
        out.print(f"{out.paint('warning', 'yellow')}  {text.block(warning)}")
    if not item["error"]:
        if item["manager"] is not None:
            said = f"resource manager {text.line(item['manager'])}"
        else:
            said = f"workflow {text.line(item['workflow'])}, {text.count(item['nodes'], 'node')}"
        out.print(f"{out.paint('ok', 'green')}       {name}: {said}")
        if item["kept"] is not None and item["kept"].last_reason:
            stayed, ended = text.count(item["kept"].stayed, "run"), item["kept"].ended
            out.print(
                f"         its process stayed after {stayed}, and did not after {ended}; the last time since:"
            )
            out.print(f"         {text.block(item['kept'].last_reason)}")


def graph(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        described = describe(daemon, options.workflow)
    if out.as_json:
        out.emit(described)
    elif options.format == "mermaid":
        from pwf.present.graph_mermaid import mermaid

        out.print(mermaid(described.graph))
    elif options.format == "svg":
        from pwf.present.graph_svg import svg

        out.print(svg(described.graph))
    else:
        from pwf.present.form import input_lines
        from pwf.present.graph_text import draw

        out.print(draw(described.graph))
        out.print("\n".join(text.line(line) for line in input_lines(described.graph.input_schema)))
    return exits.OK
