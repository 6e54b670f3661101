"""Channels where something is wrong: with a row, the network, a service, the configuration. No message is lost."""

import time

import pytest

from pwf.errors import Conflict
from pwf.protocol.channel_port import Close, Show
from pwf.protocol.channels import RecoverMessage
from pwf.store.channel_messages import BACKOFF_MS_MAX, CLOSE_TRIES_MAX, TRIES_MAX
from pwf.store.channel_rows import ChannelStands, channel_stands
from pwf.store.channel_times import Showing
from pwf.store.channel_words import ProbeChannel, Recover, message_of, probe_channel, recover_message
from tests.store.channel_world import ChannelWorld
from tests.store.test_decisions import HOUR, ask, decided, flow
from tests.store.world import World

DECIDE = ("decide",)
DAY = 24 * HOUR


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


# --- the configuration has changed --------------------------------------------------------------------------------


def retry(world, word="retry"):
    (row,) = world.sql("SELECT message_id FROM channel_messages WHERE state IN ('ambiguous', 'refused')")
    said = RecoverMessage(message_id=row[0], word=word)
    audiences = {"operator": REMINDED}
    return world.do(recover_message, Recover(said=said, actor="client:ann", audiences=audiences))


def test_nothing_is_sent_again_through_a_channel_that_is_not_configured(world, phone):
    ask(world)
    phone.say("phone", phone.work("phone"), "unknown", why="timeout")
    phone.configure()
    with pytest.raises(Conflict, match="channel phone is not configured"):
        retry(world)
    phone.configure(phone=DECIDE)
    retry(world)
    assert isinstance(phone.work("phone"), Show)


def test_what_is_due_for_a_channel_that_is_not_configured_is_due_no_more_after_the_next_look(world, phone):
    ask(world)
    phone.show("phone")
    phone.configure()
    world.checked = False
    world.sql("UPDATE channel_messages SET state = 'due', due_wall_ms = 1")
    phone.configure()
    assert phone.states() == [("decide", "void")]
    assert "message_forgotten" not in {found for found, _ in world.violations()}


def test_what_is_due_for_an_audience_that_is_shown_elsewhere_now_is_not_shown_and_comes_back_with_it(world):
    both = ChannelWorld(world, phone=DECIDE, chat=DECIDE)
    both.audiences = {"operator": Showing(channels=("chat", "phone"), escalate_ms=HOUR)}
    ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    both.show("chat")
    before, both.audiences = both.audiences, {"operator": Showing(channels=("chat",))}
    world.clock.forward(HOUR)
    assert both.work("phone") is None
    assert sorted(both.states()) == [("decide", "shown"), ("decide", "void")]
    both.audiences = before
    both.begin("phone")
    assert isinstance(both.work("phone"), Show)


# --- when people sleep, and when they forget ----------------------------------------------------------------------

REMINDED = Showing(channels=("phone",), remind_ms=HOUR)


@pytest.fixture
def midnight(world, monkeypatch):
    """It is midnight, and the local time is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    world.clock.forward(DAY - world.clock.wall_ms % DAY)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("midnight")
def test_what_was_asked_in_quiet_hours_escalates_from_their_end_on(world):
    three = ChannelWorld(world, phone=DECIDE, chat=DECIDE, pager=DECIDE)
    quiet = (22 * 60, 7 * 60)
    order = Showing(channels=("phone", "chat", "pager"), escalate_ms=HOUR // 2, quiet=quiet)
    three.audiences = {"operator": order}
    ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    assert [three.work(name) for name in ("phone", "chat", "pager")] == [None] * 3
    world.clock.forward(7 * HOUR)
    for name, others in (("phone", ("chat", "pager")), ("chat", ("pager",)), ("pager", ())):
        three.show(name)
        assert [three.work(other) for other in others] == [None] * len(others)
        world.clock.forward(HOUR // 2)


@pytest.mark.usefixtures("midnight")
def test_what_is_late_is_not_shown_in_quiet_hours_either(world, phone):
    world.clock.forward(12 * HOUR)
    phone.audiences = {"operator": Showing(channels=("phone",), quiet=(22 * 60, 7 * 60))}
    ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    phone.say("phone", phone.work("phone"), "refused", why="no network", early=True)
    world.clock.forward(12 * HOUR)
    assert phone.work("phone") is None
    world.clock.forward(7 * HOUR)
    phone.show("phone")


@pytest.mark.parametrize("end", ["unknown", "final", "died"])
def test_people_are_reminded_also_after_a_message_that_went_wrong(world, phone, end):
    phone.audiences = {"operator": REMINDED}
    ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    work = phone.work("phone")
    if end == "died":
        phone.begin("phone")
    else:
        final = end == "final"
        phone.say("phone", work, "refused" if final else "unknown", why="x", final=final)
    assert phone.work("phone") is None
    world.clock.forward(HOUR)
    if end == "unknown":
        retry(world, "confirm")
    assert phone.show("phone").message.event == "remind"
    assert phone.work("phone") is None
    world.clock.forward(HOUR)
    assert phone.show("phone").message.event == "remind"
    assert phone.work("phone") is None, "one chain of them"


def test_what_a_person_confirms_is_reminded_of(world, phone):
    ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    phone.say("phone", phone.work("phone"), "unknown", why="timeout")
    retry(world, "confirm")
    phone.audiences = {"operator": REMINDED}
    world.clock.forward(HOUR)
    assert phone.show("phone").message.event == "remind"


# --- tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["due", "unknown", "refused"])
def test_a_channel_has_one_test_that_is_not_settled_at_most(world, phone, end):
    for _ in range(3):
        world.do(probe_channel, ProbeChannel(channel="phone"))
        if end != "due":
            work = phone.work("phone")
            with pytest.raises(Conflict, match="is sending a test"):
                world.do(probe_channel, ProbeChannel(channel="phone"))
            phone.say("phone", work, end, why="x")
    assert len(phone.states()) == 1


def test_what_is_due_for_a_channel_that_is_down_says_so_until_it_is_up(world, phone):
    number, epoch = phone.numbers["phone"], phone.epochs["phone"]
    test = world.do(probe_channel, ProbeChannel(channel="phone"))
    assert test.why is None
    down = ChannelStands(channel_no=number, epoch=epoch, state="down", trouble="it has no token")
    world.do(channel_stands, down)
    assert world.read(message_of, test.message_id).why == "the channel is down: it has no token"
    phone.begin("phone")
    phone.show("phone")
    assert (world.read(message_of, test.message_id).state, why(world)) == ("shown", [(None,)])
