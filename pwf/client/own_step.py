"""What an agent that works by itself asks of the runner of its step: what is wanted, and whether this is it.

Promises: it reaches the step that the environment names, and nothing else. The daemon is never asked.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import msgspec

from pwf.errors import NotFound, Unavailable
from pwf.protocol.own_step import (
    ANSWER_S,
    VARIABLE,
    ReadStep,
    StepAnswer,
    SubmitStep,
    ToStep,
    read_answered,
    socket_name,
)

RECEIVE_BYTES = 64 * 1024


def read_step() -> StepAnswer:
    """What the step wants. Raises as `submit_step`."""
    return _exchange(ReadStep())


def submit_step(value: bytes) -> StepAnswer:
    """Hand in a result, canonical JSON; the verdict. Raises `NotFound` outside a step, `Unavailable` after its end."""
    return _exchange(SubmitStep(value=msgspec.Raw(value)))


def _exchange(asked: ToStep) -> StepAnswer:
    address = os.environ.get(VARIABLE)
    if not address:
        raise NotFound(
            f"there is no step here: {VARIABLE} is not set, as it is for an agent that pwf has started",
            hint="pwf requests",
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(socket_name(address))
            # A step that takes no more has answered all the same.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(msgspec.json.encode(asked) + b"\n")
            return read_answered(_line(connection))
    except (OSError, msgspec.MsgspecError) as error:
        raise Unavailable(
            f"the step can not be reached any more: {error}",
            hint="say the result as your answer, if your turn goes on",
        ) from error


def _line(connection: socket.socket) -> bytes:
    """All that it says. Its end may be a reset, where it has not read all."""
    pieces = []
    try:
        while piece := connection.recv(RECEIVE_BYTES):
            pieces.append(piece)
    except ConnectionResetError:
        if not pieces:
            raise
    return b"".join(pieces)
