"""A reconcile storm: what is touched while the processes that reconcile it die comes to what its spec says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.resource_storm import ResourceStorm
from tests.sim.world import run_seed

TOUCHES = 10
FEW, MANY = 40, 2_000


@pytest.mark.parametrize(
    "resources", [FEW, pytest.param(MANY, marks=[pytest.mark.rest, pytest.mark.timeout(1_200)])]
)
def test_in_a_storm_every_resource_converges_no_two_reconciles_overlap_and_no_wake_up_is_lost(resources):
    worlds: list[ResourceStorm] = []

    def make(*arguments: Any, **more: Any) -> ResourceStorm:
        worlds.append(ResourceStorm(*arguments, resources=resources, touches=TOUCHES, **more))
        return worlds[0]

    result = run_seed(12, make=make)

    assert result.violation is None, "\n".join([*result.trace[-50:], str(result.violation)])
    assert worlds[0].managers.reconciles > 2 * resources
    assert result.faults["runner_kill"] > resources / 4
    assert result.faults["crash"] >= 1
