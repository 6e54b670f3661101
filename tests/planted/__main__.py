"""`python -m tests.planted` plants each bug into a copy and prints what caught it: a unit test, or a seed.

`--seeds N` and `--seconds S` bound the simulation of each bug, `--jobs J` takes several bugs at once; words after that
choose bugs by a part of their name or area. The result of each stands in a line as soon as it is known, so that a run
may be stopped anywhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.planted.agent_bugs import AGENT_BUGS
from tests.planted.bug import Bug
from tests.planted.bugs import BUGS
from tests.planted.channel_bugs import CHANNEL_BUGS
from tests.planted.code_bugs import CODE_BUGS
from tests.planted.decision_bugs import DECISION_BUGS
from tests.planted.include_bugs import INCLUDE_BUGS
from tests.planted.kept_bugs import KEPT_BUGS
from tests.planted.part_bugs import PART_BUGS
from tests.planted.reconcile_bugs import RECONCILE_BUGS
from tests.planted.session_bugs import SESSION_BUGS
from tests.planted.settings_bugs import SETTINGS_BUGS
from tests.planted.web_bugs import WEB_BUGS

ROOT = Path(__file__).parents[2]
COPIED = ("pwf", "tests", "benchmarks", "docs", "pyproject.toml")
UNIT_S_MAX = 600
ALL = (
    *BUGS,
    *AGENT_BUGS,
    *KEPT_BUGS,
    *PART_BUGS,
    *DECISION_BUGS,
    *CHANNEL_BUGS,
    *INCLUDE_BUGS,
    *CODE_BUGS,
    *RECONCILE_BUGS,
    *SETTINGS_BUGS,
    *SESSION_BUGS,
    *WEB_BUGS,
)


def plant(bug: Bug, folder: Path) -> None:
    """A copy of the product with the bug in it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    file = folder / bug.file
    text = file.read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.file} has not exactly one place for: {bug.name}")
    file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")


def run(folder: Path, *arguments: str, seconds: float) -> str:
    """The output of a Python program in the copy; what there is of it when its time is over."""
    environment = os.environ | {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    return done.stdout + done.stderr


def by_unit_test(bug: Bug, folder: Path) -> str:
    """The first unit test that fails."""
    files = [f"tests/{name}" for name in bug.tests]
    said = run(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files, seconds=UNIT_S_MAX)
    found = re.search(r"^(?:FAILED|ERROR) \S+?([\w.]+\.py\S*)", said, re.MULTILINE)
    if found is None and not re.search(r"^\d+ passed", said, re.MULTILINE):
        return "does not run: " + said[-200:].replace("\n", " ")
    return "-" if found is None else found[1]


def by_seed(folder: Path, seeds: int, seconds: float) -> str:
    """How many seeds it took, and the rule that was broken."""
    arguments = ("--campaign", str(seeds), "--fail-fast", "--jobs", "1", "--seconds", str(seconds))
    said = run(folder, "-m", "tests.sim", *arguments, seconds=seconds + 60)
    found = re.search(r"^FAILED seed (\d+): (.{0,70})", said, re.MULTILINE)
    if found is not None:
        return f"{found[1]} ({found[2]})"
    done = re.search(r"^(\d+) seeds from", said, re.MULTILINE)
    return f"- in {done[1]}" if done else "- in fewer than asked"


def look(bug: Bug, options: argparse.Namespace) -> bool:
    """Print what caught the bug. Whether nothing did."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-planted-"))
    began = time.monotonic()
    try:
        plant(bug, folder)
        test = "not run" if options.only == "seeds" else by_unit_test(bug, folder)
        seed = "not run" if options.only == "unit" else by_seed(folder, options.seeds, options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"| {bug.area} | {bug.name} | {test} | {seed} |", flush=True)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return test.startswith(("-", "not")) and seed.startswith(("-", "not"))


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every bug was caught by something."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--jobs", type=int, default=1, help="bugs at once")
    parser.add_argument(
        "--only", choices=("unit", "seeds"), help="only the unit tests, or only the simulation"
    )
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(arguments)
    chosen = [
        bug
        for bug in ALL
        if not options.words or any(word in f"{bug.area} {bug.name}" for word in options.words)
    ]
    print("| area | planted bug | unit test | first failing seed |\n| --- | --- | --- | --- |", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        missed = list(pool.map(partial(look, options=options), chosen))
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
