"""The blocking client against a real socket: answers, lost connections, views, large values."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.client import connect_sync
from pwf.client.sync import SyncClient
from pwf.errors import DaemonUnreachable, InvalidAnswer, NotFound, ProtocolError, Unavailable
from pwf.protocol.frames import Hello, encode
from pwf.protocol.operations import Answered, Content, Nothing, RunChanged, WaitResult
from pwf.protocol.runner import Value
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def client_of(daemon: FakeDaemon, **options: Any) -> SyncClient:
    return connect_sync(daemon.places, autostart=False, **options)


def test_a_call_returns_the_typed_result(daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: samples.status())
    with client_of(daemon) as client:
        assert client.call("daemon.status") == samples.status()
        assert client.pid


def test_a_refusal_raises_its_class_with_message_and_hint(daemon: FakeDaemon) -> None:
    daemon.on("run.status", lambda request, payload: NotFound("no run 'zz'", hint="pwf ls"))
    with client_of(daemon) as client, pytest.raises(NotFound) as caught:
        client.call("run.status", run_id="zz")
    assert (caught.value.message, caught.value.hint) == ("no run 'zz'", "pwf ls")


def test_a_command_in_flight_survives_a_lost_connection_and_is_done_once(daemon: FakeDaemon) -> None:
    done: list[str] = []

    def resume(request: Any, payload: Any) -> Any:
        done.append(request.idempotency_key)
        threading.Thread(target=daemon.drop).start()
        threading.Event().wait(0.05)
        return RunChanged(run_id=samples.RUN, status="queued", revision=4)

    daemon.on("run.resume", resume)
    with client_of(daemon) as client:
        reply = client.exchange("run.resume", run_id=samples.RUN)
    assert reply.result.status == "queued"
    assert len(done) == 1
    assert reply.outcome == "adopted"
    assert len({request.idempotency_key for request in daemon.of("run.resume")}) == 1


def test_a_wait_goes_on_over_a_restart_of_the_daemon(home: Path) -> None:
    daemon = FakeDaemon(home)
    daemon.on("run.wait", lambda request, payload: None)
    daemon.start()
    with client_of(daemon) as client:
        found: list[WaitResult] = []
        waiting = threading.Thread(target=lambda: found.append(client.wait(samples.RUN)))
        waiting.start()
        daemon.wait_for("run.wait")
        daemon.stop()
        ended = WaitResult(summary=samples.summary(status="completed"), done=True, output=samples.value(1))
        daemon.on("run.wait", lambda request, payload: ended)
        daemon.start()
        waiting.join(20)
    daemon.stop()
    assert found == [ended]


def test_a_call_without_an_answer_ends_in_time(daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: None)
    with client_of(daemon) as client, pytest.raises(Unavailable, match=r"no answer to daemon\.status"):
        client.call("daemon.status", timeout_s=0.1)


def test_without_reconnecting_a_lost_connection_is_an_error(daemon: FakeDaemon) -> None:
    daemon.on("daemon.status", lambda request, payload: daemon.drop())
    client = SyncClient(daemon.places, autostart=False, reconnect=False)
    with client, pytest.raises(DaemonUnreachable, match="closed the connection"):
        client.call("daemon.status")


def test_nobody_listening_is_unreachable_with_what_to_type(home: Path) -> None:
    fake = FakeDaemon(home)
    with pytest.raises(DaemonUnreachable) as caught:
        client_of(fake)
    assert caught.value.hint == "pwf start"


def test_a_daemon_of_another_protocol_is_refused(home: Path) -> None:
    daemon = FakeDaemon(home)
    daemon.greeting = encode(Hello(protocol="pwf.client.v9", version="9"))
    with daemon, pytest.raises(ProtocolError, match=r"speaks pwf\.client\.v9"):
        client_of(daemon)


def test_a_view_yields_states_until_the_run_has_ended(daemon: FakeDaemon) -> None:
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        daemon.push(payload.id, "snapshot", 3, samples.run_view())
        daemon.push(payload.id, "patch", 4, {"summary": {"status": "completed", "node": None}})

    daemon.on("after:view.subscribe", push)
    with client_of(daemon) as client:
        seen = [view.summary.status for view in client.view(samples.RUN)]
    assert seen[-1] == "completed"


def test_a_refused_view_raises(daemon: FakeDaemon) -> None:
    daemon.on("view.subscribe", lambda request, payload: NotFound("no run"))
    with client_of(daemon) as client, pytest.raises(NotFound):
        next(client.view("zz"))


def test_a_view_is_restored_after_a_lost_connection(daemon: FakeDaemon) -> None:
    states = iter(["running", "completed"])
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        head = samples.summary(status=next(states))
        daemon.push(payload.id, "snapshot", 3, samples.run_view(summary=head))

    daemon.on("after:view.subscribe", push)
    with client_of(daemon) as client:
        views = client.view(samples.RUN)
        assert next(views).summary.status == "running"
        daemon.drop()
        assert next(views).summary.status == "completed"
    assert daemon.connections == 2


def test_a_large_value_is_read_in_chunks_and_verified(daemon: FakeDaemon) -> None:
    text = msgspec.json.encode("x" * 1_000)
    digest = hashlib.sha256(text).hexdigest()

    def read(request: Any, payload: Any) -> Content:
        part = text[payload.offset : payload.offset + 300]
        last = payload.offset + 300 >= len(text)
        return Content(digest=digest, size=len(text), offset=payload.offset, data=part, last=last)

    daemon.on("content.read", read)
    with client_of(daemon) as client:
        assert client.read_value(samples.RUN, Value(digest=digest, size=len(text))) == text
        with pytest.raises(ProtocolError, match="another chunk"):
            client.read_value(samples.RUN, Value(digest="0" * 64, size=9))


def test_an_answer_of_the_wrong_type_is_an_invalid_answer(daemon: FakeDaemon) -> None:
    good = Answered(request_id="q", run_id=samples.RUN, status="queued", revision=9)
    daemon.on(
        "request.answer",
        lambda request, payload: (
            good if bytes(payload.answer) == b'"ship"' else InvalidAnswer("not a verdict")
        ),
    )
    with client_of(daemon) as client:
        with pytest.raises(InvalidAnswer):
            client.answer("q", 3)
        assert client.answer("q", "ship") == good
