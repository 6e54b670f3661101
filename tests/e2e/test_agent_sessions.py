"""The client of sessions, and the example agent on it: over connections that drop, and daemons that are killed."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from pwf.client import aio, open_session
from pwf.client.session import Session, Step
from pwf.errors import ClaimLost
from tests.e2e.home import Home
from tests.e2e.world import PATIENCE_S, World, wait_for

ROOT = Path(__file__).parents[2]
TALK = """
flow = Workflow("talk_on", max_steps=1000)

@flow.agent(returns=int)
def count(ctx):
    return f"What comes after {ctx.visit - 1}?"

@flow.compute
def more(ctx) -> bool:
    return ctx[count] < ctx.input

@flow.compute
def done(ctx) -> int:
    return ctx[count]

flow.graph(count >> more, more.switch(cases={True: count, False: done}))
"""
MODEL = """
import json, sys
asked = json.load(sys.stdin)["conversation"][-1]["text"]
print(int(asked.split("after ")[1].split("?")[0]) + 1)
"""


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    world.home.workflow("talk_on", TALK)
    monkeypatch.chdir(world.home.project)
    world.client.call("daemon.status")
    return world


async def until_ended(
    session: Session,
    act: Callable[[Step], Awaitable[None]],
    ended: Callable[[], bool],
    within_s: float = PATIENCE_S,
) -> None:
    """Serve until what was told says so."""
    with anyio.fail_after(within_s):
        async with anyio.create_task_group() as tasks:

            async def step(one: Step) -> None:
                await act(one)
                if ended():
                    tasks.cancel_scope.cancel()

            await session.serve(step)


class Counting:
    """A model that counts, and how often it was asked what."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.end: str | None = None
        self.followed: list[str] = []

    async def __call__(self, step: Step) -> None:
        self.turns[step.message.message_id] += 1
        if step.message.end is not None:
            self.end = step.message.end.status
            return
        if step.message.kind == "follow_up":
            self.followed.append(await step.prompt())
            return
        words = await step.prompt()
        submitted = await step.submit(int(words.split("after ")[1].split("?")[0]) + 1)
        assert submitted.verdict == "accepted"
        self.accepted[submitted.request_id] += 1


@pytest.mark.anyio
async def test_an_agent_does_the_steps_of_its_run_and_hears_how_it_ended(here: World) -> None:
    model = Counting()
    async with open_session("anyio-agent", at=here.places) as session:
        run = (await session.client.start("talk_on", 3)).run_id
        for words in ("Write the notes.", "Not this.", "Say so."):
            await anyio.to_thread.run_sync(here.home.run, "follow-up", "queue", run, words)
        await anyio.to_thread.run_sync(here.home.run, "follow-up", "remove", run, "2")
        await until_ended(session, model, lambda: len(model.followed) == 2)
        assert model.followed == ["Write the notes.", "Say so."]
    assert (model.end, here.output(run)) == ("completed", 3)
    assert set(model.turns.values()) == {1}
    assert len(model.accepted) == 3


@pytest.mark.anyio
async def test_a_session_that_another_client_has_attached_says_so_and_does_not_take_it_back(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = record_dials(monkeypatch)
    async with (
        open_session("contested", at=here.places) as first,
        open_session("contested", at=here.places) as second,
    ):
        with pytest.raises(ClaimLost):
            await first.view()
        dialled[0].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ClaimLost):
            for _ in range(200):
                await first.view()
                await anyio.sleep(0.01)
        assert (await second.view()).epoch == second.epoch


def record_dials(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every socket that a client of this process connects."""
    dialled: list[socket.socket] = []
    dial = aio.dial

    def recorded(path: Path) -> socket.socket | None:
        connected = dial(path)
        if connected is not None:
            dialled.append(connected)
        return connected

    monkeypatch.setattr(aio, "dial", recorded)
    return dialled


# --- the example ------------------------------------------------------------------------------------------------


class Example:
    """The example agent as a process."""

    def __init__(self, home: Home, tmp_path: Path, session_id: str) -> None:
        self._home, self._folder, self._session_id = home, tmp_path, session_id
        self._model = tmp_path / "model.py"
        self._model.write_text(MODEL)
        self.conversation = tmp_path / "talk.jsonl"
        self.start()

    def start(self) -> None:
        options = ("--model", f"{sys.executable} {self._model}", "--conversation", str(self.conversation))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.agents.loop", self._session_id, *options],
            cwd=ROOT,
            env=self._home.environment,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> list[dict[str, Any]]:
        if not self.conversation.exists():
            return []
        return [json.loads(line) for line in self.conversation.read_text().splitlines()]


@pytest.fixture
def example(home: Home, tmp_path: Path) -> Iterator[Example]:
    home.workflow("talk_on", TALK)
    home.run("start")
    agent = Example(home, tmp_path, "example")
    wait_for(lambda: "example" in home.run("sessions").stdout, PATIENCE_S)
    yield agent
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(timeout=PATIENCE_S) == 0


@pytest.mark.rest
def test_the_example_agent_goes_on_after_it_and_the_daemon_were_killed(home: Home, example: Example) -> None:
    run_id = home.start("talk_on", "--input", "8", "--session", "example")
    wait_for(lambda: len(example.said()) >= 6, PATIENCE_S)
    home.kill_daemon()
    example.kill()
    example.start()
    waited = home.json("wait", run_id)["runs"][0]
    assert (waited["summary"]["status"], waited["output"]["json"]) == ("completed", 8)
    tries = [step["status"] for step in home.json("show", run_id, "count")["steps"]]
    assert [status for status in tries if status != "interrupted"] == [
        "completed"
    ] * 8  # the kill may hit one
    ended = '"status": "completed"'
    wait_for(lambda: ended in example.said()[-1].get("text", ""), PATIENCE_S)


@pytest.mark.rest
@pytest.mark.anyio
async def test_two_hundred_steps_over_a_connection_that_drops_and_a_daemon_that_is_killed_are_each_done_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, model = random.Random(12), Counting()
    world = World(home)
    home.workflow("talk_on", TALK)
    monkeypatch.chdir(home.project)
    world.client.call("daemon.status")
    dialled = record_dials(monkeypatch)
    kills = sorted(chance.sample(range(10, 190), 5))

    async def step(one: Step) -> None:
        await model(one)
        if kills and len(model.accepted) >= kills[0]:
            kills.pop(0)
            await anyio.to_thread.run_sync(world.kill_daemon)
        elif chance.random() < 0.2:
            dialled[-1].shutdown(socket.SHUT_RDWR)

    async with open_session("busy", at=world.places) as session:
        run = (await session.client.start("talk_on", 200)).run_id
        await until_ended(session, step, lambda: model.end is not None, within_s=900)
    assert (model.end, kills) == ("completed", [])
    assert len(model.accepted) == 200
    assert set(model.accepted.values()) == {1}
    assert set(model.turns.values()) == {1}
    assert world.output(run) == 200
    world.hang_up()
