"""How many runners wait for a run: one, and more while runs come faster than they can be forked one by one."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from pwf.actors.processes.runner_pool import RUNNERS_MAX, WAITING_SHARE
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import StandingBy
from pwf.actors.processes.template import Template
from tests.actors.pool_world import Project, running_pool, the_template, until_dead, waiting_runners

pytestmark = pytest.mark.trio

WAITING_HURRIED_MAX = WAITING_SHARE * RUNNERS_MAX


async def run_together(project: Project, count: int) -> None:
    async def run() -> None:
        assert await project.output() == 1

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(run)


async def test_more_wait_while_runs_find_nobody_and_end_when_that_is_over(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        assert len(await waiting_runners(pool, 1)) == 1, "the first run alone is no hurry"
        await run_together(project, 2 * WAITING_HURRIED_MAX)
        many = await waiting_runners(pool, WAITING_HURRIED_MAX)
        assert len(many) == WAITING_HURRIED_MAX

        the_template(pool).hurries_until = 0.0
        pool._warm.end_idle()
        (left,) = await waiting_runners(pool, 1)
        assert await until_dead([one for one in many if one != left])
        process = await project.acquire()
        assert process.identity == left
        assert await project.run(process) == 1
        await process.aclose()


async def test_several_that_are_wanted_are_asked_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    fork_runners = Template.fork_runners

    async def counted(self: Template, sockets: Any) -> Any:
        asked.append(len(sockets))
        return await fork_runners(self, sockets)

    monkeypatch.setattr(Template, "fork_runners", counted)
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        await run_together(project, 2 * WAITING_HURRIED_MAX)
        await waiting_runners(pool, WAITING_HURRIED_MAX)
        asked.clear()
        for _ in range(WAITING_HURRIED_MAX):
            the_template(pool).hurries_until = trio.current_time() + 60
            assert await project.output() == 1
        await waiting_runners(pool, WAITING_HURRIED_MAX - 1)
    assert asked
    assert min(asked) >= WAITING_HURRIED_MAX // 2, asked


async def test_of_several_that_can_not_all_be_forked_those_that_were_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template says how many there are; the sockets of the others are closed."""
    fork_runners = Template.fork_runners

    async def fewer(self: Template, sockets: Any) -> Any:
        return await fork_runners(self, sockets[:1])

    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        await run_together(project, 2 * WAITING_HURRIED_MAX)
        await waiting_runners(pool, WAITING_HURRIED_MAX)
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(Template, "fork_runners", fewer)
        for _ in range(3 * WAITING_HURRIED_MAX):
            the_template(pool).hurries_until = trio.current_time() + 60
            assert await project.output() == 1
        await waiting_runners(pool, 1)
        with trio.fail_after(5):
            while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - the last ones are let go of a little later
                await trio.sleep(0.01)


class Waiting:
    """A process that waits, until somebody ends it."""

    has_exited = discarded = False

    def discard(self) -> None:
        self.discarded = True


async def test_once_closed_none_stands_by_neither_a_new_one_nor_one_whose_run_is_over() -> None:
    standing_by = StandingBy(SimpleNamespace(is_current=True))
    before, new, back = Waiting(), Waiting(), Waiting()
    standing_by.put(cast(RunnerProcess, before))
    assert not before.discarded
    standing_by.close()
    standing_by.put(cast(RunnerProcess, new))
    standing_by.take_back(cast(RunnerProcess, back))
    assert [one.discarded for one in (before, new, back)] == [True] * 3
    assert standing_by.reserve() is None
