"""The asynchronous client's own socket: whole messages, ends, and a cancel that comes together with data."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from pwf.client.connection import Connection
from pwf.client.peer import dial

Pair = tuple[Connection, socket.socket]


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    home.mkdir(mode=0o700)
    path = str(home / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        connected = dial(path)
        assert connected is not None
        with Connection(connected) as connection:
            peer, _ = listener.accept()
            with peer:
                yield connection, peer


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.anyio
async def test_more_than_the_kernel_takes_at_once_is_sent_whole(pair: Pair) -> None:
    connection, peer = pair
    received = bytearray()

    def read() -> None:
        while len(received) < 5_000_000:
            received.extend(peer.recv(65536))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, read)
            await connection.send(b"x" * 5_000_000)
    assert bytes(received) == b"x" * 5_000_000


@pytest.mark.anyio
async def test_the_end_is_empty_and_a_lost_peer_is_an_error(pair: Pair) -> None:
    connection, peer = pair
    peer.sendall(b"last")
    peer.close()
    assert await connection.receive(100) == b"last"
    assert await connection.receive(100) == b""
    with pytest.raises(OSError, match="Broken pipe"):
        await connection.send(b"too late")


def test_a_cancel_in_the_moment_in_which_data_arrives_disturbs_no_event_loop(pair: Pair) -> None:
    """Under asyncio: the cancel runs before the callback of the same turn that the data has woken."""
    connection, peer = pair
    disturbed: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: disturbed.append(context))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.receive, 100)
            await anyio.wait_all_tasks_blocked()
            peer.sendall(b"x")
            loop.call_soon(tasks.cancel_scope.cancel)
            await anyio.sleep_forever()

    anyio.run(main, backend="asyncio")
    assert disturbed == []
