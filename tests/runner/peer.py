"""The daemon's side of a runner, in memory: `MemoryRun` decides as the store does, `serve` speaks the protocol.

`MemoryRun` is a plain state machine over one run: give it a message, get the reply. `run_inline` runs the engine in
this process with the peer in a thread; `run_forked` runs a whole runner in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pwf import host, values
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.graph import WorkflowGraph, route
from pwf.protocol.kinds import KINDS
from pwf.protocol.mounts import Entries, enter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    AgentReport,
    Ask,
    BeginPart,
    Finish,
    FromRunner,
    Launch,
    Leaving,
    PartAnswer,
    PastStep,
    Publish,
    PutChunk,
    ReadSecret,
    SecretAnswer,
    SettlePart,
    StepReply,
    Titled,
    Value,
    ValueChunk,
    WaitUntil,
    call_decoder,
    encode_line,
    from_runner,
)
from pwf.protocol.settings import SettingsCopy
from pwf.runner.base.wire import DaemonGone, ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.runner.generation import run_runner
from pwf.workflow.workflow import Workflow

Decide = Callable[[FromRunner], str | None]  # a verdict that overrides the run's own


@dataclass
class MemoryRun:
    """One run. `status` is running, parked, waiting, timer, held, or how it ended."""

    graph: WorkflowGraph
    input: object = None
    options: dict[str, Any] = field(default_factory=dict)  # of every Launch: limits, root, files …
    decide: Decide = lambda message: None
    contents: dict[str, bytes] = field(default_factory=dict)
    answer_part: Callable[[BeginPart | SettlePart], PartAnswer] = lambda call: PartAnswer(
        verdict="apply" if isinstance(call, BeginPart) else "settled"
    )
    secrets: dict[str, str] = field(default_factory=dict)
    received: list[FromRunner] = field(default_factory=list)
    history: list[PastStep] = field(default_factory=list)
    status: str = "running"
    generation: int = 0
    attempt: int = 0
    failures: int = 0
    steps: int = 1
    observe: str | None = None
    title: str | None = None
    newer: SettingsCopy | None = None  # that the next replies bring

    def __post_init__(self) -> None:
        self.node = self.graph.start
        self.visits = {self.node: 1}
        self.entries: Entries = {}
        self._uploads: dict[str, list[bytes]] = {}
        self._seq = 0

    def launch(self) -> Launch:
        """Begin the next generation at the recorded position."""
        self.generation += 1
        self.attempt += 1
        self.status, self._seq = "running", 0
        defaults: dict[str, Any] = {
            "run_id": "run1",
            "generation": self.generation,
            "graph": self.graph,
            "input": self.value(self.input),
            "node": self.node,
            "visit": self.visits[self.node],
            "attempt": self.attempt,
            "observe": self.observe is not None,
            "observe_then": self.observe if self.observe in ("failed", "timed_out") else None,
            "past": tuple(self.history),
            "visits": dict(self.visits),
            "entries": dict(self.entries),
            "steps_taken": self.steps - 1,
        }
        return Launch(**(defaults | self.options))

    def value(self, thing: object) -> Value:
        """Keep a value as the store would."""
        data = values.canonical(thing)
        if len(data) <= values.INLINE_BYTES_MAX:
            return Value(json=msgspec.Raw(data), size=len(data))
        return self.content(data)

    def content(self, data: bytes) -> Value:
        """Keep bytes by their digest."""
        digest = values.digest(data)
        self.contents[digest] = data
        return Value(digest=digest, size=len(data))

    def read(self, value: Value | None) -> Any:
        """The Python value of a `Value`."""
        assert value is not None
        data = bytes(value.json) if value.json is not None else self.contents[value.digest or ""]
        return msgspec.json.decode(data)

    def receive(self, message: FromRunner) -> StepReply | None:
        """Apply a message; its reply, if it has one."""
        self.received.append(message)
        if isinstance(message, Titled):
            self.title = message.title
        if isinstance(message, AgentReport | Publish | Leaving | Titled):
            return None
        if isinstance(message, PutChunk):
            return self._upload(message)
        verdict = self._judge(message)
        return StepReply(seq=message.seq, verdict=verdict, settings=self.newer)  # type: ignore[arg-type]

    def _upload(self, chunk: PutChunk) -> StepReply | None:
        pieces = self._uploads.setdefault(chunk.digest, [])
        assert chunk.index == len(pieces), "chunks come in order"
        pieces.append(chunk.data)
        if not chunk.last:
            return None
        data = b"".join(self._uploads.pop(chunk.digest))
        assert (values.digest(data), len(data)) == (chunk.digest, chunk.size)
        override = self.decide(chunk)
        if override is None:
            self.contents[chunk.digest] = data
        return StepReply(seq=chunk.seq, verdict=override or "go")  # type: ignore[arg-type]

    def _judge(self, message: Finish | Ask | WaitUntil) -> str:
        if self.status != "running":
            return "park" if self.status == "parked" else "claim_lost"
        assert message.seq == self._seq + 1, f"message {message.seq} after {self._seq}"
        assert message.attempt == self.attempt, f"attempt {message.attempt}, the run is in {self.attempt}"
        self._seq = message.seq
        override = self.decide(message)
        if override in ("claim_lost", "refused"):
            self.status = "stale"
            return override
        if isinstance(message, Finish):
            return self._finish(message, park=override == "park")
        kind = self.graph.node(self.node).kind
        facts = KINDS[kind]
        assert facts.sets_timer if isinstance(message, WaitUntil) else facts.asks == message.kind
        self.status = "timer" if isinstance(message, WaitUntil) else "waiting"
        return "park"

    def _finish(self, message: Finish, *, park: bool) -> str:
        spec = self.graph.node(self.node)
        self.history.append(
            PastStep(
                node=self.node,
                visit=self.visits[self.node],
                outcome=message.outcome,
                output=message.output,
                error=message.error,
            )
        )
        if message.settled == "unknown":
            self.observe = message.outcome
            self.status = "held" if message.observed else "parked"
            return "park"
        self.observe = None
        if message.outcome != "completed":
            self.failures += 1
            if spec.retry is not None and self.failures <= spec.retry.times:
                self.status = "parked"
                return "park"
        elif message.route_error is None:
            assert message.next == route(spec, "completed", self.read(message.output))
        way = spec.way(message.outcome)
        target = message.next if message.outcome == "completed" else (way.target if way else None)
        if target is None or message.route_error is not None or self.steps >= self.graph.max_steps:
            over = message.route_error is not None or target is not None
            self.status = "failed" if over else message.outcome
            return "end"
        self._enter(target)
        if park:
            self.status = "parked"
            return "park"
        self.attempt += 1
        return "go"

    def _enter(self, target: str) -> None:
        self.node, self.failures = target, 0
        self.visits[target] = self.visits.get(target, 0) + 1
        if self.graph.node(target).mount is not None:
            enter(self.entries, self.visits, target)
        self.steps += 1

    # --- what tests ask -----------------------------------------------------------------------------------

    @property
    def finishes(self) -> list[Finish]:
        return [message for message in self.received if isinstance(message, Finish)]

    @property
    def last(self) -> Finish:
        return self.finishes[-1]

    @property
    def output(self) -> Any:
        return self.read(self.last.output)

    @property
    def updates(self) -> list[tuple[str, str, Any]]:
        found = [message for message in self.received if isinstance(message, Publish)]
        return [(update.kind, update.key, msgspec.json.decode(update.data)) for update in found]

    @property
    def leaving(self) -> Leaving | None:
        last = self.received[-1] if self.received else None
        return last if isinstance(last, Leaving) else None


def serve(
    run: MemoryRun,
    messages: socket.socket,
    requests: socket.socket,
    *,
    seed: int | None = None,
    seconds: float = 60,
) -> None:
    """Send the launch, then answer until the runner closes. With a `seed`, replies are delayed at random.

    A runner may leave without reading the replies to its last word, and to what it had sent ahead before it was told
    to stop. What it said is heard to the end.
    """
    messages.sendall(encode_line([run.launch()]))
    with contextlib.suppress(ConnectionResetError):  # the end of one that has left replies unread
        _serve(
            run, messages, requests, None if seed is None else random.Random(seed), time.monotonic() + seconds
        )


def _serve(
    run: MemoryRun,
    messages: socket.socket,
    requests: socket.socket,
    chance: random.Random | None,
    deadline: float,
) -> None:
    splitters = {sock: FrameSplitter(RUNNER_FRAME_BYTES_MAX) for sock in (messages, requests)}
    replies: list[StepReply] = []
    while (now := time.monotonic()) < deadline:
        readable, _, _ = select.select(list(splitters), [], [], 0.002 if replies else deadline - now)
        for sock in readable:
            data = sock.recv(1 << 20)
            if not data and sock is messages:
                return
            for line in splitters[sock].feed(data):
                if sock is messages:
                    reply = run.receive(from_runner.decode(line))
                    replies += [reply] if reply is not None else []
                else:
                    request = call_decoder.decode(line)
                    if isinstance(request, ReadSecret):
                        sock.sendall(encode_line([_secret(run, request.name)]))
                    elif isinstance(request, BeginPart | SettlePart):
                        sock.sendall(encode_line([run.answer_part(request)]))
                    elif isinstance(request, PutChunk):
                        run.receive(request)
                        if request.last:
                            sock.sendall(encode_line([PartAnswer(verdict="settled")]))
                    else:
                        _answer(run, sock, request.digest)
        count = len(replies) if chance is None or not readable else chance.randint(0, len(replies))
        if count:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                messages.sendall(encode_line(replies[:count]))
            del replies[:count]
    raise AssertionError("the runner did not end in time")


def _secret(run: MemoryRun, name: str) -> SecretAnswer:
    if name in run.secrets:
        return SecretAnswer(value=run.secrets[name])
    return SecretAnswer(code="secret_missing", message=f"there is no {name}", hint="make one")


def _answer(run: MemoryRun, sock: socket.socket, digest: str) -> None:
    data = run.contents.get(digest)
    if data is None:
        sock.sendall(encode_line([ValueChunk(missing=True, last=True)]))
        return
    for start in range(0, len(data), values.CHUNK_BYTES):
        piece = data[start : start + values.CHUNK_BYTES]
        last = start + values.CHUNK_BYTES >= len(data)
        sock.sendall(encode_line([ValueChunk(data=piece, last=last)]))


@contextmanager
def pairs() -> Iterator[tuple[socket.socket, socket.socket, socket.socket, socket.socket]]:
    """Messages and values sockets: the daemon's two ends, then the runner's."""
    ours, theirs = socket.socketpair()
    our_values, their_values = socket.socketpair()
    with ours, theirs, our_values, their_values:
        yield ours, our_values, theirs, their_values


def run_inline(flow: Workflow[Any], run: MemoryRun, *, seed: int | None = None) -> MemoryRun:
    """One generation with the engine in this thread; nothing of the process is changed."""
    with pairs() as (messages, requests, theirs, their_values):
        faults: list[BaseException] = []

        def peer() -> None:
            try:
                serve(run, messages, requests, seed=seed)
            except BaseException as fault:  # noqa: BLE001 - raised again in the test's thread
                faults.append(fault)
                messages.close()

        thread = threading.Thread(target=peer)
        thread.start()
        try:
            wire = Wire(theirs)
            Engine(wire, ValueReader(their_values), flow, wire.receive_launch()).run()
        except DaemonGone:
            assert faults, "the peer closed for no reason"
        finally:
            theirs.close()
            thread.join(20)
        if faults:
            raise faults[0]
    return run


def fork_runner(
    flow: Workflow[Any], theirs: socket.socket, their_values: socket.socket, *others: socket.socket
) -> int:
    """A runner as the template makes it: a session of its own, subreaper, only its own sockets. Gives its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        host.set_subreaper()
        for other in others:
            other.close()
        ends = [os.pipe() for _ in range(2)]  # it goes on printing where the test prints
        run_runner(theirs, their_values, (ends[0][0], ends[1][0]), flow, lambda marker: None)
        status = 0
    finally:
        os._exit(status)


def run_forked(flow: Workflow[Any], run: MemoryRun) -> MemoryRun:
    """One generation in a process of its own; it must end with status 0."""
    with pairs() as (messages, requests, theirs, their_values):
        pid = fork_runner(flow, theirs, their_values, messages, requests)
        theirs.close()
        their_values.close()
        try:
            serve(run, messages, requests)
        finally:
            messages.close()  # a runner that hangs ends with its connection
            requests.close()
            _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the runner failed"
    return run


def memory_run(flow: Workflow[Any], input: object = None, **options: Any) -> MemoryRun:
    """A fresh run of a workflow; `options` are fields of `Launch`, or `decide`."""
    decide = options.pop("decide", lambda message: None)
    return MemoryRun(flow.to_graph(), input=input, options=options, decide=decide)
