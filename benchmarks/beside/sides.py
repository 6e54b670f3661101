"""The two versions: where the text of each is, the environment that it runs in, and one measurement of it.

Each version has an environment of its own, in which its tree is installed as editable. `PYTHONPATH` would not do: pwf
starts its processes with `python -P -m pwf…`, from the interpreter that a run recorded, and two versions may ask for
different dependencies. The text of a commit is unpacked into the cache, so nothing is registered in the repository.

Promises: a measurement that is given up takes its daemons with it; what is half made in the cache is thrown away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.cache import cache_folder
from benchmarks.environments import python_with_tree
from benchmarks.rows import Report, load

REPOSITORY = Path(__file__).parents[2]
END_S = 40.0  # a measurement that is given up stops its daemons, in order if they can
ID_LENGTH = 12

#: Takes the benchmarks from one folder and pwf from where the interpreter has it installed.
LAUNCH = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
"""


class Failed(Exception):
    """A version could not be prepared or measured; the message is the last word of what failed."""


class Side(NamedTuple):
    """`cache`: where its filled databases lie, since two versions have two schemas."""

    name: str
    tree: Path
    python: Path
    cache: Path


def at_commit(commit: str, repository: Path = REPOSITORY) -> Side:
    """The version at a commit, from the cache where it is known. `Failed` when there is no such commit."""
    full = _git(
        repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", why=f"no commit {commit}"
    )
    folder = cache_folder() / "beside" / full[:ID_LENGTH]
    tree = folder / "tree"
    if not tree.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            packed, unpacked = Path(unfinished, "tree.zip"), Path(unfinished, "tree")
            _git(repository, "archive", "--output", str(packed), full, why=f"{commit} can't be unpacked")
            shutil.unpack_archive(packed, unpacked)
            unpacked.rename(tree)
    data = folder / "data"
    return Side(name=full[:ID_LENGTH], tree=tree, python=python_with_tree("beside", tree), cache=data)


def working_tree(repository: Path = REPOSITORY) -> Side:
    """The version that stands in the working tree now."""
    head = _git(repository, "rev-parse", f"--short={ID_LENGTH}", "HEAD", why="no commit yet")
    changed = _git(repository, "status", "--porcelain", "--untracked-files=no", why="no status")
    name = f"{head} and what has changed since" if changed else head
    python = python_with_tree("beside", repository)
    return Side(name=name, tree=repository, python=python, cache=cache_folder())


def _git(repository: Path, *arguments: str, why: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{why}: {done.stderr.strip()}" if done.stderr.strip() else why)
    return done.stdout.strip()


@contextlib.contextmanager
def shared_harness(tree: Path = REPOSITORY) -> Iterator[Path]:
    """A folder that holds the benchmarks of `tree` and nothing else, so that pwf is imported from elsewhere."""
    with tempfile.TemporaryDirectory(prefix="pwf-bench-harness-") as folder:
        shutil.copytree(
            tree / "benchmarks", Path(folder, "benchmarks"), ignore=shutil.ignore_patterns("__pycache__")
        )
        yield Path(folder)


def measure(side: Side, question: str, harness: Path, options: Sequence[str]) -> Report:
    """One report about one question. `Failed` when it can't be measured, wholly or in part."""
    with tempfile.TemporaryDirectory(prefix="pwf-bench-report-") as folder:
        report, errors = Path(folder, "report.json"), Path(folder, "errors")
        command = [
            str(side.python),
            "-P",
            "-c",
            LAUNCH,
            str(harness),
            question,
            "--json",
            str(report),
            *options,
        ]
        environment = {**os.environ, "PWF_BENCH_CACHE": str(side.cache)}
        environment.pop("PYTHONPATH", None)
        with errors.open("wb") as sink:
            code = _ended(
                subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.DEVNULL, stderr=sink)
            )
        if code != 0 or not report.exists():
            lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise Failed(lines[-1] if lines else f"exit code {code}")
        found = load(report)
    if found.missing:
        raise Failed(found.missing[0].why)
    return found


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code. If waiting is given up it is asked to end, which ends what it has started."""
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()
        raise
