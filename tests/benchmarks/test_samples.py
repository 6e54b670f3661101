"""What a profiler's stacks mean."""

from __future__ import annotations

import pytest

from benchmarks.profile import markdown
from benchmarks.samples import Stack, by_function, by_kind, function_of, kind_of, parse

ROOT = ("Thread._bootstrap (threading.py)", "_Worker._run (pwf/store/executor.py)")
COMMIT = (*ROOT, "Writer.commit (pwf/store/batch.py)", "APSWCursor_execute (__init__.cpython-311.so)")
LOOP = ("main (pwf/actors/daemon.py:52)", "run (trio/_core/_run.py:2424)")

TEXT = """thread (11): pwf-store-writer;Thread._bootstrap (threading.py:988);Writer.commit (pwf/store/batch.py:129);\
sqlite3_step (__init__.cpython-311.so);fdatasync (libc.so.6) 7
thread (0x7F00): MainThread;main (pwf/actors/daemon.py:52);run (trio/_core/_run.py:2424);epoll_wait (libc.so.6) 3
not a stack
"""


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((*COMMIT, "sqlite3_step (x.so)", "fdatasync (libc.so.6)"), "sync of the disk"),
        ((*COMMIT, "sqlite3_step (x.so)"), "SQLite"),
        ((*COMMIT, "take_gil (libpython3.11.so)"), "waits for the interpreter lock"),
        ((*ROOT, "_queue_SimpleQueue_get (_queuemodule.c.h:177)", "0x7f2 (libc.so.6)"), "waits for work"),
        ((*LOOP, "epoll_wait (libc.so.6)"), "waits for work"),
        ((*LOOP, "Connection._send (pwf/actors/door/connection.py:188)", "send (libc.so.6)"), "system calls"),
        ((*LOOP, "unrolled_run (trio/_core/_run.py:2712)"), "event loop"),
        (
            (*LOOP, "f (pwf/actors/door/views.py:1)", "JSONEncoder_encode (msgspec/_core.cpython-311.so)"),
            "serialisation",
        ),
        ((*LOOP, "f (pwf/actors/door/views.py:1)"), "our code"),
        (("f (json/decoder.py:1)",), "other Python"),
    ],
)
def test_the_innermost_frame_that_is_known_decides(frames: tuple[str, ...], kind: str) -> None:
    assert kind_of(frames) == kind


def test_a_stack_is_in_the_innermost_function_of_ours() -> None:
    assert function_of((*COMMIT, "fdatasync (libc.so.6)")) == "Writer.commit (pwf/store/batch.py)"
    assert function_of(("f (threading.py:1)",)) is None


def test_raw_stacks_are_read_with_their_threads_and_counts() -> None:
    writer, main = parse(TEXT)
    assert (writer.thread, writer.samples, writer.frames[-1]) == (
        "pwf-store-writer",
        7,
        "fdatasync (libc.so.6)",
    )
    assert (main.thread, main.samples) == ("MainThread", 3)


def test_threads_of_one_name_count_together_and_idle_ones_are_in_no_function() -> None:
    stacks = [Stack(f"Trio thread {i}", (*LOOP, "epoll_wait (libc.so.6)"), 5) for i in (0, 1)]
    assert by_kind(stacks) == {"Trio thread": {"waits for work": 10}}
    assert not by_function(stacks)


def test_the_tables_show_shares_of_each_thread() -> None:
    text = markdown(parse(TEXT))
    assert "| | event loop | store, writing |" in text
    assert "| sync of the disk |  | 100.0% |" in text
    assert "| Writer.commit (pwf/store/batch.py) | sync of the disk | 100.0% |" in text
