"""Those who use the daemon in the storm: they start runs, answer, settle, pause, cancel, and note what was promised.

What the daemon acknowledged goes into `Promises`; the audit holds it against the store afterwards.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from pwf.client.sync import SyncClient
from pwf.errors import Ambiguous, Conflict, NotFound, PwfError, Rejected
from pwf.places import Places
from pwf.protocol.effects import ResolvePayload
from pwf.protocol.operations import (
    CancelPayload,
    PausePayload,
    RequestListPayload,
    RunListPayload,
    StartPayload,
)
from pwf.protocol.origin import Origin
from pwf.protocol.views import RunSummary
from pwf.values import canonical
from tests.e2e.home import Home
from tests.storm.plan import PlannedRun
from tests.storm.sink import Outside

T = TypeVar("T")

OPEN_MAX = 60  # runs that have not ended, before the next is started
COMMANDS_MAX = 2  # processes of `pwf …` at a time
CALL_S_MAX = 30.0
REFUSALS = (Rejected, Conflict, NotFound, Ambiguous)


@dataclass
class Promises:
    """What was acknowledged, by run."""

    started: dict[str, PlannedRun] = field(default_factory=dict)
    asked_for: dict[str, PlannedRun] = field(
        default_factory=dict
    )  # started by a command: known by its exit code
    cancelled: set[str] = field(default_factory=set)
    answers: dict[str, list[str]] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Person:
    """One thread with a client of its own. Calls are repeated until they are answered, or the storm gives up."""

    def __init__(self, name: str, places: Places, promises: Promises, over: threading.Event) -> None:
        self.promises = promises
        self.over = over
        self._places = places
        self._client: SyncClient | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.fault: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._client is not None:
            self._client.close()

    def _run(self) -> None:
        try:
            self.live()
        except BaseException as error:  # noqa: BLE001 - shown by the storm
            self.fault = error

    def live(self) -> None:
        raise NotImplementedError

    def call(
        self, operation: str, payload: msgspec.Struct | None = None, *, run_id: str | None = None
    ) -> Any:
        """One operation, again and again until it is answered. Raises refusals."""
        return self.until_answered(
            lambda client: client.call(operation, payload, run_id=run_id, timeout_s=CALL_S_MAX)
        )

    def until_answered(self, act: Callable[[SyncClient], T]) -> T:
        """Repeat `act` over lost connections and passing troubles, which are counted."""
        while True:
            try:
                if self._client is None:
                    client = SyncClient(self._places, autostart=True)
                    client.open()
                    self._client = client
                return act(self._client)
            except REFUSALS:
                raise
            except PwfError as error:
                self.promises.errors[f"{error.code}: {error.message.splitlines()[0]:.120}"] += 1
                if self._client is not None:
                    self._client.close()
                self._client = None
                if self.over.is_set():
                    raise
                time.sleep(0.05)


class Starter(Person):
    """Starts the planned runs, as fast as they end; every few of them by a command."""

    def __init__(
        self, home: Home, plan: Iterator[PlannedRun], *args: Any, origin: Origin, commands: Commands
    ) -> None:
        super().__init__(*args)
        self._home = home
        self._plan = plan
        self._origin = origin
        self._commands = commands

    def live(self) -> None:
        while not self.over.is_set():
            if self._open() >= OPEN_MAX:
                time.sleep(0.1)
                continue
            for _ in range(8):
                if not self.over.is_set():
                    self._start(next(self._plan))

    def _open(self) -> int:
        runs = self.call("daemon.status").runs
        return sum(runs.get(status, 0) for status in ("queued", "running", "held", "waiting"))

    def _start(self, planned: PlannedRun) -> None:
        given = {"n": planned.number}
        if planned.by == "command" and self._commands.start(planned):
            self.promises.asked_for[planned.run_id] = planned
            return
        payload = StartPayload(
            workflow=planned.workflow,
            origin=self._origin,
            input=msgspec.Raw(canonical(given)),
            run_id=planned.run_id,
        )
        self.call("run.start", payload)
        self.promises.started[planned.run_id] = planned
        with contextlib.suppress(*REFUSALS):  # it has ended already
            if planned.fate == "cancel":
                self.call("run.cancel", CancelPayload(reason="storm"), run_id=planned.run_id)
                self.promises.cancelled.add(planned.run_id)
            elif planned.fate == "pause":
                self.call("run.pause", PausePayload(now=planned.number % 2 == 0), run_id=planned.run_id)


class Commands:
    """`pwf` commands in processes of their own, a few at a time; anyone may be killed."""

    def __init__(self, home: Home, promises: Promises) -> None:
        self._home = home
        self._promises = promises
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], PlannedRun] = {}

    def start(self, planned: PlannedRun) -> bool:
        """Start and follow a run by `pwf run`. False when enough commands run."""
        with self._lock:
            if len(self._running) >= COMMANDS_MAX:
                return False
            words = ["run", planned.workflow, "--id", planned.run_id, "--input", f'{{"n": {planned.number}}}']
            words += ["--detach"] if planned.number % 2 else []
            process = self._home.spawn(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._running[process] = planned
            return True

    def living(self) -> list[subprocess.Popen[bytes]]:
        """Those that run now; of those that have ended, the exit code is noted."""
        with self._lock:
            for process, planned in list(self._running.items()):
                if process.poll() is None:
                    continue
                del self._running[process]
                if process.returncode >= 0:
                    self._promises.errors[f"exit {process.returncode}"] += 1
                if process.returncode == 0:
                    self._promises.started[planned.run_id] = planned
            return list(self._running)

    def end(self) -> None:
        """Kill what still follows a run."""
        for process in self.living():
            process.kill()
            process.wait(10)
        self.living()


class Helper(Person):
    """Answers questions, settles ambiguous effects by looking outside, and resumes what is held."""

    def __init__(self, outside: Outside, *args: Any) -> None:
        super().__init__(*args)
        self._outside = outside

    def live(self) -> None:
        while not self.over.is_set():
            self.help_all()
            time.sleep(0.15)

    def help_all(self) -> int:
        """One round; how many runs needed somebody."""
        self._answer_all()
        parked = RunListPayload(statuses=("paused", "ambiguous", "held"), limit=1000)
        runs: tuple[RunSummary, ...] = self.call("run.list", parked).runs
        for run in runs:
            with contextlib.suppress(*REFUSALS):
                self._help(run)
        return len(runs)

    def _answer_all(self) -> None:
        for request in self.call("request.list", RequestListPayload(limit=1000)).requests:
            given = self.promises.answers.setdefault(request.run_id, [])
            answer = "again" if len(given) < hash_of(request.run_id) % 3 else "ship"
            with contextlib.suppress(*REFUSALS):
                self.until_answered(
                    lambda client, id=request.request_id, answer=answer: client.answer(id, answer)
                )
                given.append(answer)

    def _help(self, run: RunSummary) -> None:
        if run.status != "ambiguous":
            self.call("run.resume", run_id=run.run_id)
            return
        view = self.call("run.view", run_id=run.run_id)
        effect = next((one for one in view.effects if one.status == "ambiguous"), None)
        if effect is None or effect.outside_key is None:
            return
        attempt = max(step.attempt for step in view.steps)
        if effect.type == "http":
            self._outside.ledger.look(effect.outside_key, attempt + 1)
        happened = self._outside.count(effect.type, effect.outside_key) > 0
        verdict = ResolvePayload(
            verdict="happened" if happened else "not_happened",
            output=msgspec.Raw(canonical(effect.outside_key)),
            effect_key=effect.effect_key,
        )
        self.call("effect.resolve", verdict, run_id=run.run_id)
        self.promises.verdicts[verdict.verdict] += 1


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum(text.encode())
