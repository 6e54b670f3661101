"""What a short command finds to be long: it leaves the loop's thread, and is done all the same."""

import msgspec
import pytest

from pwf.protocol.runner import UPDATE_BYTES_MAX, Publish
from pwf.protocol.spawn import Identity
from pwf.store.batch import Job
from pwf.store.launch import LENGTHY_ATTEMPTS, RunnerStarted, runner_started
from pwf.store.queue import LENGTHY_ROWS, LENGTHY_RUNS, Admit, admit
from pwf.store.runs import start_run
from pwf.store.transitions import LENGTHY_MESSAGES, RunnerMessages, apply_messages
from pwf.store.updates import PublishUpdates, publish_updates
from pwf.values import CHUNK_BYTES
from tests.store.world import Runner, graph, linear, node

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
    assert is_short(world, admit, admission_of(world, 1)) == short


def admission_of(world, limit):
    return Admit(limit=limit, epoch=world.epoch, owner=f"daemon:{world.epoch}", lease_ms=30_000)


@pytest.mark.parametrize(("ready", "short"), [(LENGTHY_RUNS, True), (LENGTHY_RUNS + 1, False)])
def test_an_admission_is_short_unless_many_runs_are_taken(world, ready, short):
    for _ in range(ready):
        world.start(linear(1))
    assert is_short(world, admit, admission_of(world, 2 * ready)) == short


@pytest.mark.parametrize(("attempts", "short"), [(LENGTHY_ATTEMPTS, True), (LENGTHY_ATTEMPTS + 1, False)])
def test_a_launch_is_short_unless_many_attempts_came_before(world, attempts, short):
    runner = world.run(graph(node("again", to="again"), max_steps=1_000))
    world.checked = False  # that takes its time, and the others have done it
    for _ in range(attempts - 1):
        runner.finish(1, to="again")
    runner.gone(stopped=True)
    (admitted,) = world.admit(1)
    fence = Runner(world, admitted).fence
    identity = Identity(pid=1, start_tick=1, boot_id="b", session=1)
    assert is_short(world, runner_started, RunnerStarted(fence=fence, identity=identity)) == short


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
