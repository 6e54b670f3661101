"""examples/resources/service.py with real processes: one runs, healthy and of the wanted version, whatever happens."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pwf.protocol.reconcile import Reconciled
from tests.resources.kept import Kept
from tests.resources.processes import ProcessPort, wait_for_file

SERVER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
half = folder / "half"
half.write_text(os.environ["SERVICE_VERSION"])
half.rename(folder / "version")
while not (folder / "stop").exists():
    time.sleep(0.01)
"""
HEALTHY = "import os, sys, pathlib; v = pathlib.Path(sys.argv[1]) / 'version'; " + (
    "sys.exit(not v.exists() or v.read_text() != os.environ['SERVICE_VERSION'])"
)


class Service(Kept):
    """The resource, its processes, and a clock that the test moves."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.folder = folder
        (folder / "server.py").write_text(SERVER)
        self.processes = ProcessPort()
        self.clock = clock
        command = [sys.executable, str(folder / "server.py"), str(folder)]
        super().__init__("service", {"command": command, "version": "1"}, port=self.processes)

    def reconcile(self) -> Reconciled:
        self.processes.look()
        said = super().reconcile()
        if said.after_ms is not None:
            self.clock[0] += said.after_ms / 1000
        return said

    def until(self, reason: str, most: int = 20) -> Reconciled:
        """Reconcile until `Ready` says this."""
        for _ in range(most):
            said = self.reconcile()
            if self.ready[1] == reason:
                return said
        raise AssertionError(f"it stays {self.ready}")

    @property
    def version(self) -> str:
        return wait_for_file(self.folder / "version")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    clock = [1_000_000.0]
    found = Service(tmp_path, clock)
    monkeypatch.setattr(found.manager.fn.__globals__["time"], "time", lambda: clock[0])  # type: ignore[union-attr]
    yield found
    found.processes.close()


def test_a_process_is_started_and_runs(service: Service) -> None:
    said = service.until("Running")

    assert (said.outcome, service.ready, service.version) == ("settled", ("True", "Running"), "1")
    assert service.processes.living == ["process-1.1"]
    assert service.finalizers == ("process",)


def test_a_process_that_runs_is_left_alone(service: Service) -> None:
    service.until("Running")
    service.clock[0] += 1

    said = service.reconcile()

    assert (bytes(said.status), said.events) == (b"{}", ())


def test_a_killed_process_is_started_again_with_growing_pauses(service: Service) -> None:
    service.until("Running")
    pauses = []
    for _ in range(4):
        service.processes.kill()
        said = service.until("BackOff")
        pauses.append(said.after_ms)
        service.until("Running")

    assert pauses == [1_000, 2_000, 4_000, 8_000]
    assert service.processes.living == ["process-5.1"]


def test_a_process_that_lasted_starts_the_pauses_anew(service: Service) -> None:
    service.until("Running")
    service.processes.kill()
    service.until("BackOff")
    service.until("Running")
    service.clock[0] += 31
    service.processes.kill(signal.SIGTERM)

    assert service.until("BackOff").after_ms == 1_000


def test_no_pause_is_longer_than_a_minute(service: Service) -> None:
    service.change(command=[sys.executable, "-c", "raise SystemExit(3)"])
    longest = 0
    for _ in range(40):
        for process in service.processes.processes.values():
            process.wait(10)
        longest = max(longest, service.reconcile().after_ms or 0)

    assert longest == 60_000
    assert "Ended" in service.events


def test_another_version_drains_the_old_process_before_the_new_one_starts(service: Service) -> None:
    service.until("Running")
    assert service.version == "1"
    service.change(version="2")
    seen = []
    for _ in range(10):
        service.reconcile()
        seen.append(len(service.processes.living))
        if service.ready[1] == "Running" and service.status["generation"] == 2:
            break

    assert max(seen) == 1
    assert service.processes.living == ["process-2.2"]


def test_the_old_process_may_finish_after_the_drain_command(service: Service) -> None:
    stop = service.folder / "stop"
    service.change(drain=[sys.executable, "-c", f"open({str(stop)!r}, 'w')"], drain_s=60)
    service.until("Running")
    service.change(version="2", drain=["/not/this/one"])  # the old process is drained by its own spec

    service.until("Draining")
    service.processes.processes["process-1.2"].wait(10)
    stop.unlink()
    service.until("Running")

    assert service.processes.children["process-1.2"][0].status == "completed"  # nobody has cancelled it
    assert service.processes.living == ["process-2.3"]


def test_an_old_process_that_does_not_finish_is_ended(service: Service) -> None:
    service.change(drain=[sys.executable, "-c", ""], drain_s=3)
    service.until("Running")
    service.change(version="2")

    service.until("Running")

    assert service.processes.children["process-1.2"][0].status == "cancelled"
    assert service.processes.living == ["process-2.3"]


def test_an_unhealthy_process_is_replaced(service: Service) -> None:
    service.change(health=[sys.executable, "-c", HEALTHY, str(service.folder)])
    service.until("Starting")
    assert service.version == "1"
    service.until("Running")
    (service.folder / "version").write_text("another")

    service.until("Unhealthy")
    service.until("BackOff")
    (service.folder / "version").unlink()
    service.until("Starting")
    assert service.version == "1"
    service.until("Running")

    assert "Unhealthy" in service.events
    assert service.processes.living == ["process-2.2"]


def test_a_health_command_that_can_not_be_run_says_so(service: Service) -> None:
    service.change(health=["/no/such/command"])

    service.until("Unhealthy")

    assert "/no/such/command can not be run" in service.conditions["Ready"].message


def test_deleting_ends_the_process_before_the_finalizer_goes(service: Service) -> None:
    service.until("Running")
    service.deleting = True

    service.settle()

    assert (service.processes.living, service.finalizers) == ([], ())


def test_a_manager_that_dies_before_its_result_starts_no_second_process(service: Service) -> None:
    """The child is on disk before the reconcile ends: the same key gives the same process."""
    service.reconcile()  # the finalizer
    service._reconcile()  # starts the process, and its result is lost
    assert service.processes.living == ["process-1.1"]

    service.until("Running")

    assert service.processes.living == ["process-1.1"]


def test_a_spec_that_changes_in_mid_reconcile_ends_with_the_newest(service: Service) -> None:
    service.reconcile()
    service._reconcile()  # for generation 1: its result is dropped
    service.change(version="2")

    service.until("Running")

    assert service.processes.living == ["process-2.2"]
    started: dict[str, Any] = service.status["spec"]
    assert started["version"] == "2"


class Killed(BaseException):
    """The reconciling process is gone at this point."""


@pytest.mark.parametrize("seed", range(12))
def test_a_manager_that_is_killed_at_any_call_leaves_one_process_in_the_end(
    service: Service, seed: int
) -> None:
    """Before or after any of its calls; its status is that of before, and what the call did has happened."""
    random = Random(seed)
    port = service.processes
    ensure, cancel = port.ensure_child, port.cancel_child

    def dying(call: Any) -> Any:
        def called(**words: Any) -> Any:
            point = random.choice(["before", "after", "never"])
            if point == "before":
                raise Killed
            answer = call(**words)
            if point == "after":
                raise Killed
            return answer

        return called

    port.ensure_child, port.cancel_child = dying(ensure), dying(cancel)  # type: ignore[method-assign]
    for step in range(30):
        if step % 7 == 3:
            service.change(version=str(step))
        if step % 5 == 4 and port.living:
            port.kill()
        with suppress(Killed):
            service.reconcile()
        assert len(port.living) <= 1
        service.clock[0] += 0.5
    port.ensure_child, port.cancel_child = ensure, cancel  # type: ignore[method-assign]

    for _ in range(10):
        service.reconcile()
        if service.ready[1] == "Running" and service.status["generation"] == service.generation:
            break

    assert len(port.living) == 1
    assert service.status["spec"]["version"] == service.spec["version"]
    service.deleting = True
    service.settle()
    assert port.living == []
