"""Channels where something is wrong: with a row, the network, a service, the configuration. No message is lost."""

import pytest

from pwf.protocol.channel_port import Close
from pwf.store.channel_messages import BACKOFF_MS_MAX, CLOSE_TRIES_MAX, TRIES_MAX
from tests.store.channel_world import ChannelWorld
from tests.store.test_decisions import ask, decided, flow
from tests.store.world import World

DECIDE = ("decide",)


@pytest.fixture
def phone(world: World) -> ChannelWorld:
    return ChannelWorld(world, phone=DECIDE)


def why(world):
    return world.sql("SELECT why FROM channel_messages ORDER BY message_no")


# --- rows that can't be read --------------------------------------------------------------------------------------

DAMAGES = [
    "UPDATE requests SET prompt = x'7b22' WHERE run_id = ?",
    "UPDATE requests SET prompt = NULL, prompt_crc32 = NULL, prompt_digest = NULL WHERE run_id = ?",
    "UPDATE decisions SET choices = x'00' WHERE request_id IN (SELECT request_id FROM requests WHERE run_id = ?)",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_question_that_can_not_be_read_is_refused_with_the_reason_and_the_next_is_shown(
    world, phone, damage
):
    broken, fine = ask(world), ask(world)
    world.checked = False
    world.sql(damage, (broken,))
    assert phone.show("phone").message.run_id == fine
    assert phone.states() == [("decide", "refused"), ("decide", "shown")]
    assert why(world)[0][0].startswith("what it says can not be read: ")
    statuses = world.sql("SELECT status FROM effects WHERE type = 'channel.decide'")
    assert sorted(statuses) == [("applied",), ("rejected",)]


def test_of_a_settled_question_that_can_not_be_read_the_message_is_closed(world, phone):
    run_id = ask(world)
    phone.show("phone")
    decided(world, run_id, "ship")
    world.checked = False
    world.sql("UPDATE decisions SET choices = x'00'")
    work = phone.work("phone")
    assert isinstance(work, Close)
    assert work.said.startswith("settled: ")
    assert phone.say("phone", work)
    assert phone.work("phone") is None


# --- nobody is reached, or the service is busy --------------------------------------------------------------------


def test_what_reached_nobody_is_tried_until_somebody_decides_and_at_most_five_minutes_apart(world, phone):
    run_id = ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    for _ in range(10 * TRIES_MAX):
        assert phone.say("phone", phone.work("phone"), "refused", why="no network", early=True)
        world.clock.forward(BACKOFF_MS_MAX)
    assert phone.say("phone", phone.work("phone"), "refused", why="503")
    world.clock.forward(BACKOFF_MS_MAX)
    phone.show("phone")
    decided(world, run_id, "ship")
    for _ in range(2 * CLOSE_TRIES_MAX):
        assert phone.say("phone", phone.work("phone"), "refused", why="no network", early=True)
        assert phone.work("phone") is None
        world.clock.forward(BACKOFF_MS_MAX)
    assert phone.say("phone", phone.work("phone"))
    assert phone.states() == [("decide", "closed")]


def test_a_closing_waits_as_long_as_the_service_says(world, phone):
    run_id = ask(world)
    phone.show("phone")
    decided(world, run_id, "ship")
    phone.say("phone", phone.work("phone"), "refused", why="429", early=True, retry_after_s=600)
    world.clock.forward(599_000)
    assert phone.work("phone") is None
    world.clock.forward(1_000)
    assert isinstance(phone.work("phone"), Close)


def test_what_was_refused_is_tried_anew_when_its_channel_begins_anew_while_it_is_open(world, phone):
    first, second = ask(world), ask(world)
    for _ in range(2):
        phone.say("phone", phone.work("phone"), "refused", why="403", final=True)
    decided(world, first, "ship")
    phone.begin("phone")
    assert phone.show("phone").message.run_id == second
    assert phone.work("phone") is None
    assert sorted(phone.states()) == [("decide", "refused"), ("decide", "shown")]
