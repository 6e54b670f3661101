"""A decision as a form of the MCP host: the real adapter, the official client, and a person who says what is set."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
import pytest
from mcp.client.client import Client as McpClient

from pwf.channels.hosts import HostsAdapter
from pwf.config import McpChannel
from pwf.mcp.forms import ASKED_MAX, Forms
from pwf.mcp.server import make_server
from pwf.mcp.serving import opened
from pwf.places import places
from pwf.protocol.channel_port import Begin, Close, Verdict
from tests.channels.fakes import KEY, FakePort
from tests.channels.messages import TOKEN, decision
from tests.client.fake_daemon import FakeDaemon
from tests.mcp.conftest import Desk, called, until
from tests.secret_files import keep_secret

pytestmark = pytest.mark.anyio

CONFIG = '[channels.mcp]\nkind = "mcp"\ntoken = "key"\nhosts = ["claude-code"]\n'
ACCEPT = types.ElicitResult(action="accept", content={"choice": "ship"})
MODES = ("legacy", "auto")


class Person:
    """Who sits at the host: `says` what comes of each form."""

    def __init__(self) -> None:
        self.says: list[types.ElicitResult] = []
        self.forms: list[types.ElicitRequestFormParams] = []
        self.thinks = False
        self.gave_up = 0

    async def ask(self, context: Any, params: Any) -> types.ElicitResult:
        self.forms.append(params)
        if self.thinks:
            try:
                await anyio.sleep_forever()
            finally:
                self.gave_up += 1
        return self.says.pop(0)


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
def adapter(daemon: FakeDaemon, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostsAdapter]:
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    config = daemon.places.config
    config.write_text(CONFIG)
    keep_secret(config.parent / "secrets" / "key", KEY)
    settings = McpChannel(token="key", hosts=("claude-code",))
    begin = Begin(epoch=1, name="mcp", kind="mcp", settings=msgspec.Raw(b"{}"), config=str(config))
    found = HostsAdapter(FakePort(), begin, settings)  # type: ignore[arg-type]
    found.start()
    threading.Thread(target=found.listen, daemon=True).start()
    yield found
    found.stop()


def answers(adapter: HostsAdapter) -> list[tuple[object, ...]]:
    told = adapter.port.answers  # type: ignore[attr-defined]
    return [(one["token"], one["choice"], one["text"]) for one in told]


@asynccontextmanager
async def host(
    adapter: HostsAdapter, person: Person, mode: str, name: str = "claude-code", **more: Any
) -> AsyncIterator[McpClient]:
    """A host that has called once, so that it is known which one it is."""
    info = types.Implementation(name=name, version="1")
    options: dict[str, Any] = {"elicitation_callback": person.ask, **more}
    async with opened("s1", None, 0.01) as mine, anyio.create_task_group() as tasks:
        server = make_server(lambda given: mine, "worker", {}, forms=Forms(places(), tasks))
        async with McpClient(server, client_info=info, mode=mode, **options) as client:
            await called(client, "my_step", wait_s=0)
            yield client
        tasks.cancel_scope.cancel()


async def asked(client: McpClient, person: Person, count: int = 1) -> None:
    """Until the person has seen so many forms; a host of the newest protocol shows them during calls alone."""
    for _ in range(500):
        if len(person.forms) >= count:
            return
        await called(client, "my_step", wait_s=0)
        await anyio.sleep(0.005)
    raise AssertionError(f"{len(person.forms)} forms")


@pytest.mark.parametrize("mode", MODES)
async def test_what_the_person_accepts_decides_and_the_model_sees_neither_form_nor_answer(
    adapter: HostsAdapter, person: Person, mode: str
) -> None:
    person.says = [ACCEPT]
    adapter.show(decision())
    async with host(adapter, person, mode) as client:
        await asked(client, person)
        await until(lambda: answers(adapter) == [(TOKEN, "ship", None)])
        assert await called(client, "my_step", wait_s=0) == {"state": "nothing", "ask_again": True}
    (form,) = person.forms
    assert "Ship 1.2?" in form.message
    assert form.requested_schema["properties"]["choice"]["enum"] == ["ship", "fix"]
    assert TOKEN not in repr(form)


@pytest.mark.parametrize("mode", MODES)
async def test_who_declines_decides_nothing_and_is_not_asked_again(
    adapter: HostsAdapter, person: Person, mode: str
) -> None:
    person.says = [types.ElicitResult(action="decline"), ACCEPT]
    adapter.show(decision())
    async with host(adapter, person, mode) as client:
        await asked(client, person)
        adapter.show(decision(request_id="q2"))
        await asked(client, person, 2)
        await until(lambda: len(answers(adapter)) == 1)
    assert len(person.forms) == 2


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_that_lacks_its_text_is_asked_for_it(
    adapter: HostsAdapter, person: Person, mode: str
) -> None:
    asks = Verdict(number=1, said="", taken=False, asks="What must change?")
    taken = Verdict(number=1, said="decided", taken=True)
    adapter.port.verdict = lambda said: taken if said["text"] else asks  # type: ignore[attr-defined]
    content: dict[str, Any] = {"choice": "fix"}
    person.says = [
        types.ElicitResult(action="accept", content=content),
        types.ElicitResult(action="accept", content={**content, "text": "the tests hang"}),
    ]
    adapter.show(decision())
    async with host(adapter, person, mode) as client:
        await asked(client, person, 2)
        await until(lambda: answers(adapter)[-1:] == [(TOKEN, "fix", "the tests hang")])
    assert person.forms[1].message.startswith("What must change?")
    assert "Ship 1.2?" in person.forms[1].message


async def test_a_form_is_taken_back_when_somebody_else_has_decided(
    adapter: HostsAdapter, person: Person
) -> None:
    person.thinks = True
    adapter.show(decision())
    async with host(adapter, person, "legacy") as client:
        await asked(client, person)
        close = Close(attempt=1, ref="m7xm7xm7xm7x", message_id="m7xm7xm7xm7x", title="t", said="decided")
        adapter.close(close)
        await until(lambda: person.gave_up == 1)
    assert answers(adapter) == []


async def test_a_host_that_accepts_by_itself_what_is_wrong_is_asked_no_more(
    adapter: HostsAdapter, person: Person
) -> None:
    adapter.port.verdict = lambda _: Verdict(number=1, said="no such choice", taken=False)  # type: ignore[attr-defined]
    person.says = [types.ElicitResult(action="accept", content={})] * (ASKED_MAX + 3)
    adapter.show(decision())
    async with host(adapter, person, "legacy") as client:
        await asked(client, person, ASKED_MAX)
        await until(lambda: len(answers(adapter)) == ASKED_MAX)
        adapter.port.verdict = lambda _: Verdict(number=1, said="decided", taken=True)  # type: ignore[attr-defined]
        person.says = [ACCEPT]
        adapter.show(decision(request_id="q2"))
        await asked(client, person, ASKED_MAX + 1)
    assert len(person.forms) == ASKED_MAX + 1


def spoil(config: Path, why: str) -> None:
    if why == "no channel":
        config.write_text("")
    if why == "no token":
        (config.parent / "secrets" / "key").unlink()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("why", ["no channel", "another host", "no forms", "no token"])
async def test_nobody_is_asked_unless_a_channel_names_the_host_and_it_shows_forms(
    adapter: HostsAdapter, person: Person, daemon: FakeDaemon, mode: str, why: str
) -> None:
    spoil(daemon.places.config, why)
    name = "another-host" if why == "another host" else "claude-code"
    more: dict[str, Any] = {"elicitation_callback": None} if why == "no forms" else {}
    adapter.show(decision())
    async with host(adapter, person, mode, name, **more) as client:
        await anyio.sleep(0.05)
        await called(client, "my_step", wait_s=0)
        assert adapter._hosts == []
    assert person.forms == []
