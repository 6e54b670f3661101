"""A channel of the kind `mcp` shows to audiences that name it alone, and shows anew what went with its process."""

from types import MappingProxyType

import pytest

from pwf.protocol.channel_port import Close, Show
from pwf.store.channel_times import Showing
from tests.store.channel_world import ChannelWorld
from tests.store.test_decisions import ask, decided, look
from tests.store.world import World

DECIDE = ("decide",)


class Hosts(ChannelWorld):
    """Two channels: `mcp`, and one like the others."""

    kinds = MappingProxyType({"mcp": "mcp"})


@pytest.fixture
def hosts(world: World) -> Hosts:
    return Hosts(world, phone=DECIDE, mcp=DECIDE)


def named(*channels: str) -> dict[str, Showing]:
    return {"operator": Showing(channels=channels)}


def test_without_an_audience_that_names_it_it_is_shown_nothing_also_when_it_begins_anew(world, hosts):
    ask(world)
    assert isinstance(hosts.work("phone"), Show)
    hosts.begin("mcp")
    assert hosts.work("mcp") is None


def test_an_audience_that_names_others_is_not_shown_it(world, hosts):
    hosts.audiences = named("phone")
    ask(world)
    assert hosts.work("mcp") is None
    hosts.begin("mcp")
    assert hosts.work("mcp") is None


def test_an_audience_that_names_it_is_shown_it_and_what_it_answers_counts(world, hosts):
    hosts.audiences = named("mcp")
    run_id = ask(world)
    token = hosts.show("mcp").message.token
    assert hosts.answer("mcp", token, "ship", who="the person at claude-code").taken
    assert look(world, run_id).winner.who == "mcp:the person at claude-code"


def test_what_is_due_when_the_audience_is_gone_from_the_configuration_is_not_shown(world, hosts):
    hosts.audiences = named("mcp")
    ask(world)
    hosts.begin("mcp")
    hosts.audiences = {}
    assert hosts.work("mcp") is None
    assert ("decide", "void") in hosts.states()


@pytest.mark.parametrize("outcome", ["done", None])
def test_what_was_shown_or_on_its_way_is_shown_anew_by_the_next_process_with_another_token(
    world, hosts, outcome
):
    hosts.audiences = named("mcp")
    run_id = ask(world)
    work = hosts.work("mcp")
    if outcome is not None:
        assert hosts.say("mcp", work, outcome, ref="r1")
    hosts.begin("mcp")
    again = hosts.show("mcp")
    assert again.message.message_id == work.message.message_id
    assert again.message.token != work.message.token
    assert not hosts.answer("mcp", work.message.token, "ship").taken
    assert hosts.answer("mcp", again.message.token, "ship").taken
    assert isinstance(hosts.work("mcp"), Close)
    assert look(world, run_id).winner.choice == "ship"


def test_what_is_settled_is_not_shown_anew_and_other_kinds_show_nothing_twice(world, hosts):
    hosts.audiences = named("mcp", "phone")
    run_id = ask(world)
    for name in ("mcp", "phone"):
        hosts.show(name)
    hosts.begin("phone")
    assert hosts.work("phone") is None
    decided(world, run_id, "ship")
    hosts.begin("mcp")
    assert isinstance(hosts.work("mcp"), Close)
