"""A daemon that stops, or is killed, while a client connects: the client connects again."""

from __future__ import annotations

import anyio
import pytest

from pwf.cli import exits
from pwf.client import connect, connect_sync
from pwf.client.starting import ALREADY_SERVING
from pwf.errors import DaemonUnreachable
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def _ask(daemon: FakeDaemon, backend: str) -> None:
    if backend == "blocking":
        with connect_sync(daemon.places, autostart=False) as client:
            assert client.call("daemon.status") == samples.status()
        return

    async def main() -> None:
        async with connect(daemon.places, autostart=False) as client:
            assert await client.call("daemon.status") == samples.status()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["blocking", "trio", "asyncio"])
def test_a_connection_that_is_lost_before_the_greeting_is_made_again(
    daemon: FakeDaemon, backend: str
) -> None:
    daemon.on("daemon.status", lambda request, payload: samples.status())
    daemon.refuse = 2
    _ask(daemon, backend)
    assert daemon.connections == 3


@pytest.mark.parametrize("backend", ["blocking", "trio", "asyncio"])
def test_connections_that_are_always_lost_before_the_greeting_end_in_an_error(
    daemon: FakeDaemon, backend: str
) -> None:
    daemon.refuse = 1000
    with pytest.raises(DaemonUnreachable, match="at once"):
        _ask(daemon, backend)


def test_the_exit_code_of_a_daemon_that_finds_another_is_what_clients_expect() -> None:
    assert exits.of_error("already_serving") == ALREADY_SERVING
