"""What a seed must fix besides its own draws: trio's scheduler, the hash seed and the garbage collector.

Owns the only use of trio's private switch (trio is pinned below 0.36 in pyproject.toml, and a test holds that the
switch still works). Ids and times come from the world's own sources.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import trio._core._run as scheduler

HASH_SEED = "0"


@contextmanager
def pinned_scheduler(seed: int) -> Iterator[None]:
    """Let the seed decide in which order trio runs what is ready at the same instant."""
    allowed, state = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
        scheduler._r.setstate(state)


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage afterwards only: what a cycle keeps open is closed at a time that no seed decides."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def hash_seed_is_fixed() -> bool:
    """Whether texts hash alike in every process that replays a seed."""
    return os.environ.get("PYTHONHASHSEED") == HASH_SEED


def with_fixed_hash_seed(arguments: list[str]) -> None:
    """Run this program again under the fixed hash seed, unless it already is. Does not return then."""
    if not hash_seed_is_fixed():
        command = [sys.executable, "-m", "tests.sim", *arguments]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": HASH_SEED})


def stream_of(seed: int, name: str) -> random.Random:
    """A source of randomness for one part of the world, so that parts don't shift each other's draws."""
    return random.Random(f"{seed}:{name}")
