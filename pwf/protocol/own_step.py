"""What an agent that works by itself, and whatever it starts, says to the runner of its one step, and hears.

Owns the name of the variable that leads there, and the messages: one line of JSON each way, and then the connection is
over. Nothing else can be asked, and nobody names a run.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.protocol.raw import null

#: In the environment of such an agent: the socket of its step. A first `@` stands for the abstract namespace's NUL.
VARIABLE = "PWF_STEP"
#: Beside it: the command that hands a result in.
SUBMIT_VARIABLE = "PWF_SUBMIT"
#: In place of a request: the step that the environment names.
STEP = "step"
ANSWER_S = 600.0  # for the verdict: `validate=` may take its time


class ReadStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="read"):
    """What is wanted?"""


class SubmitStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="submit"):
    """The result."""

    value: msgspec.Raw


ToStep = ReadStep | SubmitStep


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`wanted`: nothing was submitted; `schema` says what would be. `closed`: rejected, and nothing more is taken."""

    verdict: Literal["wanted", "accepted", "rejected", "closed", "conflict"]
    reason: str = ""
    schema: msgspec.Raw = msgspec.field(default_factory=null)


def socket_name(address: str) -> str:
    """As the system takes it."""
    return f"\0{address[1:]}" if address.startswith("@") else address


_asked = msgspec.json.Decoder(ToStep)
_answered = msgspec.json.Decoder(StepAnswer)


def read_asked(line: bytes | bytearray) -> ToStep:
    """Raises `msgspec.MsgspecError`."""
    return _asked.decode(line)


def read_answered(line: bytes) -> StepAnswer:
    """Raises `msgspec.MsgspecError`."""
    return _answered.decode(line)
