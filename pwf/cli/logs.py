"""`pwf logs`: what the steps of a run print, and the daemon's own log."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from typing import TYPE_CHECKING, BinaryIO

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client
from pwf.cli.out import Out, UsageError
from pwf.cli.printed import STREAM_NAMES, Printer, add_streams, read_printed, size_of
from pwf.errors import NotFound
from pwf.present import text

if TYPE_CHECKING:
    from pathlib import Path

    from pwf.client.sync import SyncClient
    from pwf.protocol.printed import Printed, PrintedStep

FOLLOW_S = 0.25
LOG_LINES = 100


def add(commands: Commands) -> None:
    parser = commands.add(
        "logs",
        logs,
        "print what the steps of a run have printed, or the daemon's log",
        example="pwf logs @last\npwf logs 3kq build --follow\npwf logs 3kq --attempt 4 --err\n"
        "pwf logs 3kq --attempt 4 --out --raw > out.bin\npwf logs --follow",
        more="Without RUN: the daemon's own log. Of each attempt, up to max_output_bytes of each stream are kept, "
        "until the run is removed; backups have none of it.",
    )
    parser.add_argument("run_id", metavar="RUN", nargs="?", help=RUN_HELP)
    parser.add_argument("node", metavar="NODE", nargs="?", help="only of this step")
    parser.add_argument(
        "--attempt", metavar="N", type=int, help="only of this attempt; pwf show numbers them"
    )
    add_streams(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on as more is printed, until the run has ended"
    )
    parser.add_argument(
        "--lines", metavar="N", type=int, help="of the daemon's log: how many to begin with (100)"
    )


def logs(options: argparse.Namespace, out: Out) -> int:
    _check(options, out)
    try:
        if options.run_id is None:
            return _daemon_log(options, out)
        with client() as daemon:
            return _run_log(daemon, options, out)
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _check(options: argparse.Namespace, out: Out) -> None:
    wrong = None
    if options.lines is not None and options.lines < 0:
        wrong = "--lines must not be negative"
    elif options.lines is not None and options.run_id is not None:
        wrong = "--lines is for the daemon's log"
    elif options.run_id is None and (options.attempt is not None or options.stream or options.raw):
        wrong = "--attempt, --out, --err and --raw need a RUN"
    elif options.raw and options.stream is None:
        wrong = "--raw needs --out or --err"
    elif options.raw and out.as_json:
        wrong = "--raw and --json exclude each other"
    if wrong is not None:
        raise UsageError(wrong, hint="pwf logs --help")


# --- what steps print -----------------------------------------------------------------------------------------


def _run_log(daemon: SyncClient, options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.printed import PrintedPayload

    payload = PrintedPayload(node=options.node, attempt=options.attempt)
    steps = _Steps(daemon, options.stream, out, raw=options.raw)
    while True:
        listed = daemon.call("run.printed", payload, run_id=options.run_id)
        for step in listed.steps:
            steps.print_new(listed.run_id, step)
        if not options.follow or listed.ended:
            break
        time.sleep(FOLLOW_S)
    steps.printer.end()
    if not steps.printer.has_printed:
        _say_nothing_came(listed, options, out)
    return exits.OK


def _say_nothing_came(listed: Printed, options: argparse.Namespace, out: Out) -> None:
    what = f"node {options.node!r}" if options.node else "its steps"
    gone = sum(step.printed_bytes for step in listed.steps)
    if gone:
        raise NotFound(
            f"run {listed.run_id}: {gone:,} bytes that {what} printed are not here any more: "
            "they are in no backup, and a home that was restored or copied begins without them",
            hint=f"what its steps returned is still there: pwf show {listed.run_id}",
        )
    stream = f" to {STREAM_NAMES[options.stream]}" if options.stream else ""
    if not listed.steps:
        out.note(f"run {listed.run_id}: {what} has not run yet")
    else:
        out.note(
            f"run {listed.run_id}: nothing was printed{stream} by {what}"
            + ("" if listed.ended else " so far")
        )


class _Steps:
    """Prints what has come since it looked last."""

    def __init__(self, daemon: SyncClient, stream: str | None, out: Out, *, raw: bool) -> None:
        self._daemon = daemon
        self._streams = [stream] if stream else list(STREAM_NAMES)
        self._offsets: dict[tuple[int, str], int] = {}
        self.printer = Printer(out, raw=raw)

    def print_new(self, run_id: str, step: PrintedStep) -> None:
        visit = f" ×{step.visit}" if step.visit > 1 else ""
        tries = f", try {step.tries}" if step.tries > 1 else ""
        head = f"{text.line(step.node)}{visit}, attempt {step.attempt}{tries}"
        facts = {"attempt": step.attempt, "node": step.node, "visit": step.visit, "try": step.tries}
        for stream in self._streams:
            size = size_of(step, stream)
            key = (step.attempt, stream)
            while size is not None and self._offsets.get(key, 0) < size:
                offset = self._offsets.get(key, 0)
                piece = read_printed(self._daemon, run_id, step.attempt, stream, offset)
                if not piece.data:
                    break
                self._offsets[key] = piece.next_offset
                self.printer.print(step.attempt, stream, offset, piece.data, head=head, facts=facts)


# --- the daemon's log -----------------------------------------------------------------------------------------


def _daemon_log(options: argparse.Namespace, out: Out) -> int:
    from pwf.places import places

    path = places().log
    try:
        with path.open("rb") as file:
            _print_tail(file, path, LOG_LINES if options.lines is None else options.lines, out)
            if options.follow:
                _follow(file, path, out)
    except FileNotFoundError:
        if not options.follow:
            out.note(f"there is no log yet: {path} (a daemon in the foreground logs to its stderr)")
    return exits.OK


def _print_tail(file: BinaryIO, path: Path, wanted: int, out: Out) -> None:
    """The last lines, from older files too where the newest has not so many."""
    from collections import deque

    lines = list(deque(file, maxlen=wanted))
    number = 1
    while len(lines) < wanted and (older := path.with_name(f"{path.name}.{number}")).exists():
        with older.open("rb") as before:
            lines = [*deque(before, maxlen=wanted - len(lines)), *lines]
        number += 1
    for line in lines:
        _print_log(line, out)


def _follow(file: BinaryIO, path: Path, out: Out) -> None:
    rest = b""
    while True:
        data = file.read(65536)
        if not data:
            time.sleep(FOLLOW_S)
            file = _newest(file, path)
            continue
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _print_log(line, out)


def _newest(file: BinaryIO, path: Path) -> BinaryIO:
    """The file that is written now: another one, when this one was full and has been read to its end."""
    with contextlib.suppress(FileNotFoundError):
        facts, here = path.stat(), os.fstat(file.fileno())
        if facts.st_ino != here.st_ino and file.tell() >= here.st_size:
            file.close()
            return path.open("rb")
        if facts.st_ino == here.st_ino and here.st_size < file.tell():
            file.seek(0)  # it was emptied
    return file


def _print_log(line: bytes, out: Out) -> None:
    """A structured line as time, level, event and its fields; anything else as it is, made safe."""
    import msgspec

    raw = line.rstrip(b"\n")
    fields: object = None
    if raw.startswith(b"{"):
        try:
            fields = msgspec.json.decode(raw)
        except msgspec.MsgspecError:
            fields = None
    if not isinstance(fields, dict):
        out.print(text.line(raw.decode("utf-8", "replace")))
    elif out.as_json:
        out.print(text.json_line(raw))
    else:
        out.print(pretty_log(fields, out))


def pretty_log(fields: dict[str, object], out: Out) -> str:
    """One structured line for people."""
    from datetime import datetime

    shown = dict(fields)
    at_ms, level, event = shown.pop("at_ms", None), str(shown.pop("level", "")), str(shown.pop("event", ""))
    when = ""
    if isinstance(at_ms, int | float):
        when = datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    style = {"warning": "yellow", "error": "red"}.get(level, "dim")
    pairs = "  ".join(
        f"{out.paint(text.line(str(name)), 'dim')}={_field(value)}" for name, value in shown.items()
    )
    mark = out.paint(f"{text.line(level):<7}", style)
    return f"{out.paint(when, 'dim')}  {mark}  {out.paint(text.line(event), 'bold')}  {pairs}".rstrip()


def _field(value: object) -> str:
    if isinstance(value, str):
        return text.block(value) if "\n" in value else text.line(value)
    import msgspec

    return text.json_line(msgspec.json.encode(value))
