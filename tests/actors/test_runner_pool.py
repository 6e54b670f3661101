"""The pool gives each run generation a process of its own, quickly, and never more than it may hold."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import trio

import pwf
from pwf import host
from pwf.actors.processes import runner_process
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.errors import EnvironmentMissing, LoadFailed, RunnerCrashed, Unavailable
from pwf.host import Identity
from pwf.protocol.runner import MARKER_VARIABLE
from tests.actors.pool_world import Project, named, running_pool, two_projects, until_dead, waiting_runner

pytestmark = [pytest.mark.trio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

WHO = "import os\nreturn [os.getpid(), os.getsid(0)]"


async def test_each_run_has_a_process_of_its_own_from_one_template(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(WHO)
        first, second = await project.output(), await project.output()
        assert first[0] == first[1]
        assert first != second
        assert project.loads == 1
        assert len(named("pwf-template")) == len(named("pwf-zygote")) == 1


async def test_runs_that_start_at_once_share_one_loading(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(WHO, head="import time\ntime.sleep(0.2)")
        outputs: list[object] = []

        async def run() -> None:
            outputs.append((await project.output())[0])

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(run)
        assert len(set(map(str, outputs))) == 8
        assert project.loads == 1


async def test_a_runner_does_nothing_before_its_launch(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(f"open({str(tmp_path / 'ran')!r}, 'w')")
        process = await project.acquire()
        await trio.sleep(0.1)
        assert host.is_alive(process.identity)
        assert not (tmp_path / "ran").exists()
        await process.aclose()
        assert await process.exited() == 0
        assert not (tmp_path / "ran").exists()


async def test_a_template_is_kept_per_environment_since_loading_may_read_it(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return SEEN", head="import os\nSEEN = os.environ.get('MODE')")
        assert await project.output() is None
        project.environment["MODE"] = "fast"
        assert await project.output() == "fast"
        assert project.loads == 2


# --- what can not be had ------------------------------------------------------------------------------------


async def test_an_interpreter_that_is_gone_is_named_with_what_to_do(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool, interpreter=str(tmp_path / "python"))
        with pytest.raises(EnvironmentMissing, match="is gone") as caught:
            await project.write()
        assert caught.value.hint


async def test_an_interpreter_without_pwf_is_refused_with_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    async with running_pool() as pool:
        with pytest.raises(EnvironmentMissing, match="No module named") as caught:
            await Project(tmp_path, pool, interpreter=str(bare)).write()
        assert "pip install" in str(caught.value.hint)


async def test_an_interpreter_with_another_pwf_is_refused_with_both_versions(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(
        f"#!{sys.executable}\n"
        "import sys, pwf\n"
        "pwf.__version__ = '99.9'\n"
        "from pwf.runner.spawn import zygote\n"
        "sys.exit(zygote.main(sys.argv[-1:]))\n"
    )
    other.chmod(0o755)
    async with running_pool() as pool:
        with pytest.raises(EnvironmentMissing, match=r"99\.9") as caught:
            await Project(tmp_path, pool, interpreter=str(other)).write()
        assert pwf.__version__ in caught.value.message


async def test_a_zygote_that_is_killed_before_it_is_ready_says_nothing_against_its_interpreter(
    tmp_path: Path,
) -> None:
    marked = tmp_path / "once"
    shaky = tmp_path / "python"
    shaky.write_text(
        f'#!/bin/sh\nif [ "$2" = -m ] && [ ! -e {marked} ]; then touch {marked}; kill -9 $$; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    shaky.chmod(0o755)
    async with running_pool() as pool:
        project = Project(tmp_path, pool, interpreter=str(shaky))
        with pytest.raises(RunnerCrashed, match="before it was ready"):
            await project.write()
        await project.write()
        assert await project.output() is None


async def test_code_that_does_not_load_is_an_error_and_the_next_run_tries_anew(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        head = f"import os\nif not os.path.exists({str(gate)!r}): raise RuntimeError('the gate is shut')"
        await project.write("return 'open'", head=head)
        gate.unlink()
        for isolate in ("fork", "spawn"):
            with pytest.raises(LoadFailed, match="the gate is shut"):
                await project.acquire(isolate=isolate)
        gate.touch()
        assert await project.output() == "open"


@pytest.mark.parametrize("isolate", ["fork", "spawn"])
async def test_loading_that_takes_too_long_is_ended(tmp_path: Path, isolate: str) -> None:
    async with running_pool(load_deadline_s=1.0) as pool:
        project = Project(tmp_path, pool)
        slow = f"import os, time\nif os.path.exists({str(tmp_path / 'slow')!r}): time.sleep(60)"
        await project.write(head=slow)
        (tmp_path / "slow").touch()
        with pytest.raises(LoadFailed, match="did not end within 1 s"):
            await project.acquire(isolate=isolate)


@pytest.mark.parametrize("isolate", ["fork", "spawn"])
async def test_loading_that_ends_the_process_says_how(tmp_path: Path, isolate: str) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(head=f"import os\nif os.path.exists({str(tmp_path / 'now')!r}): os.abort()")
        (tmp_path / "now").touch()
        with pytest.raises(LoadFailed, match="SIGABRT"):
            await project.acquire(isolate=isolate)


async def test_a_file_that_ends_or_stalls_its_resolver_is_an_answer(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        answer = await project.write(head="import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        assert answer.error_code == "load_failed"
        assert "SIGSEGV" in str(answer.error)
        await trio.Path(tmp_path / "slow.py").write_text("import time\ntime.sleep(60)")
        answer = await pool.resolve(
            sys.executable, str(tmp_path / "slow.py"), str(tmp_path), project.environment, deadline_s=0.5
        )
        assert "did not end within 0.5 s" in str(answer.error)
        assert await until_dead(named("pwf-resolver"))


async def test_a_project_folder_that_is_gone_is_said_so(tmp_path: Path) -> None:
    async with running_pool() as pool:
        root = tmp_path / "project"
        root.mkdir()
        project = Project(root, pool)
        await project.write()
        (root / "flow.py").unlink()
        root.rmdir()
        with pytest.raises(LoadFailed, match="is gone"):
            await project.acquire()


# --- processes that die under it ----------------------------------------------------------------------------


async def test_a_template_that_died_is_made_anew(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        (template,) = named("pwf-template")
        host.kill_identity(template)
        assert await until_dead([template])
        assert await project.output() == 1
        assert await project.output() == 1
        assert project.loads == 2


async def test_a_template_that_is_stopped_is_ended_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.actors.processes.template.FORK_TIMEOUT_S", 0.3)
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        (template,) = named("pwf-template")
        host.kill_identity(template, signal.SIGSTOP)
        for _ in range(2):  # the runner that waited may still serve one
            process = await project.acquire()
            assert await project.run(process) == 1
            await process.aclose()
        assert await until_dead([template])


async def test_a_zygote_that_died_takes_no_run_with_it(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 'alive'")
        await project.output()
        (zygote,) = named("pwf-zygote")
        template = named("pwf-template")
        process = await project.acquire()
        host.kill_identity(zygote)
        assert await until_dead([zygote])
        assert await project.run(process) == "alive"
        await process.exited()
        assert await process.prove_dead()
        await process.aclose()
        assert await project.output() == "alive"
        assert (await project.write("return 2")).error is None
        assert await project.output() == 2
    assert await until_dead(template), "though it was not below this process any more"


async def test_the_end_of_a_runner_is_learned_from_the_kernel_with_its_status(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("import os\nos._exit(7)")
        process = await project.acquire()
        assert not process.has_exited
        await project.launch(process)
        with trio.fail_after(5):
            assert await process.exited() == 7
        assert await process.prove_dead()
        await process.aclose()


async def test_a_runner_outlives_the_template_that_made_room(tmp_path: Path) -> None:
    async with running_pool(templates_max=1) as pool:
        first, second = await two_projects(tmp_path, pool)
        assert await first.output() == "a"
        template = named("pwf-template")
        process = await first.acquire()
        assert await second.output() == "b"
        assert await until_dead(template)
        assert await first.run(process) == "a"
        assert await process.exited() == 0, "reaped and reported by the zygote, which adopted it"
        assert await process.prove_dead()
        await process.aclose()


# --- bounds -------------------------------------------------------------------------------------------------


async def test_what_is_idle_ends(tmp_path: Path) -> None:
    async with running_pool(idle_s=0.3, zygote_idle_s=0.3) as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        held = await project.acquire()
        warm = [identity for identity in _ancestors(held.identity) if identity.pid != os.getpid()]
        assert len(warm) == 2
        await trio.sleep(0.8)
        assert all(host.is_alive(identity) for identity in warm), "a live runner keeps them"
        await held.aclose()
        assert await until_dead(warm)
        assert await project.output() == 1


async def test_an_interpreter_is_kept_ready_longer_than_loaded_code(tmp_path: Path) -> None:
    async with running_pool(idle_s=0.2, zygote_idle_s=60.0) as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        held = await project.acquire()
        template, zygote = [one for one in _ancestors(held.identity) if one.pid != os.getpid()]
        await held.aclose()
        assert await until_dead([template])
        await trio.sleep(0.5)
        assert host.is_alive(zygote)


def _ancestors(identity: Identity) -> list[Identity]:
    """The processes between this one and that one, and this one."""
    found: list[Identity] = []
    pid = identity.pid
    while pid != os.getpid():
        process = host.read_process(pid)
        assert process is not None
        pid = process.parent
        parent = host.process_identity(pid)
        assert parent is not None
        found.append(parent)
    return found


async def test_a_caller_that_is_cancelled_leaves_no_runner_behind(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write(head="import time\ntime.sleep(0.2)")
        with trio.move_on_after(0.1) as scope:
            await project.acquire()
        assert scope.cancelled_caught
        process = await project.acquire()
        await process.aclose()
        await process.exited()
        assert await until_dead(named("pwf-runner"))


async def test_a_stopped_pool_refuses(tmp_path: Path) -> None:
    pool = RunnerPool()
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        nursery.cancel_scope.cancel()
    with pytest.raises(Unavailable):
        await pool.resolve(sys.executable, "x.py", str(tmp_path), {})


# --- isolation ----------------------------------------------------------------------------------------------


async def test_isolate_spawn_gives_a_fresh_process_for_each_run(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        body = "return open('/proc/self/cmdline').read().split(chr(0))[1:4]"
        await project.write(body)
        assert await project.output(isolate="spawn") == ["-P", "-m", "pwf.runner.spawn.fresh"]
        assert await project.output(isolate="spawn") == ["-P", "-m", "pwf.runner.spawn.fresh"]
        assert project.loads == 2
        assert not named("pwf-template")


async def test_a_workflow_that_is_not_safe_to_fork_gets_fresh_processes(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        head = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
        await project.write("import threading\nreturn threading.active_count()", head=head)
        process = await project.acquire()
        assert process.isolated
        assert await project.run(process) == 2, "the thread is there"
        assert await process.exited() == 0
        await process.aclose()
        assert await project.output() == 2
        assert project.loads == 3, "once to find out, then once for each run"
        assert not named("pwf-template")


async def test_two_projects_with_different_environments_run_at_once(tmp_path: Path) -> None:
    async with running_pool() as pool:
        projects = []
        for name in ("a", "b"):
            root = tmp_path / name
            root.mkdir()
            interpreter = await _venv(root / ".venv", f"VALUE = {name!r}")
            projects.append(Project(root, pool, interpreter=interpreter))
            await projects[-1].write(
                "import sys\nreturn [VALUE, sys.prefix]", head="from installed_thing import VALUE"
            )
        held = [await project.acquire() for project in projects]
        outputs = [await project.run(process) for project, process in zip(projects, held, strict=True)]
        assert outputs == [[name, str(tmp_path / name / ".venv")] for name in ("a", "b")]
        for process in held:
            await process.exited()
            await process.aclose()
        assert len(named("pwf-zygote")) == 2


async def _venv(folder: Path, installed: str) -> str:
    """A virtual environment that has what this one has, and one module of its own."""
    await trio.run_process([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    ours = [path for path in sys.path if path.endswith("site-packages")]
    ours.append(os.path.dirname(os.path.dirname(pwf.__file__)))
    (packages / "ours.pth").write_text("\n".join(ours) + "\n")
    (packages / "installed_thing.py").write_text(installed)
    return str(folder / "bin" / "python")


async def test_a_changed_interpreter_gets_a_new_zygote_and_running_work_goes_on(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.symlink_to(sys.executable)
    wrapper = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    interpreter.unlink()
    interpreter.write_text(wrapper)
    interpreter.chmod(0o755)
    async with running_pool() as pool:
        project = Project(tmp_path, pool, interpreter=str(interpreter))
        await project.write("return 1")
        held = await project.acquire()
        (before,) = named("pwf-zygote")
        interpreter.write_text(wrapper + "# upgraded\n")
        os.utime(interpreter, (1, 1))
        assert await project.output() == 1
        assert len(named("pwf-zygote")) == 2
        assert await project.run(held) == 1
        await held.exited()
        await held.aclose()
        assert await until_dead([before])


async def test_stopped_with_sigstop_a_runner_is_still_ended_by_the_proof(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write()
        process = await project.acquire()
        host.kill_identity(process.identity, signal.SIGSTOP)
        with trio.fail_after(3):
            assert await process.prove_dead(grace_s=0.2)
        assert await process.exited() in (-signal.SIGKILL, -signal.SIGTERM)
        await process.aclose()


async def test_a_shortage_of_descriptors_fails_one_run_and_not_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        await waiting_runner(pool)

        def none_left(*args: object) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", none_left)
            await (await project.acquire()).aclose()  # the one that waited
            await trio.sleep(0.01)  # the next one can not be made
            for isolate in ("fork", "spawn"):
                with pytest.raises(RunnerCrashed, match="too many open files"):
                    await project.acquire(isolate=isolate)
        assert await project.output() == 1


async def test_the_end_of_a_runner_is_noticed_though_descriptors_were_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        real, calls, again = host.open_exit, 0, trio.Event()

        def short(identity: Identity) -> int | None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError(errno.EMFILE, "too many open files")
            again.set()
            return real(identity)

        monkeypatch.setattr(runner_process, "REPORT_FIRST_S", 0.0)
        monkeypatch.setattr(host, "open_exit", short)
        process = await project.acquire()
        with trio.fail_after(5):
            await (
                again.wait()
            )  # a runner may end before anybody looks, and then there is nothing to be short of
            assert await project.run(process) == 1
            assert await process.exited() == 0
        await process.aclose()


async def test_the_end_of_a_runner_is_noticed_though_nobody_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        monkeypatch.setattr(pool._makers._exits, "report", lambda exited: None)
        process = await project.acquire()
        process.kill()
        with trio.fail_after(5):
            assert await process.exited() is None
        await process.aclose()


# --- runners that wait for a run ----------------------------------------------------------------------------


def bearers(marker: str) -> list[int]:
    return [one.identity.pid for one in host.find_bearers(MARKER_VARIABLE) if one.marker == marker]


async def test_a_run_takes_the_runner_that_waits_and_the_next_is_forked(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        process = await project.acquire()
        assert await project.run(process) == 1
        await process.aclose()
        for _ in range(3):
            waits = await waiting_runner(pool)
            process = await project.acquire()
            assert process.identity == waits
            assert await project.run(process) == 1
            assert await process.exited() == 0
            await process.aclose()


async def test_a_waiting_runner_that_died_is_not_given_to_a_run(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        waits = await waiting_runner(pool)
        host.kill_identity(waits)
        assert await until_dead([waits])
        await trio.sleep(0.1)  # its end is told
        process = await project.acquire()
        assert process.identity != waits
        assert await project.run(process) == 1
        await process.aclose()


async def test_a_waiting_runner_ends_with_its_template_and_keeps_none_from_being_idle(tmp_path: Path) -> None:
    async with running_pool(idle_s=0.3, zygote_idle_s=60.0) as pool:
        project = Project(tmp_path, pool)
        await project.write("return 1")
        assert await project.output() == 1
        waits = await waiting_runner(pool)
        assert await until_dead([waits, *named("pwf-template")])


async def test_a_waiting_runner_that_is_stopped_ends_with_its_template_too(tmp_path: Path) -> None:
    async with running_pool(templates_max=1) as pool:
        first, second = await two_projects(tmp_path, pool)
        assert await first.output() == "a"
        waits = await waiting_runner(pool)
        host.kill_identity(waits, signal.SIGSTOP)
        assert await second.output() == "b", "whose template takes the room"
        assert await until_dead([waits])


async def test_what_comes_of_what_waits_is_its_runs_own(tmp_path: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path, pool)
        await project.write("import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(60)")
        process = await project.acquire()
        await project.launch(process)
        await waiting_runner(pool)
        other = await project.acquire()
        await project.launch(other)
        with trio.fail_after(5):
            while len(bearers(other.marker)) < 2:  # noqa: ASYNC110 - nobody says when
                await trio.sleep(0.005)
        assert process.marker != other.marker
        for one in (process, other):
            assert await one.prove_dead()
            await one.aclose()
