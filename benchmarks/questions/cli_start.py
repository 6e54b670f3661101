"""How long does `pwf status` take on a live daemon, and what does it import?

Wall time of the whole command, as a shell sees it. The base is a bare interpreter. The slowest imports are named.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.questions.limits import spawn_ms
from benchmarks.rows import Row, Stat

QUESTION = "cli_start"
TARGET_MS = 150
NAMED = 5
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)")


def measure(bench: Bench) -> Iterator[Row]:
    """The wall time of two commands, and the imports of one."""
    with bench.folder() as folder, Daemon(folder) as daemon:
        times = bench.pick(3, 1)  # a few in each repetition: single processes vary
        for arguments in (("status",), ("ls",)):
            value, base = bench.in_turn(
                partial(_mean, partial(_command_ms, daemon, arguments), times),
                partial(_mean, partial(spawn_ms, "pass"), times),
            )
            yield Row(
                question=QUESTION,
                what=f"pwf {' '.join(arguments)}",
                value=value,
                unit="ms",
                better="less",
                base="bare interpreter",
                base_value=base,
                target=TARGET_MS if arguments == ("status",) else None,
            )
        imports = _imports(daemon)
    slowest = sorted(imports.items(), key=lambda pair: -pair[1])[:NAMED]
    yield Row(
        question=QUESTION,
        what="modules that pwf status imports",
        value=Stat.of([len(imports)]),
        unit="modules",
        better="less",
        note="slowest by themselves: " + ", ".join(f"{name} {us / 1_000:.1f} ms" for name, us in slowest),
    )


def command() -> list[str]:
    """The installed command, else the module."""
    script = Path(sys.executable).parent / "pwf"
    return [str(script)] if script.exists() else [sys.executable, "-m", "pwf.cli.main"]


def _command_ms(daemon: Daemon, arguments: tuple[str, ...]) -> float:
    begin = time.perf_counter()
    subprocess.run([*command(), *arguments], env=daemon.environment, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1_000


def _imports(daemon: Daemon) -> dict[str, int]:
    """Module -> microseconds of its own import."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pwf.cli.main", "status"],
        env={**daemon.environment, "PYTHONUNBUFFERED": "1"},
        check=True,
        capture_output=True,
        text=True,
        cwd=os.sep,
    )
    return {name: int(own) for own, _total, name in _IMPORT.findall(done.stderr)}


def _mean(measure: Callable[[], float], times: int) -> float:
    return sum(measure() for _ in range(times)) / times
