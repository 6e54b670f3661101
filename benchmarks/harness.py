"""What every benchmark needs: an isolated daemon, repetitions, medians with quartiles, machine facts, a table.

A `Row` is one line of the result: pwf's number beside a baseline's from the same run, and their ratio. Machines with
two cores are noisy: read medians and ratios, not single numbers.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

REPETITIONS = 5


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """Median and quartiles of repetitions."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: list[float]) -> Stat:
        """Quartiles by the inclusive method; of a single value, the value itself."""
        if len(values) < 2:
            return cls(median=values[0], low=values[0], high=values[0], count=1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, low=low, high=high, count=len(values))

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. `target` in words; `ratio` is value / baseline."""

    question: str
    what: str
    value: Stat
    unit: str
    baseline: str = ""
    baseline_value: Stat | None = None
    target: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the baseline."""
        if self.baseline_value is None or not self.baseline_value.median:
            return None
        return self.value.median / self.baseline_value.median


class Report(msgspec.Struct, kw_only=True):
    """All rows, with what they were measured on."""

    machine: dict[str, str]
    rows: list[Row]


Benchmark = Callable[[bool], Iterator[Row]]


def machine() -> dict[str, str]:
    """Facts that numbers depend on."""
    import apsw

    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        "",
    )
    return {
        "cpu": model or platform.processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "load": f"{os.getloadavg()[0]:.2f}",
    }


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def repeat(measure: Callable[[], float], times: int = REPETITIONS) -> Stat:
    """Run a measurement several times, after one that warms up and does not count."""
    measure()
    return Stat.of([measure() for _ in range(times)])


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder on the disk that holds temporary files."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Daemon:
    """A daemon in a home of its own, with the library's blocking client."""

    def __init__(self, folder: Path, *, max_runners: int = 4) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.toml").write_text(f"max_runners = {max_runners}\n", encoding="utf-8")
        self._environment = {**os.environ, "PWF_HOME": str(self.home)}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Daemon:
        log = (self.home / "daemon.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pwf.cli.main", "daemon"],
                env=self._environment,
                stderr=log,
                stdout=log,
            )
        with self.client() as client:
            client.call("daemon.status")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=30)

    def client(self):  # type: ignore[no-untyped-def]
        """A connected client; waits until the daemon answers."""
        from pwf.client import connect_sync
        from pwf.errors import DaemonUnreachable
        from pwf.places import places

        at = places(self._environment)
        for _ in range(500):
            try:
                return connect_sync(at, autostart=False)
            except DaemonUnreachable:
                time.sleep(0.02)
        raise RuntimeError("the daemon did not come up: " + (self.home / "daemon.log").read_text())

    def rss_mib(self) -> float:
        """Resident memory of the daemon process."""
        import psutil

        assert self.process is not None
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def workflow(self, text: str) -> str:
        """Write a workflow file; its path."""
        path = self.folder / f"w{len(list(self.folder.glob('*.py')))}.py"
        path.write_text(text, encoding="utf-8")
        return str(path)


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(report: Report) -> str:
    """The report as Markdown."""
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    lines = [
        f"Measured on: {facts}. Medians, quartiles in brackets.",
        "",
        "| question | what | pwf | baseline | ratio | target |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in report.rows:
        base = f"{row.baseline}: {row.baseline_value} {row.unit}" if row.baseline_value else ""
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        lines.append(
            f"| {row.question} | {row.what} | {row.value} {row.unit} | {base} | {ratio} | {row.target} |"
        )
    return "\n".join(lines) + "\n"
