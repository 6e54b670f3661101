"""The real RunnerPool with fake processes: whatever ends, is edited or given up, nothing is given twice or lost."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pwf.actors.processes import making
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.errors import PwfError
from tests.actors.fake_spawning import FakeRunner, FakeSockets, FakeZygote, Machine

SEEDS = 25
CLIENTS = 5
ASKS = 12
ANSWER_S_MAX = 60.0
CODES = ("a", "b", "c")
INTERPRETERS = ("one", "two")


class Clients:
    """Who asks for runners. `held`: by each process that somebody has, its marker."""

    def __init__(self, machine: Machine, pool: RunnerPool, root: str) -> None:
        self.held: dict[Any, str] = {}
        self.answered = 0
        self._machine, self._pool, self._root = machine, pool, root
        self._asks = 0

    async def run(self) -> None:
        for _ in range(ASKS):
            await self._machine.pause()
            if self._machine.chance.random() < 0.15:
                self._machine.edition += 1
            await self._ask()

    async def _ask(self) -> None:
        chance = self._machine.chance
        self._asks += 1
        code, marker, edition = chance.choice(CODES), f"run{self._asks}", self._machine.edition

        async def load() -> str:
            await self._machine.pause()
            return code

        with trio.fail_after(ANSWER_S_MAX), trio.move_on_after(chance.choice([0.005, 0.3, 99.0])):
            try:
                process: Any = await self._pool.acquire(
                    bundle_key=code,
                    load_bundle=load,  # type: ignore[arg-type]
                    interpreter=chance.choice(INTERPRETERS),
                    environment={},
                    root=self._root,
                    marker=marker,
                )
            except PwfError:
                return
            await self._use(process, code, marker, edition)

    async def _use(self, process: Any, code: str, marker: str, edition: int) -> None:
        assert process not in self.held, f"{marker} is given what {self.held.get(process)} has"
        assert (process.code, process.marker) == (code, marker)
        assert not process.stands_by
        assert not process.is_discarded
        assert process.edition >= edition, "code from before an edit is given to nobody who asks after it"
        self.held[process] = marker
        self.answered += 1
        try:
            await self._machine.pause()
        finally:
            del self.held[process]
            if self._machine.chance.random() < 0.4 and not process.ended.is_set():
                process.marker = making.WAITING_MARKER
                process.goes_back(process)
            else:
                process.ended.set()


async def live(seed: int, root: str, patch: pytest.MonkeyPatch) -> int:
    """One seed; how many runners were had."""
    machine = Machine(seed)
    patch.setattr(making, "Zygote", lambda interpreter, exits: FakeZygote(machine, interpreter))
    patch.setattr(making, "open_sockets", FakeSockets)
    patch.setattr(
        making.Makers,
        "_hold",
        lambda self, identity, sockets, marker, isolated=False: FakeRunner(
            machine, identity, sockets, marker
        ),
    )
    pool = RunnerPool(templates_max=2, zygotes_max=1, idle_s=4.0, zygote_idle_s=8.0)
    clients = Clients(machine, pool, root)

    calm = trio.Event()

    async def kill() -> None:
        while not calm.is_set():
            await trio.sleep(0.3)
            living = machine.living()
            if living and machine.chance.random() < 0.5:
                machine.chance.choice(living).ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        nursery.start_soon(kill)
        async with trio.open_nursery() as asking:
            for _ in range(CLIENTS):
                asking.start_soon(clients.run)
        calm.set()
        await trio.sleep(1.0)
        lost = [one for one in machine.living() if not one.stands_by]
        assert not lost, f"who waits for nothing and has no run is ended: {lost}"
        assert all(one.template.is_open for one in machine.living()), (
            "none stands by whose template is closed"
        )
        await trio.sleep(30.0)
        assert not machine.living(), "what is idle ends"
        machine.stopping = True
        nursery.cancel_scope.cancel()
    return clients.answered


def test_nothing_is_given_twice_nor_stale_nor_lost_whatever_ends_is_edited_or_given_up(
    tmp_path, monkeypatch
) -> None:
    had = 0
    for seed in range(SEEDS):
        had += trio.run(
            partial(live, seed, str(tmp_path), monkeypatch), clock=MockClock(autojump_threshold=0.0)
        )
    assert had > SEEDS * ASKS, "most asks are answered with a runner"
