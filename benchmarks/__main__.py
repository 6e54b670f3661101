"""`python -m benchmarks [NAME…] [--quick] [--json FILE]`: measure, and print a Markdown table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from benchmarks import durable_steps, group_commit, start_to_finish, waiting_memory
from benchmarks.harness import Benchmark, Report, machine, number, table

BENCHMARKS: dict[str, Benchmark] = {
    "start_to_finish": start_to_finish.run,
    "durable_steps": durable_steps.run,
    "group_commit": group_commit.run,
    "waiting_memory": waiting_memory.run,
}


def main() -> int:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all when none is given"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions: for a first look, not for a claim"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    report = Report(machine=machine(), rows=[])
    for name in arguments.names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        for row in BENCHMARKS[name](arguments.quick):
            report.rows.append(row)
            print(f"  {row.what}: {number(row.value.median)} {row.unit}", file=sys.stderr, flush=True)
    print(table(report))
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
