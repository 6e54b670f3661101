"""Serves a runner's reads, over a socket of their own: of larger values, its own run's alone, in verified chunks, and
of the secrets that its workflow declares.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from pwf.actors.base.store_actor import StoreHandle
from pwf.errors import PwfError, SecretMissing
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.masking import Masks
from pwf.protocol.runner import Launch, ReadSecret, SecretAnswer, ValueChunk, encode_line, value_request
from pwf.secrets import resolve
from pwf.store.read_runs import Refers, refers
from pwf.store.values import ReadValueChunk, read_chunk

REQUEST_BYTES_MAX = 4_096


def has_values(launch: Launch) -> bool:
    """Whether the runner is told of values that it has to read by digest."""
    told = (launch.input, *launch.files.values(), *(step.output for step in launch.past))
    has_larger = any(value is not None and value.digest is not None for value in told)
    return has_larger or bool(launch.graph.secrets)


class SecretReads(NamedTuple):
    """The secrets that a run may have. `config`: the user's configuration, which says where they are.

    `masks` get each value before the runner does.
    """

    names: tuple[str, ...]
    config: Path
    masks: Masks


async def serve_values(
    stream: trio.abc.Stream, store: StoreHandle, run_id: str, secrets: SecretReads
) -> None:
    """Answer until the runner's end closes, or says something that is no request. Closes the stream then.

    Cancelled, it leaves the stream open: the process may have a further run.
    """
    splitter = FrameSplitter(REQUEST_BYTES_MAX)
    with contextlib.suppress(
        trio.BrokenResourceError, trio.ClosedResourceError, msgspec.MsgspecError, PwfError
    ):
        while data := await stream.receive_some(REQUEST_BYTES_MAX):
            for line in splitter.feed(bytes(data)):
                request = value_request.decode(line)
                if isinstance(request, ReadSecret):
                    await stream.send_all(encode_line([await _secret(request.name, secrets)]))
                else:
                    await _answer(stream, store, run_id, request.digest)
    await stream.aclose()  # else a runner whose request failed would wait for its answer for ever


async def _secret(name: str, secrets: SecretReads) -> SecretAnswer:
    """Looked up now, in a thread: a command or a keyring may take its time."""
    try:
        if name not in secrets.names:
            raise SecretMissing(f"the workflow does not declare the secret {name!r:.80}")
        value = await trio.to_thread.run_sync(resolve, name, secrets.config, abandon_on_cancel=True)
    except PwfError as error:
        return SecretAnswer(code=error.code, message=error.message, hint=error.hint)
    secrets.masks.add(value)
    return SecretAnswer(value=value)


async def _answer(stream: trio.abc.Stream, store: StoreHandle, run_id: str, digest: str) -> None:
    if not await store.read(refers, Refers(run_id=run_id, digest=digest)):
        await stream.send_all(encode_line([ValueChunk(missing=True, last=True)]))
        return
    index, last = 0, False
    while not last:
        chunk: ValueChunk = await store.read(read_chunk, ReadValueChunk(digest=digest, index=index))
        await stream.send_all(encode_line([chunk]))
        index, last = index + 1, chunk.last
