"""The socket and its connections, with real sockets and a stand-in for the operations."""

# ruff: noqa: ASYNC240 - a test may block its own loop

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from trio_util import AsyncValue

from pwf import host
from pwf.actors.door.connection import Caller, Handler
from pwf.actors.door.listener import GUARD_S, Listener, answers
from pwf.errors import AlreadyServing, HomeRefused
from pwf.protocol.frames import FRAME_BYTES_MAX, OPEN_REQUESTS_MAX, Hello, Request, Response
from tests.actors.no_log import NoLog
from tests.actors.wire import Dialer, Wire, request

pytestmark = pytest.mark.trio

HERE = Hello(protocol="pwf.client.v1", version="1", epoch=3, home="h", pid=os.getpid())


async def echo(asked: Request, caller: Caller) -> Response:
    return Response(request_id=asked.request_id, outcome="accepted", result=msgspec.Raw(bytes(asked.payload)))


def own_uid(_sock: socket.socket) -> int:
    return os.geteuid()


@asynccontextmanager
async def listening(
    path: Path,
    handle: Handler = echo,
    peer_uid: Callable[[socket.socket], int] = own_uid,
    log: NoLog | None = None,
) -> AsyncIterator[Listener]:
    listener = Listener(
        path,
        handle=handle,
        hello=lambda: HERE,
        peer_uid=peer_uid,
        peer_process=host.peer_process,
        log=log or NoLog(),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        with trio.fail_after(30):
            yield listener
        nursery.cancel_scope.cancel()


@pytest.fixture
async def connect() -> AsyncIterator[Dialer]:
    dialer = Dialer()
    yield dialer
    await dialer.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "s"


async def test_the_socket_is_private_and_goes_with_the_listener(path: Path) -> None:
    async with listening(path):
        found = path.stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


async def test_each_side_says_hello_and_a_request_is_answered_by_its_id(path: Path, connect: Dialer) -> None:
    async with listening(path):
        wire = await connect(path)
        await wire.send(request(7, payload='{"a":[1]}'))

        assert await wire.receive() == {
            "type": "response",
            "request_id": "7",
            "outcome": "accepted",
            "result": {"a": [1]},
        }


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"not json\n", "protocol_rejected"),
        (
            b'{"type":"request","request_id":"1","client_id":"c","operation":"o","extra":1}\n',
            "protocol_rejected",
        ),
        (b'{"type":"request","request_id":1,"client_id":"c","operation":"o"}\n', "protocol_rejected"),
        (b'{"type":"request","request_id":"\xff","client_id":"c","operation":"o"}\n', "protocol_rejected"),
        (b'{"type":"hello","protocol":"pwf.client.v1","version":"1"}\n', "protocol_rejected"),
        (b"\n", "protocol_rejected"),
        (b"x" * (FRAME_BYTES_MAX + 1), "frame_too_large"),
    ],
    ids=["not-json", "unknown-field", "wrong-type", "bad-utf8", "second-hello", "empty", "too-large"],
)
async def test_a_bad_frame_gets_one_error_and_closes_only_its_own_connection(
    path: Path, connect: Dialer, sent: bytes, code: str
) -> None:
    async with listening(path):
        good, bad = await connect(path), await connect(path)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_quietly, bad, sent)
            error = await bad.receive()

        assert error is not None
        assert (error["type"], error["error"]["code"]) == ("error", code)
        assert await bad.receive() is None
        await good.send(request(1))
        answer = await good.receive()
        assert answer is not None
        assert answer["request_id"] == "1"


@pytest.mark.parametrize(
    "field",
    [
        '"expected_revision":"3"',
        '"run_id":7',
        '"idempotency_key":[]',
        '"client_id":null',
        '"operation":{}',
        '"payload":{},"operation":1',
    ],
)
async def test_a_request_with_a_field_of_a_wrong_type_is_rejected_and_its_connection_goes_on(
    path: Path, connect: Dialer, field: str
) -> None:
    async with listening(path):
        wire = await connect(path)
        others = [one for one in ('"client_id":"c"', '"operation":"o"') if one[:9] not in field]
        wrong = ",".join(('"type":"request","request_id":"1"', *others, field))

        await wire.send(f"{{{wrong}}}\n".encode() + request(2))

        answers_ = [await wire.receive() or {} for _ in range(2)]
        assert [(one["request_id"], one["outcome"]) for one in answers_] == [
            ("1", "rejected"),
            ("2", "accepted"),
        ]
        assert answers_[0]["error"]["code"] == "invalid_argument"


async def test_a_request_with_a_field_missing_is_rejected_and_its_connection_goes_on(
    path: Path, connect: Dialer
) -> None:
    async with listening(path):
        wire = await connect(path)
        await wire.send(b'{"type":"request","request_id":"1","client_id":"c"}\n' + request(2))
        assert [(await wire.receive() or {})["outcome"] for _ in range(2)] == ["rejected", "accepted"]


async def _send_quietly(wire: Wire, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # cut off in the middle, as it must be
        await wire.send(data)


async def test_a_connection_that_does_not_begin_with_a_hello_is_closed(path: Path, connect: Dialer) -> None:
    async with listening(path):
        wire = await connect(path, hello=False)
        await wire.send(request(1))
        assert (await wire.receive() or {})["type"] == "hello"
        assert (await wire.receive() or {})["type"] == "error"
        assert await wire.receive() is None


async def test_another_protocol_is_refused_with_what_to_do(path: Path, connect: Dialer) -> None:
    async with listening(path):
        wire = await connect(path, hello=False)
        await wire.send(b'{"type":"hello","protocol":"pwf.client.v9","version":"9"}\n')
        await wire.receive()
        error = await wire.receive()
        assert error is not None
        assert "pwf.client.v9" in error["error"]["message"]
        assert error["error"]["hint"]


async def test_requests_start_in_order_and_a_long_one_holds_up_nothing(path: Path, connect: Dialer) -> None:
    started: list[str] = []

    async def handle(asked: Request, caller: Caller) -> Response:
        started.append(asked.request_id)
        if asked.operation == "long":
            await trio.sleep_forever()
        return Response(request_id=asked.request_id, outcome="accepted")

    async with listening(path, handle):
        wire = await connect(path)
        wanted = [str(number) for number in range(40)]
        await wire.send(b"".join(request(n, "long" if n == "0" else "echo") for n in wanted))

        answered = {(await wire.receive() or {})["request_id"] for _ in range(39)}

        assert started == wanted
        assert answered == set(wanted[1:])


async def test_one_task_answers_request_after_request_and_a_crowd_after_a_pause_starts_in_order_too(
    path: Path, connect: Dialer
) -> None:
    started: list[str] = []
    tasks: set[trio.lowlevel.Task] = set()

    async def handle(asked: Request, caller: Caller) -> Response:
        started.append(asked.request_id)
        tasks.add(trio.lowlevel.current_task())
        await trio.lowlevel.checkpoint()
        return Response(request_id=asked.request_id, outcome="accepted")

    async with listening(path, handle):
        wire = await connect(path)
        for number in range(8):
            await wire.send(request(number))
            await wire.receive()
            await trio.testing.wait_all_tasks_blocked()
        assert len(tasks) == 1
        wanted = [str(number) for number in range(8, 48)]
        for _ in range(2):
            await wire.send(b"".join(request(number) for number in wanted))
            answered = {(await wire.receive() or {})["request_id"] for _ in wanted}
            assert answered == set(wanted)
            await trio.testing.wait_all_tasks_blocked()
        assert started == [str(number) for number in range(8)] + 2 * wanted


async def test_reading_stops_at_the_bound_of_open_requests_and_goes_on_when_one_is_answered(
    path: Path, connect: Dialer
) -> None:
    started = AsyncValue(0)
    let_go = trio.Event()

    async def handle(asked: Request, caller: Caller) -> Response:
        started.value += 1
        if asked.request_id == "0":
            await let_go.wait()
        else:
            await trio.sleep_forever()
        return Response(request_id=asked.request_id, outcome="accepted")

    async with listening(path, handle):
        wire = await connect(path)
        await wire.send(b"".join(request(number) for number in range(OPEN_REQUESTS_MAX + 5)))
        await started.wait_value(OPEN_REQUESTS_MAX)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert started.value == OPEN_REQUESTS_MAX

        let_go.set()
        await wire.receive()
        await started.wait_value(OPEN_REQUESTS_MAX + 1)


async def test_a_request_id_that_is_open_can_not_be_used_again(path: Path, connect: Dialer) -> None:
    async def handle(asked: Request, caller: Caller) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    async with listening(path, handle):
        wire = await connect(path)
        await wire.send(request(1) + request(1))
        assert (await wire.receive() or {})["error"]["code"] == "protocol_rejected"


async def test_a_bug_in_a_handler_is_one_unavailable_answer(path: Path, connect: Dialer) -> None:
    async def handle(asked: Request, caller: Caller) -> Response:
        if asked.request_id == "1":
            raise ZeroDivisionError
        return Response(request_id=asked.request_id, outcome="accepted")

    async with listening(path, handle):
        wire = await connect(path)
        await wire.send(request(1))
        assert (await wire.receive() or {})["outcome"] == "unavailable"
        await wire.send(request(2))
        assert (await wire.receive() or {})["outcome"] == "accepted"


async def test_an_answer_that_is_too_large_becomes_an_error_answer(path: Path, connect: Dialer) -> None:
    async def handle(asked: Request, caller: Caller) -> Response:
        huge = msgspec.Raw(b'"' + b"x" * FRAME_BYTES_MAX + b'"')
        return Response(request_id=asked.request_id, outcome="accepted", result=huge)

    async with listening(path, handle):
        wire = await connect(path)
        await wire.send(request(1))
        answer = await wire.receive()
        assert answer is not None
        assert answer["error"]["code"] == "frame_too_large"


async def test_a_client_that_closed_its_writing_half_still_gets_its_answer(
    path: Path, connect: Dialer
) -> None:
    async with listening(path):
        wire = await connect(path)
        await wire.send(request(1))
        await wire.stream.send_eof()
        assert (await wire.receive() or {})["request_id"] == "1"


async def test_a_client_that_does_not_read_holds_up_nobody_else(path: Path, connect: Dialer) -> None:
    async def handle(asked: Request, caller: Caller) -> Response:
        return Response(
            request_id=asked.request_id, outcome="accepted", result=msgspec.Raw(b'"' + b"x" * 500_000 + b'"')
        )

    async with listening(path, handle):
        deaf = await connect(path)
        await deaf.send(b"".join(request(number) for number in range(30)))
        other = await connect(path)
        await other.send(request(1))
        assert (await other.receive() or {})["request_id"] == "1"
        for _ in range(30):
            assert (await deaf.receive() or {})["outcome"] == "accepted"


async def test_another_users_process_is_turned_away(path: Path, connect: Dialer) -> None:
    async with listening(path, peer_uid=lambda _sock: os.geteuid() + 1):
        wire = await connect(path, hello=False)
        assert (await wire.receive() or {})["type"] == "error"
        assert await wire.receive() is None


async def test_a_handler_knows_which_process_has_connected(path: Path, connect: Dialer) -> None:
    peers = []

    async def handle(asked: Request, caller: Caller) -> Response:
        peers.append(caller.peer)
        return Response(request_id=asked.request_id, outcome="accepted")

    async with listening(path, handle):
        wire = await connect(path)
        await wire.send(request(1))
        await wire.receive()
    assert peers == [host.process_identity(os.getpid())]


async def test_a_path_that_is_taken_by_a_file_is_refused_and_the_file_kept(path: Path) -> None:
    path.write_text("precious")
    with pytest.RaisesGroup(pytest.RaisesExc(HomeRefused, match="not a socket")):
        async with listening(path):
            pass
    assert path.read_text() == "precious"


async def test_a_path_where_a_live_process_listens_is_refused(path: Path) -> None:
    async with listening(path):
        with pytest.RaisesGroup(AlreadyServing):
            async with listening(path):
                pass
        assert answers(path)


async def test_a_socket_that_nobody_listens_on_is_replaced(path: Path, connect: Dialer) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with listening(path):
        await connect(path)


async def test_a_folder_that_others_may_enter_is_refused_with_the_fix(path: Path) -> None:
    path.parent.chmod(0o755)
    with pytest.RaisesGroup(pytest.RaisesExc(HomeRefused, match="other users")):
        async with listening(path):
            pass


async def test_a_socket_that_vanishes_is_made_again_and_old_connections_live_on(
    path: Path, connect: Dialer, autojump_clock: trio.testing.MockClock
) -> None:
    async with listening(path):
        old = await connect(path)
        path.unlink()
        await trio.sleep(GUARD_S + 1)

        new = await connect(path)
        for wire in (old, new):
            await wire.send(request(1))
            assert (await wire.receive() or {})["request_id"] == "1"


def _file(path: Path, end: contextlib.ExitStack) -> object:
    path.write_text("precious")
    return path.read_text


def _link(path: Path, end: contextlib.ExitStack) -> object:
    path.symlink_to("elsewhere")
    return path.readlink


def _folder(path: Path, end: contextlib.ExitStack) -> object:
    path.mkdir()
    return lambda: sorted(path.iterdir())


def _listener(path: Path, end: contextlib.ExitStack) -> object:
    other = end.enter_context(socket.socket(socket.AF_UNIX))
    other.bind(str(path))
    other.listen()

    def look() -> object:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
        return other.accept()[0].close()

    return look


@pytest.mark.parametrize("put", [_file, _link, _folder, _listener])
async def test_what_stands_at_the_sockets_path_is_left_alone_and_named_until_it_is_gone(
    path: Path, connect: Dialer, put: Any, autojump_clock: trio.testing.MockClock
) -> None:
    log = NoLog()
    with contextlib.ExitStack() as end:
        async with listening(path, log=log):
            old = await connect(path)
            path.unlink()
            look = put(path, end)
            before = look()
            await trio.sleep(GUARD_S * 3)

            assert look() == before
            assert [event for event, _ in log.events] == ["socket.in_the_way"]
            await old.send(request(1))
            assert (await old.receive() or {})["request_id"] == "1"

            path.rename(path.with_name("aside"))
            await trio.sleep(GUARD_S + 1)
            await connect(path)
            assert [event for event, _ in log.events] == ["socket.in_the_way", "socket.made_again"]
    assert [one.name for one in path.parent.iterdir()] == ["aside"]


async def test_a_folder_of_the_socket_that_is_gone_or_not_ours_alone_ends_nothing(
    path: Path, connect: Dialer, autojump_clock: trio.testing.MockClock
) -> None:
    inside = path.parent / "run" / "s"
    log = NoLog()
    async with listening(inside, log=log):
        old = await connect(inside)
        inside.unlink()
        inside.parent.chmod(0o755)
        await trio.sleep(GUARD_S + 1)
        assert [event for event, _ in log.events] == ["socket.in_the_way"]
        inside.parent.rmdir()
        await trio.sleep(GUARD_S + 1)
        for wire in (old, await connect(inside)):
            await wire.send(request(1))
            assert (await wire.receive() or {})["request_id"] == "1"


async def test_a_listener_whose_queue_is_full_is_not_taken_for_a_dead_one(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as clients:
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(2):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(str(path))
        assert answers(path)


async def test_an_ordered_stop_answers_what_is_open_and_tells_who_is_left(
    path: Path, connect: Dialer
) -> None:
    async with listening(path) as listener:
        wire = await connect(path)
        await wire.send(request(1))
        await trio.testing.wait_all_tasks_blocked()
        assert listener.handle.clients == 1

        await listener.handle.say_goodbye()

        assert (await wire.receive() or {})["request_id"] == "1"
        assert (await wire.receive() or {})["error"]["message"] == "the daemon was stopped"
        assert not path.exists()
        with pytest.raises(OSError, match="No such file"):
            await connect(path)
