"""A home whose daemon several scenarios share, with a client in this process: starting a run costs no interpreter."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from pwf import host
from pwf.client.sync import SyncClient
from pwf.errors import Rejected
from pwf.places import Places, places
from pwf.protocol.graph import NodeSpec
from pwf.protocol.operations import (
    EventsPayload,
    RequestListPayload,
    RunListPayload,
    RunStarted,
    StartPayload,
    WaitResult,
)
from pwf.protocol.origin import Origin
from pwf.protocol.resources import Applied, ApplyPayload
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.views import EventView, RequestView, RunView, StepView
from pwf.values import canonical
from tests.e2e.home import Home, wait_for

PATIENCE_S = 60.0  # generous: the machine may be busy with other things


class World:
    """`home` types commands; `client` is a connection of this process, made again when the daemon was killed."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.places: Places = places({"PWF_HOME": str(home.home), "HOME": home.environment["HOME"]})
        self._client: SyncClient | None = None
        self._home_id = ""

    # --- the client ---

    @property
    def client(self) -> SyncClient:
        if self._client is None:
            self.home.run("start")
            self._client = SyncClient(self.places, autostart=False, reconnect=False)
            self._client.open()
        return self._client

    def hang_up(self) -> None:
        """Close the connection; the next use starts the daemon if need be."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def kill_daemon(self) -> None:
        """SIGKILL the daemon; the next use of `client` starts another."""
        self.home.kill_daemon()
        self.hang_up()

    def stop_daemon(self) -> None:
        """As `pwf stop` does."""
        self.home.run("stop")
        self.hang_up()

    @property
    def daemon(self) -> psutil.Process:
        return psutil.Process(self.home.pid)

    # --- runs ---

    def folder(self, name: str) -> Path:
        """An empty folder for what the steps of a test leave behind."""
        path = self.home.project / "outside" / name
        path.mkdir(parents=True)
        return path

    def start(
        self,
        workflow: str,
        input: object = None,
        *,
        run_id: str | None = None,
        key: str | None = None,
        at_ms: int | None = None,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        agent: str | None = None,
    ) -> str:
        """Start a run; its id."""
        seen_from = Origin(
            cwd=str(cwd or self.home.project),
            python=sys.executable,
            environment={"PATH": os.environ["PATH"], **(environment or {})},
        )
        payload = StartPayload(
            workflow=workflow,
            origin=seen_from,
            input=msgspec.Raw(canonical(input)),
            run_id=run_id,
            at_ms=at_ms,
            agent=agent,
        )
        started: RunStarted = self.client.call("run.start", payload, key=key)
        return started.run_id

    def apply(self, manager: str, key: str, spec: object) -> str:
        """Apply a spec; the resource's uid."""
        origin = Origin(cwd=str(self.home.project), python=sys.executable)
        payload = ApplyPayload(manager=manager, key=key, spec=msgspec.Raw(canonical(spec)), origin=origin)
        applied: Applied = self.client.call("resource.apply", payload, timeout_s=PATIENCE_S)
        return applied.uid

    def finish(self, run_id: str, status: str = "completed") -> WaitResult:
        """Wait until the run has ended; it must be with this status."""
        result = self.client.wait(run_id, timeout_s=PATIENCE_S)
        assert result.done, f"{run_id} has not ended: {self.why(run_id)}"
        assert result.summary.status == status, f"{result.summary}\n{self.view(run_id).error}"
        return result

    def parked(self, run_id: str, status: str) -> WaitResult:
        """Wait until the run needs a person; it must be with this status."""
        result = self.client.wait(run_id, until="parked", timeout_s=PATIENCE_S)
        assert result.done, f"{run_id} is not parked: {self.why(run_id)}"
        assert result.summary.status == status, f"{result.summary}\n{self.view(run_id).error}"
        return result

    def output(self, run_id: str, status: str = "completed") -> Any:
        """Wait for the end, and decode the output."""
        result = self.finish(run_id, status)
        assert result.output is not None
        return msgspec.json.decode(self.client.read_value(run_id, result.output))

    def view(self, run_id: str) -> RunView:
        found: RunView = self.client.call("run.view", run_id=run_id)
        return found

    def why(self, run_id: str) -> str:
        """The code of the one reason why the run is where it is."""
        return str(self.client.call("run.status", run_id=run_id).explanation.code)

    def until(self, run_id: str, code: str) -> None:
        """Wait until that reason is this one."""
        wait_for(lambda: self.why(run_id) == code, PATIENCE_S)

    def steps(self, run_id: str) -> list[tuple[str, str]]:
        """(node, status) of every attempt, in order."""
        return [(step.node, step.status) for step in self.attempts(run_id)]

    def attempts(self, run_id: str) -> list[StepView]:
        return sorted(self.view(run_id).steps, key=lambda step: step.attempt)

    def node(self, run_id: str, node: str) -> NodeSpec:
        return self.view(run_id).graph.node(node)

    def events(self, run_id: str) -> list[EventView]:
        """The whole history."""
        page = self.client.call("run.events", EventsPayload(limit=1000), run_id=run_id)
        assert page.next_after is None
        return list(page.events)

    def question(self, run_id: str) -> RequestView:
        """Wait for the run's open request."""
        self.parked(run_id, "waiting")
        found = self.client.call("request.list", RequestListPayload(limit=1000)).requests
        return next(request for request in found if request.run_id == run_id)

    def answer(self, run_id: str, answer: object) -> None:
        """Answer the run's open request."""
        self.client.answer(self.question(run_id).request_id, answer)

    def cancel(self, run_id: str) -> None:
        self.client.call("run.cancel", run_id=run_id)

    def count(self) -> int:
        """How many runs the store has."""
        return int(self.client.call("state.status").rows["runs"])

    def runners(self, run_id: str = "") -> list[int]:
        """Pids of the living processes of a run, or of any run of this home."""
        self._home_id = self._home_id or self.client.call("state.status").home_id
        prefix = f"{self._home_id}:{run_id}"
        return [
            bearer.identity.pid
            for bearer in host.find_bearers(MARKER_VARIABLE)
            if bearer.marker is not None and bearer.marker.startswith(prefix)
        ]

    # --- the end of a test ---

    def check(self) -> None:
        """`pwf state verify` finds nothing, and no process of a run is left. Whatever is still open is cancelled."""
        open_runs = ("queued", "running", "waiting", "paused", "ambiguous", "held")
        for run in self.client.call("run.list", RunListPayload(statuses=open_runs, limit=1000)).runs:
            with suppress(Rejected):  # it has ended meanwhile
                self.cancel(run.run_id)
        wait_for(lambda: not self.runners(), PATIENCE_S)
        wait_for(lambda: self.client.call("state.verify").violations == (), PATIENCE_S)

    def close(self) -> None:
        """Stop everything, and check that nothing of it runs any more."""
        self.hang_up()
        self.home.end()
        self.home.check_processes()


@contextmanager
def serving(folder: Path, config: str = "") -> Iterator[World]:
    """A world for the length of a block."""
    home = Home(folder)
    if config:
        home.config(config)
    world = World(home)
    try:
        yield world
    finally:
        world.close()


def lines(path: Path) -> list[str]:
    """What steps have written there, one after another; nothing yet is no lines."""
    return path.read_text().splitlines() if path.exists() else []


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> float:
    """Send a signal; the wall time at which it was sent, in ms."""
    at_ms = time.time() * 1000
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    return at_ms


def processes_with(word: str) -> list[psutil.Process]:
    """Living processes that have this word on their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if word in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
