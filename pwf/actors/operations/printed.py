"""Operations on what the steps of a run, and the reconciles of a resource, print: which have, and it, piece by piece.

Holds no state. The files are read here and by nobody else: a client never opens anything in a home.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import trio

from pwf.actors.operations.resources import meant
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.errors import InvalidArgument
from pwf.protocol.printed import Printed, PrintedPayload, PrintedPiece, PrintedStep, ReadPrinted
from pwf.protocol.resources import PrintedReconcile, PrintedReconciles, ReadReconcilePrinted, ResourceRef
from pwf.protocol.step_output import STREAMS, file_of
from pwf.store.at_run import AtRun, at_run
from pwf.store.printed import PrintedQuery, printed
from pwf.store.read_resources import resource_summary

PIECE_BYTES = 256 * 1024


async def list_(services: Services, asked: Asked[PrintedPayload]) -> Answer:
    """`run.printed`."""
    wanted = asked.payload
    found = await _find(services, asked.run_ref, node=wanted.node, attempt=wanted.attempt)
    sizes, _ = await trio.to_thread.run_sync(_sizes, str(services.places.output / found.run_id))
    steps = tuple(_with_sizes(step, sizes) for step in found.steps)
    return Answer(msgspec.structs.replace(found, steps=steps))


async def read(services: Services, asked: Asked[ReadPrinted]) -> Answer:
    """`run.read_printed`."""
    wanted = asked.payload
    found = await _find(services, asked.run_ref, attempt=wanted.attempt)
    return await _read(services, found.run_id, wanted.attempt, wanted)


async def list_of_resource(services: Services, asked: Asked[ResourceRef]) -> Answer:
    """`resource.printed`: no row says of it, the files do."""
    found = await services.store.read(resource_summary, meant(asked.payload))
    sizes, times = await trio.to_thread.run_sync(_sizes, str(services.places.output / found.uid))
    numbers = sorted({int(name.partition(".")[0]) for name in sizes if name.partition(".")[0].isdecimal()})
    reconciles = tuple(
        PrintedReconcile(
            generation=number,
            at_ms=max(times.get(f"{number}.{stream}", 0) for stream in STREAMS),
            out_bytes=sizes.get(f"{number}.out", 0),
            err_bytes=sizes.get(f"{number}.err", 0),
        )
        for number in numbers
    )
    return Answer(PrintedReconciles(uid=found.uid, reconciles=reconciles))


async def read_of_resource(services: Services, asked: Asked[ReadReconcilePrinted]) -> Answer:
    """`resource.read_printed`."""
    found = await services.store.read(resource_summary, meant(asked.payload))
    return await _read(services, found.uid, asked.payload.generation, asked.payload)


async def _read(
    services: Services, name: str, number: int, wanted: ReadPrinted | ReadReconcilePrinted
) -> Answer:
    if wanted.offset < 0:
        raise InvalidArgument("offset must not be negative")
    path = file_of(str(services.places.output / name), number, wanted.stream)
    data = await trio.to_thread.run_sync(_piece, path, wanted.offset)
    return Answer(PrintedPiece(data=data, next_offset=wanted.offset + len(data)))


async def _find(services: Services, ref: str, **wanted: Any) -> Printed:
    return await services.store.read(
        at_run, AtRun(ref, printed, lambda run_id: PrintedQuery(run_id=run_id, **wanted))
    )


def _sizes(folder: str) -> tuple[dict[str, int], dict[str, int]]:
    """The size of each file, and when it was written last; none where the run has no folder."""
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except OSError:
        found = {}
    sizes = {name: facts.st_size for name, facts in found.items()}
    return sizes, {name: int(facts.st_mtime * 1000) for name, facts in found.items()}


def _with_sizes(step: PrintedStep, sizes: dict[str, int]) -> PrintedStep:
    out, err = (sizes.get(f"{step.attempt}.{stream}") for stream in STREAMS)
    return msgspec.structs.replace(step, out_bytes=out, err_bytes=err)


def _piece(path: str, offset: int) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            return os.pread(file.fileno(), PIECE_BYTES, offset)
    except OSError:
        return b""  # nothing was printed, or it is gone


HANDLERS: dict[str, OperationHandler] = {
    "run.printed": list_,
    "run.read_printed": read,
    "resource.printed": list_of_resource,
    "resource.read_printed": read_of_resource,
}
