"""The client's core: matching, keys, sending again, views by revision. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pwf.client.core import Answered, Broken, CallReply, ClientCore, Happening, News
from pwf.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    ProtocolError,
    PwfError,
    Rejected,
    Unavailable,
    ValueTooLarge,
)
from pwf.protocol.frames import (
    PROTOCOL,
    ErrorBody,
    ErrorFrame,
    Event,
    Hello,
    Request,
    Response,
    decode_client_frame,
    encode,
)
from pwf.protocol.operations import AnswerPayload, CancelPayload, Nothing, SubscribePayload
from tests.client import samples

HELLO = encode(Hello(protocol=PROTOCOL, version="0"))


def connected() -> ClientCore:
    core = ClientCore("0")
    core.connected()
    core.receive(HELLO)
    core.take_outgoing()
    return core


def sent(core: ClientCore) -> list[Request]:
    frames = [decode_client_frame(line) for line in core.take_outgoing().splitlines()]
    return [frame for frame in frames if isinstance(frame, Request)]


def response(request_id: str, outcome: Any = "accepted", result: Any = None, **more: Any) -> bytes:
    raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
    return encode(Response(request_id=request_id, outcome=outcome, result=raw, **more))


def event(subscription: str, kind: Any, revision: int, body: Any) -> bytes:
    raw = msgspec.Raw(msgspec.json.encode(body))
    return encode(Event(subscription=subscription, kind=kind, revision=revision, body=raw))


def one(happenings: list[Happening]) -> Happening:
    (only,) = happenings
    return only


def test_a_new_connection_greets_first() -> None:
    core = ClientCore("0.1")
    core.connected()
    first = decode_client_frame(core.take_outgoing().splitlines()[0])
    assert isinstance(first, Hello)
    assert (first.protocol, first.version) == (PROTOCOL, "0.1")
    assert core.receive(HELLO) == []
    assert core.hello is not None


def test_answers_are_matched_by_id_in_any_order() -> None:
    core = connected()
    a = core.request("daemon.status")
    b = core.request("run.cancel", CancelPayload(), run_id="x")
    second = one(core.receive(response(b, result={"run_id": "x", "status": "cancelled", "revision": 4})))
    first = one(core.receive(response(a, result=samples.status())))
    assert isinstance(second, Answered)
    assert second.request_id == b
    assert isinstance(first, Answered)
    assert isinstance(first.reply, CallReply)
    assert first.reply.result == samples.status()


def test_a_frame_may_arrive_byte_by_byte() -> None:
    core = connected()
    request_id = core.request("daemon.status")
    found: list[Happening] = []
    for byte in response(request_id, result=samples.status()):
        found += core.receive(bytes([byte]))
    assert len(found) == 1


def test_only_changing_commands_carry_a_key() -> None:
    core = connected()
    core.request("daemon.status")
    core.request("run.resume", run_id="x")
    core.request("run.resume", run_id="x", key="mine")
    read, own, given = sent(core)
    assert read.idempotency_key is None
    assert own.idempotency_key
    assert given.idempotency_key == "mine"


def test_what_has_no_answer_is_sent_again_under_the_same_key_on_a_new_connection() -> None:
    core = connected()
    done = core.request("daemon.status")
    core.request("run.resume", run_id="x")
    forgotten = core.request("run.pause", run_id="x")
    before = {request.operation: request for request in sent(core)}
    core.receive(response(done, result=samples.status()))
    core.forget(forgotten)
    core.connected()
    (again,) = sent(core)
    assert again == before["run.resume"]


@pytest.mark.parametrize(
    ("outcome", "code", "kind"),
    [
        ("not_found", "not_found", NotFound),
        ("conflict", "conflict", Conflict),
        ("rejected", "rejected", Rejected),
        ("unavailable", "disk_full", Unavailable),
        ("rejected", "code_of_the_future", PwfError),
    ],
)
def test_a_refusal_is_the_exception_of_its_code(outcome: Any, code: str, kind: type[PwfError]) -> None:
    core = connected()
    request_id = core.request("daemon.status")
    error = ErrorBody(code=code, message="no", hint="do this", details=msgspec.Raw(b'{"a":1}'))
    found = one(core.receive(response(request_id, outcome, error=error)))
    assert isinstance(found, Answered)
    assert isinstance(found.reply, kind)
    assert (found.reply.code, found.reply.message, found.reply.hint) == (code, "no", "do this")
    assert found.reply.details == {"a": 1}


def test_a_refusal_without_an_error_is_named_by_its_outcome() -> None:
    core = connected()
    found = one(core.receive(response(core.request("daemon.status"), "conflict")))
    assert isinstance(found, Answered)
    assert isinstance(found.reply, Conflict)


def test_a_result_of_another_shape_is_a_protocol_error_of_that_call() -> None:
    core = connected()
    found = one(core.receive(response(core.request("daemon.status"), result={"pid": "x"})))
    assert isinstance(found, Answered)
    assert isinstance(found.reply, ProtocolError)


def test_a_wrong_payload_is_refused_before_anything_is_sent() -> None:
    core = connected()
    with pytest.raises(InvalidArgument, match="there is no operation"):
        core.request("run.explode")
    with pytest.raises(InvalidArgument, match=r"request\.answer takes a AnswerPayload"):
        core.request("request.answer", Nothing())
    with pytest.raises(InvalidArgument, match="needs a run_id"):
        core.request("run.cancel", CancelPayload())
    assert sent(core) == []


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"{}\n",
        b'{"type":"response"}\n',
        b'{"type":"hello","protocol":"pwf.client.v1","version":"0","more":1}\n',
        b"\xff\n",
        encode(Hello(protocol="pwf.client.v9", version="9")),
        b"x" * (1024 * 1024 + 1),
    ],
)
def test_what_is_not_a_frame_breaks_the_connection(line: bytes) -> None:
    core = connected()
    assert isinstance(one(core.receive(line)), Broken)


def test_an_answer_before_the_hello_breaks_the_connection() -> None:
    core = ClientCore("0")
    core.connected()
    assert isinstance(one(core.receive(response("1"))), Broken)


def test_an_error_frame_breaks_with_its_own_error() -> None:
    core = connected()
    frame = ErrorFrame(error=ErrorBody(code="frame_too_large", message="too large"))
    found = one(core.receive(encode(frame)))
    assert isinstance(found, Broken)
    assert found.error.code == "frame_too_large"


def test_giving_up_ends_every_call_and_subscription_with_the_error() -> None:
    core = connected()
    core.request("daemon.status")
    subscription = core.subscribe("run", run_id="x")
    error = Unavailable("gone")
    found = core.fail_all(error)
    assert {type(item) for item in found} == {Answered, News}
    assert subscription.error is error
    core.connected()
    assert sent(core) == []


# --- views --------------------------------------------------------------------------------------------------


def test_a_view_follows_its_patches() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    core.receive(event(subscription.id, "snapshot", 3, samples.run_view()))
    found = core.receive(
        event(subscription.id, "patch", 4, {"summary": {"status": "completed", "node": None}})
    )
    assert isinstance(one(found), News)
    view: Any = subscription.value()
    assert (view.summary.status, view.summary.node, subscription.revision) == ("completed", None, 4)
    assert view.summary.run_id == samples.RUN


def test_a_gap_asks_for_a_new_snapshot_and_ignores_the_old_stream() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    old = subscription.id
    core.receive(event(old, "snapshot", 3, {"a": 1}))
    core.take_outgoing()
    assert core.receive(event(old, "patch", 5, {"a": 2})) == []
    stop, again = sent(core)
    assert stop.operation == "view.unsubscribe"
    assert again.operation == "view.subscribe"
    assert again.run_id == "x"
    assert subscription.id != old
    assert msgspec.json.decode(again.payload, type=SubscribePayload).id == subscription.id
    assert core.receive(event(old, "patch", 6, {"a": 3})) == []
    assert core.receive(event(subscription.id, "snapshot", 6, {"a": 3})) != []
    assert subscription.document == {"a": 3}


def test_a_patch_before_any_snapshot_is_a_gap() -> None:
    core = connected()
    subscription = core.subscribe("runs")
    sent(core)
    core.receive(event(subscription.id, "patch", 1, {}))
    assert [request.operation for request in sent(core)] == ["view.unsubscribe", "view.subscribe"]


def test_a_restored_subscription_says_nothing_when_nothing_changed() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    core.receive(event(subscription.id, "snapshot", 3, {"a": 1}))
    core.connected()
    (again,) = sent(core)
    assert again.operation == "view.subscribe"
    core.receive(HELLO)
    assert core.receive(event(subscription.id, "snapshot", 1, {"a": 1})) == []
    assert subscription.revision == 1
    assert one(core.receive(event(subscription.id, "patch", 2, {"a": 2}))) == News(subscription)


def test_a_refused_subscription_ends_with_the_refusal() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="nope")
    (asked,) = sent(core)
    error = ErrorBody(code="not_found", message="no run 'nope'")
    assert one(core.receive(response(asked.request_id, "not_found", error=error))) == News(subscription)
    assert subscription.ended
    assert isinstance(subscription.error, NotFound)


def test_the_daemon_may_end_a_subscription() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    core.receive(event(subscription.id, "end", 3, {}))
    assert subscription.ended
    assert subscription.error is None
    core.connected()
    assert sent(core) == []


def test_unsubscribing_twice_sends_it_once() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    sent(core)
    core.unsubscribe(subscription)
    core.unsubscribe(subscription)
    assert [request.operation for request in sent(core)] == ["view.unsubscribe"]


def test_a_view_of_another_shape_is_a_protocol_error() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="x")
    core.receive(event(subscription.id, "snapshot", 1, {"surprise": 1}))
    with pytest.raises(ProtocolError, match="not a RunView"):
        subscription.value()


def test_an_answer_payload_goes_out_as_it_was_given() -> None:
    core = connected()
    core.request("request.answer", AnswerPayload(request_id="q", answer=msgspec.Raw(b'{"a":null}')))
    (request,) = sent(core)
    assert bytes(request.payload) == b'{"request_id":"q","answer":{"a":null}}'


def test_a_run_named_by_a_reference_stays_the_same_run_after_a_reconnect() -> None:
    core = connected()
    subscription = core.subscribe("run", run_id="@last")
    core.receive(event(subscription.id, "snapshot", 1, samples.run_view()))
    core.connected()
    (again,) = sent(core)
    assert again.run_id == samples.RUN


def test_what_does_not_fit_into_a_frame_is_refused_before_it_is_sent_with_the_size_of_what_was_given() -> (
    None
):
    core = connected()
    large = msgspec.Raw(b'"' + b"x" * 1_100_000 + b'"')
    with pytest.raises(
        ValueTooLarge, match=r"the answer has 1,100,002 bytes; one request holds at most 1,048,576"
    ):
        core.request("request.answer", AnswerPayload(request_id="q", answer=large))
    assert sent(core) == []
    core.connected()
    assert sent(core) == []
