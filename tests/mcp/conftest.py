"""The official client, in memory, on the tools of one host; and a daemon that has one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from mcp.client.client import Client as McpClient

from pwf.client import connect
from pwf.mcp.server import make_server
from pwf.mcp.serving import opened
from pwf.mcp.tools import Grant
from pwf.protocol import sessions as wire
from pwf.protocol.operations import Nothing
from tests.client import samples
from tests.client.conftest import daemon, home
from tests.client.fake_daemon import FakeDaemon

__all__ = ["daemon", "home"]

Open = Callable[..., AbstractAsyncContextManager[McpClient]]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds."""
    for _ in range(2_000):
        if holds():
            return
        await anyio.sleep(0.005)
    raise AssertionError("it did not come to hold")


async def called(client: McpClient, name: str, **given: Any) -> dict[str, Any]:
    """Call a tool that must not refuse; what it says as data."""
    said = await client.call_tool(name, given)
    assert not said.is_error, said
    assert said.structured_content is not None
    return said.structured_content


class Desk:
    """What the daemon has for the session: `message` is what is next. `turns`: what was said of them."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon
        self._subscriptions: list[str] = []
        self._revision = 0
        self.message: wire.MessageView | None = None
        self.request: Any = None
        self.turns: list[tuple[str, str]] = []  # (message, state)
        self.reports: list[wire.ReportPayload] = []
        daemon.on("session.attach", lambda request, payload: wire.SessionAttached(session_id="s1", epoch=1))
        daemon.on("session.view", lambda request, payload: self.view)
        daemon.on("session.report", self._report)
        daemon.on("session.turn", self._turn)
        daemon.on("view.subscribe", lambda request, payload: Nothing())
        daemon.on("after:view.subscribe", self._subscribed)

    @property
    def view(self) -> wire.SessionView:
        return wire.SessionView(
            session_id="s1",
            epoch=1,
            connected=True,
            reported=True,
            request=self.request,
            message=self.message,
        )

    def ask(self, message_id: str = "m1", *, why: str | None = None, **request: Any) -> None:
        """A step waits for the session."""
        facts = {"kind": "agent", "request_id": "q1", "schema": {"type": "object"}, **request}
        self.request = samples.request(**facts)
        self.message = wire.MessageView(
            message_id=message_id,
            kind="step",
            status="pending",
            run_id=samples.RUN,
            revision=3,
            reason="initial",
            why=why,
            request_id=facts["request_id"],
            request_revision=2,
        )
        self.tell()

    async def reported(self, count: int) -> None:
        """Wait for so many reports."""
        await until(lambda: len(self.reports) >= count)

    def say(self, **message: Any) -> None:
        """Something is next that is no step."""
        facts = {"message_id": "m9", "status": "pending", "run_id": samples.RUN, "revision": 3, **message}
        self.request, self.message = None, wire.MessageView(**facts)
        self.tell()

    def mark(self, status: Any) -> None:
        """What became of the message."""
        assert self.message is not None
        self.message = msgspec.structs.replace(self.message, status=status)
        self.tell()

    def tell(self) -> None:
        """Whoever follows the session hears of it."""
        self._revision += 1
        for subscription in self._subscriptions:
            self._daemon.push(subscription, "snapshot", self._revision, self.view)

    def _subscribed(self, request: Any, payload: Any) -> None:
        self._subscriptions.append(payload.id)
        self.tell()

    def _report(self, request: Any, payload: wire.ReportPayload) -> wire.SessionView:
        self.reports.append(payload)
        return self.view

    def _turn(self, request: Any, payload: wire.TurnPayload) -> wire.TurnReported:
        self.turns.append((payload.message_id, payload.state))
        if payload.state == "started":
            self.mark("sent")
        elif self.message is not None and self.message.message_id == payload.message_id:
            self.message = None
        return wire.TurnReported(standing="active")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def desk(daemon: FakeDaemon) -> Desk:
    return Desk(daemon)


@pytest.fixture
def mcp(daemon: FakeDaemon, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Open:
    """`async with mcp("worker") as client:`, with a bound of `wait_s_max`."""
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")

    @asynccontextmanager
    async def begin(
        grant: Grant = "worker", *, wait_s_max: float = 5, session: str = "s1", **options: Any
    ) -> AsyncIterator[McpClient]:
        async with (
            connect() as client,
            opened(session, client if grant == "operator" else None, wait_s_max) as host,
            McpClient(make_server(lambda given: host, grant, {}), **options) as found,
        ):
            yield found

    return begin
