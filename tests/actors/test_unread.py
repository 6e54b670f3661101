"""What is sent and not answered, or answered and not read, is bounded in bytes; real sockets, virtual handlers."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from trio_util import AsyncValue

from pwf.actors.door import unread
from pwf.actors.door.connection import Connection
from pwf.actors.door.unread import SHARE_BYTES_MAX, Unread
from pwf.actors.operations.caller import Caller, Handler
from pwf.protocol.frames import FRAME_BYTES_MAX, Event, Hello, Request, Response
from tests.actors.no_log import NoLog
from tests.actors.wire import Dialer, Wire, request

pytestmark = pytest.mark.trio

HERE = Hello(protocol="pwf.client.v1", version="1")
ANSWER = msgspec.Raw(b'"' + b"x" * 500_000 + b'"')
KERNEL_BYTES = 1024 * 1024  # that lie in the socket


class Served:
    """Connections that share one count. `answered`: what handlers were asked and have answered."""

    def __init__(self, path: Path, log: NoLog) -> None:
        self.path = path
        self.log = log
        self.unread = Unread()
        self.answered = 0
        self.handle: Handler = self.answer

    async def answer(self, asked: Request, caller: Caller) -> Response:
        self.answered += 1
        return Response(request_id=asked.request_id, outcome="accepted", result=ANSWER)

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = Connection(
            stream, handle=self.handle, hello=HERE, log=self.log, number=1, peer=None, unread=self.unread
        )
        await connection.run()


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Served]:
    served = Served(path, NoLog())
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, served.serve, [trio.SocketListener(listening)])
        with trio.fail_after(30):
            yield served
        nursery.cancel_scope.cancel()


@pytest.fixture
async def connect() -> AsyncIterator[Dialer]:
    dialer = Dialer()
    yield dialer
    await dialer.aclose()


async def test_requests_of_a_client_that_does_not_read_begin_only_as_far_as_its_share_goes(
    tmp_path: Path, connect: Dialer
) -> None:
    async with serving(tmp_path / "s") as served:
        wire = await connect(served.path)
        await wire.send(b"".join(request(number) for number in range(40)))
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert served.answered * len(bytes(ANSWER)) < SHARE_BYTES_MAX + KERNEL_BYTES + len(bytes(ANSWER))

        for number in range(40):
            assert (await wire.receive() or {})["request_id"] == str(number)
        assert served.log.events == []


async def test_of_all_that_do_not_read_the_one_that_holds_most_is_dropped_with_its_reason(
    tmp_path: Path, connect: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "TOTAL_BYTES_MAX", 1_600_000)
    async with serving(tmp_path / "s") as served:
        modest, greedy = await connect(served.path), await connect(served.path)
        await modest.send(request("m"))
        await trio.testing.wait_all_tasks_blocked(0.02)
        await greedy.send(b"".join(request(number) for number in range(10)))
        await trio.testing.wait_all_tasks_blocked(0.02)

        assert [event for event, _ in served.log.events] == ["connection.unread"]
        assert await _ends(greedy)
        assert (await modest.receive() or {})["request_id"] == "m"
        await modest.send(request("n"))
        assert (await modest.receive() or {})["request_id"] == "n"


async def _ends(wire: Wire) -> bool:
    """Whether it ends, perhaps in the middle of a frame."""
    with suppress(trio.BrokenResourceError):
        while await wire.stream.receive_some(65_536):
            pass
    return True


async def test_events_that_nobody_reads_count_as_well(
    tmp_path: Path, connect: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "TOTAL_BYTES_MAX", 1_600_000)
    async with serving(tmp_path / "s") as served, trio.open_nursery() as nursery:

        async def follow(asked: Request, caller: Caller) -> Response:
            for number in range(8):
                event = Event(subscription=str(number), kind="snapshot", revision=1, body=ANSWER)
                nursery.start_soon(_quietly, caller, event)
            return Response(request_id=asked.request_id, outcome="accepted")

        served.handle = follow
        wire = await connect(served.path)
        await wire.send(request(1))
        assert await _ends(wire)
        assert [event for event, _ in served.log.events] == ["connection.unread"]


async def _quietly(caller: Caller, event: Event) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await caller.send_event(event)


async def test_beginnings_of_frames_are_bounded_together(
    tmp_path: Path, connect: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "TOTAL_BYTES_MAX", 1_600_000)
    async with serving(tmp_path / "s") as served:
        one, two = await connect(served.path), await connect(served.path)
        await one.send(b"x" * 900_000)
        await trio.testing.wait_all_tasks_blocked(0.02)
        with suppress(trio.BrokenResourceError):
            await two.send(b"x" * 1_000_000)
        assert await _ends(one)
        assert len(served.log.events) == 1


async def test_texts_of_requests_that_are_open_stop_the_reading(tmp_path: Path, connect: Dialer) -> None:
    async with serving(tmp_path / "s") as served:
        begun = AsyncValue(0)
        let_go = trio.Event()

        async def wait(asked: Request, caller: Caller) -> Response:
            begun.value += 1
            await let_go.wait()
            return Response(request_id=asked.request_id, outcome="accepted")

        served.handle = wait
        wire = await connect(served.path)
        async with trio.open_nursery() as nursery:
            text = '"' + "x" * (FRAME_BYTES_MAX // 2) + '"'
            nursery.start_soon(wire.send, b"".join(request(number, payload=text) for number in range(12)))
            with trio.move_on_after(1):
                await begun.wait_value(12)
            assert 3 <= begun.value <= SHARE_BYTES_MAX // len(text) + 2
            let_go.set()
            for _ in range(12):
                assert (await wire.receive() or {})["outcome"] == "accepted"


async def test_a_padded_request_keeps_no_text_while_it_waits(tmp_path: Path, connect: Dialer) -> None:
    async with serving(tmp_path / "s") as served:
        asked_for: list[bytes] = []
        begun = AsyncValue(0)

        async def wait(asked: Request, caller: Caller) -> Response:
            asked_for.append(bytes(asked.payload))
            begun.value += 1
            await trio.sleep_forever()
            raise AssertionError

        served.handle = wait
        wire = await connect(served.path)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(12):
                padding = " " * (FRAME_BYTES_MAX - 1_000)
                await wire.send(request(number, payload='{"a":' + padding + "1}"))
                await begun.wait_value(number + 1)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert asked_for == [b'{"a":1}'] * 12
        assert grown < 3 * FRAME_BYTES_MAX  # of twelve: one in our hands, one on its way
