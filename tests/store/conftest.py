"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pwf.store.batch import Writer
from pwf.store.executor import StoreSpec
from tests.store.faults import FaultyDisk
from tests.store.resource_world import Resources
from tests.store.support import HandClock, Warnings, make_spec
from tests.store.world import World


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def warnings() -> Warnings:
    return Warnings()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def spec(tmp_path, clock, warnings) -> StoreSpec:
    return make_spec(tmp_path, clock=clock, warn=warnings)


@pytest.fixture
def writer(spec) -> Iterator[Writer]:
    opened = spec.writer()
    yield opened
    opened.close()


@pytest.fixture
def world(tmp_path, clock) -> Iterator[World]:
    opened = World(tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def resources(world) -> Resources:
    return Resources(world)
