"""What do processes that are kept from run to run (`isolate="keep"`) make of steps, single runs and recovery?

As `durable_steps`, `effect_steps`, `start_to_finish` and `recovery` measure it with a process for each run. The peers
run their steps in a process that is there, so this is the row to hold beside theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bench import Bench, percentile
from benchmarks.daemon import Daemon
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.durable_steps import COMPARED, NODES, RUNNERS, rate_row, rates_of
from benchmarks.questions.effect_steps import KINDS, of_kind
from benchmarks.questions.limits import fork_ms
from benchmarks.questions.recovery import STEPPING, stepped
from benchmarks.rows import Row, Stat
from benchmarks.workflows import chain

QUESTION = "kept"
LONG = 60  # nodes
TARGETS = {4: 8_000.0, 16: 9_000.0}
ACTION_TARGETS = {4: 3_200.0, 16: 4_500.0}
ONE_STEP_MS_MAX = 1.6
STEPPED_S_MAX = 1.2


def measure(bench: Bench) -> Iterator[Row]:
    """Pure steps in runs of ten and of sixty, actions and shell steps; one step alone; killed runs that go on."""
    for nodes in (NODES,) if bench.quick else (NODES, LONG):
        for runners in RUNNERS:
            rates, base = rates_of(bench, chain(nodes, kept=True), nodes, runners, (runners + 1,))
            compared = nodes == NODES and runners == COMPARED
            yield rate_row(
                rates[0],
                base,
                question=QUESTION,
                what=f"{nodes} steps, {runners} runners",
                target=TARGETS.get(runners) if nodes == NODES else None,
                subject="ten steps, best rate" if compared else "",
                series=f"{nodes} steps",
                x=runners,
            )
    for kind in KINDS:
        for runners in RUNNERS:
            target = ACTION_TARGETS.get(runners) if kind == "action" else None
            yield of_kind(bench, QUESTION, kind, runners, kept=True, target=target)
    yield from _one_step(bench)
    runs = bench.pick(STEPPING, 100)
    yield Row(
        question=QUESTION,
        what=f"{runs:,} killed runs one step further",
        value=stepped(bench, runs, kept=True),
        unit="s",
        better="less",
        target=STEPPED_S_MAX,
        subject=f"{runs:,} killed runs recovered",
    )


def _one_step(bench: Bench) -> Iterator[Row]:
    with bench.folder() as folder, Daemon(folder) as daemon:
        payload = start_payload(daemon, daemon.workflow(chain(1, kept=True)))
        count = bench.pick(200, 60)
        start_runs(daemon, payload, 20, clients=1)
        runs = [start_runs(daemon, payload, count, clients=1) for _ in range(bench.times)]
    base = bench.sample(fork_ms)
    for name, share, target in (("median", 0.5, ONE_STEP_MS_MAX), ("99th percentile", 0.99, None)):
        yield Row(
            question=QUESTION,
            what=f"one step, {name}",
            value=Stat.of([percentile(latencies, share) * 1_000 for latencies in runs]),
            unit="ms",
            better="less",
            base="fork and wait",
            base_value=base,
            target=target,
            subject=f"one step, {name}",
            note=f"of {count} runs each, one after the other",
        )
