"""A home of its own for each test, with the real command line and the real daemon; or one that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.home import Home
from tests.e2e.world import World, serving


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Ends with: nothing of it runs any more, and the store is sound."""
    found = Home(tmp_path)
    try:
        yield found
        found.check_store()
    finally:
        found.end()
    found.check_processes()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One daemon with the default settings for all tests that need no other."""
    with serving(tmp_path_factory.mktemp("shared")) as world:
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """The shared world; after each test its store is sound, and no process of a run is left."""
    yield shared
    shared.check()
