"""How long until 1, 100, 1,000 subscribers of a run have seen a change?

A run that waits is paused and resumed; each change is committed and goes to every subscriber as a patch. The clock
stops when the last subscriber has it. Subscribers share connections, four each.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from functools import partial

import msgspec

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import Connection, Requests
from benchmarks.rows import Row
from benchmarks.workflows import ASKING
from pwf import host
from pwf.client import SyncClient
from pwf.protocol.frames import Event, encode
from pwf.protocol.operations import SubscribePayload

QUESTION = "fan_out"
SUBSCRIBERS = (1, 100, 1_000)
SHARED = 4  # subscriptions of a connection: the daemon takes 512 connections
RUN = "watched"
PATIENCE_S = 60.0
PAUSE_S = 0.06  # a subscription is sent at most 20 events a second: let that pass before the next change


def measure(bench: Bench) -> Iterator[Row]:
    """Milliseconds from the command to the last subscriber."""
    host.raise_open_files()
    with bench.folder() as folder, Daemon(folder) as daemon, daemon.client() as client:
        client.start(daemon.workflow(ASKING), run_id=RUN)
        client.wait(RUN, until="parked")
        base = bench.sample(partial(_pause_and_resume, client))
        for subscribers in SUBSCRIBERS[:-1] if bench.quick else SUBSCRIBERS:
            with Audience(daemon, subscribers) as audience:
                value = bench.sample(partial(audience.latency_ms, client, bench.pick(4, 2)))
            yield Row(
                question=QUESTION,
                what=f"{subscribers:,} subscribers",
                value=value,
                unit="ms",
                better="less",
                base="the command alone",
                base_value=base,
                series="to the last subscriber",
                x=subscribers,
                x_label="subscribers",
            )


def _pause_and_resume(client: SyncClient) -> float:
    begin = time.perf_counter()
    client.call("run.pause", run_id=RUN)
    client.call("run.resume", run_id=RUN)
    return (time.perf_counter() - begin) * 1_000 / 2


class Audience:
    """Connections that follow the run; a context that hangs up at its end."""

    def __init__(self, daemon: Daemon, subscribers: int) -> None:
        self.subscribers = subscribers
        self._selector = selectors.DefaultSelector()
        self._heard: dict[str, str] = {}  # subscription -> the status that it was last told
        for first in range(0, subscribers, SHARED):
            connection = Connection(daemon)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            requests = Requests()
            for number in range(first, min(first + SHARED, subscribers)):
                payload = msgspec.json.encode(SubscribePayload(id=f"s{number}", view="run"))
                connection.send_bytes(
                    encode(requests.make("view.subscribe", msgspec.Raw(payload), run_id=RUN))
                )
        self._listen("waiting")

    def __enter__(self) -> Audience:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    def latency_ms(self, client: SyncClient, changes: int) -> float:
        """From the command to the last subscriber that knows, over so many changes."""
        total = 0.0
        for _ in range(changes):
            for operation, status in (("run.pause", "paused"), ("run.resume", "waiting")):
                time.sleep(PAUSE_S)
                begin = time.perf_counter()
                client.call(operation, run_id=RUN)
                self._listen(status)
                total += time.perf_counter() - begin
        return total * 1_000 / (2 * changes)

    def _listen(self, status: str) -> None:
        """Read until every subscriber was told `status`."""
        end = time.monotonic() + PATIENCE_S
        while sum(heard == status for heard in self._heard.values()) < self.subscribers:
            if time.monotonic() > end:
                raise RuntimeError(f"not every subscriber was told of {status!r} within {PATIENCE_S:g} s")
            for key, _ in self._selector.select(PATIENCE_S):
                for frame in key.data.receive():
                    if isinstance(frame, Event):
                        self._take(frame)

    def _take(self, event: Event) -> None:
        summary = msgspec.json.decode(event.body, type=dict[str, object]).get("summary")
        if isinstance(summary, dict) and "status" in summary:
            self._heard[event.subscription] = str(summary["status"])
