"""What the Scheduler makes of the order of admission: a run that goes on, and ten thousand starts that wait."""

from __future__ import annotations

import pytest
import trio

from pwf.config import Config
from pwf.protocol.runner import Finish
from pwf.store.queue import GOING_ON_MAX
from tests.actors.test_scheduler import Setting
from tests.store.test_queue import add_backlog
from tests.store.world import graph, linear, node, value

pytestmark = pytest.mark.trio

MANY = 10_000
PARKED = graph(node("nap", "wait", to="after"), node("after"))


@pytest.fixture
def setting(tmp_path):
    found = Setting(tmp_path)
    found.config = Config(max_runners=1)
    return found


def behind(setting, state="ready", due_wall_ms=0, count=MANY):
    definition_id = setting.world.define(linear(1))
    add_backlog(setting.world, definition_id, state, 1, count, due_wall_ms)


def parked(setting, delay_ms):
    runner = setting.world.run(PARKED)
    assert runner.wait(delay_ms=delay_ms) == "park"
    runner.leave()
    return runner.run_id


async def made(setting, count):
    for _ in range(60_000):
        if len(setting.pool.made) >= count:
            return setting.pool.made[count - 1]
        await trio.sleep(0.001)
    raise AssertionError("nothing was launched within a minute")


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_killed_run_goes_on_within_a_second_though_ten_thousand_starts_wait(
    setting, nursery, autojump_clock, steps
):
    mine = setting.start(linear(4))
    behind(setting, due_wall_ms=setting.world.clock.wall_ms + 1)
    await setting.begin(nursery)
    process = await made(setting, 1)
    launch = await process.launched()
    assert launch.run_id == mine
    for seq in range(1, steps + 1):
        await process.say(
            Finish(
                seq=seq,
                attempt=launch.attempt + seq - 1,
                outcome="completed",
                output=value("x"),
                next="abcde"[seq],
            )
        )
        await trio.sleep(0.05)
    began = trio.current_time()
    await process.theirs.aclose()
    process.leave()
    again = await made(setting, 2)
    assert (await again.launched()).run_id == mine
    assert trio.current_time() - began < 1


async def order_of(setting, count):
    order = []
    for number in range(1, count + 1):
        process = await made(setting, number)
        order.append((await process.serve()).run_id)
    return order


async def test_one_seat_every_eighth_is_a_new_start(setting, nursery, autojump_clock):
    older = [parked(setting, 1_000) for _ in range(24)]
    behind(setting, count=20)
    setting.world.sql("UPDATE run_queue SET due_elapsed_ms = 0, due_wall_ms = 0 WHERE state = 'later'")
    await setting.begin(nursery)
    order = await order_of(setting, 24)
    places = [place for place, run_id in enumerate(order) if run_id not in older]
    assert places == [GOING_ON_MAX, 2 * GOING_ON_MAX + 1, 3 * GOING_ON_MAX + 2], places
