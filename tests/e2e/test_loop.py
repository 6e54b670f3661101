"""Nothing that a client sends holds up the daemon's loop: each of these frames is made to be slow to take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pwf.protocol.frames import FRAME_BYTES_MAX
from tests.e2e.home import Home
from tests.e2e.raw import Raw
from tests.fuzz import measured_daemon
from tests.fuzz.live import CALLBACK_MS_MAX

FLOWS = {
    "echo": """
flow = Workflow("echo", input=dict[str, list[float | str | list | dict]])

@flow.compute
def same(ctx):
    return 1
""",
    "asks": """
flow = Workflow("asks")

@flow.checkpoint(returns=list[float | str | list | dict])
def approve(ctx):
    return "go on?"
""",
}

ROOM = FRAME_BYTES_MAX - 4_000  # for a value, beside what else a frame has

VALUES = {
    "whole floats": b"[" + b"1.0," * (ROOM // 4 - 2) + b"1.0]",
    "lists": b"[" + b"[]," * (ROOM // 3 - 2) + b"[]]",
    "objects": b"[" + b"{}," * (ROOM // 3 - 2) + b"{}]",
    "what does not fit": b"[" + b"1," * (ROOM // 2 - 2) + b"null]",
    "texts": b"[" + '"é",'.encode() * (ROOM // 5 - 2) + b'""]',
    "keys": b"[{" + b",".join(b'"%x":1' % number for number in range(90_000)) + b"}]",
    "a doubled key": b"[{" + b",".join(b'"%x":1' % (number % 89_999) for number in range(90_000)) + b"}]",
    "long keys above": b'[{"%s":' % (b"k" * 9_000) * 40 + b"[" + b"[]," * 200_000 + b"[]]" + b"}]" * 40,
    "white space": b"[" + b" " * (ROOM - 2) + b"]",
}


def request(operation: str, payload: bytes, **more: object) -> bytes:
    head = json.dumps(
        {"type": "request", "request_id": "r", "client_id": "c", "operation": operation, **more}
    )
    return head[:-1].encode() + b',"payload":' + payload + b"}"


def starts(home: Home, value: bytes = b"{}", **more: Any) -> bytes:
    origin = {"cwd": str(home.project), "python": sys.executable, "environment": {}, **more.pop("origin", {})}
    payload = json.dumps({"workflow": "echo", "origin": origin, **more})
    return request("run.start", payload[:-1].encode() + b',"input":' + value + b"}")


def odd_frames(home: Home) -> dict[str, bytes]:
    """What is slow to take by another way than its value."""
    statuses = json.dumps({"statuses": ["pending"] * (ROOM // 11)}).encode()
    variables = {f"V{number:x}": "" for number in range(ROOM // 14)}
    return {
        "a long way up": starts(home, origin={"cwd": "/a" * (ROOM // 2)}),
        "a workflow down a long way": starts(home, workflow="a/" * (ROOM // 2)),
        "many variables": starts(home, origin={"environment": variables}),
        "many statuses": request("request.list", statuses),
        "a long reference": request("run.status", b"{}", run_id="r" * ROOM),
        "a long reason": request("run.cancel", json.dumps({"reason": "r" * ROOM}).encode(), run_id="@last"),
        "one field again and again": request(
            "run.cancel", b"{" + b'"reason":"",' * (ROOM // 12) + b'"reason":""}', run_id="@last"
        ),
        "a padded wait": request("run.wait", b'{"timeout_ms":0' + b" " * ROOM + b"}", run_id="@last"),
        "brackets in front": request("run.status", b"[" + b"[]," * (ROOM // 3 - 1) + b"[]]", run_id="@last"),
        "a field of a wrong type": request("run.status", b"{}", run_id=[[]] * (ROOM // 4)),
    }


#: One of each kind; all of them take the longest of the tests that are alone on the machine.
FEW = {
    "a doubled key",
    "answer: long keys above",
    "answer: what does not fit",
    "brackets in front",
    "many variables",
}


@pytest.mark.serial
@pytest.mark.parametrize("all_", [False, pytest.param(True, marks=pytest.mark.rest)])
def test_no_frame_takes_more_of_the_loops_time_than_its_bound(
    home: Home, tmp_path: Path, *, all_: bool
) -> None:
    for name, text in FLOWS.items():
        home.workflow(name, text)
    slow = tmp_path / "slow"
    slow.touch()
    daemon = home.daemon(str(Path(measured_daemon.__file__)), str(slow))
    home.start("echo", "--input", "{}")
    asked = home.start("asks")
    home.wait_status(asked, "waiting")
    frames = {name: starts(home, b'{"a":' + value + b"}") for name, value in VALUES.items()}
    answer = f'{{"request_id":"run:{asked}","answer":'.encode()
    frames |= {
        f"answer: {name}": request("request.answer", answer + value + b"}") for name, value in VALUES.items()
    }
    frames |= odd_frames(home)
    frames = frames if all_ else {name: frames[name] for name in FEW}
    raw = Raw(home)
    taken: dict[str, list[str]] = {}
    for name, line in frames.items():
        before = len(slow.read_text().splitlines())
        raw._socket.sendall(line + b"\n")
        assert raw.receive()["type"] == "response", name
        taken[name] = slow.read_text().splitlines()[before:]
    raw.close()
    assert daemon.poll() is None
    over = {
        name: steps
        for name, steps in taken.items()
        if max((_ms(one) for one in steps), default=0) > CALLBACK_MS_MAX
    }
    assert not over, over


def _ms(step: str) -> float:
    return float(step.partition(" ")[0])
