"""FileWatch: one process while anything is watched; what it tells wakes resources, and nothing is lost when it dies."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from pwf.actors.base.changes import Changes
from pwf.actors.base.retry import RETRY_S
from pwf.actors.resources.file_watch import UNKNOWN, FileWatch
from pwf.actors.resources.watcher_process import open_watcher_process
from pwf.errors import DiskFull, RunnerCrashed
from pwf.store.resource_watch import Watching, wake_watching, watching
from tests.actors.no_log import NoLog

SETTLE_S = 0.5


class Setting:
    """A store with resources that watch, and processes whose words the test says."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, str]] = {}
        self.woken: list[tuple[tuple[int, ...], dict[str, str]]] = []
        self.scheduled = 0
        self.down = 0
        self.opened = 0
        self.open = 0
        self.watched: list[dict[str, str]] = []
        self._listeners = []
        self._say, self._said = trio.open_memory_channel(100)
        self.actor = FileWatch(self, Changes(self), self.open_watcher, self._schedule, NoLog())

    # the store

    def on_change(self, listener) -> None:
        self._listeners.append(listener)

    def put(self, number: int, marks: dict[str, str]) -> None:
        self.rows[number] = marks
        for listener in self._listeners:
            listener(frozenset({"watched"}))

    async def read(self, handler, after):
        assert handler is watching
        await trio.lowlevel.checkpoint()
        found = sorted((number, marks) for number, marks in self.rows.items() if number > after and marks)
        return tuple(Watching(resource_no=number, marks=marks) for number, marks in found[:2])

    async def write(self, handler, command):
        assert handler is wake_watching
        await trio.lowlevel.checkpoint()
        if self.down:
            self.down -= 1
            raise DiskFull("just now")
        self.woken.append((command.resource_nos, command.marks))
        return 1

    def _schedule(self) -> None:
        self.scheduled += 1

    # the process

    @asynccontextmanager
    async def open_watcher(self):
        self.opened += 1
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    async def watch(self, marks: dict[str, str]) -> None:
        await trio.lowlevel.checkpoint()
        self.watched.append(dict(marks))

    async def changed(self) -> dict[str, str]:
        word = await self._said.receive()
        if word is None:
            raise RunnerCrashed("it has ended")
        return word

    async def say(self, word: dict[str, str] | None) -> None:
        await self._say.send(word)
        await trio.sleep(SETTLE_S)


@pytest.fixture
async def at(autojump_clock, nursery):
    found = Setting()
    nursery.start_soon(found.actor.run)
    await trio.sleep(SETTLE_S)
    return found


@pytest.mark.trio
async def test_no_process_is_there_while_nothing_is_watched(at, autojump_clock):
    await trio.sleep(1_000)
    assert at.opened == 0

    at.put(1, {"/a": "one"})
    await trio.sleep(SETTLE_S)
    assert (at.open, at.watched) == (1, [{"/a": "one"}])
    at.put(1, {})
    await trio.sleep(SETTLE_S)
    assert (at.open, at.opened) == (0, 1)


@pytest.mark.trio
async def test_what_it_tells_wakes_those_who_watch_it(at, autojump_clock):
    for number, marks in {1: {"/a": "one"}, 2: {"/b": "two"}, 3: {"/a": "one", "/c": "x"}}.items():
        at.put(number, marks)
    await trio.sleep(SETTLE_S)

    await at.say({"/a": "other"})

    assert at.woken == [((1, 3), {"/a": "other"})]
    assert (at.scheduled, at.opened) == (1, 1)


@pytest.mark.trio
async def test_a_path_that_two_have_seen_differently_is_told_in_any_case(at, autojump_clock):
    at.put(1, {"/a": "one"})
    at.put(2, {"/a": "two"})
    await trio.sleep(SETTLE_S)

    assert at.watched[-1] == {"/a": UNKNOWN}


@pytest.mark.trio
async def test_a_process_that_dies_is_replaced_and_compares_all_anew(at, autojump_clock):
    at.put(1, {"/a": "one"})
    await trio.sleep(SETTLE_S)

    await at.say(None)
    await trio.sleep(2 * RETRY_S)

    assert (at.opened, at.open, at.watched) == (2, 1, [{"/a": "one"}, {"/a": "one"}])


@pytest.mark.trio
async def test_a_change_that_could_not_be_stored_is_told_again(at, autojump_clock):
    at.put(1, {"/a": "one"})
    await trio.sleep(SETTLE_S)
    at.down = 1

    await at.say({"/a": "other"})
    await trio.sleep(2 * RETRY_S)
    await at.say({"/a": "other"})  # as the new process does, which compares all

    assert at.opened == 2
    assert at.woken == [((1,), {"/a": "other"})]


@pytest.mark.trio
async def test_the_real_process_tells_a_change_and_ends_with_its_scope(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")

    async with open_watcher_process() as watcher:
        await watcher.watch({str(file): "another"})
        with trio.fail_after(60):
            told = await watcher.changed()
        process = watcher._process

    assert set(told) == {str(file)}
    assert process.returncode is not None
