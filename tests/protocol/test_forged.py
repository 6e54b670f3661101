"""What a step's code writes on its runner's socket is a runner's message, or a protocol error: never more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pwf.errors import ProtocolError
from pwf.protocol.runner import decode_from_runner

FINISH = {"type": "finish", "seq": 1, "attempt": 1, "outcome": "completed", "output": {"json": 1}}
CHUNK = {"type": "put_chunk", "digest": "a" * 64, "index": 0, "data": ""}
PUBLISH = {"type": "publish", "attempt": 1, "kind": "k", "key": "k", "data": 1}
ASK = {"type": "ask", "seq": 1, "attempt": 1, "kind": "checkpoint", "prompt": {"json": 1}}
HUGE = 2**63


@pytest.mark.parametrize(
    ("sound", "forged"),
    [
        (FINISH, {"active_ms": HUGE}),
        (FINISH, {"active_ms": -1}),
        (FINISH, {"seq": HUGE}),
        (FINISH, {"attempt": 10**30}),
        (FINISH, {"printed": HUGE}),
        (FINISH, {"survivors": [{"pid": HUGE, "command": "x"}]}),
        (FINISH, {"output": {"digest": "zz", "size": 3}}),
        (FINISH, {"output": {"digest": "a" * 64, "size": HUGE}}),
        (FINISH, {"effect_ref": "x" * 2_000}),
        (ASK, {"active_ms": HUGE}),
        (ASK, {"prompt": {"digest": "a" * 65, "size": 3}}),
        (CHUNK, {"digest": "zz"}),
        (CHUNK, {"index": HUGE}),
        (CHUNK, {"index": -1}),
        (CHUNK, {"size": HUGE}),
        (PUBLISH, {"attempt": HUGE}),
    ],
)
def test_a_forged_message_is_a_protocol_error(sound: dict[str, Any], forged: dict[str, Any]) -> None:
    decode_from_runner(json.dumps(sound).encode())
    with pytest.raises(ProtocolError, match="not a runner's message"):
        decode_from_runner(json.dumps({**sound, **forged}).encode())


@pytest.mark.parametrize("sound", [FINISH, ASK, PUBLISH], ids=["output", "prompt", "update"])
def test_a_value_that_no_reader_can_decode_is_a_protocol_error(sound: dict[str, Any]) -> None:
    text = json.dumps(sound).replace('"json": 1', '"json": 1e999').replace('"data": 1', '"data": 1e999')
    with pytest.raises(ProtocolError, match="Number out of range"):
        decode_from_runner(text.encode())
