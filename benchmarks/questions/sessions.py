"""How long after a submission does a session's agent have its next step, and what do 500 idle sessions cost the daemon?

The agent does what `pwf.client.Session` does, over a connection of its own: it hands a value in, reports the end of its
turn, and looks for its next message whenever it is told that there is news. Its model thinks for a quarter of a second.
Each step has a process, which asks and ends meanwhile. An idle session is attached, has reported, and follows its view.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import msgspec

from benchmarks.bench import Bench, percentile
from benchmarks.daemon import Daemon
from benchmarks.load import Connection, Requests, start_payload
from benchmarks.rows import Row, Stat
from benchmarks.workflows import agent_steps
from pwf import host
from pwf.actors.sessions.session_coordinator import SAMPLE_S
from pwf.protocol.frames import Response, encode
from pwf.protocol.operations import SubmitPayload, Submitted, SubscribePayload
from pwf.protocol.sessions import (
    AttachPayload,
    MessageView,
    ReportPayload,
    SessionRef,
    SessionView,
    TurnPayload,
)

QUESTION = "sessions"
STEPS = 10
STEPS_QUICK = 4
THINKS_S = 0.25  # the model; events of a view that follow each other faster are held back
IDLE = 500
IDLE_MIB_MAX = 40.0
IDLE_S = 65  # a view without news is read again within a minute, unless it is known to be calm
SETTLES_S = SAMPLE_S + 2.0  # after what a session has said, it is looked at once whether its model works
PATIENCE_S = 30.0


def measure(bench: Bench) -> Iterator[Row]:
    """Steps that follow each other; then sessions that wait."""
    yield from _steps(bench)
    yield from _idle(bench)


# --- the agent ------------------------------------------------------------------------------------------------


class Agent:
    """A session's agent on one connection. It has attached, has reported, and follows its view."""

    def __init__(self, daemon: Daemon, session_id: str) -> None:
        self._connection = Connection(daemon)
        self._requests = Requests()
        self._has_news = False
        self.call("session.attach", AttachPayload(session_id=session_id))
        self.call("session.report", ReportPayload(idle=True))
        self.call("view.subscribe", SubscribePayload(id="own", view="session"), changes=False)

    def call(self, operation: str, payload: msgspec.Struct | msgspec.Raw, *, changes: bool = True) -> bytes:
        """The result. What is told meanwhile is news."""
        body = payload if isinstance(payload, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(payload))
        self._connection.send_bytes(encode(self._requests.make(operation, body, changes=changes)))
        while True:
            response = self._receive()
            if response is not None:
                if response.error is not None:
                    raise RuntimeError(f"{operation}: {response.error.code}: {response.error.message}")
                return bytes(response.result or b"{}")

    def _receive(self) -> Response | None:
        """What one read brings; None where it is news only."""
        found = None
        for frame in self._connection.receive():
            if isinstance(frame, Response):
                found = frame
            else:
                self._has_news = True
        return found

    def next_message(self) -> MessageView:
        """The message that starts the next turn, once it is there."""
        self._connection.socket.settimeout(PATIENCE_S)
        while True:
            view = msgspec.json.decode(
                self.call("session.view", SessionRef(), changes=False), type=SessionView
            )
            message = view.message
            if message is not None and message.status == "pending":
                return message
            while not self._has_news:
                self._receive()
            self._has_news = False

    def submit(self, message: MessageView) -> None:
        """Hand in what a step asks for."""
        assert message.request_id is not None, "a step has a request"
        payload = SubmitPayload(
            request_id=message.request_id, value=msgspec.Raw(b"1"), revision=message.request_revision
        )
        result = msgspec.json.decode(self.call("request.submit", payload), type=Submitted)
        assert result.verdict == "accepted", result

    def turn(self, message: MessageView, state: Literal["started", "ended"]) -> None:
        """Report the turn about a message. There is one for each message."""
        said = TurnPayload(turn_id=f"t-{message.message_id}", message_id=message.message_id, state=state)
        self.call("session.turn", said)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


# --- steps ----------------------------------------------------------------------------------------------------


def _steps(bench: Bench) -> Iterator[Row]:
    medians: list[float] = []
    slowest: list[float] = []
    with bench.folder() as folder, Daemon(folder) as daemon:
        agent = Agent(daemon, "busy")
        steps = bench.pick(STEPS, STEPS_QUICK)
        payload = start_payload(daemon, daemon.workflow(agent_steps(steps)))
        one_run(agent, payload)  # warms up
        for _ in range(bench.times):
            latencies = [one for _ in range(bench.pick(4, 1)) for one in one_run(agent, payload)]
            medians.append(percentile(latencies, 0.5))
            slowest.append(percentile(latencies, 0.99))
        agent.close()
    for what, values in (("median", medians), ("99th percentile", slowest)):
        yield Row(
            question=QUESTION,
            what=f"submission to the next step's message, {what}",
            value=Stat.of(values),
            unit="ms",
            better="less",
            note=f"runs of {steps} agent steps, one after the other, in one session",
        )


def one_run(agent: Agent, payload: msgspec.Raw) -> list[float]:
    """Milliseconds from each submission until the message of the next step is there."""
    latencies: list[float] = []
    agent.call("run.start", payload)
    message = agent.next_message()
    while message.kind == "step":
        agent.turn(message, "started")
        time.sleep(THINKS_S)
        begin = time.perf_counter()
        agent.submit(message)
        agent.turn(message, "ended")
        message = agent.next_message()
        latencies.append((time.perf_counter() - begin) * 1_000)
    agent.turn(message, "started")
    agent.turn(message, "ended")
    return latencies[:-1]  # after the last one, the run ends


# --- nothing to do --------------------------------------------------------------------------------------------


def _idle(bench: Bench) -> Iterator[Row]:
    host.raise_open_files()
    with bench.folder() as folder, Daemon(folder) as daemon:
        daemon.status()
        before = daemon.resident_mib()
        agents = [Agent(daemon, f"idle-{number}") for number in range(IDLE)]
        time.sleep(SETTLES_S)
        share = daemon.processor_percent(bench.pick(IDLE_S, 3))
        more = daemon.resident_mib() - before
        for agent in agents:
            agent.close()
    yield Row(
        question=QUESTION,
        what=f"daemon, {IDLE} idle sessions",
        value=Stat.of([more]),
        unit="MiB more",
        better="less",
        target=IDLE_MIB_MAX,
        note="resident, beside an empty store",
    )
    yield Row(
        question=QUESTION,
        what=f"idle daemon, {IDLE} idle sessions",
        value=Stat.of([share]),
        unit="% of a core",
        better="less",
        target=0.1,
        note="measured once",
    )
