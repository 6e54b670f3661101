"""Kills: SIGKILL at the planned instants, of whoever is there of the planned kind. Strangers are never touched."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import psutil

from tests.e2e.home import Home
from tests.storm.people import Commands
from tests.storm.plan import PlannedKill

NAMES = {"pwf-runner": "runner", "pwf-template": "template", "pwf-zygote": "zygote"}


class Killer:
    """One thread that follows the plan. `seen` is every process that was found below the daemon."""

    def __init__(self, home: Home, plan: Iterator[PlannedKill], commands: Commands) -> None:
        self._home = home
        self._plan = plan
        self._commands = commands
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self.kills: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.seen: set[psutil.Process] = set()
        self.fault: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                planned = next(self._plan)
                self._over.wait(planned.after_s)
                self._kill(planned)
        except BaseException as error:  # noqa: BLE001 - shown by the storm
            self.fault = error

    def _kill(self, planned: PlannedKill) -> None:
        if planned.victim == "client":
            clients = self._commands.living()
            if not clients:
                self.missed["client"] += 1
                return
            clients[int(planned.pick * len(clients))].kill()
            self.kills["client"] += 1
            return
        # A runner lives for milliseconds: look for one for a moment.
        until = time.monotonic() + 0.3
        while not self._over.is_set() and time.monotonic() < until:
            victims = self.look().get(planned.victim, [])
            if victims and self._hit(victims[int(planned.pick * len(victims))], planned.victim):
                return
            time.sleep(0.003)
        self.missed[planned.victim] += 1

    def _hit(self, victim: psutil.Process, kind: str) -> bool:
        try:
            victim.kill()  # psutil compares the start time first
        except psutil.NoSuchProcess:
            return False
        self.kills[kind] += 1
        return True

    def look(self) -> dict[str, list[psutil.Process]]:
        """The daemon and what is below it, by kind."""
        found: dict[str, list[psutil.Process]] = {}
        try:
            daemon = psutil.Process(self._home.record.pid)
            if str(self._home.home) != daemon.environ().get("PWF_HOME"):
                return {}
            below = daemon.children(recursive=True)
        except (psutil.Error, ValueError):
            return {}
        self.seen |= {daemon, *below}
        found["daemon"] = [daemon]
        for process in sorted(below, key=lambda one: one.pid):
            try:
                kind = NAMES.get(process.name())
            except psutil.Error:
                continue
            if kind is not None:
                found.setdefault(kind, []).append(process)
        return found
