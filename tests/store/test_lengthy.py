"""What a short command finds to be long: it leaves the loop's thread, and is done all the same."""

import msgspec
import pytest

from pwf.protocol.runner import UPDATE_BYTES_MAX, Publish
from pwf.store.batch import Job
from pwf.store.queue import LENGTHY_ROWS, Admit, admit
from pwf.store.runners import PublishUpdates, publish_updates
from pwf.store.runs import start_run
from pwf.store.transitions import LENGTHY_MESSAGES, RunnerMessages, apply_messages
from pwf.values import CHUNK_BYTES
from tests.store.world import graph, linear, node

WAIT = graph(node("nap", "wait", to="after"), node("after"))
DAY_MS = 86_400_000


def is_short(world, handler, command):
    """Whether all of it ran at once; then it is done in any case."""
    jobs = [Job(handler, command)]
    done = world.writer.execute_at_once(jobs, lambda job: True)
    world.writer.execute(jobs)
    (answer,) = world.writer.commit().answers
    assert answer.error is None
    return done


def test_a_start_is_short_unless_its_code_is_new(world):
    flow = linear(2)
    assert not is_short(world, start_run, world.start_command(flow))
    assert is_short(world, start_run, world.start_command(flow))


def test_a_start_with_a_large_input_is_long(world):
    flow = linear(2)
    world.start(flow)
    assert is_short(world, start_run, world.start_command(flow, input="x" * (CHUNK_BYTES - 2)))
    assert not is_short(world, start_run, world.start_command(flow, input="x" * (CHUNK_BYTES - 1)))


@pytest.mark.parametrize(("due", "short"), [(LENGTHY_ROWS, True), (LENGTHY_ROWS + 1, False)])
def test_an_admission_is_short_unless_many_timers_are_due(world, due, short):
    for _ in range(due):
        runner = world.run(WAIT)
        assert runner.wait(delay_ms=DAY_MS) == "park"
        runner.leave()
    world.clock.forward(DAY_MS)
    command = Admit(limit=1, epoch=world.epoch, owner=f"daemon:{world.epoch}", lease_ms=30_000)
    assert is_short(world, admit, command) == short


def test_a_runners_messages_are_short_unless_they_are_many(world):
    runner = world.run(linear(2))
    message = runner.finished(1)
    runner.send(message)
    for count, short in ((LENGTHY_MESSAGES, True), (LENGTHY_MESSAGES + 1, False)):
        repeats = RunnerMessages(fence=runner.fence, messages=(message,) * count)
        assert is_short(world, apply_messages, repeats) == short


def test_updates_are_short_unless_they_are_large(world):
    runner = world.run(linear(2))
    data = msgspec.Raw(b'"' + b"x" * (UPDATE_BYTES_MAX - 2) + b'"')
    for count in (CHUNK_BYTES // UPDATE_BYTES_MAX, CHUNK_BYTES // UPDATE_BYTES_MAX + 1):
        updates = tuple(Publish(attempt=1, kind="k", key=str(number), data=data) for number in range(count))
        command = PublishUpdates(fence=runner.fence, updates=updates)
        assert is_short(world, publish_updates, command) == (count * UPDATE_BYTES_MAX <= CHUNK_BYTES)
