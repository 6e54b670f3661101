"""Child runs of the service example as real processes, with what a run of `service_process` does about each."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from pwf.protocol.resources import ChildView
from tests.workflow.manager_author import FakePort

END_S = 10


class ProcessPort(FakePort):
    """A child that is started is a process; one that is cancelled is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def ensure_child(self, *, request_key: str, workflow: str, input: bytes) -> ChildView:
        known = request_key in self.children
        super().ensure_child(request_key=request_key, workflow=workflow, input=input)
        if not known:
            assert workflow == "service_process"
            words: dict[str, Any] = msgspec.json.decode(input)
            self.processes[request_key] = subprocess.Popen(
                words["command"], cwd=words["cwd"] or None, env={**os.environ, **words["env"]}
            )
            self._put(request_key, status="running")
        return self.children[request_key][0]

    def cancel_child(self, *, request_key: str) -> ChildView | None:
        process = self.processes.get(request_key)
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait(END_S)
        return super().cancel_child(request_key=request_key)

    def look(self) -> None:
        """Take notice of what has ended by itself, as the daemon does."""
        for key, process in self.processes.items():
            child = self.children[key][0]
            if child.status == "running" and process.poll() is not None:
                ended = "completed" if process.returncode == 0 else "failed"
                self._put(key, status=ended, reason=f"exit code {process.returncode}")

    @property
    def living(self) -> list[str]:
        """The keys of the processes that execute."""
        return [key for key, process in self.processes.items() if process.poll() is None]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Somebody kills the newest process behind the manager's back."""
        newest = list(self.processes.values())[-1]
        newest.send_signal(number)
        newest.wait(END_S)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(END_S)

    def _put(self, key: str, **changed: Any) -> None:
        child, first = self.children[key]
        self.children[key] = (msgspec.structs.replace(child, **changed), first)


def wait_for_file(path: Path) -> str:
    """The text of a file that a process writes."""
    import time

    until = time.monotonic() + END_S
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} was never written")
