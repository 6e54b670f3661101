"""A live daemon under clients that send sound, damaged and very large frames.

Rules: each request has one answer, or the connection ends; the daemon goes on; no callback of its loop takes more than
`CALLBACK_MS_MAX` of processor time, whatever a client sends; its memory stays bounded.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pwf.protocol.frames import FRAME_BYTES_MAX, PROTOCOL
from pwf.protocol.operations import OPERATIONS
from tests.e2e.home import Home
from tests.e2e.raw import origin
from tests.fuzz.strategies import damaged, instances, texts

CALLBACK_MS_MAX = 50.0  # issue: nothing that a client sends holds up the others for longer
GROWTH_BYTES_MAX = 200 * 1024 * 1024
ANSWER_S_MAX = 30.0
ROUND = 60  # examples between two looks at the clock

#: Ends the daemon, writes files where it is told, or waits as long as it is told.
LEFT_OUT = {"daemon.stop", "state.backup", "run.wait"}

HELLO = {"type": "hello", "protocol": PROTOCOL, "version": "fuzz", "client_id": "fuzz"}

WORKFLOWS = {
    "echo": """
flow = Workflow("echo", input=dict)

@flow.compute
def same(ctx):
    return ctx.input
""",
    "asks": """
flow = Workflow("asks")

@flow.checkpoint
def approve(ctx):
    return "go on?"
""",
}


class Seen(NamedTuple):
    """What a campaign has reached. `slowest`: the longest callback of the loop."""

    frames: int
    outcomes: Counter[str]
    slowest: Slow
    grown_bytes: int


class Slow(NamedTuple):
    """A callback: how long it took, whose it was, and the beginnings of the frames after which it was noticed."""

    ms: float = 0.0
    task: str = "none"
    frames: tuple[str, ...] = ()


# --- what is sent -----------------------------------------------------------------------------------------------


def _wide(size: int) -> Any:
    return {f"k{index}": index for index in range(size // 16)}


def _deep(size: int) -> Any:
    found: Any = 0
    for index in range(min(size, 99)):
        found = {"k" * (size // 200): found, "n": index} if index % 2 else [found, index]
    return found


SHAPES = {
    "wide": _wide,
    "deep": _deep,
    "long": lambda size: "x" * size,
    "many": lambda size: [0] * (size // 2),
    "empty": lambda size: [{}] * (size // 4),
    "odd": lambda size: "\u2028\U0001f600\\" * (size // 12),
}

large = st.builds(
    lambda shape, size: SHAPES[shape](size),
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([4_000, 60_000, 400_000, FRAME_BYTES_MAX - 2_000]),
)


@st.composite
def requests(draw: st.DrawFn, home: Home, runs: list[str]) -> bytes:
    """One frame's line: a request of some operation, as it should be or damaged."""
    operation = draw(st.sampled_from(sorted(set(OPERATIONS) - LEFT_OUT)))
    payload = json.loads(msgspec.json.encode(draw(instances(OPERATIONS[operation].payload))))
    if operation == "run.start":
        payload |= {"workflow": draw(st.sampled_from([*WORKFLOWS, "none"])), "origin": origin(home)}
        payload["input"] = draw(large | st.just({}))
    if operation == "request.answer":
        payload["answer"] = draw(large | st.just({}))
    frame = {
        "type": "request",
        "request_id": draw(st.uuids().map(str)),
        "client_id": "fuzz",
        "operation": operation,
        "payload": payload,
    }
    if draw(st.integers(0, 9)):
        frame["run_id"] = draw(st.sampled_from(runs))
    if draw(st.booleans()):
        frame["idempotency_key"] = draw(texts)
    line = json.dumps(frame).encode()
    return draw(damaged(st.just(line))) if draw(st.integers(0, 3)) == 0 else line


# --- a client ---------------------------------------------------------------------------------------------------


def exchange(path: str, lines: list[bytes], outcomes: Counter[str]) -> None:
    """Send the lines on a connection of their own; read until all is answered, or the connection ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S_MAX)
        connection.connect(path)
        file = connection.makefile("rb")
        waiting = {request_id for line in lines if (request_id := _id_of(line))}
        try:
            connection.sendall(json.dumps(HELLO).encode() + b"\n")
            for line in lines:
                connection.sendall(line.replace(b"\n", b" ") + b"\n")
            while waiting and (answer := file.readline()):
                frame = json.loads(answer)
                if frame["type"] == "response":
                    waiting.discard(frame["request_id"])
                    outcomes[frame["outcome"]] += 1
                elif frame["type"] == "error" or frame.get("error"):
                    outcomes["closed"] += 1
        except (BrokenPipeError, ConnectionResetError):
            outcomes["closed"] += 1


def _id_of(line: bytes) -> str | None:
    """Whose answer to wait for; None for what is no request."""
    try:
        frame = json.loads(line)
        return str(frame["request_id"]) if frame["type"] == "request" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# --- a campaign -------------------------------------------------------------------------------------------------


def campaign(folder: Path, *, seconds: float, first_seed: int = 1) -> Seen:
    """Drive a daemon for so long. Raises `AssertionError` when a rule does not hold."""
    home = Home(folder)
    for name, text in WORKFLOWS.items():
        home.workflow(name, text)
    slow = folder / "slow"
    slow.touch()
    process = home.daemon(str(Path(__file__).with_name("measured_daemon.py")), str(slow))
    try:
        runs = [home.start("asks"), home.start("echo", "--input", "{}")]
        home.wait_status(runs[0], "waiting")
        daemon = psutil.Process(process.pid)
        watch = Watch(slow)
        drive(
            home, runs, watch, seconds=min(3.0, seconds), first_seed=first_seed
        )  # what it keeps for good is made
        before = daemon.memory_info().rss
        frames, outcomes = drive(home, runs, watch, seconds=seconds, first_seed=first_seed + 1_000_000)
        assert process.poll() is None, f"the daemon has ended: {home.log()[-3:]}"
        grown = daemon.memory_info().rss - before
        home.check_store()
    finally:
        home.end()
    return Seen(frames, outcomes, watch.slowest, grown)


class Watch:
    """Reads what the loop has noted, and keeps the slowest."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to = file.stat().st_size  # not of the daemon's start
        self.slowest = Slow()

    def look(self, sent: list[bytes]) -> None:
        """After these frames."""
        with self._file.open() as file:  # anew each time: nothing is left open where a rule does not hold
            file.seek(self._read_to)
            lines = file.readlines()
            self._read_to = file.tell()
        for line in lines:
            ms, task = line.rstrip().split(" ", 1)
            if float(ms) > self.slowest.ms:
                self.slowest = Slow(
                    float(ms), task, tuple(f"{len(one):,} bytes: {one[:300]!r}" for one in sent)
                )


def drive(
    home: Home, runs: list[str], watch: Watch, *, seconds: float, first_seed: int
) -> tuple[int, Counter[str]]:
    """Send rounds of frames until the time is over: how many, and what came back."""
    path, frames, outcomes, ends = home.record.socket, 0, Counter[str](), time.monotonic() + seconds
    number = first_seed
    while time.monotonic() < ends:

        @seed(number)
        @settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(requests(home, runs), min_size=1, max_size=4))
        def round_(lines: list[bytes]) -> None:
            nonlocal frames
            if time.monotonic() < ends:
                frames += len(lines)
                exchange(path, lines, outcomes)
                watch.look(lines)

        round_()
        number += 1
    with home.client() as client:
        client.call("daemon.status")
    return frames, outcomes


def check(seen: Seen) -> None:
    """The bounds, once all else has held."""
    slowest = seen.slowest
    said = "\n".join(slowest.frames)
    assert slowest.ms <= CALLBACK_MS_MAX, f"a callback took {slowest.ms} ms: {slowest.task}\n{said}"
    assert seen.grown_bytes <= GROWTH_BYTES_MAX, f"the daemon has grown by {seen.grown_bytes / 1e6:,.0f} MB"


def told(seen: Seen) -> str:
    """The figures, for people."""
    outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(seen.outcomes.items()))
    return (
        f"{seen.frames:,} frames: {outcomes}; longest callback {seen.slowest.ms:.0f} ms of processor time "
        f"({seen.slowest.task}); grown by {seen.grown_bytes / 1e6:,.0f} MB"
    )
