"""One admission over two queues: runs and reconciles take turns, and a restart reconciles nothing that is not due."""

from __future__ import annotations

import pytest

from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.queue import Admit, admit
from tests.store.resource_world import Resources
from tests.store.world import linear


@pytest.fixture
def resources(world) -> Resources:
    return Resources(world)


def admission(resources: Resources, limit: int, turn: str = "run", **more):
    owner = f"daemon:{resources.world.epoch}"
    command = Admit(limit=limit, epoch=resources.world.epoch, owner=owner, lease_ms=30_000, turn=turn, **more)
    return resources.world.do(admit, command)


def test_runs_and_reconciles_take_turns_while_both_have_work(resources):
    for number in range(6):
        resources.apply(str(number))
        resources.world.start(linear(1))
    admitted, turn = [], "run"
    for _ in range(4):
        found = admission(resources, 1, turn)
        admitted.append((len(found.runs), len(found.reconciles)))
        turn = found.turn
    assert admitted == [(1, 0), (0, 1), (1, 0), (0, 1)]
    both = admission(resources, 4, turn)
    assert (len(both.runs), len(both.reconciles)) == (2, 2)


def test_whoever_has_no_work_leaves_its_turns_to_the_other(resources):
    for number in range(3):
        resources.apply(str(number))
    assert len(admission(resources, 2, "run").reconciles) == 2


def test_a_seat_beyond_the_capacity_is_for_a_reconcile_alone(resources):
    resources.world.start(linear(1))
    resources.apply()
    found = admission(resources, 1, "run", reconciles_only=True)
    assert (len(found.runs), len(found.reconciles)) == (0, 1)


def test_k3_after_a_restart_each_resource_goes_on_where_it_was_and_nothing_is_reconciled_that_is_not_due(
    resources,
):
    settled = resources.apply("settled").uid
    resources.settle(settled)
    later = resources.apply("later").uid
    resources.launch(later).end("requeue", after_ms=60_000)
    deleting = resources.apply("deleting").uid
    resources.settle(deleting, finalizers=("disk",))
    resources.delete(deleting)
    live = resources.launch(deleting)
    resources.world.do(claim, ClaimEpoch(token="next", lease_ms=30_000, pid=2, version="0"))
    live.die(stopped=True)  # as recovery settles what the daemon before has left

    again = resources.launch(deleting)
    assert (again.told.deleting, again.told.finalizers) == (True, ("disk",))
    assert resources.admit(4) == ()
    again.end(finalizers=())
    assert {resources.state(uid) for uid in (settled, later, deleting)} == {"settled", "queued", "gone"}
