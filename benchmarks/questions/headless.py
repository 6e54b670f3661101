"""How much longer than a shell step takes a step of a headless agent that is a program, and does the same?

Runs of one step and of ten. The program reads its prompt and prints a number. The shell step starts the same program
with the same prompt, and reads the number. Both are measured in turn, by the same daemon.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.rows import Row
from benchmarks.workflows import agent_steps, shell_steps

QUESTION = "headless"
NODES = (1, 10)
RUNNERS = 2
PROGRAM = ("sh", "-c", "cat > /dev/null; echo 1")
MORE_PERCENT_MAX = 20.0


def measure(bench: Bench) -> Iterator[Row]:
    """How much longer a step takes, in percent of the shell step."""
    settings = f"[agents.program]\ncommand = {json.dumps(PROGRAM)}\n"
    with bench.folder() as folder, Daemon(folder, max_runners=RUNNERS, settings=settings) as daemon:
        for nodes in NODES:
            agent = start_payload(daemon, daemon.workflow(agent_steps(nodes)), agent="program")
            shell = start_payload(daemon, daemon.workflow(shell_steps(nodes, PROGRAM)))
            runs = bench.pick(200, 40) // nodes

            def seconds(payload: msgspec.Raw, runs: int = runs) -> float:
                begin = time.perf_counter()
                start_runs(daemon, payload, runs, clients=RUNNERS)
                return time.perf_counter() - begin

            (more,) = bench.in_turn(
                lambda agent=agent, shell=shell, seconds=seconds: (seconds(agent) / seconds(shell) - 1) * 100
            )
            assert set(daemon.status().runs) == {"completed"}
            yield Row(
                question=QUESTION,
                what=f"a step of a headless agent, runs of {nodes}",
                value=more,
                unit="% more time",
                better="less",
                base="shell steps with the same program",
                target=MORE_PERCENT_MAX,
            )
