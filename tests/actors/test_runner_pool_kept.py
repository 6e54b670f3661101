"""A runner that stays after its run stands by for the next one, as one that was forked ahead does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from pwf import host
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import KEPT_MAX
from pwf.protocol.runner import MARKER_VARIABLE, WAITING_MARKER
from tests.actors.pool_world import Project, running_pool, the_template, until_dead, until_exists

pytestmark = pytest.mark.trio


async def kept(
    root: Path, pool: RunnerPool, body: str = "import os\nreturn os.getpid()", head: str = ""
) -> Project:
    project = Project(root, pool, options=", isolate='keep'")
    await project.write(body, head)
    return project


async def stay(project: Project, process: RunnerProcess) -> int:
    """A whole run, after which its process waits again. What it gave."""
    given: int = await project.run(process)
    assert project.leaving is not None
    assert project.leaving.stays, project.leaving.not_kept
    process.stay()
    return given


async def test_the_next_run_of_the_definition_has_the_same_process(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        pids = []
        for _ in range(3):
            process = await project.acquire(isolate="keep")
            assert (process.identity, process.marker) in [(one, marker) for marker, one in pool.runners()]
            pids.append(await stay(project, process))
            assert pool.runners() == [], "one that waits has no run"
        assert len(set(pids)) == 1


async def test_one_to_which_a_value_could_not_be_given_ends(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        process = await project.acquire(isolate="keep")
        process.values.close()
        await stay(project, process)
        assert await until_dead([process.identity])
        again = await project.acquire(isolate="keep")
        assert again is not process
        await stay(project, again)


async def test_another_environment_or_definition_has_another_process(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        first = await stay(project, await project.acquire(isolate="keep"))
        project.environment["OTHER"] = "1"
        second = await stay(project, await project.acquire(isolate="keep"))
        del project.environment["OTHER"]
        await project.write("import os\nreturn  os.getpid()")
        third = await stay(project, await project.acquire(isolate="keep"))
        assert len({first, second, third}) == 3


async def test_one_that_died_while_it_waited_is_given_to_nobody(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        process = await project.acquire(isolate="keep")
        dead = await stay(project, process)
        os.kill(dead, signal.SIGKILL)
        await process.exited()
        assert await stay(project, await project.acquire(isolate="keep")) != dead


async def test_when_the_template_is_closed_none_stays(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        waiting, working = await project.acquire(isolate="keep"), await project.acquire(isolate="keep")
        await stay(project, waiting)
        the_template(pool).close()
        await stay(project, working)
        assert await until_dead([waiting.identity, working.identity])


async def test_so_many_stay_and_no_more_and_those_that_nobody_needs_are_ended(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        processes = [await project.acquire(isolate="keep") for _ in range(KEPT_MAX + 1)]
        for process in processes:
            await stay(project, process)
        standing_by = the_template(pool).standing_by
        assert len(standing_by) <= KEPT_MAX
        the_template(pool).hurries_until = 0.0
        pool._warm.end_idle()
        assert len(standing_by) == 1


async def test_the_proof_for_an_earlier_run_leaves_the_process_to_the_run_that_has_it_now(
    tmp_path: Path,
) -> None:
    """A supervisor has failed with its row; the process is another run's by then."""
    async with running_pool() as pool:
        project = await kept(tmp_path, pool)
        process = await project.acquire(isolate="keep")
        marker = process.marker
        await stay(project, process)
        assert await pool.prove_dead(process.identity, marker)
        again = await project.acquire(isolate="keep")
        assert again is process
        assert await pool.prove_dead(process.identity, marker)
        assert host.is_alive(process.identity)
        await stay(project, again)


#: How a process tries to live on from one run to the next: the run's process does not see it as its child.
HIDES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.prctl(36, 0, 0, 0, 0)
child = os.fork()
if child == 0:
    if os.fork() == 0:
        {further}
        os.closerange(0, 100)
        fd = os.open({path!r}, os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"%d\\n" % os.getpid())
        time.sleep(9999)
    os._exit(0)
os.waitpid(child, 0)
libc.prctl(36, 1, 0, 0, 0)
return os.getpid()
"""


@pytest.mark.parametrize("further", ["pass", "os.setsid()", "os.environ.clear()"])
async def test_what_hides_from_its_runs_process_bears_that_runs_marker_and_is_found_by_it(
    further: str, tmp_path: Path
) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool, HIDES.format(further=further, path=f"{tmp_path}/pid"))
        process = await project.acquire(isolate="keep")
        marker = process.marker
        await stay(project, process)
        pid = int(await until_exists(tmp_path / "pid"))
        hidden = host.process_identity(pid)
        assert hidden is not None
        assert host.read_variable(pid, MARKER_VARIABLE) == marker
        assert host.read_variable(process.identity.pid, MARKER_VARIABLE) == WAITING_MARKER
        assert await pool.prove_dead(process.identity, marker)
        assert not host.is_alive(hidden)
        assert host.is_alive(process.identity)


async def test_what_hides_ends_with_the_process_that_was_kept(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(tmp_path, pool, HIDES.format(further="os.setsid()", path=f"{tmp_path}/pid"))
        process = await project.acquire(isolate="keep")
        await stay(project, process)
        hidden = host.process_identity(int(await until_exists(tmp_path / "pid")))
        assert hidden is not None
        process.kill()
        with trio.fail_after(5):
            await process.exited()
        assert await until_dead([hidden])


async def test_a_definition_that_is_not_safe_to_fork_is_not_kept_and_that_is_said(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = await kept(
            tmp_path,
            pool,
            head="import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        )
        process = await project.acquire(isolate="keep")
        assert process.goes_back is None
        assert await project.run(process) != 0
        assert project.leaving is not None
        assert not project.leaving.stays
        assert "not safe to fork" in pool.kept.find(project.definition.definition_id).last_reason
        await process.aclose()
