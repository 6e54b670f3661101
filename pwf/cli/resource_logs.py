"""`pwf resource logs`: what the reconciles of a resource have printed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.printed import STREAM_NAMES, Printer, add_streams
from pwf.cli.resource_name import add_reference, reference
from pwf.present import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pwf.client.sync import SyncClient
    from pwf.protocol.resources import PrintedReconcile


def add_logs(group: Commands) -> None:
    parser = group.add(
        "logs",
        logs,
        "print what a resource's manager has printed",
        example="pwf resource logs git-mirror website\npwf resource logs service web --all --err\n"
        "pwf resource logs service web --out --raw > out.bin",
        more="Of the newest reconcile that printed something. What the newest twenty of them printed is kept, up to\n"
        "max_output_bytes of each stream, until the resource is removed; backups have none of it.",
    )
    add_reference(parser)
    parser.add_argument(
        "--all", action="store_true", help="of all reconciles that are kept, the oldest first"
    )
    add_streams(parser)


def logs(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.resources import ResourceRef

    if options.raw and (options.stream is None or out.as_json):
        raise UsageError(
            "--raw needs --out or --err, and goes without --json", hint="pwf resource logs --help"
        )
    with client() as daemon:
        listed = daemon.call("resource.printed", ResourceRef(**reference(options)))
        printer = Printer(out, raw=options.raw)
        for one in listed.reconciles if options.all else listed.reconciles[-1:]:
            head = f"reconcile {one.generation}, {text.clock_time(one.at_ms, out.now_ms())}"
            facts = {"reconcile": one.generation, "at_ms": one.at_ms}
            for stream in [options.stream] if options.stream else STREAM_NAMES:
                for offset, data in _pieces(daemon, listed.uid, one, stream):
                    printer.print(one.generation, stream, offset, data, head=head, facts=facts)
    printer.end()
    if not printer.has_printed:
        what = f" to {STREAM_NAMES[options.stream]}" if options.stream else ""
        out.note(f"no reconcile has printed anything{what} that is kept")
    return exits.OK


def _pieces(daemon: SyncClient, uid: str, one: PrintedReconcile, stream: str) -> Iterator[tuple[int, bytes]]:
    """All of one stream of one reconcile, each piece with where it begins."""
    from pwf.protocol.resources import ReadReconcilePrinted

    offset, size = 0, one.out_bytes if stream == "out" else one.err_bytes
    while offset < size:
        wanted = ReadReconcilePrinted(uid=uid, generation=one.generation, stream=stream, offset=offset)  # type: ignore[arg-type]  # one of both
        data = daemon.call("resource.read_printed", wanted).data
        if not data:
            return
        yield offset, data
        offset += len(data)
