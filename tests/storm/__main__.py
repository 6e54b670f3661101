"""`python -m tests.storm --seconds N --seed S`: a kill storm, its figures and its faults (then the exit code is 1).

The seed decides what is planned (runs, fates, kills and their instants); real processes do the rest.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.storm.storm import Result, storm

FAULTS_SHOWN = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the killing goes on (60)")
    parser.add_argument("--seed", type=int, default=1, help="what is planned (1)")
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between two kills (0.2)")
    parser.add_argument("--runners", type=int, default=8, help="runs at the same time (8)")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and say where it is")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pwf-storm-"))
    print(f"storm: seed {options.seed}, {options.seconds:g} s, a kill every {options.pause:g} s", flush=True)
    try:
        result = storm(
            folder,
            seed=options.seed,
            seconds=options.seconds,
            pause_s=options.pause,
            runners=options.runners,
            say=lambda text: print(text, flush=True),
        )
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    report(result)
    return 1 if result.findings.faults else 0


def report(result: Result) -> None:
    """The figures, and each fault."""
    findings, promises = result.findings, result.promises
    kills = sum(result.kills.values())
    print(f"runs        {sum(findings.runs.values()):,}: {_list(findings.runs)}")
    print(f"attempts    {sum(findings.attempts.values()):,}: {_list(findings.attempts)}")
    print(f"kills       {kills:,}: {_list(result.kills)}; nobody there: {_list(result.missed) or 'never'}")
    print(f"daemons     {result.daemons}")
    print(f"effects     {sum(findings.effects.values()):,}: {_list(findings.effects)}")
    print(
        f"repeated    {findings.repeated:,} idempotent effects happened more than once, none of the manual ones"
    )
    print(
        f"people      {sum(map(len, promises.answers.values())):,} answers; verdicts: {_list(promises.verdicts)}"
    )
    print(f"troubles    {_list(promises.errors) or 'none'}")
    print(
        f"settled     {result.settled_s:.1f} s after the last kill; not ended: {_list(findings.reasons) or 'none'}"
    )
    for fault in findings.faults[:FAULTS_SHOWN]:
        print(f"FAULT       {fault}")
    if len(findings.faults) > FAULTS_SHOWN:
        print(f"FAULT       … and {len(findings.faults) - FAULTS_SHOWN} more")
    verdict = "BROKEN" if findings.faults else "clean"
    print(f"{verdict}: python -m tests.storm --seconds {result.seconds:g} --seed {result.seed}")


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
