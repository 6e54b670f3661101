"""`python -m tests.sim SEED` replays one seed with its trace; `--campaign N --from S` runs many, on every core."""

from __future__ import annotations

import argparse
import sys

from tests.sim.campaign import Wanted, campaign, cores
from tests.sim.determinism import with_fixed_hash_seed
from tests.sim.world import run_seed


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every seed was clean."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=None)
    parser.add_argument("--quiet", action="store_true", help="no trace, only the outcome")
    parser.add_argument("--campaign", type=int, metavar="N", help="run N seeds")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="S")
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="processes of a campaign; one for each core"
    )
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
        names = ("first", "jobs", "seconds", "fail_fast", "every_branch")
        chosen = {name: getattr(options, name) for name in names}
        return campaign(Wanted(count=options.campaign, **chosen))
    result = run_seed(options.seed, tell=None if options.quiet else print)
    print(f"seed {result.seed}: {result.mix}")
    print(
        f"events {result.events}, commits {result.commits}, faults {dict(result.faults)}, trace {result.digest}"
    )
    if result.violation is not None:
        print(f"VIOLATION: {result.violation}")
    return int(result.violation is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
