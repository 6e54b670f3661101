"""What can this machine do at best: synced writes, SQLite commits, forks, process starts?

Nothing of pwf runs here. The other questions take their bases from these functions, in their own turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import apsw

from benchmarks.bench import Bench
from benchmarks.rows import MACHINE, Row, Stat

BLOCK = os.urandom(4096)
ROW = os.urandom(100)
FORKS = 50


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each limit."""
    seconds = 0.2 if bench.quick else 1.0
    with bench.folder() as folder:
        yield _row("fdatasync of 4 KiB appended", "a second", bench.sample(partial(syncs, folder, seconds)))
        for rows in (1, 10):
            stat = bench.sample(partial(commits, folder, rows, seconds))
            yield _row(f"SQLite WAL+FULL, {rows} rows a commit", "commits/s", stat)
    # The parent holds trio and msgspec, as the template of a runner does.
    yield _row("fork and wait of this process", "ms", bench.sample(fork_ms), better="less")
    for what, code in (
        ("bare Python", "pass"),
        ("Python with trio, msgspec, apsw", "import trio, msgspec, apsw"),
    ):
        stat = bench.sample(partial(spawn_ms, code))
        yield _row(f"start of {what}", "ms", stat, better="less")


def _row(what: str, unit: str, value: Stat, better: Literal["more", "less"] = "more") -> Row:
    return Row(question="limits", what=what, value=value, unit=unit, better=better, engine=MACHINE)


def syncs(folder: Path, seconds: float) -> float:
    """How often a second 4 KiB are appended to a file and synced."""
    path = folder / "synced"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        count, begin = 0, time.perf_counter()
        end = begin + seconds
        while time.perf_counter() < end:
            os.write(file, BLOCK)
            os.fdatasync(file)
            count += 1
        return count / (time.perf_counter() - begin)
    finally:
        os.close(file)
        path.unlink()


def commits(folder: Path, rows: int = 1, seconds: float = 0.5, *, size: int | None = None) -> float:
    """Commits a second of bare SQLite, as durable as pwf's: WAL, `synchronous=FULL`; rows of 100 B, or of `size`."""
    path = folder / "bare.db"
    value = ROW if size is None else os.urandom(size)
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        run = connection.cursor().execute
        run("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)").fetchall()
        count, begin = 0, time.perf_counter()
        while count == 0 or time.perf_counter() < begin + seconds:
            run("BEGIN IMMEDIATE").fetchall()
            for _ in range(rows):
                run("INSERT INTO t(v) VALUES (?)", (value,)).fetchall()
            run("COMMIT").fetchall()
            count += 1
        return count / (time.perf_counter() - begin)
    finally:
        connection.close()
        for left in folder.glob("bare.db*"):
            left.unlink()


def fork_ms() -> float:
    """Milliseconds of a fork whose child ends at once, and of waiting for it: the least that isolation costs."""
    begin = time.perf_counter()
    for _ in range(FORKS):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return (time.perf_counter() - begin) * 1_000 / FORKS


def spawn_ms(code: str) -> float:
    """Milliseconds of a new interpreter that runs `code`."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1_000
