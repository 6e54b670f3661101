"""What attempts and reconciles have printed: read, and printed again, for all commands that show it."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Any

from pwf.present import text

if TYPE_CHECKING:
    from pwf.cli.commands import Parser
    from pwf.cli.out import Out
    from pwf.client.sync import SyncClient
    from pwf.protocol.printed import PrintedPiece, PrintedStep

STREAM_NAMES = {"out": "stdout", "err": "stderr"}


def printed_of(daemon: SyncClient, run_id: str, attempt: int) -> tuple[PrintedStep, ...]:
    """How much one attempt has printed; empty where it has none."""
    from pwf.protocol.printed import PrintedPayload

    steps: tuple[PrintedStep, ...] = daemon.call(
        "run.printed", PrintedPayload(attempt=attempt), run_id=run_id
    ).steps
    return steps


def size_of(step: PrintedStep, stream: str) -> int | None:
    """How many bytes are kept of one of `STREAM_NAMES`; None where they are not here any more."""
    return step.out_bytes if stream == "out" else step.err_bytes


def read_printed(daemon: SyncClient, run_id: str, attempt: int, stream: str, offset: int = 0) -> PrintedPiece:
    """A piece of what it printed to one of `STREAM_NAMES`, from `offset` on."""
    from pwf.protocol.printed import ReadPrinted

    wanted = ReadPrinted(attempt=attempt, stream=stream, offset=offset)  # type: ignore[arg-type]  # one of both
    piece: PrintedPiece = daemon.call("run.read_printed", wanted, run_id=run_id)
    return piece


def add_streams(parser: Parser) -> None:
    """`--out`, `--err` and `--raw`. `stream` is then one of `STREAM_NAMES`, or None."""
    stream = parser.add_mutually_exclusive_group()
    for name, words in STREAM_NAMES.items():
        stream.add_argument(
            f"--{name}", f"--{words}", action="store_const", dest="stream", const=name, help=f"only {words}"
        )
    parser.add_argument("--raw", action="store_true", help="the very bytes; needs --out or --err")


class Printer:
    """Prints pieces of what was printed, with a head wherever another attempt, reconcile or stream begins."""

    def __init__(self, out: Out, *, raw: bool) -> None:
        self._out = out
        self._raw = raw
        self._decoders: dict[tuple[int, str], codecs.IncrementalDecoder] = {}
        self._at: tuple[int, str] | None = None
        self._line_is_open = False
        self.has_printed = False

    def print(
        self, number: int, stream: str, offset: int, data: bytes, *, head: str, facts: dict[str, Any]
    ) -> None:
        """A piece of one stream. `number`: of its attempt or reconcile; `facts`: those of its line of JSON."""
        self.has_printed = True
        if self._raw:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        at, name = (number, stream), STREAM_NAMES[stream]
        decoder = self._decoders.setdefault(at, codecs.getincrementaldecoder("utf-8")("replace"))
        words = decoder.decode(data)
        if self._out.as_json:
            self._out.emit({**facts, "stream": name, "offset": offset, "text": words})
            return
        if self._at != at:
            self.end()
            self._out.print(self._out.paint(f"── {head}: {name}", "yellow" if stream == "err" else "dim"))
            self._at = at
        sys.stdout.write(text.block(words))
        sys.stdout.flush()
        if words:
            self._line_is_open = not words.endswith("\n")

    def end(self) -> None:
        """A last line without an end gets one, before what is printed next and before the prompt."""
        if self._line_is_open:
            self._out.print()
            self._line_is_open = False
