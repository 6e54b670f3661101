"""Serves the values socket of a runner: reads of its own run's larger values, in verified chunks, and of the secrets
that its workflow declares; and what a step says of its effects in mid-step. One call at a time, answered after its
commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from pwf.actors.base.store_actor import StoreHandle
from pwf.errors import InvalidValue, PwfError, SecretMissing, ValueTooLarge
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.masking import Masks
from pwf.protocol.runner import (
    CALL_BYTES_MAX,
    BeginPart,
    Launch,
    PartAnswer,
    PutChunk,
    ReadSecret,
    ReadValue,
    SecretAnswer,
    SettlePart,
    StepError,
    StepReply,
    ValueChunk,
    decode_call,
    encode_line,
)
from pwf.secrets import resolve
from pwf.store.read_runs import Refers, refers
from pwf.store.runners import Fence
from pwf.store.step_parts import PartCall, part_call
from pwf.store.tx import Tx
from pwf.store.values import PutValueChunk, ReadValueChunk, put_chunk, read_chunk

RECEIVE_BYTES = 64 * 1024

Write = Callable[[Callable[[Tx, Any], Any], Any], Awaitable[Any]]  # of a command of this runner's generation

#: What becomes of a call that is no read; None: it has no answer.
Answering = Callable[[BeginPart | SettlePart | PutChunk], Awaitable[PartAnswer | None]]


class SecretReads(NamedTuple):
    """The secrets that a run may have. `config`: the user's configuration, which says where they are.

    `masks` get each value before the runner does.
    """

    names: tuple[str, ...]
    config: Path
    masks: Masks


class Calls:
    """What a runner's calls become in the store, under its fence."""

    def __init__(self, fence: Fence, write: Write, value_bytes_max: int) -> None:
        self._fence, self._write, self._value_bytes_max = fence, write, value_bytes_max

    async def answer(self, call: BeginPart | SettlePart | PutChunk) -> PartAnswer | None:
        """Begin or settle an effect in mid-step, or take a piece of a larger value that one is about to name."""
        if not isinstance(call, PutChunk):
            answer: PartAnswer = await self._write(part_call, PartCall(fence=self._fence, call=call))
            return answer
        fault = await self.put(call)
        if not call.last:
            return None  # what is missing then is missed at the last
        if fault is None:
            return PartAnswer(verdict="settled")
        return PartAnswer(verdict="refused", error=StepError(code="value_refused", message=fault))

    async def put_answered(self, chunk: PutChunk) -> list[StepReply]:
        """The same, with the reply that the runner gets: to the last piece, or to one that is refused."""
        fault = await self.put(chunk)
        if fault is not None:
            return [StepReply(seq=chunk.seq, verdict="refused", error=fault)]
        return [StepReply(seq=chunk.seq, verdict="go")] if chunk.last else []

    async def put(self, chunk: PutChunk) -> str | None:
        """Keep a piece of a value; why it is refused, if it is."""
        command = PutValueChunk(
            entity_no=self._fence.entity_no,
            generation=self._fence.generation,
            digest=chunk.digest,
            index=chunk.index,
            data=chunk.data,
            last=chunk.last,
            limit=self._value_bytes_max,
        )
        try:
            await self._write(put_chunk, command)
        except (InvalidValue, ValueTooLarge) as error:
            return error.message
        return None


def has_calls(launch: Launch) -> bool:
    """Whether the runner may call: for values that it is told by digest, for secrets, or for effects in mid-step."""
    told = (launch.input, *launch.files.values(), *(step.output for step in launch.past))
    if launch.graph.secrets or any(value is not None and value.digest is not None for value in told):
        return True
    return any(node.effect is not None and node.effect.mode == "parts" for node in launch.graph.nodes)


async def serve_calls(
    stream: trio.abc.Stream, store: StoreHandle, run_id: str, secrets: SecretReads, answering: Answering
) -> None:
    """As `serve_lines`. Cancelled, it leaves the stream open: the process may have a further run."""

    async def answer(line: bytes) -> None:
        call = decode_call(line)
        if isinstance(call, ReadValue):
            may_read = await store.read(refers, Refers(run_id=run_id, digest=call.digest))
            await send_value(stream, store, call.digest if may_read else None)
        elif isinstance(call, ReadSecret):
            await stream.send_all(encode_line([await answer_secret(call.name, secrets)]))
        elif (said := await answering(call)) is not None:
            await stream.send_all(encode_line([said]))

    await serve_lines(stream, CALL_BYTES_MAX, answer)


async def serve_lines(
    stream: trio.abc.Stream, line_bytes_max: int, answer: Callable[[bytes], Awaitable[None]]
) -> None:
    """`answer` line by line until the process's end closes, or says something that is no call. Closes it then."""
    splitter = FrameSplitter(line_bytes_max)
    with contextlib.suppress(
        trio.BrokenResourceError, trio.ClosedResourceError, msgspec.MsgspecError, PwfError
    ):
        while data := await stream.receive_some(RECEIVE_BYTES):
            for line in splitter.feed(bytes(data)):
                await answer(line)
    await stream.aclose()  # else a process whose call failed would wait for its answer for ever


async def send_value(stream: trio.abc.Stream, store: StoreHandle, digest: str | None) -> None:
    """A larger value in verified chunks; None: what was asked for may not be read."""
    if digest is None:
        await stream.send_all(encode_line([ValueChunk(missing=True, last=True)]))
        return
    index, last = 0, False
    while not last:
        chunk: ValueChunk = await store.read(read_chunk, ReadValueChunk(digest=digest, index=index))
        await stream.send_all(encode_line([chunk]))
        index, last = index + 1, chunk.last


async def answer_secret(name: str, secrets: SecretReads) -> SecretAnswer:
    """Looked up now, in a thread: a command or a keyring may take its time."""
    try:
        if name not in secrets.names:
            raise SecretMissing(f"the secret {name!r:.80} is not declared")
        value = await trio.to_thread.run_sync(resolve, name, secrets.config, abandon_on_cancel=True)
    except PwfError as error:
        return SecretAnswer(code=error.code, message=error.message, hint=error.hint)
    secrets.masks.add(value)
    return SecretAnswer(value=value)
