"""A daemon of the benchmark's own: its home, its configuration, its process, and clients.

Promises: nothing of the user's is touched (`PWF_HOME` is a temporary folder), and no daemon that was started here
outlives the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import psutil

from pwf.client import SyncClient, connect_sync
from pwf.errors import DaemonUnreachable
from pwf.places import Places, places
from pwf.protocol.operations import DaemonStatus

READY_S_MAX = 60.0
STOP_S_MAX = 30.0
POLL_S = 0.002
CALM_S = 0.5
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED: what the scheduler counts, of a whole process (linux/posix-timers.h)

_started: set[Daemon] = set()


class Daemon:
    """`home` may hold a store already. Use it as a context, or `start` and `stop` it any number of times.

    `program`: what Python runs as `pwf`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_runners: int = 4,
        settings: str = "",
        program: tuple[str, ...] = ("-m", "pwf.cli.main"),
    ) -> None:
        self.folder = folder
        self.program = program
        self.home = folder / "home"
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = f"max_runners = {max_runners}\n{settings}"
        (self.home / "config.toml").write_text(text, encoding="utf-8")
        self.environment = {**os.environ, "PWF_HOME": str(self.home)}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def at(self) -> Places:
        return places(self.environment)

    @property
    def database(self) -> Path:
        return self.home / "pwf.db"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    # --- its life ---

    def spawn(self) -> None:
        """Start the process, and do not wait for it."""
        with (self.home / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "daemon"],
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        _started.add(self)

    def start(self) -> Daemon:
        """Start it, and wait until it answers."""
        self.spawn()
        with self.client() as client:
            client.call("daemon.status")
        return self

    def stop(self) -> None:
        """An ordered stop; by force when that takes too long."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=STOP_S_MAX)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        _started.discard(self)

    # --- clients ---

    def client(self) -> SyncClient:
        """A connected client; waits until the daemon answers, which one that starts does after a while."""
        deadline = time.monotonic() + READY_S_MAX
        while True:
            try:
                return connect_sync(self.at, autostart=False)
            except DaemonUnreachable:
                ended = self.process is None or self.process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise RuntimeError("the daemon does not answer:\n" + self.log_end()) from None
                time.sleep(POLL_S)

    def connect(self) -> socket.socket:
        """A bare connection to a daemon that serves."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.at.socket))
        return connection

    def status(self) -> DaemonStatus:
        """What the daemon says of itself."""
        with self.client() as client:
            status: DaemonStatus = client.call("daemon.status")
            return status

    def log_end(self) -> str:
        """The end of its log, for an error."""
        return (self.home / "daemon.log").read_text(encoding="utf-8", errors="replace")[-2_000:]

    # --- looking from outside ---

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The store, read beside the daemon: what no operation shows."""
        connection = apsw.Connection(str(self.database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield connection
        finally:
            connection.close()

    def resident_mib(self) -> float:
        """Resident memory of the daemon's process."""
        return float(psutil.Process(self.pid).memory_info().rss) / 2**20

    def processor_percent(self, seconds: float) -> float:
        """Percent of a core that the daemon takes by itself for so long, once what came before has died away."""
        time.sleep(CALM_S)
        begin, spent_s = time.perf_counter(), processor_s(self.pid)
        time.sleep(seconds)
        return 100 * (processor_s(self.pid) - spent_s) / (time.perf_counter() - begin)

    def workflow(self, text: str) -> str:
        """Write a workflow file; its path."""
        path = self.folder / f"w{len(list(self.folder.glob('*.py')))}.py"
        path.write_text(text, encoding="utf-8")
        return str(path)


def processor_s(pid: int) -> float:
    """Processor time that a process has taken with all its threads. Linux has a clock of each process, which is exact;
    elsewhere it is counted in ticks of 10 ms.
    """
    if sys.platform == "linux":
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def end_all() -> None:
    """Kill every daemon that is still there: for the end of the benchmark, however it comes."""
    for daemon in list(_started):
        daemon.kill()
