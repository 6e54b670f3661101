"""Other engines, each in an environment of its own, measured by a script of its own, at its own documented durability.

`prepare` installs what was asked for and says what can not be had; `questions` gives what can be measured.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import psutil

from benchmarks.bench import Bench
from benchmarks.environments import (
    CanNotInstall,
    postgres_programs,
    python_from,
    python_with,
    restate_server,
)
from benchmarks.rows import Missing, Row, Stat
from benchmarks.session import Measure

ROOT = Path(__file__).parents[2]
END_S = 10.0
MARK = "PWF_BENCH_PEER"  # stands in the environment of all that a script starts


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a peer's script."""

    question: str
    what: str
    values: list[float]
    unit: str
    engine: str
    better: str = "more"
    subject: str = ""
    durability: str = ""
    note: str = ""


@dataclass(frozen=True)
class Peer:
    """`script` is a module; of ours it imports only what needs nothing but the standard library.

    `needs` gives what is passed to it, and `python` the interpreter that it asks for, or they raise `CanNotInstall`.
    """

    name: str
    packages: tuple[str, ...]
    script: str
    needs: Callable[[], str] = lambda: ""
    part: str = ""
    python: Callable[[], str] = lambda: sys.executable


def peers() -> list[Peer]:
    """All of them."""
    dbos = ("dbos", "psycopg[binary]")
    return [
        Peer("DBOS, SQLite", dbos, "benchmarks.peers.run_dbos", part="sqlite"),
        Peer("DBOS, SQLite set to WAL", dbos, "benchmarks.peers.run_dbos", part="wal"),
        Peer("DBOS, PostgreSQL", dbos, "benchmarks.peers.run_dbos", needs=postgres_programs, part="postgres"),
        Peer(
            "Restate",
            ("restate-sdk", "hypercorn", "httpx"),
            "benchmarks.peers.run_restate",
            needs=restate_server,
        ),
        Peer(
            "LangGraph, SQLite saver",
            ("langgraph", "langgraph-checkpoint-sqlite"),
            "benchmarks.peers.run_langgraph",
        ),
        Peer("Huey, SQLite", ("huey",), "benchmarks.peers.run_huey"),
        Peer("dura", ("dura",), "benchmarks.peers.run_dura", python=partial(python_from, (3, 13))),
    ]


def prepare(say: Callable[[str], None]) -> tuple[list[tuple[str, Measure]], list[Missing]]:
    """Install every peer; what can be measured, and what can not be had and why."""
    found: list[tuple[str, Measure]] = []
    missing: list[Missing] = []
    for peer in peers():
        say(f"installing {peer.name} …")
        try:
            python = python_with(peer.script.rpartition(".run_")[2], peer.packages, peer.python())
            found.append((peer.name, partial(measure, peer, python, peer.needs())))
        except CanNotInstall as refusal:
            missing.append(Missing(name=peer.name, why=f"can not be installed: {refusal}"))
            say(f"  {missing[-1].why}")
    return found, missing


def measure(peer: Peer, python: Path, needs: str, bench: Bench) -> Iterator[Row]:
    """Run the peer's script in its environment; rows as they come. Whatever it started ends with it."""
    command = [str(python), "-m", peer.script, "--times", str(bench.times)]
    command += ["--quick"] * bench.quick + ["--with", needs, "--part", peer.part]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PWF_", "VIRTUAL_ENV"))
    }
    with bench.folder() as folder:
        errors = folder / "errors"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**environment, "TMPDIR": str(folder), MARK: str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield row_of(line)
            if process.wait() != 0:
                last = errors.read_text(errors="replace").strip().splitlines()[-1:]
                raise RuntimeError(f"its script ended with {process.returncode}: {''.join(last)}")
        finally:
            _end(process, str(folder))


def row_of(line: bytes) -> Row:
    """What a script told, as a row."""
    told = msgspec.json.decode(line, type=Told)
    return Row(
        question=told.question,
        what=told.what,
        value=Stat.of(told.values),
        unit=told.unit,
        better="less" if told.better == "less" else "more",
        engine=told.engine,
        subject=told.subject,
        durability=told.durability,
        note=told.note,
    )


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Let the script end its servers, then kill whatever bears its mark, in whatever session it is."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_S)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    for other in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # of another user, or gone
            if other.environ().get(MARK) == mark:
                other.kill()
