"""Reading what an attempt has printed, for all commands that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
