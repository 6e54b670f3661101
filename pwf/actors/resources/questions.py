"""What a reconciling process asks while it works: larger values, child runs, effects.

Owns nothing: it is one task of a reconcile, over the process's values socket. Promises: an answer is on disk before it
leaves, and only the owner of the lease gets one that changes anything.
"""

from __future__ import annotations

import contextlib

import msgspec
import trio

from pwf.actors.code.definitions import DefinitionsHandle
from pwf.actors.code.schemas import Schemas
from pwf.actors.runs.launching import Supervision
from pwf.errors import PwfError
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.reconcile import CancelRun, ChildAnswer, EnsureRun, Question, decode_question
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    BeginPart,
    ReadValue,
    SettlePart,
    ValueChunk,
    encode_line,
)
from pwf.store.read_resources import OfResource, resource_refers
from pwf.store.resource_effects import ReconcilePart, reconcile_part
from pwf.store.runners import Fence
from pwf.store.values import ReadValueChunk, read_chunk

RECEIVE_BYTES = 64 * 1024


class Questions:
    """For all reconciles: what is needed to answer them."""

    def __init__(self, definitions: DefinitionsHandle, schemas: Schemas) -> None:
        self._definitions = definitions
        self._schemas = schemas

    async def serve(self, stream: trio.abc.Stream, fence: Fence, world: Supervision) -> None:
        """Answer until the process's end closes, or says something that is no question."""
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        with contextlib.suppress(
            trio.BrokenResourceError, trio.ClosedResourceError, msgspec.MsgspecError, PwfError
        ):
            while data := await stream.receive_some(RECEIVE_BYTES):
                for line in splitter.feed(bytes(data)):
                    await self._answer(stream, fence, world, decode_question(line))
        await stream.aclose()  # else a process whose question failed would wait for its answer for ever

    async def _answer(
        self, stream: trio.abc.Stream, fence: Fence, world: Supervision, question: Question
    ) -> None:
        match question:
            case ReadValue():
                await _read_value(stream, fence, world, question.digest)
            case EnsureRun() | CancelRun():
                refusal = ChildAnswer(
                    code="rejected", message="a reconcile has no child runs in this version"
                )
                await stream.send_all(encode_line([refusal]))
            case BeginPart() | SettlePart():
                part = ReconcilePart(fence=fence, call=question)
                answer = await world.write(fence.run_id, reconcile_part, part, along=False)
                await stream.send_all(encode_line([answer]))


async def _read_value(stream: trio.abc.Stream, fence: Fence, world: Supervision, digest: str) -> None:
    store = world.store
    if not await store.read(resource_refers, OfResource(resource_no=fence.entity_no, digest=digest)):
        await stream.send_all(encode_line([ValueChunk(missing=True, last=True)]))
        return
    index, last = 0, False
    while not last:
        chunk: ValueChunk = await store.read(read_chunk, ReadValueChunk(digest=digest, index=index))
        await stream.send_all(encode_line([chunk]))
        index, last = index + 1, chunk.last
