"""A runner that waits may be kept for whoever is admitted next: it is taken, or waits on as if nothing had been."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from pwf import host
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.standing_by import Reserved, template_key
from pwf.actors.processes.template import Template
from pwf.actors.processes.warm import Slot
from pwf.host import Identity
from tests.actors.pool_world import Project, named, running_pool, template_slots, until_dead, waiting_runner

pytestmark = [pytest.mark.trio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


async def ready(project: Project, body: str = "return 1") -> Identity:
    """The runner that waits, after a first run."""
    await project.write(body)
    await project.output()
    return await waiting_runner(project.pool)


def reserve(project: Project) -> Reserved | None:
    key = template_key(project.interpreter, project.definition.definition_id, project.environment)
    return project.pool.reserve(key)


def slot_of(pool: RunnerPool) -> Slot[Template]:
    (slot,) = template_slots(pool)
    return slot


async def test_a_runner_that_is_taken_is_its_runs_own_and_the_next_is_forked(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        waits = await ready(project)
        reserved = reserve(project)
        assert reserved is not None
        assert reserved.process.identity == waits
        assert reserve(project) is None, "it is given out once"
        process = reserved.take("home:mine:1")
        assert await project.run(process) == 1
        assert await process.exited() == 0
        await process.aclose()
        assert await waiting_runner(pool) != waits


async def test_a_runner_that_is_put_back_is_used_by_the_next_run(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        waits = await ready(project)
        for _ in range(3):
            reserved = reserve(project)
            assert reserved is not None
            reserved.put_back()
        process = await project.acquire()
        assert process.identity == waits
        assert await project.run(process) == 1
        await process.aclose()


async def test_a_runner_that_died_while_it_was_reserved_is_not_given_to_the_next(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        waits = await ready(project)
        reserved = reserve(project)
        assert reserved is not None
        host.kill_identity(waits)
        with trio.fail_after(5):
            await reserved.process.exited()
        reserved.put_back()
        assert slot_of(pool).live == 0
        process = await project.acquire()
        assert process.identity != waits
        assert await project.run(process) == 1
        await process.aclose()


async def test_a_runner_that_is_put_back_ends_with_a_template_that_was_dropped_meanwhile(
    tmp_path: Path,
) -> None:
    async with running_pool(templates_max=1) as pool:
        first, second = Project(tmp_path / "a", pool), Project(tmp_path / "b", pool)
        for project in (first, second):
            project.root.mkdir()
        waits = await ready(first)
        reserved = reserve(first)
        assert reserved is not None
        await second.write("return 2")
        assert await second.output() == 2, "whose template takes the room"
        assert host.is_alive(waits)
        reserved.put_back()
        assert await until_dead([waits])


async def test_a_runner_that_is_taken_outlives_a_template_that_was_dropped_meanwhile(tmp_path: Path) -> None:
    async with running_pool(templates_max=1) as pool:
        first, second = Project(tmp_path / "a", pool), Project(tmp_path / "b", pool)
        for project in (first, second):
            project.root.mkdir()
        await ready(first)
        reserved = reserve(first)
        assert reserved is not None
        await second.write("return 2")
        assert await second.output() == 2
        process = reserved.take("home:mine:1")
        assert await first.run(process) == 1
        await process.aclose()


async def test_a_runner_that_is_taken_from_a_pool_that_has_stopped_forks_no_other(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await ready(project)
        reserved = reserve(project)
        assert reserved is not None
    process = reserved.take("home:mine:1")
    process.close()
    assert reserve(project) is None


async def test_while_it_is_reserved_a_template_is_in_use_and_after_that_as_idle_as_before(
    tmp_path: Path,
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await ready(project)
        slot = slot_of(pool)
        with trio.fail_after(5):
            while slot.live:  # noqa: ASYNC110 - the fork ahead is under way
                await trio.sleep(0.005)
        used_at = slot.used_at
        reserved = reserve(project)
        assert reserved is not None
        assert (slot.live, slot.used_at) == (1, used_at)
        reserved.put_back()
        assert (slot.live, slot.used_at) == (0, used_at)
        reserved = reserve(project)
        assert reserved is not None
        process = reserved.take("home:mine:1")
        assert slot.used_at > used_at
        await project.run(process)
        await process.exited()
        await process.aclose()
        with trio.fail_after(5):
            while slot.live:  # noqa: ASYNC110 - the next is being forked
                await trio.sleep(0.005)


async def test_a_template_that_is_only_ever_offered_ends_when_it_is_idle(tmp_path: Path) -> None:
    async with running_pool(idle_s=0.4, zygote_idle_s=60.0) as pool:
        project = Project(tmp_path, pool)
        waits = await ready(project)
        template = named("pwf-template")
        with trio.fail_after(5):
            while (reserved := reserve(project)) is not None:
                await trio.sleep(0.01)
                reserved.put_back()
                await trio.sleep(0.01)
        assert await until_dead([waits, *template])


async def test_nothing_is_reserved_where_runners_are_not_forked(tmp_path: Path) -> None:
    async with running_pool(fork=False) as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        assert reserve(project) is None
    assert RunnerPool().reserve(template_key("python", "d", {})) is None, "nor before the pool runs"
