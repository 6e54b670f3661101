"""Ends of pure steps may leave a moment later, together: in order, soon, and not where that would mislead."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    Finish,
    Launch,
    Leaving,
    StepReply,
    encode_line,
    from_runner,
)
from pwf.runner.base.wire import HELD_MAX, IDLE_TICKS_MAX, Wire
from pwf.workflow.workflow import Workflow
from tests.runner.peer import fork_runner, memory_run, pairs, run_forked

WITHIN_S = 2.0  # far above the few milliseconds that are meant, far below how long the next step takes
LONG_S = 20.0

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def said(ours: socket.socket) -> list[int]:
    """The numbers of the transitions that have arrived."""
    try:
        data = ours.recv(1 << 20)
    except BlockingIOError:
        return []
    splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
    return [getattr(from_runner.decode(line), "seq", 0) for line in splitter.feed(data)]


def hold(wire: Wire, count: int = 1) -> None:
    for _ in range(count):
        seq = wire.take_seq()
        wire.send_sequenced(Finish(seq=seq, attempt=seq, outcome="completed"), seq, hold=True)


def test_nothing_is_held_where_nobody_ticks(ends: Ends) -> None:
    ours, theirs = ends
    hold(Wire(theirs))
    assert said(ours) == [1]


def test_what_is_held_leaves_with_the_next_tick_and_in_order(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    hold(wire, 3)
    assert said(ours) == []
    assert wire.tick()
    assert said(ours) == [1, 2, 3]


def test_what_is_held_leaves_before_the_next_message(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    hold(wire, 2)
    wire.send(Leaving())
    assert said(ours) == [1, 2, 0]


def test_what_is_held_leaves_before_a_reply_is_waited_for(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    hold(wire, 2)
    ours.sendall(encode_line([StepReply(seq=1, verdict="go"), StepReply(seq=2, verdict="end")]))
    assert not wire.settle()
    assert said(ours) == [1, 2]


def test_only_so_many_are_held(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    hold(wire, HELD_MAX + 1)
    assert said(ours) == list(range(1, HELD_MAX + 1))


def test_ticks_without_need_end_the_holding(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    ticks = 1
    while wire.tick():
        ticks += 1
    assert ticks == IDLE_TICKS_MAX
    hold(wire)
    assert said(ours) == [1]


def test_a_tick_that_finds_no_memory_says_it_later(ends: Ends) -> None:
    class NoMemoryAtFirst(list[bytes]):
        tries = 0

        def __iter__(self) -> Iterator[bytes]:
            self.tries += 1
            if self.tries == 1:
                raise MemoryError
            return super().__iter__()

    ours, theirs = ends
    wire = Wire(theirs)
    wire.will_tick()
    wire._held = NoMemoryAtFirst()
    hold(wire)
    assert wire.tick(), "or the watcher would end"
    assert said(ours) == []
    assert wire.tick()
    assert said(ours) == [1]


def test_what_is_held_is_thrown_away_once_the_runner_must_stop(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    hold(wire)
    wire.will_tick()
    hold(wire)
    ours.sendall(encode_line([StepReply(seq=1, verdict="park")]))
    assert not wire.drain()
    wire.send(Leaving())
    assert said(ours) == [1, 0]


# --- whole runners ------------------------------------------------------------------------------------------


def chain(*steps: Callable[[Any], object], timeout: timedelta = timedelta(minutes=15)) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("chain")
    way: Any = None
    for index, step in enumerate(steps):
        step.__name__ = f"n{index}"
        node = flow.compute(timeout=timeout)(step)
        way = node if way is None else way >> node
    flow.graph(way)
    return flow


def quick() -> Callable[[Any], object]:
    return lambda ctx: None


def slow() -> Callable[[Any], object]:
    return lambda ctx: time.sleep(LONG_S)


def first_words(flow: Workflow[Any], launch: Launch, seconds: float) -> list[str]:
    """Which nodes come after those whose end the runner tells within this time, unasked. Then it is killed."""
    with pairs() as (messages, requests, theirs, their_values):
        pid = fork_runner(flow, theirs, their_values, messages, requests)
        theirs.close()
        their_values.close()
        messages.sendall(encode_line([launch]))
        messages.settimeout(seconds)
        try:
            data = messages.recv(1 << 20)
        except TimeoutError:
            data = b""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
    found = [from_runner.decode(line) for line in splitter.feed(data)]
    return [str(message.next) for message in found if isinstance(message, Finish)]


def test_a_finished_pure_step_is_told_within_moments_though_the_next_one_blocks() -> None:
    flow = chain(quick(), quick(), slow())
    assert first_words(flow, memory_run(flow).launch(), WITHIN_S)[:1] == ["n1"]


def test_a_finished_pure_step_is_told_within_moments_though_the_next_one_computes() -> None:
    def busy(ctx: Any) -> None:
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            pass

    flow = chain(quick(), quick(), busy)
    assert first_words(flow, memory_run(flow).launch(), WITHIN_S)[:1] == ["n1"]


def test_a_run_of_quick_pure_steps_is_told_in_few_messages() -> None:
    flow = chain(*(quick() for _ in range(10)))
    run = memory_run(flow)
    sends: list[int] = []
    launch = run.launch()
    with pairs() as (messages, requests, theirs, their_values):
        pid = fork_runner(flow, theirs, their_values, messages, requests)
        theirs.close()
        their_values.close()
        messages.sendall(encode_line([launch]))
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        messages.settimeout(LONG_S)
        while data := messages.recv(1 << 20):
            said = [from_runner.decode(line) for line in splitter.feed(data)]
            answers = [reply for message in said if (reply := run.receive(message)) is not None]
            if answers:
                sends.append(len(answers))
            if isinstance(said[-1], Leaving):  # nobody is there to be answered
                break
            messages.sendall(encode_line(answers))
        os.waitpid(pid, 0)
    assert sum(sends) == 10
    assert len(sends) <= 4  # one, where nobody else wants the processor


@pytest.mark.parametrize(
    ("timeout", "tries", "told"),
    [(timedelta(minutes=15), 1, []), (timedelta(seconds=5), 1, ["n1"]), (timedelta(minutes=15), 2, ["n1"])],
    ids=["nothing speaks against it", "a short time limit", "after an interruption"],
)
def test_a_step_that_holds_the_interpreter_is_not_entered_unsaid_where_that_would_mislead(
    timeout: timedelta, tries: int, told: list[str]
) -> None:
    """A step of C code that never lets go of the interpreter: `re` does so for hours, here for as long as we look."""

    def stuck(ctx: Any) -> None:
        import re

        re.match(r"(a+)+$", "a" * 40 + "b")

    flow = chain(quick(), stuck, timeout=timeout)
    launch = memory_run(flow, tries=tries).launch()
    assert first_words(flow, launch, WITHIN_S if told else 0.3) == told


def test_a_run_whose_ends_were_held_ends_as_any_other() -> None:
    run = run_forked(flow := chain(*(quick() for _ in range(40))), memory_run(flow))
    assert run.status == "completed"
    assert run.leaving == Leaving(childless=True)
