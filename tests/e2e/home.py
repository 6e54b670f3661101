"""One pwf home with its project, and what a person would type in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from pwf import host
from pwf.client.sync import SyncClient
from pwf.errors import DaemonUnreachable, Unavailable
from pwf.places import places
from pwf.protocol.lock_record import LockRecord, read_record
from pwf.protocol.operations import StopPayload
from pwf.protocol.runner import MARKER_VARIABLE

T = TypeVar("T")

PWF = ("-m", "pwf.cli.main")
COMMAND_S_MAX = 60.0
END_S_MAX = 10.0


class Home:
    """`run` types a command; `daemon` starts a daemon in the foreground, `pid` finds whoever serves."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.workflows = self.project / ".pwf" / "workflows"
        self.workflows.mkdir(parents=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
            "PWF_HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._foreground: list[subprocess.Popen[bytes]] = []
        self._seen: set[psutil.Process] = set()
        self.checked = True  # False: the store of this test is not to be looked at in the end

    # --- files ---

    def workflow(self, name: str, text: str) -> Path:
        """Write a workflow of the project."""
        path = self.workflows / f"{name}.py"
        path.write_text("from pwf import *\n" + text)
        return path

    def manager(self, name: str, text: str) -> Path:
        """Write a resource manager of the project."""
        path = self.project / ".pwf" / "resources" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def config(self, text: str) -> None:
        """Write config.toml."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.toml").write_text(text)

    def log(self) -> list[dict[str, Any]]:
        """The daemon's log, as far as it is made of its own lines."""
        try:
            lines = (self.home / "daemon.log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.startswith("{")]

    # --- commands ---

    def spawn(self, *words: str, program: tuple[str, ...] = PWF, **options: Any) -> subprocess.Popen[bytes]:
        """A command in the background."""
        return subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            **options,
        )

    def run(
        self, *words: str, code: int | None = 0, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Type a command; `code` is the exit code that it must have (None: any)."""
        done = subprocess.run(
            [sys.executable, "-m", "pwf.cli.main", *words],
            cwd=self.project,
            env=self.environment,
            input=text or "",
            capture_output=True,
            timeout=COMMAND_S_MAX,
            check=False,
            text=True,
        )
        self._note_processes()
        assert code is None or done.returncode == code, (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def json(self, *words: str, code: int | None = 0) -> Any:
        """Type a command with --json; its object, or the last of several: one stands on each line."""
        return json.loads(self.run(*words, "--json", code=code).stdout.splitlines()[-1])

    def start(self, workflow: str, *words: str) -> str:
        """Start a run and leave it; its id."""
        return str(self.json("run", workflow, "--detach", *words)["run_id"])

    def status(self, run_id: str) -> str:
        """A run's status now. Starts the daemon when none serves."""
        try:
            with self.client() as client:
                return str(client.call("run.status", run_id=run_id).summary.status)
        except (DaemonUnreachable, Unavailable):
            return str(self.json("show", run_id)["summary"]["status"])

    def client(self) -> SyncClient:
        """The client library; it starts no daemon, since that would get this process's environment."""
        return SyncClient(places(self.environment), autostart=False, reconnect=False)

    def steps(self, run_id: str) -> list[tuple[str, str]]:
        """(node, status) of every attempt. Starts the daemon when none serves."""
        try:
            with self.client() as client:
                steps = client.call("run.view", run_id=run_id).steps
                return [(step.node, str(step.status)) for step in steps]
        except (DaemonUnreachable, Unavailable):
            return [(step["node"], step["status"]) for step in self.json("show", run_id)["steps"]]

    def wait_status(self, run_id: str, *wanted: str, seconds: float = 20.0) -> str:
        """Wait until a run has one of these statuses."""

        def arrived() -> str:
            found = self.status(run_id)
            return found if found in wanted else ""

        return wait_for(arrived, seconds)

    def wait_step(self, run_id: str, seconds: float = 20.0) -> None:
        """Wait until a step of it has begun: before that, a drain begins none."""
        wait_for(lambda: self.steps(run_id), seconds)

    # --- the daemon ---

    @property
    def record(self) -> LockRecord:
        return read_record(self.home / "daemon.lock") or LockRecord()

    @property
    def pid(self) -> int:
        """The process that the lock file names; it must be alive."""
        pid = self.record.pid
        assert pid, "no daemon serves"
        assert not ended(psutil.Process(pid)), "the daemon has ended"
        return pid

    def daemon(self, *program: str) -> subprocess.Popen[bytes]:
        """A daemon in the foreground, once it serves; its log goes to the usual file. `program`: in place of pwf."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        before = self.record
        with (self.home / "daemon.log").open("ab") as log:
            process = self.spawn("daemon", program=program or PWF, stdout=log, stderr=log)
        self._foreground.append(process)
        wait_for(lambda: process.poll() is not None or self._serves(process.pid), 20.0)
        assert process.poll() is None, (
            f"the daemon ended with {process.returncode}: {self.log()[-3:]} {before}"
        )
        self._note_processes()
        return process

    def _serves(self, pid: int) -> bool:
        return any(line["event"] == "daemon.serving" for line in self.log()) and self.record.pid == pid

    def kill_daemon(self) -> None:
        """SIGKILL, and wait for the end."""
        process = psutil.Process(self.pid)
        self._note_processes()
        process.kill()
        gone(process)

    def runners(self, run_id: str = "") -> list[int]:
        """Pids of the living processes that carry the marker of a run (or of any run) of this home."""
        prefix = f"{self.home_id}:{run_id}"
        return [
            bearer.identity.pid
            for bearer in host.find_bearers(MARKER_VARIABLE)
            if bearer.marker is not None and bearer.marker.startswith(prefix)
        ]

    @property
    def home_id(self) -> str:
        return str(self.json("state", "status")["home_id"])

    # --- the end of a test ---

    def check_store(self) -> None:
        """`pwf state verify` finds nothing. A run that is being settled at this very moment is looked at again."""
        if self.checked and (self.home / "pwf.db").exists():
            wait_for(self._is_sound, 10.0)

    def _is_sound(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.call("state.verify").violations == ())
        except (DaemonUnreachable, Unavailable):
            return self.json("state", "verify", code=None).get("violations") == []

    def end(self) -> None:
        """Stop whatever runs, by force if need be."""
        self._note_processes()
        pid = self.record.pid
        if pid and psutil.pid_exists(pid) and _is_pwf(psutil.Process(pid)):
            os.kill(pid, signal.SIGCONT)
            self._stop(psutil.Process(pid))
        for process in self._foreground:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _stop(self, daemon: psutil.Process) -> None:
        try:
            with self.client() as client:
                client.call("daemon.stop", StopPayload(drain_ms=0))
            gone(daemon)
        except (DaemonUnreachable, Unavailable):
            self.run("stop", "--drain", "0s", code=None)

    def check_processes(self) -> None:
        """Of all processes that were seen below the daemon, none is left."""
        ends = time.monotonic() + END_S_MAX
        while (left := [process for process in self._seen if not ended(process)]) and time.monotonic() < ends:
            time.sleep(0.02)
        for process in left:
            process.kill()
        assert left == []

    def _note_processes(self) -> None:
        pid = self.record.pid
        if pid and psutil.pid_exists(pid):
            try:
                daemon = psutil.Process(pid)
                if _is_pwf(daemon):
                    self._seen |= {daemon, *daemon.children(recursive=True)}
            except psutil.Error:
                return


def wait_for(look: Callable[[], T], seconds: float, pause_s: float = 0.02) -> T:
    """Look until there is something true, at most so long."""
    ends = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < ends, f"nothing came within {seconds} s"
        time.sleep(pause_s)


def _is_pwf(process: psutil.Process) -> bool:
    """Whether it executes pwf; its number may have gone to a stranger, and nobody may have collected it yet."""
    try:
        return "pwf" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def ended(process: psutil.Process) -> bool:
    """Whether it executes nothing any more; its parent may still have to collect it."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def gone(process: psutil.Process, seconds: float = 10.0) -> None:
    """Wait until a process has ended."""
    wait_for(lambda: ended(process), seconds)
