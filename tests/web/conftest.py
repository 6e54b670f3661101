"""The pages over a store of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pwf.config import Web
from pwf.web.app import make_app
from tests.store.world import World
from tests.web.browser import Browser
from tests.web.store_client import StoreClient


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def client(world: World) -> StoreClient:
    return StoreClient(world)


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def browser(client: StoreClient, web: Web) -> Browser:
    return Browser(make_app(client, web, web.urls))  # type: ignore[arg-type]
