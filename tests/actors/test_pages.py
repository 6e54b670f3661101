"""Pages: the server of the answer pages is there while it is wanted, is started again, and it is said why it is not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio

from pwf.actors.base.retry import RETRY_S_MAX
from pwf.actors.pages.pages import READY_S_MAX, Pages
from pwf.config import Web
from pwf.errors import RunnerCrashed
from pwf.host.identity import Identity
from tests.actors.no_log import NoLog

pytestmark = pytest.mark.trio

SERVER = Identity(pid=7, start_tick=70, boot_id="b", session=7)


class Servers:
    """Processes that do as the test says: `deaths` of those that end, at once or when they are ready."""

    identity = SERVER

    def __init__(self, *deaths: str, never_ready: bool = False) -> None:
        self.deaths = list(deaths)
        self.never_ready = never_ready
        self.began: list[float] = []
        self.open = 0

    @asynccontextmanager
    async def start(self):
        self.began.append(trio.current_time())
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    async def ready(self) -> None:
        if self.never_ready:
            await trio.sleep_forever()
        if self.deaths:
            raise RunnerCrashed(self.deaths.pop(0))

    async def ended(self) -> RunnerCrashed:
        await trio.sleep_forever()
        raise AssertionError


@asynccontextmanager
async def running(servers: Servers, **web):
    pages = Pages(servers.start, Web(**web), NoLog())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pages.run)
        await trio.sleep(0.1)
        yield pages.handle
        nursery.cancel_scope.cancel()


async def test_without_the_word_of_the_configuration_nothing_is_started(autojump_clock) -> None:
    servers = Servers()
    async with running(servers) as handle:
        await trio.sleep(100)
        assert (servers.began, handle.url, handle.trouble, handle.processes()) == ([], None, None, [])


async def test_it_is_there_and_ends_with_the_daemon(autojump_clock) -> None:
    servers = Servers()
    async with running(servers, serve=True, port=7931) as handle:
        assert (handle.url, handle.trouble) == ("http://127.0.0.1:7931/", None)
        assert handle.processes() == [SERVER]
    assert servers.open == 0


async def test_one_that_ends_is_started_again_later_and_later_and_it_is_said_why(autojump_clock) -> None:
    servers = Servers(*["the port is taken"] * 9)
    async with running(servers, serve=True) as handle:
        assert (handle.url, handle.trouble, handle.processes()) == (None, "the port is taken", [])
        await trio.sleep(400)
        gaps = [later - earlier for earlier, later in pairwise(servers.began)]
        assert gaps[:3] == [1, 2, 4]
        assert max(gaps) == RETRY_S_MAX
        assert (handle.url is not None, handle.trouble) == (True, None)


async def test_one_that_is_never_ready_is_ended_and_tried_again(autojump_clock) -> None:
    servers = Servers(never_ready=True)
    async with running(servers, serve=True) as handle:
        await trio.sleep(READY_S_MAX + 2)
        assert servers.open == 1
        assert len(servers.began) == 2
        assert "not ready" in handle.trouble
