"""Errands: a submission that can't be judged now is tried again, and what the store says is heard as what it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from pwf.actors.base.changes import Changes
from pwf.actors.runs import errands
from pwf.errors import OutcomeUnknown, RunnerCrashed, ValueDamaged
from pwf.protocol.spawn import Identity
from pwf.store.launch import LaunchTerms
from pwf.store.submissions import DueErrand, begin_errand, due_errand, end_errand, errand_started
from tests.actors.no_log import NoLog


class FakeStore:
    """Submissions by their numbers; those that are judged are due no more."""

    def __init__(self, *numbers: int) -> None:
        self.due = list(numbers)
        self.ended = []
        self.fault: Exception | None = None  # of the launch

    def on_change(self, _listener) -> None:
        pass

    async def read(self, handler, after):
        await trio.lowlevel.checkpoint()
        assert handler is due_errand
        number = next((one for one in self.due if one > after), None)
        return None if number is None else DueErrand(number, f"r/{number}", 0, "d", "e", "r")

    async def write(self, _run_id, handler, command, *, along):
        await trio.lowlevel.checkpoint()
        if handler is begin_errand:
            return "token"
        if handler is errand_started:
            assert self.fault is not None
            raise self.fault
        assert handler is end_errand
        self.ended.append((command.gone.entity_no, round(trio.current_time()), command.reason))
        if command.accepted is not None:
            self.due.remove(command.gone.entity_no)
        return None


class FakeProcess:
    identity = Identity(pid=7, start_tick=7, boot_id="b", session=7)

    async def prove_dead(self, *, childless):
        return True

    def close(self):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Judge what is due, until it is over."""

    async def look_up(_store, due):
        return due

    async def serve(store, acquire, seconds=60):
        monkeypatch.setattr(errands, "look_up", look_up)
        monkeypatch.setattr(errands, "acquire", acquire)
        world = SimpleNamespace(
            store=store, write=store.write, log=NoLog(), draining=lambda: False, terms=LaunchTerms()
        )
        with trio.move_on_after(seconds):
            await errands.Errands(world, Changes(store), epoch=1, idle=lambda: None).run()

    return serve


async def no_process(*_):
    raise RunnerCrashed("no process can be made")


async def a_process(*_):
    return FakeProcess()


@pytest.mark.trio
async def test_without_a_process_it_is_tried_again_later_each_time_and_others_come_between(
    autojump_clock, serve
):
    store = FakeStore(1, 2)
    started = round(trio.current_time())
    await serve(store, no_process, 20)
    assert [(number, at - started) for number, at, _ in store.ended] == [
        (1, 0),
        (2, 1),
        (1, 3),
        (2, 7),
        (1, 15),
    ]


@pytest.mark.trio
async def test_a_submission_whose_value_is_damaged_is_rejected_with_that_reason(autojump_clock, serve):
    store = FakeStore(1)
    store.fault = ValueDamaged("it is not what was stored")
    await serve(store, a_process)
    assert [reason for *_, reason in store.ended] == ["it could not be validated: it is not what was stored"]


@pytest.mark.trio
async def test_an_outcome_that_nobody_knows_ends_it_as_that_and_is_not_wrapped(autojump_clock, serve):
    store = FakeStore(1)
    store.fault = OutcomeUnknown("was it committed?")
    with pytest.raises(OutcomeUnknown):
        await serve(store, a_process)
