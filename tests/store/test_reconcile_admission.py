"""One admission over two queues: runs and reconciles take turns, and a restart reconciles nothing that is not due."""

from __future__ import annotations

import pytest

from pwf.store.daemon import ClaimEpoch, claim
from pwf.store.queue import look
from pwf.store.resource_wake import wake
from tests.store.resource_world import Resources, manager
from tests.store.world import linear


def admission(resources: Resources, limit: int, turn: str = "run", **more):
    return resources.world.admission(limit, turn=turn, **more)


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


def reconcile_waiting_ms(resources: Resources) -> int | None:
    return resources.world.read(look, None).reconcile_waiting_ms


def test_what_is_woken_again_while_it_is_due_keeps_its_place_and_its_waiting_time(resources):
    lively = resources.apply("lively")
    resources.world.clock.forward(3_000)
    resources.apply("other")
    resources.world.clock.forward(3_000)
    number = resources.world.sql("SELECT resource_no FROM resources WHERE uid = :uid", {"uid": lively.uid})[
        0
    ][0]
    resources.world.do(lambda tx, _: wake(tx, number, "child"))
    resources.apply("lively", spec={"a": 2})
    assert reconcile_waiting_ms(resources) == 6_000
    told = resources.launch(lively.uid).told
    assert told.reasons == ("applied", "child")


def test_after_a_reboot_a_reconcile_has_waited_what_the_wall_clock_says(resources):
    resources.apply()
    resources.world.clock.forward(1_000)
    resources.world.reboot(away_ms=60_000)
    resources.world.rebase()
    assert reconcile_waiting_ms(resources) == 61_000


@pytest.mark.parametrize("change", ["code", "code and spec"])
def test_code_that_was_replaced_after_the_admission_is_told_nothing_and_the_new_code_is(resources, change):
    uid = resources.apply(spec={"a": 1}).uid
    resources.settle(uid)
    resources.world.clock.forward(1_000)
    resources.apply(spec={"a": 2})
    (admission,) = resources.admit()

    resources.apply(spec={"a": 2 if change == "code" else 3}, graph=manager(every_ms=5_000))
    replaced = resources.begin(admission)
    assert replaced.told is None
    replaced.die(stopped=True)

    (again,) = resources.admit()
    assert again.definition_id != admission.definition_id
    reconcile = resources.begin(again)
    assert "applied" in reconcile.told.reasons
    reconcile.end()
    assert resources.view(uid).summary.observed_generation == reconcile.told.generation
