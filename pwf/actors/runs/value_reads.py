"""Serves a runner's reads of larger values: its own run's alone, in verified chunks, over a socket of their own."""

from __future__ import annotations

import contextlib

import msgspec
import trio

from pwf.actors.base.store_actor import StoreHandle
from pwf.errors import PwfError
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import Launch, ValueChunk, encode_line, value_request
from pwf.store.read_runs import Refers, refers
from pwf.store.values import ReadValueChunk, read_chunk

REQUEST_BYTES_MAX = 4_096


def has_values(launch: Launch) -> bool:
    """Whether the runner is told of values that it has to read by digest."""
    told = (launch.input, *launch.files.values(), *(step.output for step in launch.past))
    return any(value is not None and value.digest is not None for value in told)


async def serve_values(stream: trio.abc.Stream, store: StoreHandle, run_id: str) -> None:
    """Answer until the runner's end closes, or says something that is no request. Closes the stream then.

    Cancelled, it leaves the stream open: the process may have a further run.
    """
    splitter = FrameSplitter(REQUEST_BYTES_MAX)
    with contextlib.suppress(
        trio.BrokenResourceError, trio.ClosedResourceError, msgspec.MsgspecError, PwfError
    ):
        while data := await stream.receive_some(REQUEST_BYTES_MAX):
            for line in splitter.feed(bytes(data)):
                await _answer(stream, store, run_id, value_request.decode(line).digest)
    await stream.aclose()  # else a runner whose request failed would wait for its answer for ever


async def _answer(stream: trio.abc.Stream, store: StoreHandle, run_id: str, digest: str) -> None:
    if not await store.read(refers, Refers(run_id=run_id, digest=digest)):
        await stream.send_all(encode_line([ValueChunk(missing=True, last=True)]))
        return
    index, last = 0, False
    while not last:
        chunk: ValueChunk = await store.read(read_chunk, ReadValueChunk(digest=digest, index=index))
        await stream.send_all(encode_line([chunk]))
        index, last = index + 1, chunk.last
