"""`HttpRequest`, with a server that does what it is asked for and loses its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pwf.effects.http import HttpAnswer, HttpRequest
from pwf.values import canonical
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed


@dataclass
class Orders:
    """What the server has taken, by key. `loses`: that many answers; `answers`: the status of each POST, if not 201."""

    url: str = ""
    taken: dict[str, Any] = field(default_factory=dict)
    received: int = 0
    loses: int = 0
    answers: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    hidden: int = 0  # that many read-backs do not find what was taken
    body: bytes | None = None  # of each answer
    breaks_off: bool = False


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def orders() -> Iterator[Orders]:
    known = Orders()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.received += 1
            known.headers = dict(self.headers)
            if known.answers == 201:
                known.taken.setdefault(self.headers["Idempotency-Key"], json.loads(body))
            if known.loses:
                known.loses -= 1
                self.close_connection = True
                return
            self.answer(known.answers, {"order": len(known.taken)})

        def do_GET(self) -> None:
            from urllib.parse import unquote

            order = known.taken.get(unquote(self.path.rpartition("/")[2]))
            known.hidden -= 1
            self.answer(404 if order is None or known.hidden >= 0 else 200, order)

        def answer(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode() if known.body is None else known.body
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(data) + known.breaks_off))
            self.close_connection = True
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    known.url = f"http://127.0.0.1:{server.server_port}/orders"
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


def request(orders: Orders, **more: Any) -> HttpRequest:
    given = {"url": orders.url, "body": {"pay": 5}, "timeout_s": 5, "settle_s": 0}
    return HttpRequest(**{**given, "read_back": f"{orders.url}/{{key}}", **more})


def test_the_request_bears_the_key_and_its_answer_is_the_output(orders: Orders) -> None:
    assert request(orders, headers={"X-Mine": "1"}).apply(KEY) == HttpAnswer(status=201, body={"order": 1})
    assert orders.taken == {KEY: {"pay": 5}}
    assert (orders.headers["X-Mine"], orders.headers["Content-Type"]) == ("1", "application/json")


def test_an_answer_that_got_lost_is_unknown_and_the_read_back_finds_what_happened(orders: Orders) -> None:
    orders.loses = 1
    with pytest.raises(Exception, match="closed connection without response") as caught:
        request(orders).apply(KEY)
    assert not isinstance(caught.value, NotApplied)
    found = request(orders).observe(KEY)
    assert (found.verdict, found.output.body) == ("applied", {"pay": 5})


@pytest.mark.rest
def test_wherever_the_sender_is_killed_the_order_is_taken_once(orders: Orders) -> None:
    def happened(number: int) -> int:
        return len(orders.taken)

    def make(number: int) -> HttpRequest:
        orders.taken.clear()
        return request(orders)

    is_told_right_wherever_it_is_killed(make, happened)


@pytest.mark.parametrize("status", [400, 404, 422, 429])
def test_what_the_server_refuses_has_not_happened(orders: Orders, status: int) -> None:
    orders.answers = status
    with pytest.raises(NotApplied, match=f"refused: {status}"):
        request(orders).apply(KEY)


@pytest.mark.parametrize("status", [302, 307, 408, 409, 500, 503])
def test_what_may_have_been_done_before_the_server_failed_is_unknown_and_no_redirect_is_followed(
    orders: Orders, status: int
) -> None:
    orders.answers = status
    with pytest.raises(Exception, match=str(status)) as caught:
        request(orders).apply(KEY)
    assert not isinstance(caught.value, NotApplied)
    assert orders.received == 1


def test_nobody_there_to_take_it_means_that_it_has_not_happened_and_a_silent_read_back_tells_nothing() -> (
    None
):
    nowhere = HttpRequest(url="http://127.0.0.1:1/orders", body=1, read_back="http://127.0.0.1:1/{key}")
    with pytest.raises(NotApplied, match="could not be reached"):
        nowhere.apply(KEY)
    assert nowhere.observe(KEY).verdict == "unknown"
    assert HttpRequest(url="http://127.0.0.1:1/orders").observe(KEY).verdict == "unknown"


def test_an_answer_that_is_too_long_is_left_out_and_that_is_said(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.effects.http.ANSWER_BYTES_MAX", 5)
    assert request(orders).apply(KEY) == HttpAnswer(status=201, body=None, complete=False)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"headers": {"idempotency-key": "mine"}}, "Idempotency-Key is the effect's own"),
        ({"headers": {"X-Mine": "two\nlines"}}, "Invalid header value"),
        ({"headers": {"X-Mine": "ǝ"}}, "can't encode"),
        ({"body": float("nan")}, "no such number"),
        ({"url": "http://127.0.0.1:1/a b"}, "control characters"),
        ({"url": "http:///orders"}, "no host"),
        ({"url": "orders"}, "unknown url type"),
    ],
)
def test_what_can_not_be_sent_has_not_happened(orders: Orders, fault: dict[str, Any], told: str) -> None:
    with pytest.raises(NotApplied, match=told):
        request(orders, **fault).apply(KEY)
    assert orders.received == 0


def test_a_404_is_asked_again_for_the_time_in_which_the_server_may_still_come_to_take_the_request(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.effects.prepared.ASK_AGAIN_S", 0)
    request(orders).apply(KEY)
    orders.hidden = 2
    assert request(orders, settle_s=30).observe(KEY).verdict == "applied"
    assert request(orders, settle_s=0.01).observe("run1:save:2").verdict == "not_applied"
    assert orders.hidden <= -3, "it was asked twice at least"


@pytest.mark.parametrize(
    "text",
    ["NaN", '"\\ud800"', "[" * 101 + "]" * 101, "[" * 100_000],
    ids=["nan", "surrogate", "deep", "deeper"],
)
def test_json_that_no_output_has_room_for_is_kept_as_text(orders: Orders, text: str) -> None:
    orders.body = text.encode()
    answer = request(orders).apply(KEY)
    assert (answer.status, answer.body) == (201, text)
    canonical(answer)


def test_an_answer_that_breaks_off_after_its_status_has_happened(orders: Orders) -> None:
    orders.breaks_off = True
    assert request(orders).apply(KEY) == HttpAnswer(status=201, body=None, complete=False)
