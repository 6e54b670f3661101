"""A fake daemon in a home of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
def home() -> Iterator[Path]:
    """A state folder with a short path, for the kernel's limit on socket names."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-"))
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(home) as fake:
        yield fake
