"""How fast does a decision reach a person and the answer its run, and what do 10,000 open decisions cost?

The person is a program: a service on this machine that takes what a channel of the kind `webhook` posts, and posts a
signed answer back. The daemon, the channel's process and the runner are the real ones. Open decisions are clones of
one that has a deadline and a default, and that the channel has shown.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone
from benchmarks.rows import Row, Stat
from benchmarks.workflows import DECIDING
from pwf.channels.webhook import signature
from pwf.client import SyncClient

QUESTION = "decisions"
MODEL = "modelmodel12"
OPEN = 10_000
OPEN_QUICK = 1_000
TO_PERSON_MS_MAX = 300.0
KEY = "the-key-of-the-benchmark"
PATIENCE_S = 30.0
POLL_S = 0.02
SETTINGS = """
[channels.desk]
kind = "webhook"
url = "{url}"
secret = "key"
listen = "127.0.0.1:{port}"
"""


def measure(bench: Bench) -> Iterator[Row]:
    """There and back, then nothing to do."""
    yield from answers(bench, bench.pick(50, 10))
    yield from _open(bench, bench.pick(OPEN, OPEN_QUICK))


# --- there and back -------------------------------------------------------------------------------------------


class Desk:
    """The service: `taken` has each message that was posted, with the time."""

    def __init__(self) -> None:
        self.url = ""
        self.port = _free_port()
        self.taken: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()

    def next_question(self) -> tuple[float, dict[str, Any]]:
        """When the next decision arrived, and what it says."""
        while True:
            at, message = self.taken.get(timeout=PATIENCE_S)
            if message["event"] == "decide":
                return at, message

    def answer(self, question: dict[str, Any]) -> float:
        """Take the first choice; when that was posted."""
        answer = {"token": question["token"], "choice": question["choices"][0]["id"], "who": "ann"}
        body = json.dumps(answer).encode()
        stamp = str(int(time.time()))
        headers = {"X-Pwf-Timestamp": stamp, "X-Pwf-Signature": signature(KEY.encode(), stamp, body)}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}", data=body, headers=headers)
        at = time.time()
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            verdict = json.load(response)
        assert verdict["taken"], verdict
        return at


@contextlib.contextmanager
def _desk() -> Iterator[Desk]:
    desk = Desk()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.time()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            desk.taken.put((at, json.loads(body)))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        desk.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield desk
        finally:
            server.shutdown()
            thread.join()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(bench: Bench, decisions: int) -> Iterator[Row]:
    """How long it takes there and back, for so many decisions after a first one that does not count."""
    there: list[float] = []
    back: list[float] = []
    with bench.folder() as folder, _desk() as desk:
        daemon = _with_channel(folder, desk)
        with daemon, daemon.client() as client, daemon.reading() as store:
            workflow = daemon.workflow(DECIDING)
            for number in range(decisions + 1):
                run_id = client.start(workflow).run_id
                arrived, question = desk.next_question()
                ((stored_ms,),) = store.execute(
                    "SELECT created_wall_ms FROM requests WHERE run_id = ?", (run_id,)
                ).fetchall()
                pressed = desk.answer(question)
                went_on = _output(client, run_id)
                if number:  # the first one warms up
                    there.append(arrived * 1_000 - stored_ms)
                    back.append((went_on - pressed) * 1_000)
    for what, values in (
        ("a stored decision to the message at the service", there),
        ("an answer to the run's next step", back),
    ):
        yield Row(
            question=QUESTION,
            what=what,
            value=Stat.of(values),
            unit="ms",
            better="less",
            target=TO_PERSON_MS_MAX,
            note=f"{decisions} one after the other",
        )


def _with_channel(folder: Path, desk: Desk) -> Daemon:
    daemon = Daemon(folder, settings=SETTINGS.format(url=desk.url, port=desk.port))
    _keep_secret(daemon.home / "secrets" / "key")
    return daemon


def _output(client: SyncClient, run_id: str) -> float:
    """The time at which the step after the decision was executed."""
    client.wait(run_id)
    return float(client.output(run_id))


def _keep_secret(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    path.write_text(KEY, encoding="utf-8")


# --- nothing to do --------------------------------------------------------------------------------------------


def _open(bench: Bench, decisions: int) -> Iterator[Row]:
    database = filled_database(f"decisions-{decisions}", lambda path: _make_open(path, decisions))
    with bench.folder() as folder, _desk() as desk:
        daemon = _with_channel(folder, desk)
        put(database, daemon.home)
        with daemon:
            _channel_is_up(daemon)
            time.sleep(bench.pick(8, 1))  # it has looked at each open decision, once
            share = daemon.processor_percent(bench.pick(30, 5))
            assert daemon.status().requests_open == decisions
        assert desk.taken.empty(), "what was shown is not shown again"
    yield Row(
        question=QUESTION,
        what=f"idle daemon, {decisions:,} open decisions",
        value=Stat.of([share]),
        unit="% of a core",
        better="less",
        target=0.1,
        note="each has a deadline and a default; measured once",
    )


def _make_open(path: Path, decisions: int) -> None:
    with Bench().folder() as folder:
        with _desk() as desk, _with_channel(folder, desk) as daemon, daemon.client() as client:
            client.start(daemon.workflow(DECIDING), run_id=MODEL)
            desk.next_question()
            _until(daemon, "SELECT count(*) FROM channel_messages WHERE state = 'shown'")
        put(daemon.database, folder / "copy").rename(path)
    message = {"message_no": "NULL", "message_id": "'m' || c.run_id", "token_digest": "'t' || c.run_id"}
    clone(path, MODEL, decisions - 1, {"channel_messages": message})


def _channel_is_up(daemon: Daemon) -> None:
    _until(daemon, "SELECT count(*) FROM channels WHERE state = 'up'")


def _until(daemon: Daemon, sql: str) -> None:
    """Wait until the store has it."""
    deadline = time.monotonic() + PATIENCE_S
    with daemon.reading() as store:
        while not store.execute(sql).fetchall()[0][0]:
            assert time.monotonic() < deadline, sql
            time.sleep(POLL_S)
