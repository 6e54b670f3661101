"""What the samples of a profiler mean: each stack is given to one kind of work, and to the function of ours it is in.

A stack is read from its leaf to its root, and the first frame that a rule knows decides. So a sync of the disk inside
a commit counts as a sync, and the rest of the commit as SQLite.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

IDLE = "waits for work"

#: The kind of work by what a frame looks like, tried frame by frame from the leaf.
RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sync of the disk", re.compile(r"^(fsync|fdatasync|unixSync)\b")),
    ("waits for the interpreter lock", re.compile(r"^(take_gil|pthread_cond_timedwait)\b")),
    (IDLE, re.compile(r"^(epoll_wait|_?queue_SimpleQueue_get|lock_PyThread_acquire_lock|simplequeue_get)\b")),
    (
        "hands over between threads",
        re.compile(r"SimpleQueue_put|^WakeupSocketpair|^EntryQueue\.run_sync_soon"),
    ),
    ("serialisation", re.compile(r"\(msgspec/|^(canonical|encode|decode)\b.*\((json|pwf/values)")),
    ("SQLite", re.compile(r"^(sqlite3|APSW|Connection_|walCheckpoint)")),
    (
        "system calls",
        re.compile(
            r"^(send|sendmsg|sendto|recv|recvmsg|recvfrom|read|write|pread64?|pwrite64?|close|open64?|openat|stat|"
            r"fcntl64?|epoll_ctl|socketpair|poll|clone|wait4)(64)? \(libc|^(sock_|os_|select_epoll_)"
        ),
    ),
    ("event loop", re.compile(r"\((trio|trio_util|outcome|anyio)/")),
    ("our code", re.compile(r"\(pwf/")),
)
OTHER = "other Python"
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
_THREAD = re.compile(r"thread \((?:0x)?[0-9A-Fa-f]+\): ?(?P<name>.*)$")


class Stack(NamedTuple):
    """Frames from root to leaf, and in how many samples they were seen. The thread's name stands apart."""

    thread: str
    frames: tuple[str, ...]
    samples: int


def parse(text: str) -> list[Stack]:
    """Read the raw format: `frame;frame;frame count` a line, the thread first."""
    found = []
    for line in text.splitlines():
        frames, _, count = line.strip().rpartition(" ")
        if not frames or not count.isdigit():
            continue
        thread, *rest = frames.split(";")
        match = _THREAD.match(thread)
        found.append(Stack(match["name"] if match else thread, tuple(rest), int(count)))
    return found


def kind_of(frames: Sequence[str]) -> str:
    """The kind of work that a stack does."""
    for frame in reversed(frames):
        for kind, looks in RULES:
            if looks.search(frame):
                return kind
    return OTHER


def function_of(frames: Sequence[str]) -> str | None:
    """The innermost function of ours that a stack is in, with its file."""
    for frame in reversed(frames):
        match = _FRAME.match(frame)
        if match and match["file"].startswith("pwf/"):
            return f"{match['function']} ({match['file']})"
    return None


def by_kind(stacks: Iterable[Stack]) -> dict[str, Counter[str]]:
    """Thread -> kind of work -> samples. Threads of one name count together."""
    found: dict[str, Counter[str]] = {}
    for stack in stacks:
        name = re.sub(r" \d+$", "", stack.thread)
        found.setdefault(name, Counter())[kind_of(stack.frames)] += stack.samples
    return found


def by_function(stacks: Iterable[Stack]) -> Counter[tuple[str, str]]:
    """(function of ours, kind of work below it) -> samples, without those that wait for work."""
    found: Counter[tuple[str, str]] = Counter()
    for stack in stacks:
        kind, function = kind_of(stack.frames), function_of(stack.frames)
        if kind != IDLE and function is not None:
            found[function, kind] += stack.samples
    return found
