"""`python -m benchmarks`: measure pwf, its physical limits and its peers on this machine, and print a table.

docs/performance.md says what each question measures and how to read the answers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.beside import PAIRS
from benchmarks.compare import moved
from benchmarks.questions import NAMES, measure_of, text_of
from benchmarks.report import markdown
from benchmarks.rows import Missing, Report, load, save
from benchmarks.session import MINUTES, MINUTES_PEERS, MINUTES_QUICK, measure


def main(arguments: list[str] | None = None) -> int:
    """What the command line asks for; the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.compare:
        before, after = (load(path) for path in asked.compare)
        print(moved(before, after))
        return 0
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no question {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if asked.profile:
        from benchmarks.profile import profile

        print(profile(asked.profile_seconds))
        return 0
    if asked.beside:
        return _beside(asked, parser)
    known = load(asked.against) if asked.against else None  # first: a mistake shows before the measuring
    bench = Bench(quick=asked.quick, times=asked.times)
    questions = [(name, measure_of(name)) for name in asked_for(asked.names, known)]
    minutes = asked.minutes or (MINUTES_QUICK if asked.quick else MINUTES)
    missing: list[Missing] = []
    if asked.peers:
        from benchmarks.peers import driving

        found, missing = driving.prepare(bench.say)
        questions += found
        minutes = asked.minutes or minutes + MINUTES_PEERS
    report = measure(questions, bench, minutes=minutes)
    report.missing += missing
    _tell(report, asked)
    if known is not None:
        print(moved(known, report))
    return 0


def asked_for(names: list[str], known: Report | None) -> list[str]:
    """The questions to ask: those that are named, else those that the report has which is compared with, else all."""
    if names or known is None:
        return names or list(NAMES)
    return [name for name in NAMES if name in {row.question for row in known.rows}]


def _beside(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from benchmarks.beside import driving
    from benchmarks.beside.sides import Failed
    from benchmarks.environments import CanNotInstall

    if asked.pairs < 1 or asked.peers or asked.plot or asked.against:
        parser.error("--beside takes at least one pair, and neither --peers, --plot nor --against")
    options = ["--quick", "--times", str(asked.times or 1), "--minutes", f"{asked.minutes or MINUTES:g}"]
    try:
        found = driving.beside(
            asked.beside, asked.names or driving.NAMES, pairs=asked.pairs, options=options, say=Bench().say
        )
    except (Failed, CanNotInstall) as error:
        parser.error(str(error))
    print(driving.markdown(found))
    if asked.json is not None:
        save(found, asked.json)
    return 0


def _tell(report: Report, asked: argparse.Namespace) -> None:
    print(markdown(report))
    if asked.json is not None:
        save(report, asked.json)
    if asked.plot is not None:
        from benchmarks.plot import draw_all

        for path in draw_all(report, asked.plot):
            print(f"wrote {path}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    questions = "\n".join(f"  {name:<16} {text_of(name)}" for name in NAMES)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"questions:\n{questions}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="questions to answer; when none is given all, or with --against those of the file",
    )
    add("--quick", action="store_true", help="fewer and smaller, under two minutes: a look, not a claim")
    add("--peers", action="store_true", help="measure other engines as well; installs them into the cache")
    add("--json", type=Path, metavar="FILE", help="write the report there as well")
    add("--plot", type=Path, metavar="DIR", help="draw an SVG for each question")
    add(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="say what moved between two reports, and end",
    )
    add("--against", type=Path, metavar="FILE", help="measure, then say what moved since that report")
    add("--beside", metavar="COMMIT", help="measure that commit and the working tree in turn, and compare")
    add("--pairs", type=int, default=PAIRS, metavar="N", help=f"of --beside (default: {PAIRS})")
    add("--profile", action="store_true", help="say where the time of durable steps goes, and end")
    add("--profile-seconds", type=float, default=10.0, metavar="S", help="how long to look (default: 10)")
    add(
        "--minutes",
        type=float,
        metavar="M",
        help=f"stop then (default: {MINUTES:g}; quick: {MINUTES_QUICK:g})",
    )
    add("--times", type=int, metavar="N", help="repetitions (default: 5; quick: 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
