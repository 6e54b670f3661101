"""The daemon's own stream: no step between a caller and the kernel that is not needed, and none too few."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pwf.actors.base.socket_stream import AT_ONCE_MAX, Interrupted, SocketStream

pytestmark = pytest.mark.trio

Ends = tuple[SocketStream, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield SocketStream(ours), theirs


@asynccontextmanager
async def told_that_it_is_closed(stream: SocketStream) -> AsyncIterator[None]:
    """Somebody waits for bytes meanwhile, and is told in the end."""
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        yield


async def test_an_end_that_talks_without_pause_keeps_the_loop_from_nobody(ends: Ends) -> None:
    stream, theirs = ends
    theirs.sendall(bytes(10 * AT_ONCE_MAX))
    heard = 0
    with trio.CancelScope() as others:
        others.cancel()
        for _ in range(10 * AT_ONCE_MAX):
            heard += len(await stream.receive_some(1))
    assert others.cancelled_caught
    assert heard < AT_ONCE_MAX
    assert await stream.receive_some() == bytes(10 * AT_ONCE_MAX - heard), "and nothing is lost by it"


async def test_whoever_waits_for_more_is_told_when_the_stream_is_closed(ends: Ends) -> None:
    stream, _ = ends
    async with told_that_it_is_closed(stream):
        stream.close()


async def test_a_patient_stream_hears_all_that_comes_and_waits_once_it_has_heard_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = SocketStream(ours, patient=True)
        theirs.sendall(b"abc")
        assert await stream.receive_some(2) == b"ab"
        assert await stream.receive_some(2) == b"c"
        with trio.move_on_after(0.01) as waiting:
            await stream.receive_some()
        assert waiting.cancelled_caught
        theirs.sendall(b"d")
        assert await stream.receive_some() == b"d"
        theirs.close()
        assert await stream.receive_some() == b""
        stream.close()
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some()


async def test_an_interruption_ends_one_wait_for_more_and_loses_nothing(ends: Ends) -> None:
    stream, theirs = ends
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(Interrupted):
                await stream.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        stream.interrupt()
    theirs.sendall(b"abc")
    assert await stream.receive_some() == b"abc"


async def test_an_interruption_that_comes_before_the_wait_or_with_something_ends_the_next_wait(
    ends: Ends,
) -> None:
    stream, theirs = ends
    stream.interrupt()
    theirs.sendall(b"abc")
    assert await stream.receive_some() == b"abc"
    with pytest.raises(Interrupted):
        await stream.receive_some()
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            assert await stream.receive_some() == b"def"

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        theirs.sendall(b"def")
        stream.interrupt()
    with pytest.raises(Interrupted):
        await stream.receive_some()


async def test_whoever_waits_while_it_is_interrupted_and_closed_is_told_that_it_is_closed(ends: Ends) -> None:
    stream, _ = ends
    async with told_that_it_is_closed(stream):
        stream.interrupt()
        stream.close()


async def test_what_does_not_fit_at_once_is_sent_within_the_time_or_not_at_all(
    ends: Ends, autojump_clock: trio.testing.MockClock
) -> None:
    stream, theirs = ends
    assert await stream.send_within(b"abc", 1.0)
    assert theirs.recv(10) == b"abc"
    assert not await stream.send_within(bytes(10_000_000), 1.0)
    theirs.close()
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_within(b"abc", 1.0)
