"""`python -m tests.sim SEED` replays one seed with its trace; `--campaign N --from S --jobs J` runs many."""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
import time
from collections import Counter

from tests.sim.determinism import with_fixed_hash_seed
from tests.sim.reached import Reached
from tests.sim.world import Result, run_seed


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every seed was clean."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=None)
    parser.add_argument("--quiet", action="store_true", help="no trace, only the outcome")
    parser.add_argument("--campaign", type=int, metavar="N", help="run N seeds")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="S")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop a campaign after this time")
    parser.add_argument("--fail-fast", action="store_true", help="stop a campaign at its first failure")
    parser.add_argument(
        "--every-branch", action="store_true", help="a marked branch that was not reached is a failure"
    )
    options = parser.parse_args(arguments)
    if options.campaign is None and options.seed is None:
        parser.error("a seed, or --campaign N")
    with_fixed_hash_seed(arguments)
    if options.campaign is not None:
        return _campaign(options)
    result = run_seed(options.seed, tell=None if options.quiet else print)
    print(f"seed {result.seed}: {result.mix}")
    print(
        f"events {result.events}, commits {result.commits}, faults {dict(result.faults)}, trace {result.digest}"
    )
    if result.violation is not None:
        print(f"VIOLATION: {result.violation}")
    return int(result.violation is not None)


def _campaign(options: argparse.Namespace) -> int:
    began = time.monotonic()
    failed: list[int] = []
    events, commits, done = 0, 0, 0
    faults: Counter[str] = Counter()
    reached = Reached()
    for result in _results(options):
        done += 1
        events += result.events
        commits += result.commits
        faults += result.faults
        reached.add(result.reached)
        if result.violation is not None:
            failed.append(result.seed)
            print(f"FAILED seed {result.seed}: {result.violation[:600]}")
            print(f"  replay: python -m tests.sim {result.seed}", flush=True)
            if options.fail_fast:
                break
        if done % 500 == 0:
            print(f"{done} seeds, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
        if time.monotonic() - began > options.seconds:
            break
    print(
        f"{done} seeds from {options.first}, {len(failed)} failed, {events:,} events, {commits:,} commits, "
        f"{faults.total():,} faults, {time.monotonic() - began:.0f} s"
    )
    print(*reached.report(faults), sep="\n")
    if options.every_branch and reached.never:
        print(f"NEVER REACHED: {'; '.join(reached.never)}")
        return 1
    return int(bool(failed))


def _results(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    seeds = range(options.first, options.first + options.campaign)
    if options.jobs == 1:
        yield from map(_quick, seeds)
        return
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(_quick, seeds, chunksize=4)


def _quick(seed: int) -> Result:
    result = run_seed(seed)
    result.trace = []
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
