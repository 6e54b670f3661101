"""Wake-ups by key, and subscriptions that send a snapshot and then patches. Virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from pwf.actors.base.changes import ANY_RUN, Changes
from pwf.actors.door.connection import Caller
from pwf.actors.door.views import AT_ONCE, EVENTS_PER_S, REREAD_S, SUBSCRIPTIONS_MAX, Views, never
from pwf.errors import Conflict, FrameTooLarge, NotFound, Rejected, Unavailable
from pwf.protocol.frames import FRAME_BYTES_MAX, Event, encode
from pwf.protocol.merge_patch import apply
from tests.actors.no_log import NoLog

pytestmark = pytest.mark.trio


class Doc(msgspec.Struct, frozen=True, kw_only=True):
    n: int = 0
    text: str | None = None
    output: dict[str, Any] | None = None
    steps: tuple[int, ...] = ()


class Source:
    """A store whose changes the test makes."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        self._listeners.append(listener)

    def publish(self, *keys: str) -> None:
        for listener in self._listeners:
            listener(frozenset(keys))


class Client:
    """Applies events as a client does, and keeps them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []
        self.document: dict[str, Any] = {}
        self.slow_s = 0.0
        self.caller = Caller(1, self.take)

    async def take(self, event: Event) -> None:
        if len(encode(event)) > FRAME_BYTES_MAX:
            raise FrameTooLarge
        await trio.sleep(self.slow_s)
        body = msgspec.json.decode(event.body)
        assert event.revision == (self.events[-1].revision + 1 if self.events else 1)
        self.events.append(event)
        self.times.append(trio.current_time())
        if event.kind != "end":
            self.document = apply(self.document, body) if event.kind == "patch" else body

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class World:
    def __init__(self, changes: Changes, source: Source, client: Client) -> None:
        self.source, self.client = source, client
        self.actor = Views(changes, NoLog())
        self.views = self.actor.handle
        self.now = Doc()
        self.reads = 0

    async def read(self) -> Doc:
        self.reads += 1
        await trio.lowlevel.checkpoint()
        return self.now

    async def change(self, now: Doc, key: str = "run:a", after_s: float = 1.0) -> None:
        self.now = now
        self.source.publish(key)
        await trio.sleep(after_s)

    async def subscribe(
        self,
        name: str = "s",
        key: str = "run:a",
        read: Callable[[], Awaitable[Doc]] | None = None,
        is_calm: Callable[[Any], bool] = never,
    ) -> None:
        await self.views.subscribe(self.client.caller, name, key, read or key, read or self.read, is_calm)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    source, client = Source(), Client()
    changes = Changes(source)
    async with trio.open_nursery() as nursery:
        at = World(changes, source, client)
        nursery.start_soon(at.actor.run)
        yield at
        nursery.cancel_scope.cancel()


async def test_a_subscription_begins_with_the_snapshot_and_goes_on_with_patches(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe()
        await trio.sleep(1)
        await at.change(Doc(n=1, steps=(1,)))
        await at.change(Doc(n=1, steps=(1, 2), text="x"))
        await at.change(Doc(n=2, steps=(1, 2)))

        assert at.client.kinds == ["snapshot", "patch", "patch", "patch"]
        assert msgspec.json.decode(at.client.events[2].body) == {"steps": [1, 2], "text": "x"}
        assert at.client.document == {"n": 2, "output": None, "steps": [1, 2]}


async def test_a_change_of_another_run_reads_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:
        await at.subscribe()
        await trio.sleep(1)
        before = at.reads
        await at.change(Doc(), key="run:b")
        assert at.reads == before


async def test_a_list_hears_of_every_run_and_of_nothing_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe("list", ANY_RUN)
        await trio.sleep(1)
        await at.change(Doc(n=1), key="run:b")
        assert at.client.document["n"] == 1
        await at.change(Doc(n=2), key="daemon")
        assert at.client.document["n"] == 1


async def test_what_looks_the_same_is_not_sent(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:
        await at.subscribe()
        await trio.sleep(1)
        await at.change(Doc())
        assert at.client.kinds == ["snapshot"]


async def test_a_null_that_means_something_is_sent_in_a_snapshot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe()
        await trio.sleep(1)
        wanted = Doc(output={"json": {"a": None, "b": 1}})
        await at.change(wanted)
        assert at.client.kinds == ["snapshot", "snapshot"]
        assert at.client.document["output"] == {"json": {"a": None, "b": 1}}


async def test_a_busy_run_sends_at_most_the_bound_and_ends_with_the_newest_state(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe()
        for n in range(400):
            await at.change(Doc(n=n), after_s=0.005)
        await trio.sleep(1)
        assert at.client.document["n"] == 399
        assert len(at.client.events) <= 2 * EVENTS_PER_S + AT_ONCE + 2


async def test_a_few_changes_after_a_rest_are_told_at_once_and_not_the_next_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe()
        await trio.sleep(1)
        began = trio.current_time()
        for n in range(1, AT_ONCE + 4):
            await at.change(Doc(n=n), after_s=0.001)
        await trio.sleep(1)
        waited = [round(time - began, 3) for time in at.client.times[1:]]
        assert waited[: AT_ONCE + 1] == [n / 1_000 for n in range(AT_ONCE + 1)]
        assert len(waited) == AT_ONCE + 2, "what came after them is one event"
        assert waited[-1] >= 1 / EVENTS_PER_S - 0.001


async def test_what_only_the_store_can_change_is_read_again_seldom_and_only_while_that_is_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        await at.subscribe(is_calm=lambda doc: doc.n == 0)
        await trio.sleep(5 * REREAD_S)
        assert at.reads == 1
        await at.change(Doc(n=1), after_s=5 * REREAD_S + 1)
        assert at.reads == 2 + 5
        await at.change(Doc(), after_s=5 * REREAD_S)
        assert at.reads == 8


async def test_a_slow_client_gets_the_newest_state_not_a_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        at.client.slow_s = 10
        await at.subscribe()
        for n in range(100):
            await at.change(Doc(n=n), after_s=0.1)
        await trio.sleep(60)
        assert at.client.document["n"] == 99
        assert len(at.client.events) <= 4


async def test_a_state_that_cannot_be_read_just_now_is_read_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        failing = True

        async def read() -> Doc:
            if failing:
                raise Unavailable
            return Doc(n=5)

        await at.subscribe(read=read)
        await trio.sleep(3)
        assert at.client.events == []
        failing = False
        await trio.sleep(3)
        assert at.client.document["n"] == 5


async def test_a_run_that_is_gone_ends_its_subscription(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:

        async def read() -> Doc:
            raise NotFound

        await at.subscribe(read=read)
        await trio.sleep(1)
        assert at.client.kinds == ["end"]
        with pytest.raises(NotFound):
            await at.views.unsubscribe(at.client.caller, "s")


async def test_unsubscribing_ends_it_and_frees_its_name(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:
        await at.subscribe()
        with pytest.raises(Conflict):
            await at.subscribe()
        await trio.sleep(1)
        await at.views.unsubscribe(at.client.caller, "s")
        await at.change(Doc(n=1))
        assert at.client.kinds == ["snapshot"]
        with pytest.raises(NotFound):
            await at.views.unsubscribe(at.client.caller, "s")
        await at.subscribe()


async def test_subscriptions_of_one_connection_are_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:
        at.client.slow_s = 60
        for number in range(SUBSCRIPTIONS_MAX):
            await at.subscribe(str(number))
        with pytest.raises(Rejected):
            await at.subscribe("one too many")


async def test_a_change_between_listening_and_waiting_is_not_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Source()
    changes = Changes(source)
    async with trio.open_nursery() as nursery:
        with changes.watch("run:a") as watch:
            source.publish("run:a")
            await trio.sleep(1)
            assert await watch.wait(5)
            assert not await watch.wait(5)
        nursery.cancel_scope.cancel()


async def test_a_change_is_read_once_however_many_follow(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:
        clients = [Client() for _ in range(20)]
        for client in clients:
            await at.views.subscribe(client.caller, "s", "run:a", "run:a", at.read)
        await trio.sleep(1)
        before = at.reads

        await at.change(Doc(n=1))
        await at.change(Doc(n=2))

        assert at.reads == before + 2
        assert all(client.kinds == ["snapshot", "patch", "patch"] for client in clients)
        assert all(client.document["n"] == 2 for client in clients)


async def test_a_change_during_a_read_is_read_again_for_whoever_it_woke(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:

        async def slow() -> Doc:
            at.reads += 1
            now = at.now
            await trio.sleep(1)
            return now

        await at.subscribe(read=slow)
        await trio.sleep(0.5)
        await at.change(Doc(n=1), after_s=5)

        assert at.client.document["n"] == 1
        assert at.reads == 2


async def test_a_client_that_goes_takes_its_subscriptions_along_and_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:

        async def slow() -> Doc:
            at.reads += 1
            await trio.sleep(1)
            return Doc(n=7)

        other = Client()
        await at.views.subscribe(other.caller, "gone", "run:b", "slow", slow)
        await at.views.subscribe(at.client.caller, "s", "run:b", "slow", slow)
        await at.views.subscribe(other.caller, "rests", "run:a", "run:a", at.read)
        await trio.sleep(0.5)
        other.caller.end()
        await trio.sleep(3)

        assert at.client.document["n"] == 7
        before = len(other.events), at.reads
        await at.change(Doc(n=1), key="run:a")
        assert (len(other.events), at.reads) == before, "nobody follows it any more"
        await at.change(Doc(n=1), key="run:b", after_s=3)
        assert at.reads == before[1] + 1


async def test_a_subscription_of_a_client_that_has_just_gone_ends_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as at:
        at.client.caller.end()
        await at.subscribe()
        await trio.sleep(1)
        assert at.client.events == []
        with pytest.raises(NotFound):
            await at.views.unsubscribe(at.client.caller, "s")


async def test_a_subscription_that_fails_ends_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as at:

        async def wrong() -> Doc:
            raise ZeroDivisionError

        await at.views.subscribe(at.client.caller, "wrong", "run:a", "wrong", wrong)
        await at.subscribe()
        await trio.sleep(1)
        await at.change(Doc(n=1))
        assert at.client.document["n"] == 1
