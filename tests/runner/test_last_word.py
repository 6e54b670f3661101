"""A runner's last word: it comes with the leaving where nothing speaks against it, and nobody waits for an answer."""

from __future__ import annotations

import os
import socket
from itertools import chain
from typing import Any

import pytest

from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import RUNNER_FRAME_BYTES_MAX, Finish, FromRunner, Leaving, encode_line, from_runner
from pwf.workflow.effects import idempotent, manual
from pwf.workflow.timing import Retry, seconds
from pwf.workflow.workflow import Workflow
from tests.runner.peer import fork_runner, memory_run

WITHIN_S = 20.0
TRIES = 10


def sends_of(flow: Workflow[Any], **options: Any) -> list[list[FromRunner]]:
    """What a whole runner says that nobody answers, send by send. It must end by itself, with status 0."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps sends apart
    our_values, their_values = socket.socketpair()
    sends: list[list[FromRunner]] = []
    with ours, our_values:
        with theirs, their_values:
            pid = fork_runner(flow, theirs, their_values, ours, our_values)
        ours.settimeout(WITHIN_S)
        ours.sendall(encode_line([memory_run(flow, **options).launch()]))
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        while data := ours.recv(1 << 20):
            sends.append([from_runner.decode(line) for line in splitter.feed(data)])
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return sends


def kinds(sends: list[list[FromRunner]]) -> list[list[str]]:
    return [[type(message).__name__ for message in send] for send in sends]


def together(flow: Workflow[Any], expected: list[str], **options: Any) -> bool:
    """Whether a runner says all that at once. It does, unless the tick comes right between: so it may try again."""
    found = [kinds(sends_of(flow, **options)) for _ in range(TRIES)]
    assert all(list(chain.from_iterable(sends)) == expected for sends in found), found
    return [expected] in found


def one(**options: Any) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("one")

    @flow.compute(**options)
    def only(ctx: Any) -> int:
        return 1

    return flow


@pytest.mark.parametrize(
    "options", [{}, {"timeout": seconds(5)}, {"retry": Retry(times=2)}], ids=["plain", "short", "retried"]
)
@pytest.mark.parametrize("tries", [1, 2])
def test_the_end_of_a_last_pure_step_comes_with_the_leaving_in_one_send(
    options: dict[str, Any], tries: int
) -> None:
    assert together(one(**options), ["Finish", "Leaving"], tries=tries)


def test_a_last_pure_step_that_fails_is_told_with_the_leaving_too() -> None:
    flow: Workflow[Any] = Workflow("fails")

    @flow.compute(retry=Retry(times=1))
    def only(ctx: Any) -> None:
        raise ValueError("no")

    assert together(flow, ["Finish", "Leaving"])


def test_the_ends_of_quick_pure_steps_come_with_the_leaving_in_one_send() -> None:
    flow: Workflow[Any] = Workflow("two")

    @flow.compute
    def first(ctx: Any) -> int:
        return 1

    @flow.compute
    def second(ctx: Any) -> int:
        return 2

    flow.graph(first >> second)
    assert together(flow, ["Finish", "Finish", "Leaving"])


def test_a_timer_comes_with_the_leaving_in_one_send() -> None:
    flow: Workflow[Any] = Workflow("nap")

    @flow.wait
    def nap(ctx: Any) -> Any:
        return seconds(60)

    assert together(flow, ["WaitUntil", "Leaving"])


def test_a_question_comes_with_the_leaving_in_one_send() -> None:
    flow: Workflow[Any] = Workflow("asks")

    @flow.checkpoint(returns=bool)
    def ask(ctx: Any) -> str:
        return "ok?"

    assert together(flow, ["Ask", "Leaving"])


@pytest.mark.parametrize("effect", [idempotent("x"), manual("x")], ids=["idempotent", "manual"])
def test_the_end_of_a_last_effect_is_told_at_once_and_nobody_waits_for_an_answer(effect: Any) -> None:
    flow: Workflow[Any] = Workflow("acts")

    @flow.action(effect=effect)
    def act(ctx: Any) -> int:
        return 1

    for _ in range(TRIES):
        assert kinds(sends_of(flow)) == [["Finish"], ["Leaving"]]


def test_a_runner_that_nobody_answers_says_that_it_left_nothing_behind() -> None:
    (*_, last) = sends_of(one())
    assert last[-1] == Leaving(childless=True)


def test_what_a_last_step_left_running_is_ended_after_its_end_was_told() -> None:
    flow: Workflow[Any] = Workflow("forks")

    @flow.compute
    def only(ctx: Any) -> int:
        import subprocess

        return subprocess.Popen(["sleep", "60"]).pid

    said = list(chain.from_iterable(sends_of(flow)))
    assert isinstance(said[0], Finish)
    assert said[0].output is not None
    assert said[0].output.json is not None
    assert said[1] == Leaving(childless=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(bytes(said[0].output.json)), 0)
