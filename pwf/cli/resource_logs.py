"""`pwf resource logs`: what the reconciles of a resource have printed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.printed import STREAM_NAMES
from pwf.cli.resource_name import add_reference, reference
from pwf.present import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pwf.client.sync import SyncClient


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
    stream = parser.add_mutually_exclusive_group()
    for name, words in STREAM_NAMES.items():
        stream.add_argument(
            f"--{name}", f"--{words}", action="store_const", dest="stream", const=name, help=f"only {words}"
        )
    parser.add_argument("--raw", action="store_true", help="the very bytes; needs --out or --err")


def logs(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.resources import ResourceRef

    if options.raw and (options.stream is None or out.as_json):
        raise UsageError(
            "--raw needs --out or --err, and goes without --json", hint="pwf resource logs --help"
        )
    with client() as daemon:
        listed = daemon.call("resource.printed", ResourceRef(**reference(options)))
        has_printed = False
        for one in listed.reconciles if options.all else listed.reconciles[-1:]:
            for stream in [options.stream] if options.stream else STREAM_NAMES:
                facts = {"uid": listed.uid, "generation": one.generation, "stream": stream}
                size = one.out_bytes if stream == "out" else one.err_bytes
                has_printed |= _print(_pieces(daemon, facts, size), facts, one.at_ms, options.raw, out)
    if not has_printed:
        what = f" to {STREAM_NAMES[options.stream]}" if options.stream else ""
        out.note(f"no reconcile has printed anything{what} that is kept")
    return exits.OK


def _print(pieces: Iterator[bytes], facts: dict[str, Any], at_ms: int, raw: bool, out: Out) -> bool:
    """All of one stream of one reconcile. Whether there was anything."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    stream, number, end = STREAM_NAMES[facts["stream"]], facts["generation"], "\n"
    offset = 0
    for piece in pieces:
        if raw:
            sys.stdout.buffer.write(piece)
        elif out.as_json:
            words = decoder.decode(piece)
            out.emit({"reconcile": number, "at_ms": at_ms, "stream": stream, "offset": offset, "text": words})
        else:
            if not offset:
                when = text.clock_time(at_ms, out.now_ms())
                style = "yellow" if stream == "stderr" else "dim"
                out.print(out.paint(f"── reconcile {number}, {when}: {stream}", style))
            words = decoder.decode(piece)
            end = words[-1:] or end
            sys.stdout.write(text.block(words))
        offset += len(piece)
    if end != "\n":
        out.print()
    sys.stdout.flush()
    return offset > 0


def _pieces(daemon: SyncClient, facts: dict[str, Any], size: int) -> Iterator[bytes]:
    from pwf.protocol.resources import ReadReconcilePrinted

    offset = 0
    while offset < size:
        data = daemon.call("resource.read_printed", ReadReconcilePrinted(**facts, offset=offset)).data
        if not data:
            return
        yield data
        offset += len(data)
