"""The asynchronous client under trio and asyncio, against a real socket."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from pwf.client import connect
from pwf.errors import DaemonUnreachable, NotFound, Unavailable
from pwf.protocol.operations import Nothing, RunChanged, RunList, WaitResult
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_a_call_returns_the_typed_result(daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: samples.status())
    async with connect(daemon.places, autostart=False) as client:
        assert await client.call("daemon.status") == samples.status()


async def test_an_error_in_the_block_comes_out_as_it_was(daemon: FakeDaemon) -> None:
    daemon.on("run.status", lambda request, payload: NotFound("no run 'zz'", hint="pwf ls"))
    with pytest.raises(NotFound, match="no run 'zz'"):
        async with connect(daemon.places, autostart=False) as client:
            await client.call("run.status", run_id="zz")


async def test_a_long_wait_holds_up_nothing(daemon: FakeDaemon) -> None:
    daemon.on("run.wait", lambda request, payload: None)
    daemon.on("daemon.status", lambda request, payload: samples.status())
    async with connect(daemon.places, autostart=False) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.wait, samples.RUN)
        assert (await client.call("daemon.status")).pid == 4242
        tasks.cancel_scope.cancel()


async def test_a_call_without_an_answer_ends_in_time(daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: None)
    with pytest.raises(Unavailable, match="no answer"):
        async with connect(daemon.places, autostart=False) as client:
            await client.call("daemon.status", timeout_s=0.1)


async def test_a_command_in_flight_survives_a_lost_connection_and_is_done_once(daemon: FakeDaemon) -> None:
    done: list[str] = []

    def resume(request: Any, payload: Any) -> Any:
        done.append(request.idempotency_key)
        threading.Thread(target=daemon.drop).start()
        threading.Event().wait(0.05)
        return RunChanged(run_id=samples.RUN, status="queued", revision=4)

    daemon.on("run.resume", resume)
    async with connect(daemon.places, autostart=False) as client:
        reply = await client.exchange("run.resume", run_id=samples.RUN)
    assert (reply.outcome, len(done)) == ("adopted", 1)


async def test_a_wait_goes_on_over_a_restart_of_the_daemon(home: Path) -> None:
    daemon = FakeDaemon(home)
    daemon.on("run.wait", lambda request, payload: None)
    daemon.start()
    ended = WaitResult(summary=samples.summary(status="completed"), done=True, output=samples.value(1))
    async with connect(daemon.places, autostart=False) as client, anyio.create_task_group() as tasks:

        async def restart() -> None:
            await anyio.to_thread.run_sync(lambda: daemon.wait_for("run.wait"))
            daemon.stop()
            daemon.on("run.wait", lambda request, payload: ended)
            daemon.start()

        tasks.start_soon(restart)
        with anyio.fail_after(20):
            assert await client.wait(samples.RUN) == ended
    daemon.stop()


async def test_a_view_yields_states_until_the_run_has_ended(daemon: FakeDaemon) -> None:
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        daemon.push(payload.id, "snapshot", 3, samples.run_view())
        daemon.push(payload.id, "patch", 4, {"summary": {"status": "completed", "node": None}})

    daemon.on("after:view.subscribe", push)
    async with connect(daemon.places, autostart=False) as client:
        seen = [view.summary.status async for view in client.view(samples.RUN)]
    assert seen[-1] == "completed"


async def test_a_list_is_restored_after_a_lost_connection_and_says_only_what_is_new(
    daemon: FakeDaemon,
) -> None:
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        runs = (samples.summary(),) if len(daemon.of("view.subscribe")) > 2 else ()
        daemon.push(payload.id, "snapshot", 1, RunList(runs=runs))

    daemon.on("after:view.subscribe", push)
    async with connect(daemon.places, autostart=False) as client, client.runs() as stream:
        assert (await anext(stream)).runs == ()
        daemon.drop()
        await anyio.to_thread.run_sync(lambda: daemon.wait_for("view.subscribe", 2))
        daemon.drop()
        assert (await anext(stream)).runs == (samples.summary(),)


async def test_a_cancelled_call_is_forgotten(daemon: FakeDaemon) -> None:
    daemon.on("run.wait", lambda request, payload: None)
    async with connect(daemon.places, autostart=False) as client:
        with anyio.move_on_after(0.05):
            await client.wait(samples.RUN)
        daemon.on("run.wait", lambda request, payload: pytest.fail("sent again"))
        daemon.on("daemon.status", lambda request, payload: samples.status())
        daemon.drop()
        assert (await client.call("daemon.status")).pid == 4242


async def test_nobody_listening_is_unreachable(home: Path) -> None:
    with pytest.raises(DaemonUnreachable):
        async with connect(FakeDaemon(home).places, autostart=False):
            pytest.fail("connected to nobody")
