"""SessionCoordinator: what its session says is done in order, and the time that its model works is sampled on time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pwf.actors.sessions.session_coordinator import SAMPLE_S, Attached, SessionCoordinator
from pwf.errors import DiskFull
from pwf.store.session_clock import sample
from pwf.store.sessions import SessionFence, detach
from tests.actors.no_log import NoLog

FENCE = SessionFence(session_no=1, session_id="chat", epoch=1)


class FakeStore:
    """Remembers when it was asked to sample. `counts`: whether the model works."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.counts = True
        self.down = 0
        self.is_let_go = False

    async def write(self, handler, command):
        await trio.lowlevel.checkpoint()
        if handler is detach:
            self.is_let_go = True
            return None
        if handler is not sample:
            return handler(None, command)
        self.samples.append(trio.current_time())
        if self.down:
            self.down -= 1
            raise DiskFull("just now")
        return self.counts


class Setting:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.store, self.log = FakeStore(), NoLog()
        coordinator = SessionCoordinator(self.store, FENCE, Attached(), None, 1, self.log)
        self.handle = coordinator.handle
        nursery.start_soon(coordinator.run)
        self._since = trio.current_time()

    async def say(self) -> None:
        await self.handle.do(lambda tx, command: None, None)

    @property
    def samples(self) -> list[int]:
        """When, in seconds since the beginning."""
        return [round(at - self._since) for at in self.store.samples]


@pytest.mark.trio
async def test_a_session_that_talks_all_the_time_is_sampled_no_later(autojump_clock):
    async with trio.open_nursery() as nursery:
        setting = Setting(nursery)
        for _ in range(16):
            await setting.say()
            await trio.sleep(1)
        assert setting.samples == [SAMPLE_S, 2 * SAMPLE_S, 3 * SAMPLE_S]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_nothing_is_sampled_while_the_model_does_not_work(autojump_clock):
    async with trio.open_nursery() as nursery:
        setting = Setting(nursery)
        setting.store.counts = False
        await trio.sleep(100)
        assert setting.samples == []
        await setting.say()
        await trio.sleep(100)
        assert setting.samples == [105]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_sample_that_fails_is_tried_again_and_the_session_let_go_in_the_end(autojump_clock):
    async with trio.open_nursery() as nursery:
        setting = Setting(nursery)
        setting.store.down = 1
        await setting.say()
        await trio.sleep(SAMPLE_S + 6)
        assert setting.samples == [SAMPLE_S, 2 * SAMPLE_S]
        assert [event for event, _ in setting.log.events] == ["session.not_sampled"]
        nursery.cancel_scope.cancel()
    assert setting.store.is_let_go
