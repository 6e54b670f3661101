"""Who holds a home, and when somebody else may take it: real processes, real locks (R4, T3)."""

# ruff: noqa: ASYNC220, ASYNC240 - a test may block its own loop

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from pwf import host
from pwf.actors.claim.lock_file import LockFile, LockTaker, take_if_free
from pwf.clock import SystemClock
from pwf.errors import AlreadyServing
from pwf.protocol.frames import PROTOCOL, Hello, encode
from pwf.protocol.lock_record import LockRecord, read_record
from tests.actors.no_log import NoLog

pytestmark = pytest.mark.trio

CLOCK = SystemClock(host.boot_id())

HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def _waiting_holder(path: Path) -> subprocess.Popen[bytes]:
    """The next one in the kernel's queue for the lock: it gets it before anybody who only tries now and then."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    time.sleep(0.5)  # it has no way to say that it waits
    return process


class Holder:
    """A process that holds the lock, and what it says of itself in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def write(self, *, lease_left_ms: int, at: Path | None = None, pid: int | None = None) -> None:
        own = host.process_identity(self.process.pid if pid is None else pid)
        assert own is not None
        record = LockRecord(
            pid=own.pid,
            start_tick=own.start_tick,
            boot_id=own.boot_id,
            session=own.session,
            socket=str(at or self.path.with_name("nobody.sock")),
            lease_until_awake_ms=CLOCK.now().awake_ms + lease_left_ms,
        )
        self.path.write_bytes(msgspec.json.encode(record))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[Holder]:
    found = Holder(path)
    yield found
    found.end()


def taker(path: Path) -> LockTaker:
    return LockTaker(path, clock=CLOCK, processes=host, log=NoLog())


async def taken(path: Path) -> None:
    with trio.fail_after(20):
        lock = await taker(path).take()
    lock.close()


async def test_a_free_lock_is_taken_whatever_the_file_says(path: Path) -> None:
    path.write_text("rubbish")
    await taken(path)


@pytest.mark.serial
async def test_after_a_kill_the_lock_is_taken_at_once_without_waiting_for_the_lease(
    path: Path, holder: Holder
) -> None:
    holder.write(lease_left_ms=3_600_000)
    holder.end()
    began = time.monotonic()
    await taken(path)
    assert time.monotonic() - began < 1


async def test_a_daemon_that_answers_is_named_and_left_alone(path: Path, holder: Holder) -> None:
    at = path.with_name("s")
    holder.write(lease_left_ms=-1, at=at)
    listener = _listen(at)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greeting_of(holder.process.pid), [listener])
        with pytest.raises(AlreadyServing, match=f"pid {holder.process.pid}"):
            await taken(path)
        nursery.cancel_scope.cancel()
    assert holder.process.poll() is None


@pytest.mark.serial
async def test_a_greeting_of_another_process_at_the_holders_socket_is_not_the_holders(
    path: Path, holder: Holder
) -> None:
    at = path.with_name("other.sock")
    listener = _listen(at)
    os.kill(holder.process.pid, signal.SIGSTOP)
    holder.write(lease_left_ms=200, at=at)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greeting_of(os.getpid()), [listener])
        await taken(path)
        nursery.cancel_scope.cancel()
    assert holder.process.wait() == -signal.SIGKILL


def greeting_of(pid: int) -> Callable[[trio.SocketStream], Awaitable[None]]:
    hello = encode(Hello(protocol=PROTOCOL, version="1", pid=pid))

    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(hello)
        await stream.aclose()

    return greet


def _listen(at: Path) -> trio.SocketListener:
    raw = socket.socket(socket.AF_UNIX)
    raw.bind(str(at))
    raw.listen()
    raw.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(raw))


@pytest.mark.serial
async def test_a_silent_holder_is_waited_for_while_its_lease_lasts_and_then_succeeded(
    path: Path, holder: Holder
) -> None:
    os.kill(holder.process.pid, signal.SIGSTOP)  # frozen in the middle of stopping
    holder.write(lease_left_ms=600)
    began = time.monotonic()

    await taken(path)

    assert 0.5 < time.monotonic() - began < 1.6  # within a second of the proof that it may
    assert holder.process.wait() == -signal.SIGKILL


async def test_a_silent_holder_that_renews_its_lease_is_alive(path: Path, holder: Holder) -> None:
    holder.write(lease_left_ms=1_500)
    async with trio.open_nursery() as nursery:

        async def renew() -> None:
            await trio.sleep(0.5)
            holder.write(lease_left_ms=60_000)

        nursery.start_soon(renew)
        with pytest.raises(AlreadyServing, match="does not answer"):
            await taken(path)
    assert holder.process.poll() is None


async def test_a_second_silent_holder_that_came_while_the_first_was_waited_for_is_succeeded_too(
    path: Path, holder: Holder
) -> None:
    holder.write(lease_left_ms=60_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taken, path)
        await trio.sleep(0.3)
        second = Holder.__new__(Holder)
        second.path, second.process = path, _waiting_holder(path)
        holder.end()
        try:
            assert second.process.stdout is not None
            assert second.process.stdout.readline() == b"held\n"
            second.write(lease_left_ms=300)
            assert await trio.to_thread.run_sync(second.process.wait, 10) == -signal.SIGKILL
        finally:
            second.end()


async def test_a_live_stranger_with_a_recycled_pid_is_never_killed(path: Path, holder: Holder) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        holder.write(lease_left_ms=-1, pid=stranger.pid)
        text = msgspec.structs.replace(read_record(path) or LockRecord(), start_tick=1)
        path.write_bytes(msgspec.json.encode(text))

        with pytest.raises(AlreadyServing, match="did not say who"):
            await taken(path)

        assert stranger.poll() is None
        assert holder.process.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_our_lock_is_held_by_no_child_and_its_text_is_never_half_there(path: Path) -> None:
    with trio.fail_after(20):
        lock = await taker(path).take()
    lock.write(LockRecord(pid=1, socket="x" * 500, epoch=1))
    lock.write(LockRecord(pid=22, socket="y", epoch=2))
    assert read_record(path) == LockRecord(pid=22, socket="y", epoch=2)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        lock.close()
        await taken(path)
    finally:
        child.kill()
        child.wait()


async def test_a_lock_file_that_was_removed_is_made_again_and_locked(path: Path) -> None:
    with trio.fail_after(20):
        lock = await taker(path).take()
    path.unlink()
    lock.write(LockRecord(pid=1, epoch=7))
    assert read_record(path) == LockRecord(pid=1, epoch=7)
    with pytest.raises(AlreadyServing):
        take_if_free(path)
    lock.close()
    take_if_free(path).close()


async def test_a_lock_file_that_somebody_else_has_made_meanwhile_stays_as_it_is(
    path: Path, holder: Holder
) -> None:
    descriptor = os.open(path, os.O_RDWR)
    path.unlink()
    second = Holder(path)
    try:
        second.write(lease_left_ms=10_000)
        LockFile(descriptor, path).write(LockRecord(pid=1))
        found = read_record(path)
        assert found is not None
        assert found.pid == second.process.pid
    finally:
        os.close(descriptor)
        second.end()


async def test_a_lock_on_a_file_that_was_removed_while_it_was_waited_for_is_not_taken(
    path: Path, holder: Holder
) -> None:
    holder.write(lease_left_ms=60_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taken, path)
        await trio.sleep(0.3)
        path.unlink()
        second = Holder(path)
        second.write(lease_left_ms=600)
        holder.end()
        assert await trio.to_thread.run_sync(second.process.wait, 10) == -signal.SIGKILL
        second.end()


async def test_a_lock_that_cannot_be_written_any_more_stops_nothing(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    lock = LockFile(descriptor, path)
    lock.write(LockRecord(pid=1))
    lock.close()
    assert read_record(path) is None
