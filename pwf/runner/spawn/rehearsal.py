"""A runner's way through a few nodes, walked before the first fork, so that no runner has to be the first.

What Python makes and notes on the first passes (specialised code, caches of types and methods, free lists) is in
pages that every fork shares then, in place of being made, and copied, in each of them. Runs a workflow of its own
over sockets and pipes of its own; nothing of it is left but what Python noted. Starts no thread, process or file, and
changes no folder, signal or variable of the process.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import msgspec

from pwf.protocol.runner import Launch, Leaving, StepReply, Value, encode_line
from pwf.protocol.step_output import STREAMS
from pwf.runner.base.printed import Printed
from pwf.runner.base.survivors import Survivors
from pwf.runner.base.wire import ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.workflow.workflow import Workflow

NODES = 3
ROUNDS = 8  # code is specialised once it has run so often


def rehearse(rounds: int = ROUNDS) -> None:
    """Execute a small run so many times."""
    workflow = _workflow()
    launch = _launch(workflow)
    for _ in range(rounds):
        _run(workflow, launch)


def _run(workflow: Workflow[Any], launch: Launch) -> None:
    daemon, runner = socket.socketpair()
    daemon_values, runner_values = socket.socketpair()
    with daemon, runner, daemon_values, runner_values:
        daemon.sendall(encode_line([launch]))
        wire = Wire(runner)
        received = wire.receive_launch()
        daemon.sendall(encode_line([_reply(seq) for seq in range(1, NODES + 1)]))
        pipes = [os.pipe() for _ in STREAMS]
        ends, others = zip(*pipes, strict=True)
        try:
            printed = Printed(ends)
            printed.begin(received.attempt)
            Engine(wire, ValueReader(runner_values), workflow, received, printed, Survivors()).run()
        finally:
            for end in (*ends, *others):
                os.close(end)
        wire.send(Leaving(childless=True))


def _reply(seq: int) -> StepReply:
    return StepReply(seq=seq, verdict="go" if seq < NODES else "end")


def _workflow() -> Workflow[Any]:
    workflow: Workflow[Any] = Workflow("rehearsal")
    nodes = [workflow.compute(_node(index)) for index in range(NODES)]
    way = nodes[0]
    for following in nodes[1:]:
        way = way >> following
    workflow.graph(way)
    return workflow


def _node(index: int) -> Any:
    def node(ctx: Any) -> object:
        before = ctx[f"node{index - 1}"] if index else ctx.input
        return {"step": index, "before": before}

    node.__name__ = f"node{index}"
    return node


def _launch(workflow: Workflow[Any]) -> Launch:
    graph = workflow.to_graph()
    return Launch(
        run_id="rehearsal",
        generation=1,
        graph=graph,
        input=Value(json=msgspec.Raw(b"null"), size=4),
        node=graph.start,
        visit=1,
        attempt=1,
        visits={graph.start: 1},
    )
