"""O1, R7: nothing that a step started outlives its runner, whatever it did to get away, nor the daemon."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
import trio

from pwf import host
from pwf.host import Identity
from tests.actors.pool_world import Project, named, running_pool, until_dead, until_exists

pytestmark = [pytest.mark.trio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

# What a step does. The script says its pid in a file, then goes on for ever, deaf to a polite signal.
SCRIPT = "trap '' TERM HUP\necho $$ > {root}/pid\nwhile :; do sleep 1; done\n"
ESCAPES = {
    "through two shells": """os.system("sh -c 'sh {root}/script & wait' &")""",
    "double fork and setsid": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open('{root}/pid', 'w').write(f'{{os.getpid()}}\\n')
                time.sleep(9999)
            os._exit(0)
        """,
    "a pipe kept open": """
        import subprocess
        line = 'setsid sh {root}/script & sleep 9999'
        child = subprocess.Popen(['sh', '-c', line], stdout=subprocess.PIPE)
        """,
    "a session of its own": """os.system("setsid sh {root}/script &")""",
    "without its marker": """os.system("env -i setsid sh {root}/script &")""",
}


def escape(name: str, root: Path) -> str:
    """The body of the step that does it, and then never ends."""
    (root / "script").write_text(SCRIPT.format(root=root))
    text = textwrap.dedent(ESCAPES[name]).strip().format(root=root)
    return f"import os, time\n{text}\ntime.sleep(9999)"


async def escaped(root: Path) -> Identity:
    found = host.process_identity(int(await until_exists(root / "pid")))
    assert found is not None
    return found


@pytest.mark.parametrize("isolate", ["fork", "spawn"])
@pytest.mark.parametrize("name", ESCAPES)
async def test_what_a_step_started_is_dead_when_its_runner_is_proved_dead(
    name: str, isolate: str, tmp_path: Path
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(escape(name, tmp_path))
        process = await project.acquire(isolate=isolate)
        await project.launch(process)
        child = await escaped(tmp_path)
        with trio.fail_after(5):
            assert await process.prove_dead()
        assert not host.is_alive(child)
        assert not host.is_alive(process.identity)
        await process.aclose()


@pytest.mark.parametrize("name", ESCAPES)
async def test_it_is_dead_as_well_when_the_runner_killed_itself_first(name: str, tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(escape(name, tmp_path))
        process = await project.acquire()
        await project.launch(process)
        child = await escaped(tmp_path)
        os.kill(process.identity.pid, signal.SIGKILL)
        assert await process.exited() == -signal.SIGKILL
        with trio.fail_after(5):
            assert await process.prove_dead()
        assert not host.is_alive(child)
        await process.aclose()


async def test_without_spawners_the_marker_and_the_session_still_prove_it(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(escape("double fork and setsid", tmp_path))
        process = await project.acquire()
        await project.launch(process)
        child = await escaped(tmp_path)
        for spawner in (*named("pwf-zygote"), *named("pwf-template")):
            host.kill_identity(spawner)
        with trio.fail_after(5):
            assert await process.prove_dead()
        assert not host.is_alive(child)
        await process.aclose()


async def test_a_fork_that_holds_its_sockets_does_not_hide_that_the_runner_has_ended(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(escape("double fork and setsid", tmp_path))
        process = await project.acquire()
        await project.launch(process)
        child = await escaped(tmp_path)
        for spawner in (
            *named("pwf-zygote"),
            *named("pwf-template"),
        ):  # nobody is left who would end the child
            host.kill_identity(spawner)
        os.kill(process.identity.pid, signal.SIGKILL)
        with trio.fail_after(5):
            assert await process.stream.receive_some() == b""
            assert await process.values.receive_some() == b""
        assert host.is_alive(child)
        assert await process.prove_dead()
        assert not host.is_alive(child)
        await process.aclose()


async def test_what_a_runner_said_before_its_end_can_still_be_read(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("import os\nos.write(3, b'a word')\nos._exit(0)")
        process = await project.acquire()
        await project.launch(process)
        await process.exited()
        assert await process.stream.receive_some() == b"a word"
        assert await process.stream.receive_some() == b""
        await process.aclose()


async def test_sigterm_comes_first_where_there_is_a_grace(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        body = f"""
        import os, signal, time
        def say(*args):
            open({str(tmp_path / "said")!r}, 'w').write('stopped in good order\\n')
            os._exit(5)
        signal.signal(signal.SIGTERM, say)
        open({str(tmp_path / "pid")!r}, 'w').write(f'{{os.getpid()}}\\n')
        while True:  # a signal that comes right before a sleep is handled after it
            time.sleep(0.05)
        """
        await project.write(body)
        process = await project.acquire()
        await project.launch(process)
        await escaped(tmp_path)
        assert await process.prove_dead(grace_s=5.0)
        assert await process.exited() == 5
        assert await until_exists(tmp_path / "said") == "stopped in good order"
        await process.aclose()


async def test_a_live_runner_beside_it_is_not_touched(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("import time\ntime.sleep(0.5)\nreturn 'untouched'")
        first, second = await project.acquire(), await project.acquire()
        await project.launch(first)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.prove_dead)
            assert await project.run(second) == "untouched"
        for process in (first, second):
            await process.exited()
            await process.aclose()


DAEMON = """
import json, os, sys, trio
from pathlib import Path
sys.path.insert(0, {tree!r})
from tests.actors.pool_world import Project
from pwf import host
from pwf.actors.processes.runner_pool import RunnerPool

async def main():
    async with trio.open_nursery() as nursery:
        pool = RunnerPool()
        await nursery.start(pool.run)
        root = Path({root!r})
        project = Project(root, pool)
        await project.write({body!r})
        runners = [await project.acquire(isolate=isolate) for isolate in ("fork", "spawn", "fork")]
        for runner in runners[:2]:
            await project.launch(runner)
        while not (root / "pid").exists():
            await trio.sleep(0.01)
        await trio.sleep(0.3)
        print(json.dumps([identity.pid for identity in host.descendants(os.getpid())]), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("name", ESCAPES)
async def test_when_the_daemon_is_killed_everything_below_it_ends(name: str, tmp_path: Path) -> None:
    tree = str(Path(__file__).parents[2])
    code = DAEMON.format(tree=tree, root=str(tmp_path), body=escape(name, tmp_path))
    async with trio.open_nursery() as nursery:
        command = [sys.executable, "-c", code]
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        daemon: trio.Process = await nursery.start(run)
        assert daemon.stdout is not None
        line = bytes(await daemon.stdout.receive_some())
        below = [identity for pid in json.loads(line) if (identity := host.process_identity(pid)) is not None]
        assert len(below) >= 6, "zygote, template, three runners, and what the steps started"
        daemon.kill()
        assert await until_dead(below)


async def test_ending_what_nobody_wants_survives_a_shortage_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        process = await project.acquire()

        def none_left(*args: object) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(host, "is_alive", none_left)
            patch.setattr(host, "kill_identity", none_left)
            process.discard()
            assert (await project.write("return 2")).error is None
        with trio.fail_after(5):
            await process.exited()
        assert await project.output() == 2


async def test_templates_that_were_made_at_the_same_time_are_bounded_too(tmp_path: Path) -> None:
    async with running_pool(templates_max=1, idle_s=6.0) as pool:
        projects = [Project(tmp_path / name, pool) for name in "abc"]
        for project in projects:
            project.root.mkdir()
            await project.write(f"return {project.root.name!r}")
        async with trio.open_nursery() as nursery:
            for project in projects:
                nursery.start_soon(project.output)
        with trio.fail_after(5):
            while len(named("pwf-template")) > 1:  # noqa: ASYNC110 - the kernel tells nobody
                await trio.sleep(0.02)
