"""Operations on what the steps of a run print: which attempts have something, and piece by piece what it is.

Holds no state. The files are read here and by nobody else: a client never opens anything in a home.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import trio

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.errors import InvalidArgument
from pwf.protocol.printed import Printed, PrintedPayload, PrintedPiece, PrintedStep, ReadPrinted
from pwf.protocol.step_output import STREAMS, file_of
from pwf.store.at_run import AtRun, at_run
from pwf.store.printed import PrintedQuery, printed

PIECE_BYTES = 256 * 1024


async def list_(services: Services, asked: Asked[PrintedPayload]) -> Answer:
    """`run.printed`."""
    wanted = asked.payload
    found = await _find(services, asked.run_ref, node=wanted.node, attempt=wanted.attempt)
    sizes = await trio.to_thread.run_sync(_sizes, str(services.places.output / found.run_id))
    steps = tuple(_with_sizes(step, sizes) for step in found.steps)
    return Answer(msgspec.structs.replace(found, steps=steps))


async def read(services: Services, asked: Asked[ReadPrinted]) -> Answer:
    """`run.read_printed`."""
    wanted = asked.payload
    if wanted.offset < 0:
        raise InvalidArgument("offset must not be negative")
    found = await _find(services, asked.run_ref, attempt=wanted.attempt)
    path = file_of(str(services.places.output / found.run_id), wanted.attempt, wanted.stream)
    data = await trio.to_thread.run_sync(_piece, path, wanted.offset)
    return Answer(PrintedPiece(data=data, next_offset=wanted.offset + len(data)))


async def _find(services: Services, ref: str, **wanted: Any) -> Printed:
    return await services.store.read(
        at_run, AtRun(ref, printed, lambda run_id: PrintedQuery(run_id=run_id, **wanted))
    )


def _sizes(folder: str) -> dict[str, int]:
    """The size of each file; none where the run has no folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
    except OSError:
        return {}


def _with_sizes(step: PrintedStep, sizes: dict[str, int]) -> PrintedStep:
    out, err = (sizes.get(f"{step.attempt}.{stream}") for stream in STREAMS)
    return msgspec.structs.replace(step, out_bytes=out, err_bytes=err)


def _piece(path: str, offset: int) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            return os.pread(file.fileno(), PIECE_BYTES, offset)
    except OSError:
        return b""  # nothing was printed, or it is gone


HANDLERS: dict[str, OperationHandler] = {"run.printed": list_, "run.read_printed": read}
