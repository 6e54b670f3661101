"""The client library against the real daemon: anyio under trio and asyncio, and the blocking facade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from pwf.client import Client, connect, connect_sync
from pwf.errors import Conflict, InvalidAnswer, NotFound
from pwf.places import places
from pwf.protocol.operations import RunListPayload
from pwf.protocol.views import RunView
from tests.e2e.home import gone
from tests.e2e.world import PATIENCE_S, World

pytestmark = pytest.mark.anyio

LIBRARY = """
flow = Workflow("library")

@flow.compute
def greet(ctx):
    return {"hello": ctx.input}

@flow.checkpoint(returns=int)
def ask(ctx):
    return ctx[greet]

@flow.compute
def done(ctx):
    return ctx[ask] * 2

flow.graph(greet >> ask >> done)
"""


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Stands in the project of the shared home, whose daemon runs."""
    world.home.workflow("library", LIBRARY)
    monkeypatch.chdir(world.home.project)
    world.client.call("daemon.status")
    return world


async def _question(client: Client, run_id: str) -> str:
    result = await client.wait(run_id, until="parked", timeout_s=PATIENCE_S)
    assert result.summary.request_id is not None
    return result.summary.request_id


async def test_start_wait_answer_and_read_the_output(here: World) -> None:
    async with connect(here.places) as client:
        started = await client.start("library", {"name": "Ada"})
        question = await _question(client, started.run_id)
        with pytest.raises(InvalidAnswer):
            await client.answer(question, "not a number")
        answered = await client.answer(question, 21)
        assert answered.run_id == started.run_id
        result = await client.wait(started.run_id)
        assert result.summary.status == "completed"
        assert result.output is not None
        assert await client.read_value(started.run_id, result.output) == b"42"
        with pytest.raises(Conflict):
            await client.answer(question, 22)


async def test_a_view_streams_the_run_to_its_end_and_stops(here: World) -> None:
    seen: list[RunView] = []
    async with connect(here.places) as client:
        started = await client.start("library")
        async with client.view(started.run_id) as views:
            async for view in views:
                if view.request is not None and view.request.status == "pending" and not _asked(seen):
                    await client.answer(view.request.request_id, 1)
                seen.append(view)
    assert _asked(seen)
    assert seen[-1].summary.status == "completed"
    revisions = [view.summary.revision for view in seen]
    assert revisions == sorted(revisions)
    assert msgspec.to_builtins(seen[-1].summary) == msgspec.to_builtins(here.view(started.run_id).summary)


def _asked(seen: list[RunView]) -> bool:
    return any(view.request is not None for view in seen)


async def test_a_list_streams_new_runs(here: World) -> None:
    async with (
        connect(here.places) as client,
        client.runs(RunListPayload(workflow="library", limit=5)) as lists,
    ):
        await anext(lists)
        started = await client.start("library")
        with anyio.fail_after(PATIENCE_S):
            async for listed in lists:
                if listed.runs and listed.runs[0].run_id == started.run_id:
                    break


async def test_many_calls_at_once_share_one_connection(here: World) -> None:
    before = here.client.call("daemon.status").clients
    results: list[str] = []

    async def once(client: Client, number: int) -> None:
        started = await client.start("library", number, key=f"many-{number % 10}-{id(results)}")
        results.append(started.run_id)

    async with connect(here.places) as client:
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(once, client, number % 10)
        assert (await client.call("daemon.status")).clients == before + 1
    assert len(results) == 30
    assert len(set(results)) == 10


async def test_a_killed_daemon_is_a_pause_for_calls_and_views(here: World) -> None:
    # This process may not be the one that brings the daemon back: its environment is no user's.
    async with connect(here.places, autostart=False) as client:
        started = await client.start("library")
        question = await _question(client, started.run_id)
        statuses: list[str] = []
        waits = anyio.Event()

        async def look_on() -> None:
            async for view in client.view(started.run_id):
                statuses.append(view.summary.status)
                if view.summary.status == "waiting":
                    waits.set()

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(look_on)
                await waits.wait()
                here.kill_daemon()
                await anyio.to_thread.run_sync(here.home.run, "start")
                await client.answer(question, 5)
        assert statuses[-1] == "completed"


async def test_a_cancelled_wait_leaves_the_client_usable(here: World) -> None:
    async with connect(here.places) as client:
        started = await client.start("library")
        with anyio.move_on_after(0.05):
            await client.wait(started.run_id)
        with pytest.raises(NotFound):
            await client.call("run.view", run_id="no-such-run")
        assert (await client.call("daemon.status")).state == "serving"


def test_the_blocking_facade_does_the_same(here: World) -> None:
    with connect_sync(here.places) as client:
        started = client.start("library", [1])
        statuses = []
        for view in client.view(started.run_id):
            if view.request is not None and view.summary.status == "waiting" and "waiting" not in statuses:
                client.answer(view.request.request_id, 3)
            statuses.append(view.summary.status)
        assert statuses[-1] == "completed"
        result = client.wait(started.run_id)
        assert result.output is not None
        assert client.read_value(started.run_id, result.output) == b"6"


@pytest.mark.parametrize("variable", [None, "other"])
def test_a_client_of_an_explicit_home_starts_the_daemon_of_that_home_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    for name in ("PWF_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    if variable is not None:
        monkeypatch.setenv("PWF_HOME", str(tmp_path / variable))
    wanted = places({"PWF_HOME": str(tmp_path / "wanted")})
    with connect_sync(wanted) as client:
        status = client.call("daemon.status")
        client.call("daemon.stop")
    assert status.home == str(tmp_path / "wanted")
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "user").exists()
    if psutil.pid_exists(status.pid):
        gone(psutil.Process(status.pid))
