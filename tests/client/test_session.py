"""The client of sessions: a turn is stopped when it counts for nothing any more, and only then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from pwf.client import aio, open_session
from pwf.client.session import Step
from pwf.errors import Conflict, DaemonUnreachable, PwfError
from pwf.protocol import operations as ops
from pwf.protocol import transcripts
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon
from tests.mcp.conftest import Desk, anyio_backend, desk, until

__all__ = ["anyio_backend", "desk"]

pytestmark = pytest.mark.anyio


async def served(daemon: FakeDaemon, desk: Desk, act: Callable[[Step], Awaitable[None]]) -> str:
    """How the turn about the message that is there was reported."""
    with anyio.fail_after(10):
        async with (
            open_session("s1", at=daemon.places, autostart=False) as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(session.serve, act)
            await until(lambda: len(desk.turns) == 2)
            tasks.cancel_scope.cancel()
    return desk.turns[-1][1]


async def test_a_turn_whose_step_a_person_has_settled_is_stopped(daemon: FakeDaemon, desk: Desk) -> None:
    desk.ask()

    async def act(step: Step) -> None:
        desk.request = None
        desk.tell()
        await anyio.sleep_forever()

    assert await served(daemon, desk, act) == "aborted"


async def test_a_turn_that_has_settled_its_step_goes_on_to_its_end(daemon: FakeDaemon, desk: Desk) -> None:
    desk.ask()

    def accept(request: Any, payload: Any) -> ops.Submitted:
        desk.request = None
        desk.tell()
        return samples.submitted()

    daemon.on("request.submit", accept)

    async def act(step: Step) -> None:
        seen = len(daemon.of("session.view"))
        await step.submit("done")
        await until(lambda: len(daemon.of("session.view")) > seen)  # the news were looked at
        await anyio.sleep(0.02)

    assert await served(daemon, desk, act) == "ended"


async def test_a_session_outlives_a_stop_of_the_daemon_and_starts_none_by_itself(
    daemon: FakeDaemon, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def start(at: Any, *, autostart: bool) -> Any:
        asked.append(autostart)
        raise DaemonUnreachable("no daemon serves here")

    monkeypatch.setattr(aio, "connect_or_start", start)
    monkeypatch.setattr(aio, "RECONNECT_S_MAX", 0)
    with anyio.fail_after(10):
        async with open_session("s1", at=daemon.places, autostart=True) as session:
            daemon.say_goodbye()
            await until(lambda: len(asked) > 1)
            daemon.start()
            assert (await session.view()).session_id == "s1"
    assert not any(asked)
    assert len(daemon.of("session.attach")) == 2


async def test_entries_are_recorded_behind_those_that_are_there(daemon: FakeDaemon, desk: Desk) -> None:
    said: list[transcripts.RecordPayload] = []
    refusing: list[str] = []

    def record(request: Any, payload: transcripts.RecordPayload) -> transcripts.Recorded | PwfError:
        said.append(payload)
        if refusing:
            return Conflict(f"refused {refusing.pop()}")
        following = max(5, payload.at + len(payload.entries))
        return transcripts.Recorded(run_id="k3", segment=payload.segment, first=0, following=following)

    daemon.on("session.record", record)
    with anyio.fail_after(10):
        async with open_session("s1", at=daemon.places, autostart=False) as session:
            await session.record("k3", ("said", "hello"), ("said", {"n": 1}))
            await session.record("k3", ("said", "bye"))
            refusing.append("now")
            with pytest.raises(Conflict):
                await session.record("k3", ("said", "again"))
            await session.record("k3", ("said", "again"))
    assert [(one.at, len(one.entries)) for one in said] == [(0, 0), (5, 2), (7, 1), (8, 1), (0, 0), (5, 1)]


async def test_tasks_that_record_at_once_do_so_one_after_another_in_each_segment(
    daemon: FakeDaemon, desk: Desk
) -> None:
    kept: dict[str, list[transcripts.RecordedEntry]] = {"main": [], "side": []}

    def record(request: Any, payload: transcripts.RecordPayload) -> transcripts.Recorded | PwfError:
        there = kept[payload.segment]
        if payload.entries and payload.at != len(there):
            return Conflict("this number is taken")
        there.extend(payload.entries)
        return transcripts.Recorded(run_id="k3", segment=payload.segment, first=0, following=len(there))

    daemon.on("session.record", record)
    with anyio.fail_after(10):
        async with open_session("s1", at=daemon.places, autostart=False) as session:

            async def say(number: int, segment: str) -> None:
                await session.record("k3", ("said", number), ("said", number), segment=segment)

            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(say, number, "main")
                    tasks.start_soon(say, number, "side")
    for entries in kept.values():
        data = [bytes(one.data) for one in entries]
        assert data[::2] == data[1::2]
        assert sorted(data[::2]) == [b"0", b"1", b"2", b"3", b"4"]
