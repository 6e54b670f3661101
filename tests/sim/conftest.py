"""What the tests of the simulation share: a store that is driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.stage import Stage
from tests.sim.workload import PURE, NodeModel


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """One pure node."""
    made = Stage(tmp_path, NodeModel("a", PURE[0]))
    yield made
    made.close()
