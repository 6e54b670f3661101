"""Where the time of durable steps goes: processor time by process and thread, then samples of the daemon's stacks.

The daemon executes ten-step runs with four runners while `py-spy` looks at it, native frames included, from a virtual
environment of its own. What it can't see: the runners' inside (only their processor time is told), the kernel's share
of a system call beyond its being in one, and anything shorter than its rate resolves. Each sample stops the daemon for
a moment, so rates under it are lower than without.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.environments import CanNotInstall, python_with
from benchmarks.load import start_payload, start_runs
from benchmarks.samples import RULES, Stack, by_function, by_kind, parse
from benchmarks.workflows import chain

RUNNERS = 4
NODES = 10
RUNS = 40  # between two looks at the clock
RATE = 200  # samples a second
SHOWN = 25
PROFILER = ("py-spy",)
MEANING = {
    "MainThread": "event loop",
    "pwf-store-writer": "store, writing",
    "pwf-store-reader": "store, reading",
}


def profile(seconds: float) -> str:
    """Measure for so long; the breakdown as Markdown."""
    bench = Bench()
    with bench.folder() as folder, Daemon(folder, max_runners=RUNNERS) as daemon:
        payload = start_payload(daemon, daemon.workflow(chain(NODES)))
        start_runs(daemon, payload, RUNS, clients=RUNNERS + 1)
        bare = _Window(daemon, payload)
        bare.until(lambda began: time.monotonic() < began + seconds / 2)
        try:
            stacks = _sampled(daemon, payload, seconds, folder / "samples")
        except (CanNotInstall, RuntimeError) as error:
            return bare.markdown() + f"\nNo samples: {error}.\n"
    return bare.markdown() + "\n" + markdown(stacks)


# --- processor time ---------------------------------------------------------------------------------------------


@dataclass
class _Window:
    """Processor time of everybody while steps are executed."""

    daemon: Daemon
    payload: msgspec.Raw
    took_s: float = 0.0
    steps: int = 0
    spent: dict[str, tuple[float, float]] = field(default_factory=dict)

    def until(self, going: Callable[[float], bool]) -> None:
        """Execute runs while `going(began)`."""
        names = _thread_names(self.daemon.pid)
        before, began, first = _times(self.daemon, names), time.monotonic(), time.perf_counter()
        while going(began):
            start_runs(self.daemon, self.payload, RUNS, clients=RUNNERS + 1)
            self.steps += RUNS * NODES
        self.took_s = time.perf_counter() - first
        for name, (user, system) in _times(self.daemon, names).items():
            old = before.get(name, (0.0, 0.0))
            self.spent[name] = (user - old[0], system - old[1])

    def markdown(self) -> str:
        """A table of processor time, by step and by second."""
        lines = [
            "# Where the time goes",
            "",
            f"Runs of {NODES} compute nodes, {RUNNERS} runners: {self.steps / self.took_s:,.0f} steps/s without the "
            f"profiler. Processor time in that window of {self.took_s:.1f} s:",
            "",
            "| who | user, µs a step | system, µs a step | cores |",
            "| --- | --- | --- | --- |",
        ]
        for name, (user, system) in self.spent.items():
            per_step = 1e6 / max(1, self.steps)
            cores = (user + system) / self.took_s
            lines.append(f"| {name} | {user * per_step:.0f} | {system * per_step:.0f} | {cores:.2f} |")
        lines += ["", "Times are counted in ticks of 10 ms. Threads of the daemon are part of the daemon."]
        return "\n".join(lines) + "\n"


def _times(daemon: Daemon, names: dict[int, str]) -> dict[str, tuple[float, float]]:
    """(user, system) seconds so far, by who spent them. Runners count once they were reaped."""
    process = psutil.Process(daemon.pid)
    times = process.cpu_times()
    found = {"daemon": (times.user, times.system)}
    for thread in process.threads():
        name = names.get(thread.id, "")
        label = f"– its thread: {MEANING.get(name, 'others')}"
        user, system = found.get(label, (0.0, 0.0))
        found[label] = (user + thread.user_time, system + thread.system_time)
    forkers, runners = [0.0, 0.0], [0.0, 0.0]
    for child in process.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        forkers = [forkers[0] + spent.user, forkers[1] + spent.system]
        runners = [runners[0] + spent.children_user, runners[1] + spent.children_system]
    found["zygote and templates, which fork (and runners that still live)"] = (forkers[0], forkers[1])
    found["runners"] = (runners[0], runners[1])
    own = psutil.Process().cpu_times()
    found["the clients of this benchmark"] = (own.user, own.system)
    return found


def _thread_names(pid: int) -> dict[int, str]:
    """Thread id -> Python's name for it. The kernel knows no names before Python 3.14; the profiler does."""
    try:
        command = [str(_profiler()), "dump", "--pid", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (CanNotInstall, OSError, subprocess.SubprocessError):
        return {pid: "MainThread"}
    return {
        int(number): name for number, name in re.findall(r'^Thread (\d+) [^:]*: "(.*)"$', done.stdout, re.M)
    }


# --- samples ----------------------------------------------------------------------------------------------------


def _profiler() -> Path:
    return python_with("py-spy", PROFILER).parent / "py-spy"


def _sampled(daemon: Daemon, payload: msgspec.Raw, seconds: float, output: Path) -> list[Stack]:
    """Look at the daemon while it works."""
    command = [
        str(_profiler()),
        "record",
        "--pid",
        str(daemon.pid),
        "--duration",
        f"{seconds:.0f}",
        "--rate",
        str(RATE),
    ]
    command += ["--format", "raw", "--threads", "--idle", "--function", "--native", "--output", str(output)]
    looking = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _Window(daemon, payload).until(lambda _: looking.poll() is None)
    _, errors = looking.communicate()
    if looking.returncode != 0 or not output.exists():
        raise RuntimeError("py-spy: " + " ".join(errors.decode(errors="replace").split())[:300])
    return parse(output.read_text(encoding="utf-8", errors="replace"))


def markdown(stacks: list[Stack]) -> str:
    """Samples by thread and kind of work, then by function."""
    threads = by_kind(stacks)
    kinds = [kind for kind, _ in RULES] + sorted({kind for found in threads.values() for kind in found})
    kinds = [kind for kind in dict.fromkeys(kinds) if any(found[kind] for found in threads.values())]
    named = [name for name in MEANING if name in threads] + sorted(threads.keys() - MEANING.keys())
    lines = ["Share of the wall time of each thread of the daemon, by what it was doing:", ""]
    lines += [
        "| | " + " | ".join(MEANING.get(name, name) for name in named) + " |",
        "| --- |" + " --- |" * len(named),
    ]
    for kind in kinds:
        shares = [threads[name][kind] / threads[name].total() for name in named]
        lines.append(f"| {kind} | " + " | ".join(f"{share:.1%}" if share else "" for share in shares) + " |")
    functions = by_function(stacks)
    total = max(1, functions.total())
    lines += [
        "",
        f"The {SHOWN} places of ours with the largest shares of the samples that were not idle:",
        "",
    ]
    lines += ["| function | doing | share |", "| --- | --- | --- |"]
    lines += [f"| {name} | {kind} | {n / total:.1%} |" for (name, kind), n in functions.most_common(SHOWN)]
    return "\n".join(lines) + "\n"
