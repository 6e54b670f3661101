"""Managed resources in the store: applied, woken, reconciled, deleted. Each test's name is the rule it holds."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.runner import StepError
from pwf.store.resource_wake import wake
from pwf.store.resources import pause_resource, reconcile_resource, resume_resource
from pwf.store.runs import environment_id_of
from tests.store.resource_world import Resources, manager, said, told
from tests.store.test_home import ELSEWHERE, serve
from tests.store.world import ENVIRONMENT


def forward(resources: Resources, ms: int) -> None:
    resources.world.clock.forward(ms)


# --- apply ----------------------------------------------------------------------------------------------------


def test_an_apply_creates_a_resource_that_is_due_with_its_managers_initial_status(resources):
    resources.manager = manager(initial_status='{"made":7}')
    applied = resources.apply(spec={"size": 1})

    assert (applied.change, applied.generation, applied.state) == ("created", 1, "queued")
    assert resources.status(applied.uid) == {"made": 7}
    told_ = resources.launch(applied.uid).told
    assert told_ is not None
    assert (bytes(told_.spec.json), told_.reasons, told_.deleting) == (b'{"size":1}', ("applied",), False)


def test_the_initial_status_is_stored_once_and_a_new_spec_leaves_the_status(resources):
    uid = resources.apply().uid
    resources.settle(uid, status={"made": 3})
    resources.manager = manager(initial_status='{"made":0}')

    assert resources.apply(spec={"size": 2}).change == "changed"
    assert resources.status(uid) == {"made": 3}


def test_the_same_spec_and_code_change_nothing(resources):
    uid = resources.apply(spec={"a": 1}).uid
    resources.settle(uid)
    version = resources.view(uid).summary.resource_version

    again = resources.apply(spec={"a": 1})

    assert (again.change, again.resource_version, resources.state(uid)) == ("unchanged", version, "settled")


def test_a_new_spec_is_a_new_generation_and_new_code_alone_is_not(resources):
    uid = resources.apply(spec={"a": 1}).uid
    resources.settle(uid)

    changed = resources.apply(spec={"a": 2})
    assert (changed.generation, changed.new_code, bytes(changed.before.json)) == (2, False, b'{"a":1}')
    resources.settle(uid)
    newer = resources.apply(spec={"a": 2}, graph=manager(every_ms=5_000))
    assert (newer.generation, newer.new_code, newer.change) == (2, True, "changed")
    assert resources.state(uid) == "queued", "the new code has to look at it"


@pytest.mark.parametrize("what", [{"interpreter": "/other/python"}, {"variables": {"TOKEN": "new"}}])
def test_another_environment_alone_is_a_change_that_has_to_be_looked_at(resources, what):
    uid = resources.apply().uid
    resources.settle(uid)
    other = msgspec.structs.replace(ENVIRONMENT, **what)

    planned = resources.apply(environment=other, dry_run=True)
    assert (planned.change, planned.new_environment, resources.state(uid)) == ("changed", True, "settled")
    found = resources.apply(environment=other)
    assert (found.change, found.generation, found.new_code, found.new_environment) == (
        "changed",
        1,
        False,
        True,
    )

    (admitted,) = resources.admit()
    assert admitted.environment_id == environment_id_of(other)
    resources.begin(admitted).end()
    assert resources.apply(environment=other).change == "unchanged"


def test_a_dry_run_says_what_would_be_and_leaves_no_trace(resources):
    planned = resources.apply(spec={"a": 1}, dry_run=True)
    assert (planned.change, planned.uid) == ("created", "")
    assert resources.world.sql("SELECT count(*) FROM resources") == [(0,)]

    uid = resources.apply(spec={"a": 1}).uid
    planned = resources.apply(spec={"a": 2}, dry_run=True)
    assert (planned.change, planned.generation, resources.view(uid).summary.generation) == ("changed", 2, 1)


def test_an_apply_with_an_old_version_is_a_conflict_that_changes_nothing(resources):
    applied = resources.apply(spec={"a": 1})
    resources.settle(applied.uid, status={"x": 1})

    with pytest.raises(Conflict, match="version"):
        resources.apply(spec={"a": 2}, expected_revision=applied.resource_version)
    assert resources.view(applied.uid).summary.generation == 1


def test_a_resource_of_another_project_is_another_one(resources):
    first = resources.apply().uid
    resources.world.root = "/other"
    second = resources.apply(environment=msgspec.structs.replace(ENVIRONMENT, root="/other")).uid
    assert first != second


# --- one reconcile --------------------------------------------------------------------------------------------


def test_status_conditions_finalizers_events_and_queue_change_together(resources):
    uid = resources.apply().uid
    resources.launch(uid).end(
        status={"made": 1},
        conditions=(said("Synced", "True", "InSync"),),
        finalizers=("clean",),
        events=(told("Fetched", branches=3),),
    )

    view = resources.view(uid)
    assert (view.summary.state, view.summary.observed_generation) == ("settled", 1)
    assert (resources.status(uid), view.finalizers) == ({"made": 1}, ("clean",))
    assert resources.condition(uid, "Synced").observed_generation == 1
    assert resources.ready(uid) == ("True", "Reconciled")
    assert resources.events(uid) == [
        "applied", "status", "condition", "condition", "finalizers", "said", "observed",
    ]  # fmt: skip


def test_a_status_is_merged_and_null_removes(resources):
    uid = resources.apply().uid
    resources.settle(uid, status={"a": {"b": 1, "c": 2}, "d": 3})
    resources.control(reconcile_resource, uid)
    resources.settle(uid, status={"a": {"c": None}, "e": 4})
    assert resources.status(uid) == {"a": {"b": 1}, "d": 3, "e": 4}


def test_finalizers_stay_unless_they_are_named(resources):
    uid = resources.apply().uid
    resources.settle(uid, finalizers=("one", "two"))
    resources.control(reconcile_resource, uid)
    resources.settle(uid)
    assert resources.view(uid).finalizers == ("one", "two")


def test_k4_a_status_that_is_what_it_was_makes_no_event_no_revision_and_wakes_nobody(resources):
    uid = resources.apply().uid
    facts = {"status": {"made": 1}, "conditions": (said("Ready", "True"),), "finalizers": ("x",)}
    resources.settle(uid, **facts)
    version, events = resources.view(uid).summary.resource_version, resources.events(uid)
    resources.control(reconcile_resource, uid)

    resources.settle(uid, **facts)

    assert (resources.view(uid).summary.resource_version, resources.events(uid)) == (version, events)
    assert resources.admit() == ()
    assert resources.view(uid).reconciles == 2


def test_a_condition_keeps_the_time_of_its_last_transition(resources):
    uid = resources.apply().uid
    resources.settle(uid, conditions=(said("Synced", "True", "A"),))
    since = resources.condition(uid, "Synced").changed_ms
    forward(resources, 5_000)
    resources.control(reconcile_resource, uid)
    resources.settle(uid, conditions=(said("Synced", "True", "B"),))
    assert resources.condition(uid, "Synced").changed_ms == since
    resources.control(reconcile_resource, uid)
    resources.settle(uid, conditions=(said("Synced", "False", "C"),))
    assert resources.condition(uid, "Synced").changed_ms > since


def test_a_result_for_an_older_generation_is_dropped_with_an_event_and_requeued_at_once(resources):
    uid = resources.apply(spec={"a": 1}).uid
    reconcile = resources.launch(uid)
    resources.apply(spec={"a": 2})

    reconcile.end(status={"made": "old"}, finalizers=("old",))

    assert (resources.status(uid), resources.view(uid).finalizers) == ({}, ())
    assert resources.events(uid)[-1] == "result_dropped"
    assert bytes(resources.launch(uid).told.spec.json) == b'{"a":2}'


def test_the_first_result_counts_and_a_stale_owners_changes_nothing(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    assert reconcile.end(status={"by": "first"})
    assert not reconcile.end(status={"by": "second"})
    assert resources.status(uid) == {"by": "first"}


def test_only_the_leases_owner_books_a_failure(resources):
    uid = resources.apply().uid
    stale = resources.launch(uid)
    stale.die(stopped=True)
    now = resources.launch(uid)
    stale.die()
    assert resources.view(uid).summary.failures == 0
    now.end()
    assert resources.ready(uid) == ("True", "Reconciled")


# --- failures -------------------------------------------------------------------------------------------------


def test_failures_back_off_from_one_second_to_a_minute_and_success_resets_them(resources):
    uid = resources.apply().uid
    waits = []
    for _ in range(9):
        resources.launch(uid).fail()
        summary = resources.view(uid).summary
        waits.append(summary.due_ms - resources.world.clock.wall_ms)
        assert resources.admit() == (), "it waits"
        forward(resources, waits[-1])
    assert 1_000 <= waits[0] <= 1_250
    assert all(1.0 <= after / before <= 2.6 for before, after in itertools.pairwise(waits))
    assert waits[-1] == 60_000
    assert resources.ready(uid) == ("False", "ReconcileFailed")
    assert resources.view(uid).summary.failures == 9

    resources.settle(uid)
    assert (resources.view(uid).summary.failures, resources.view(uid).error) == (0, None)
    assert resources.ready(uid) == ("True", "Reconciled")


def test_a_failure_that_is_the_same_again_makes_no_further_event(resources):
    uid = resources.apply().uid
    resources.launch(uid).fail("no route")
    events = resources.events(uid)
    forward(resources, 60_000)
    resources.launch(uid).fail("no route")
    assert resources.events(uid) == events


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("runner_timed_out", "ReconcileTimedOut"),
        ("runner_crashed", "ReconcileDied"),
        ("load_failed", "ManagerBroken"),
        ("environment_missing", "ManagerMissing"),
    ],
)
def test_ready_says_why_it_failed(resources, code, reason):
    uid = resources.apply().uid
    resources.launch(uid).die(error=StepError(code=code, message="because"))
    assert resources.ready(uid) == ("False", reason)
    assert "because" in resources.view(uid).explanation.reason


def test_what_a_manager_tells_before_it_fails_is_kept(resources):
    uid = resources.apply().uid
    resources.launch(uid).fail(events=(told("Fetched", branches=3), told("Broke")))
    assert resources.events(uid) == ["applied", "said", "said", "failed"]


def test_a_new_spec_is_reconciled_at_once_whatever_the_back_off(resources):
    uid = resources.apply(spec={"a": 1}).uid
    for _ in range(4):
        resources.launch(uid).fail()
        forward(resources, 60_000)
    resources.launch(uid).fail()
    resources.apply(spec={"a": 2})
    resources.settle(uid)
    assert resources.view(uid).summary.observed_generation == 2


def test_a_wake_up_does_not_shorten_a_back_off(resources):
    uid = resources.apply().uid
    resources.launch(uid).fail()
    forward(resources, 2_000)
    reconcile = resources.launch(uid)
    number = reconcile.fence.entity_no
    resources.world.do(lambda tx, _: wake(tx, number, "child"))
    reconcile.fail()
    resources.world.do(lambda tx, _: wake(tx, number, "child"))
    assert resources.admit() == ()
    forward(resources, 3_000)
    assert "child" in resources.launch(uid).told.reasons, "it is not lost either"


def test_a_person_who_asks_during_a_reconcile_that_fails_is_kept_waiting_by_no_back_off(resources):
    uid = resources.apply().uid
    resources.launch(uid).fail()
    forward(resources, 2_000)
    reconcile = resources.launch(uid)
    resources.control(reconcile_resource, uid)
    number = reconcile.fence.entity_no
    resources.world.do(lambda tx, _: wake(tx, number, "child"))
    reconcile.fail()
    assert resources.launch(uid).told.reasons == ("requested", "child")


def test_a_stop_of_the_daemon_requeues_with_that_reason_and_is_no_failure(resources):
    uid = resources.apply().uid
    resources.launch(uid).die(stopped=True)
    assert (resources.view(uid).summary.failures, resources.state(uid)) == (0, "queued")
    assert "restarted" in resources.launch(uid).told.reasons


def test_custody_of_a_process_is_stored_before_it_is_told_anything(resources):
    reconcile = resources.launch(resources.apply().uid)
    rows = resources.world.sql("SELECT generation, state, pid IS NOT NULL FROM runners")
    assert rows == [(reconcile.told.lease_generation, "live", 1)]


def test_a_process_that_is_not_proved_dead_holds_the_resource(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.die(proved=False)
    assert (resources.state(uid), resources.view(uid).summary.hold) == ("held", "process_unreaped")
    assert resources.admit() == ()
    with pytest.raises(Rejected, match="not proved dead"):
        resources.control(resume_resource, uid)
    reconcile.die()
    resources.control(resume_resource, uid)
    resources.settle(uid)


# --- wake-ups -------------------------------------------------------------------------------------------------


def test_wake_ups_merge_into_one_row(resources):
    uid = resources.apply().uid
    for _ in range(5):
        resources.control(reconcile_resource, uid)
    assert resources.launch(uid).told.reasons == ("applied", "requested")
    assert resources.world.sql("SELECT count(*) FROM reconcile_queue") == [(1,)]


def test_a_wake_up_during_a_reconcile_brings_one_more(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    resources.control(reconcile_resource, uid)
    resources.control(reconcile_resource, uid)
    reconcile.end()
    resources.launch(uid).end()
    assert (resources.admit(), resources.state(uid)) == ((), "settled")


def test_a_requeue_that_repeats_without_a_new_spec_waits_a_second(resources):
    uid = resources.apply(spec={"a": 1}).uid
    resources.launch(uid).end("requeue")
    resources.launch(uid).end("requeue", after_ms=5)
    assert resources.admit() == ()
    forward(resources, 1_000)
    resources.launch(uid)


def test_a_requeue_after_some_time_is_due_then(resources):
    uid = resources.apply().uid
    resources.launch(uid).end("requeue", after_ms=30_000)
    forward(resources, 29_999)
    assert resources.admit() == ()
    forward(resources, 1)
    assert resources.launch(uid).told.reasons == ("due",)


def test_a_settled_resource_of_a_manager_with_an_interval_is_reconciled_again(resources):
    resources.manager = manager(every_ms=60_000)
    uid = resources.apply().uid
    resources.settle(uid)
    forward(resources, 60_000)
    assert resources.launch(uid).told.reasons == ("interval",)


def test_relative_times_go_on_by_the_wall_clock_after_a_reboot(resources):
    uid = resources.apply().uid
    resources.launch(uid).end("requeue", after_ms=90_000)
    resources.world.reboot(away_ms=60_000)
    resources.world.rebase()
    assert resources.admit() == ()
    forward(resources, 30_000)
    assert resources.launch(uid).told is not None


# --- pause, restore -------------------------------------------------------------------------------------------


def test_a_paused_resource_is_not_reconciled_and_its_wake_ups_are_owed(resources):
    uid = resources.apply(spec={"a": 1}).uid
    reconcile = resources.launch(uid)
    resources.control(pause_resource, uid)
    reconcile.end(status={"made": 1})
    resources.apply(spec={"a": 2})
    assert (resources.state(uid), resources.admit()) == ("paused", ())
    with pytest.raises(Rejected, match="paused"):
        resources.control(reconcile_resource, uid)

    resources.control(resume_resource, uid)
    assert bytes(resources.launch(uid).told.spec.json) == b'{"a":2}'


def test_a_copied_home_keeps_back_every_resource_until_it_is_resumed(resources):
    serve(resources.world)
    live, settled = resources.apply("a").uid, resources.apply("b").uid
    first = resources.launch()
    resources.settle(settled if first.fence.run_id == live else live)
    serve(resources.world, **ELSEWHERE)

    assert {resources.view(uid).summary.hold for uid in (live, settled)} == {"restored"}
    assert resources.admit(4) == ()
    resources.control(resume_resource, live)
    resources.settle(live)


# --- deletion -------------------------------------------------------------------------------------------------


def test_a_resource_without_finalizers_goes_at_once_and_its_name_is_free_for_another_life(resources):
    first = resources.apply().uid
    resources.settle(first)
    assert resources.delete(first).state == "gone"
    second = resources.apply()
    assert (second.change, second.uid != first) == ("created", True)
    with pytest.raises(Rejected, match="gone"):
        resources.delete(first)


def test_finalizers_keep_a_resource_until_its_manager_names_none(resources):
    uid = resources.apply().uid
    resources.settle(uid, finalizers=("disk",))
    resources.delete(uid)
    reconcile = resources.launch(uid)
    assert (reconcile.told.deleting, reconcile.told.finalizers) == (True, ("disk",))
    reconcile.end("requeue", finalizers=("disk",))
    assert resources.state(uid) != "gone"
    resources.launch(uid).end(finalizers=())
    assert (resources.state(uid), resources.events(uid)[-1]) == ("gone", "gone")


def test_what_is_being_deleted_takes_no_spec(resources):
    uid = resources.apply().uid
    resources.settle(uid, finalizers=("disk",))
    resources.delete(uid)
    with pytest.raises(Conflict, match="being deleted"):
        resources.apply(spec={"a": 2})


def test_a_delete_during_a_reconcile_waits_for_its_finalizers(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    resources.delete(uid)
    reconcile.end(finalizers=("made-just-now",))
    assert resources.launch(uid).told.finalizers == ("made-just-now",)


def test_k1_a_broken_manager_keeps_what_is_being_deleted_and_abandon_names_what_was_not_finalized(resources):
    uid = resources.apply().uid
    resources.settle(uid, finalizers=("disk", "dns"))
    resources.delete(uid)
    for _ in range(3):
        resources.launch(uid).die(error=StepError(code="load_failed", message="no such module"))
        assert resources.admit() == (), "no loop without a pause"
        forward(resources, 60_000)
    assert resources.ready(uid) == ("False", "ManagerBroken")
    assert "pwf resource delete mirror/a --abandon" in resources.view(uid).explanation.commands

    assert resources.delete(uid, abandon=True).state == "gone"
    facts = resources.world.sql("SELECT payload FROM events WHERE kind = 'abandoned'")[0][0]
    assert msgspec.json.decode(facts)["not_finalized"] == ["disk", "dns"]


def test_k2_a_finalizer_and_a_spec_that_change_at_the_same_instant_lose_nothing(resources):
    uid = resources.apply(spec={"a": 1}).uid
    reconcile = resources.launch(uid)
    resources.apply(spec={"a": 2})
    reconcile.end(finalizers=("disk",))
    assert resources.view(uid).finalizers == (), "it is asked again with the newest spec"
    again = resources.launch(uid)
    again.end(finalizers=("disk",))
    view = resources.view(uid)
    assert (view.finalizers, view.summary.observed_generation, bytes(view.spec.json)) == (
        ("disk",),
        2,
        b'{"a":2}',
    )


def test_an_abandoned_reconciles_late_result_changes_nothing(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    resources.delete(uid, abandon=True)
    assert not reconcile.end(status={"late": 1})
    assert (resources.state(uid), resources.status(uid)) == ("gone", {})


def test_a_name_is_free_for_another_life_when_no_process_of_the_last_one_is_left(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    resources.delete(uid, abandon=True)
    for dry_run in (False, True):
        with pytest.raises(Conflict, match="not proved dead"):
            resources.apply(dry_run=dry_run)
    reconcile.die(proved=False)
    with pytest.raises(Conflict, match="not proved dead"):
        resources.apply()
    assert resources.apply("other").change == "created"
    reconcile.die()
    assert resources.apply().change == "created"


def test_what_is_to_go_stays_until_its_last_process_is_proved_dead(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    resources.delete(uid)
    reconcile.end(proved=False)
    assert resources.state(uid) == "held"
    reconcile.die()
    resources.control(resume_resource, uid)
    resources.settle(uid)
    assert resources.state(uid) == "gone"


def test_a_delete_lets_nothing_go_whose_last_process_is_not_proved_dead(resources):
    uid = resources.apply().uid
    resources.launch(uid).end(proved=False)
    resources.delete(uid)
    assert resources.state(uid) == "held"


# --- finding --------------------------------------------------------------------------------------------------


def test_a_resource_that_is_not_there_is_not_found(resources):
    with pytest.raises(NotFound):
        resources.control(reconcile_resource, "nothing")
