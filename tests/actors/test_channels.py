"""Channels in virtual time on real SQLite: told at once, each alone in its failing, and never sent blindly."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pwf.actors.base.changes import Changes
from pwf.actors.base.store_actor import StoreActor
from pwf.actors.channels.channel_supervisor import DAMAGED, WORK_S, Audiences
from pwf.actors.channels.channels import Channels, ChannelSettings
from pwf.actors.operations import channels as operations
from pwf.config import CommandChannel
from pwf.errors import NotFound, PersonNeeded, Rejected, RunnerCrashed, ValueDamaged
from pwf.host.identity import Identity
from pwf.protocol.channel_port import Answered, Begin, Close, Ready, Sent, Show, Trouble, Verdict
from pwf.store.channel_messages import make_missing
from pwf.store.channel_words import channel_list
from pwf.store.deadlines import time_out
from pwf.store.decisions import decide
from tests.actors.no_log import NoLog
from tests.actors.test_pruner import TrioClock
from tests.store.inline_executor import InlineExecutor
from tests.store.test_decisions import HOUR, ask, command
from tests.store.world import World

pytestmark = pytest.mark.trio

PHONE = CommandChannel(command=("x",))
AGENT = 70  # the pid of a process that is no person's


class FakeAdapter:
    """A service that a test steers: `does` says what comes of each message."""

    def __init__(self, at: Setting) -> None:
        self.at = at
        self.said: list[Any] = []
        self._tell, self._told = trio.open_memory_channel[Any](100)
        self.epoch = 0
        self.name = ""

    async def say(self, said: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.said.append(said)
        if isinstance(said, Begin):
            self.epoch, self.name = said.epoch, said.name
            if self.name in self.at.broken:
                await self._tell.send(RunnerCrashed("it has no token"))
            else:
                await self._tell.send(Ready(epoch=said.epoch))
        elif isinstance(said, Show | Close):
            await self._work(said)

    async def _work(self, said: Show | Close) -> None:
        is_show = isinstance(said, Show)
        message_id = said.message.message_id if isinstance(said, Show) else said.message_id
        self.at.sent.append((self.name, "show" if is_show else "close", trio.current_time()))
        does = self.at.does
        if does == "die":
            await self._tell.send(RunnerCrashed("it died"))
        elif does != "hang":
            facts = {"epoch": self.epoch + self.at.off, "attempt": said.attempt, "message_id": message_id}
            await self._tell.send(Sent(outcome=does, ref="r", why=does, **facts, **self.at.more))

    async def tell(self, said: Any) -> None:
        """The service has something to say."""
        await self._tell.send(said)
        await trio.sleep(0.1)

    async def hear(self) -> Any:
        said = await self._told.receive()
        if isinstance(said, RunnerCrashed):
            raise said
        return said


class Setting:
    """A store with runs that wait for a decision, and the actor."""

    def __init__(self, folder: Any) -> None:
        self.clock = TrioClock()
        self.world = World(folder, self.clock)
        self.adapters: dict[str, FakeAdapter] = {}
        self.opened = 0
        self.broken: set[str] = set()
        self.does = "done"
        self.off = 0
        self.more: dict[str, Any] = {}
        self.sent: list[tuple[str, str, float]] = []
        self.woken = 0

    @asynccontextmanager
    async def open(self):
        self.opened += 1
        adapter = FakeAdapter(self)
        original = adapter.say

        async def say(said: Any) -> None:
            if isinstance(said, Begin):
                self.adapters[said.name] = adapter
            await original(said)

        adapter.say = say  # type: ignore[method-assign]
        yield adapter

    async def begin(self, nursery: trio.Nursery, *names: str, **audiences: tuple[str, ...]) -> None:
        self.world.close()
        self.store = await nursery.start(StoreActor(InlineExecutor(self.world.spec)).run)
        settings = ChannelSettings(
            channels=dict.fromkeys(names, PHONE), audiences=Audiences(shown=dict(audiences))
        )
        self.actor = Channels(
            self.store,
            Changes(self.store),
            settings,
            open_adapter=self.open,
            config="/config.toml",
            wake_scheduler=self._wake,
            check_host=self._check_host,
            log=NoLog(),
        )
        nursery.start_soon(self.actor.run)
        await trio.sleep(0.2)

    async def _check_host(self, peer: Identity) -> None:
        if peer.pid == AGENT:
            raise PersonNeeded("only a person may decide; this form comes from the agent of session chat")

    def _wake(self) -> None:
        self.woken += 1

    async def states(self) -> list[str]:
        sql = "SELECT state FROM channel_messages ORDER BY message_no"
        return [row[0] for row in await self.store.read(lambda tx, _: tx.all(sql), None)]

    def shows(self, name: str) -> list[Any]:
        return [one for one in self.adapters[name].said if isinstance(one, Show)]


@pytest.fixture
def at(tmp_path):
    return Setting(tmp_path)


async def test_a_decision_is_told_at_once_and_closed_at_once(autojump_clock, at, nursery):
    run_id = ask(at.world)
    answer = command(at.world, run_id, "ship")
    await at.begin(nursery, "phone")
    assert [what for _, what, _ in at.sent] == ["show"]
    began = trio.current_time()
    await at.store.write(decide, answer)
    await trio.sleep(1)
    assert at.sent[1][1] == "close"
    assert at.sent[1][2] - began < 0.3
    assert await at.states() == ["closed"]


async def test_a_press_moves_the_run_and_is_answered_after_its_commit(autojump_clock, at, nursery):
    ask(at.world)
    await at.begin(nursery, "phone")
    adapter = at.adapters["phone"]
    (show,) = at.shows("phone")
    press = Answered(
        epoch=adapter.epoch, number=7, token=show.message.token, choice="ship", who="ann", cursor="9"
    )
    await adapter.tell(press)
    (verdict,) = [one for one in adapter.said if isinstance(one, Verdict)]
    assert (verdict.number, verdict.taken, at.woken) == (7, True, 1)


async def test_an_answer_by_a_process_that_is_no_persons_decides_nothing_and_says_why(
    autojump_clock, at, nursery
):
    ask(at.world)
    await at.begin(nursery, "phone")
    adapter = at.adapters["phone"]
    (show,) = at.shows("phone")
    for pid, token in ((AGENT, show.message.token), (AGENT, ""), (7, ""), (7, show.message.token)):
        peer = Identity(pid=pid, start_tick=1, boot_id="b", session=1)
        facts = {"epoch": adapter.epoch, "number": pid, "choice": "ship", "who": "ann", "peer": peer}
        await adapter.tell(Answered(token=token, **facts))
    refused, asked, may, taken = (one for one in adapter.said if isinstance(one, Verdict))
    assert refused == asked
    assert not refused.taken
    assert "the agent of session chat" in refused.said
    assert (may.said, taken.taken, at.woken) == ("", True, 1)


async def test_a_slow_or_dead_channel_decides_no_answer_and_keeps_no_other_from_its_work(
    autojump_clock, at, nursery
):
    ask(at.world)
    at.broken = {"chat"}
    await at.begin(nursery, "phone", "chat")
    assert [name for name, _, _ in at.sent] == ["phone"]
    listed = await at.store.read(channel_list, None)
    assert {one.name: (one.state, one.trouble) for one in listed.channels} == {
        "phone": ("up", None),
        "chat": ("down", "it has no token"),
    }
    at.world.clock.wall_ahead_ms = HOUR
    at.world.clock.elapsed_ms += HOUR
    assert await at.store.write(time_out, None) is not None


async def test_a_channel_that_comes_back_shows_what_was_asked_meanwhile(autojump_clock, at, nursery):
    ask(at.world)
    at.broken = {"phone"}
    await at.begin(nursery, "phone")
    await trio.sleep(200)
    at.broken = set()
    await trio.sleep(70)
    assert await at.states() == ["shown"]
    assert at.opened < 20, "it is tried with back-off"


async def test_an_adapter_that_dies_while_it_sends_leaves_the_message_ambiguous(autojump_clock, at, nursery):
    ask(at.world)
    at.does = "die"
    await at.begin(nursery, "phone")
    at.does = "done"
    await trio.sleep(300)
    assert await at.states() == ["ambiguous"]
    assert [what for _, what, _ in at.sent] == ["show"]


async def test_an_adapter_that_says_nothing_is_ended_and_its_message_ambiguous(autojump_clock, at, nursery):
    ask(at.world)
    at.does = "hang"
    await at.begin(nursery, "phone")
    await trio.sleep(WORK_S + 5)
    assert await at.states() == ["ambiguous"]
    assert at.opened == 2


async def test_what_bears_another_epoch_counts_for_nothing(autojump_clock, at, nursery):
    ask(at.world)
    at.off = -1
    await at.begin(nursery, "phone")
    adapter = at.adapters["phone"]
    (show,) = at.shows("phone")
    stale = Answered(epoch=adapter.epoch - 1, number=1, token=show.message.token, choice="ship", who="ann")
    await adapter.tell(stale)
    assert [one for one in adapter.said if isinstance(one, Verdict)] == []
    assert "shown" not in await at.states()


async def test_a_reload_has_exactly_the_channels_that_are_named_and_shows_nothing_twice(
    autojump_clock, at, nursery
):
    ask(at.world)
    await at.begin(nursery, "phone")
    await at.actor.handle.reload(ChannelSettings(channels={"phone": PHONE, "chat": PHONE}))
    await trio.sleep(1)
    assert sorted(name for name, _, _ in at.sent) == ["chat", "phone"]
    await at.actor.handle.reload(ChannelSettings(channels={"chat": PHONE}))
    await trio.sleep(1)
    listed = await at.store.read(channel_list, None)
    assert [(one.name, one.state) for one in listed.channels] == [("phone", "off"), ("chat", "up")]
    assert len(at.sent) == 2


async def test_a_drain_lets_what_is_being_sent_end_and_begins_nothing_more(autojump_clock, at, nursery):
    ask(at.world)
    ask(at.world)
    at.does = "hang"
    await at.begin(nursery, "phone")
    began = trio.current_time()
    await at.actor.handle.drain(5)
    assert trio.current_time() - began == pytest.approx(5)
    assert len(at.sent) == 1


async def test_trouble_is_shown_until_it_is_over(autojump_clock, at, nursery):
    await at.begin(nursery, "phone")
    adapter = at.adapters["phone"]
    for why, shown in (("409: another poller", "409: another poller; stop it"), (None, None)):
        await adapter.tell(Trouble(epoch=adapter.epoch, why=why, what_to_do="stop it"))
        (line,) = (await at.store.read(channel_list, None)).channels
        assert (line.state, line.trouble) == ("up", shown)


async def test_without_a_channel_nothing_is_looked_at(autojump_clock, at, nursery):
    ask(at.world)
    await at.begin(nursery)
    looks = []
    original = at.store.glance

    async def glance(handler, query):
        looks.append(handler)
        return await original(handler, query)

    at.store.glance = glance
    await trio.sleep(100)
    assert looks == []


async def test_a_row_that_can_not_be_read_ends_no_daemon_and_keeps_no_other_message(
    autojump_clock, at, nursery
):
    broken, fine = ask(at.world), ask(at.world)
    of_run = "request_id = (SELECT request_id FROM requests WHERE run_id = ?)"
    damage = f"UPDATE decisions SET choices = x'00' WHERE {of_run}"
    at.world.checked = False
    at.world.sql(damage, (broken,))
    await at.begin(nursery, "phone")
    assert sorted(await at.states()) == ["refused", "shown"]
    assert at.shows("phone")[0].message.run_id == fine


async def test_an_answer_to_what_can_not_be_read_is_told_so_and_is_read(autojump_clock, at, nursery):
    ask(at.world)
    await at.begin(nursery, "phone")
    adapter = at.adapters["phone"]
    (show,) = at.shows("phone")
    await at.store.write(lambda tx, _: tx.run("UPDATE decisions SET choices = x'00'", {}), None)
    press = Answered(
        epoch=adapter.epoch, number=7, token=show.message.token, choice="ship", who="ann", cursor="9"
    )
    await adapter.tell(press)
    (verdict,) = [one for one in adapter.said if isinstance(one, Verdict)]
    assert (verdict.number, verdict.taken, verdict.said) == (7, False, DAMAGED)
    sql = "SELECT cursor FROM channels"
    assert await at.store.read(lambda tx, _: tx.all(sql), None) == [("9",)]


@pytest.mark.parametrize("error", [ValueDamaged("a row"), NotFound("a row"), ValueError("a row")])
async def test_whatever_can_not_be_read_ends_the_adapter_alone_and_is_tried_with_back_off(
    autojump_clock, at, nursery, error
):
    ask(at.world)
    await at.begin(nursery)
    write = at.store.write

    async def fails(handler, command):
        if handler is make_missing:
            raise error
        return await write(handler, command)

    at.store.write = fails
    await at.actor.handle.reload(ChannelSettings(channels={"phone": PHONE}))
    await trio.sleep(200)
    (line,) = (await at.store.read(channel_list, None)).channels
    assert (line.state, at.opened < 15) == ("down", True)
    at.store.write = write
    await trio.sleep(70)
    assert await at.states() == ["shown"]


async def test_a_service_that_is_busy_gets_nothing_of_the_channel_until_it_says(autojump_clock, at, nursery):
    for _ in range(3):
        ask(at.world)
    at.does, at.more = "refused", {"early": True, "retry_after_s": 600}
    await at.begin(nursery, "phone", "chat")
    assert sorted(name for name, _, _ in at.sent) == ["chat", "phone"], "each channel for itself"
    at.does, at.more = "done", {}
    await trio.sleep(595)
    assert len(at.sent) == 2
    await trio.sleep(10)
    assert len(at.sent) == 8


async def test_no_step_sends_tests_to_people():
    class People:
        async def check(self, caller, what):
            raise Rejected(what)

    services, asked = SimpleNamespace(people=People()), SimpleNamespace(caller=None)
    with pytest.raises(Rejected, match="send something to people"):
        await operations.test(services, asked)
