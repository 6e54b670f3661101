"""DecisionTimeout settles what is due: at start, at each due time, after a lost wake-up, and again after an error."""

from __future__ import annotations

import pytest
import trio

from pwf.actors.base.changes import Changes
from pwf.actors.decisions.decision_timeout import REREAD_S, DecisionTimeout
from pwf.errors import DiskFull
from pwf.store.deadlines import NextDeadline, next_deadline, time_out
from pwf.store.request_clock import rebase_deadlines
from tests.actors.no_log import NoLog


def now() -> float:
    return trio.current_time()


class FakeStore:
    """Requests with a deadline by trio's clock; `down` times it is unavailable."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self.settled: list[tuple[str, float]] = []
        self.down = 0
        self.stays = False  # what is settled is due again
        self.looks = 0
        self.rebased = 0
        self._listeners = []

    def on_change(self, listener) -> None:
        self._listeners.append(listener)

    def ask(self, name: str, at: float, *, tell: bool = True) -> None:
        self.due[name] = at
        if tell:
            for listener in self._listeners:
                listener(frozenset({"requests"}))

    async def glance(self, handler, _):
        assert handler is next_deadline
        self.looks += 1
        await trio.lowlevel.checkpoint()
        left = [at - now() for at in self.due.values()]
        return NextDeadline(in_ms=max(0, round(min(left) * 1000)) if left else None)

    async def write(self, handler, _):
        await trio.lowlevel.checkpoint()
        if self.down:
            self.down -= 1
            raise DiskFull("just now")
        if handler is rebase_deadlines:
            self.rebased += 1
            return 0
        assert handler is time_out
        name = min(self.due, key=self.due.__getitem__)
        if self.due[name] > now() + 0.001:
            return None
        if not self.stays:
            del self.due[name]
        self.settled.append((name, now()))
        return name


@pytest.fixture
async def store(autojump_clock, nursery):
    found = FakeStore()
    actor = DecisionTimeout(found, Changes(found), NoLog())
    found.actor = actor
    found.start = lambda: nursery.start_soon(actor.run)
    return found


@pytest.mark.trio
async def test_what_fell_due_while_no_daemon_ran_is_settled_at_start(autojump_clock, store):
    store.due = {"b": now() - 5, "a": now() - 10}
    store.start()
    await trio.sleep(0.1)
    assert [name for name, _ in store.settled] == ["a", "b"]
    assert store.rebased == 1


@pytest.mark.trio
async def test_a_deadline_is_met_at_its_time(autojump_clock, store):
    store.start()
    await trio.sleep(1)
    store.ask("a", began := now() + 2.5)
    await trio.sleep(10)
    ((name, at),) = store.settled
    assert name == "a"
    assert at == pytest.approx(began, abs=0.01)


@pytest.mark.trio
async def test_a_lost_wake_up_costs_five_seconds_at_most(autojump_clock, store):
    store.start()
    await trio.sleep(1)
    store.ask("a", due := now() + 0.5, tell=False)
    await trio.sleep(20)
    ((_, at),) = store.settled
    assert at <= due + REREAD_S


@pytest.mark.trio
async def test_a_step_of_the_clock_has_it_look_again(autojump_clock, store):
    store.start()
    store.ask("a", now() + 1_000)
    await trio.sleep(1)
    store.due["a"] = now() - 1
    store.actor.wake()
    await trio.sleep(0.1)
    assert len(store.settled) == 1


@pytest.mark.trio
async def test_an_error_is_tried_again(autojump_clock, store):
    store.down = 3
    store.due = {"a": now()}
    store.start()
    await trio.sleep(10)
    assert [name for name, _ in store.settled] == ["a"]


@pytest.mark.trio
async def test_while_nothing_is_due_it_looks_once_in_five_seconds(autojump_clock, store):
    for number in range(100):
        store.due[str(number)] = now() + 1e6
    store.start()
    await trio.sleep(100)
    assert store.looks <= 100 / REREAD_S + 2


@pytest.mark.trio
async def test_one_that_stays_due_takes_no_more_than_a_look_in_five_seconds(autojump_clock, store):
    store.stays = True
    store.ask("a", now())
    store.start()
    await trio.sleep(12)
    assert len(store.settled) <= 2 * 3
