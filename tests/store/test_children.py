"""Child runs of managed resources: one for each key, found again, seen by their parent, gone with it."""

from __future__ import annotations

import pytest

from pwf.errors import ClaimLost, Conflict, Rejected
from pwf.protocol.resources import ChildView
from pwf.protocol.runner import Value
from pwf.store.children import CancelChild, EnsureChild, cancel_child, ensure_child
from pwf.store.read_resources import OfResource, resource_refers
from pwf.store.resources import reconcile_resource
from pwf.store.restart import RestartRun, restart_run
from pwf.store.retention import PruneTree, prune_tree
from pwf.store.values import drop_values, keep_for, load_content
from pwf.values import INLINE_BYTES_MAX, canonical
from tests.store.resource_world import Reconciling, Resources
from tests.store.test_retention import pass_days, prune
from tests.store.world import graph, linear, node

ASKS = graph(node("a", "checkpoint"))


def ensure(reconcile: Reconciling, key: str = "k", fingerprint: str = "f", flow=None, **more) -> ChildView:
    start = reconcile.resources.world.start_command(flow or linear(1), **more)
    told = reconcile.told
    assert told is not None
    command = EnsureChild(
        fence=reconcile.fence, key=key, fingerprint=fingerprint, start=start, deleting=told.deleting
    )
    return reconcile.resources.world.do(ensure_child, command)


def running(resources: Resources, flow=None) -> tuple[str, str]:
    """A settled resource with a child: its uid, and the run."""
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    child = ensure(reconcile, flow=flow)
    reconcile.end(finalizers=("undo",))
    return uid, child.run_id


def test_the_same_key_and_wish_give_the_same_child(resources):
    reconcile = resources.launch(resources.apply().uid)
    first = ensure(reconcile)
    assert ensure(reconcile).run_id == first.run_id
    assert ensure(reconcile, "other").run_id != first.run_id
    assert resources.world.sql("SELECT count(*) FROM runs") == [(2,)]


def test_another_wish_under_a_key_is_a_conflict_that_starts_nothing(resources):
    reconcile = resources.launch(resources.apply().uid)
    ensure(reconcile)
    with pytest.raises(Conflict, match="another workflow or input"):
        ensure(reconcile, fingerprint="g")
    assert resources.world.sql("SELECT count(*) FROM runs") == [(1,)]


def test_a_stale_owner_starts_no_child(resources):
    uid = resources.apply().uid
    stale = resources.launch(uid)
    stale.die(stopped=True)
    resources.launch(uid)
    with pytest.raises(ClaimLost):
        ensure(stale)
    assert resources.world.sql("SELECT count(*) FROM runs") == [(0,)]


def test_a_child_that_ends_wakes_its_parent_which_sees_that(resources):
    uid, run_id = running(resources)
    runner = resources.world.launch(run_id)
    assert resources.state(uid) == "settled", "a child that runs is nothing to look at"
    runner.finish()

    told = resources.launch(uid).told
    assert told.reasons == ("child",)
    assert (told.children[0].run_id, told.children[0].status) == (run_id, "completed")


@pytest.mark.parametrize("what", ["waits", "paused", "cancelled"])
def test_a_child_that_waits_is_paused_or_cancelled_wakes_its_parent(resources, what):
    uid, run_id = running(resources, ASKS)
    if what == "waits":
        resources.world.launch(run_id).ask("?")
    elif what == "paused":
        resources.world.pause(run_id)
    else:
        resources.world.cancel(run_id)
    status = {"waits": "waiting"}.get(what, what)
    assert resources.launch(uid).told.children[0].status == status


def test_a_child_that_is_restarted_goes_on_under_its_key_and_its_attempts_are_counted(resources):
    uid, run_id = running(resources)
    resources.world.cancel(run_id)
    start = resources.world.start_command(linear(1), restarted_from=run_id, restart_root=run_id, restart_no=1)
    again = resources.world.do(restart_run, RestartRun(start=start, expected_revision=2)).run_id
    (child,) = resources.view(uid).children
    assert (child.run_id, child.attempts) == (again, 2)
    resources.launch(uid).end()
    resources.world.launch(again).finish()
    assert resources.launch(uid).told.children[0].status == "completed"


def test_a_child_is_cancelled_by_its_key_and_one_that_has_ended_stays(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    run_id = ensure(reconcile).run_id
    command = CancelChild(fence=reconcile.fence, key="k")
    done = resources.world.do(cancel_child, command)
    assert (done.child.status, done.stop.run_id) == ("cancelled", run_id)
    assert resources.world.do(cancel_child, command).stop is None
    assert resources.world.do(cancel_child, CancelChild(fence=reconcile.fence, key="no")).child is None


def test_children_go_with_their_resource(resources):
    uid, run_id = running(resources, ASKS)
    resources.delete(uid)
    assert resources.world.status(run_id) == "cancelled"
    resources.launch(uid).end(finalizers=())
    assert resources.state(uid) == "gone"


def test_children_that_are_left_go_on_without_their_resource(resources):
    uid, run_id = running(resources, ASKS)
    resources.delete(uid, children="leave")
    resources.launch(uid).end(finalizers=())
    assert (resources.state(uid), resources.world.status(run_id)) == ("gone", "queued")
    resources.world.launch(run_id).ask("?")  # and nobody is woken


def test_a_resource_waits_for_a_child_that_cleans_up(resources):
    uid, _ = running(resources, ASKS)
    resources.delete(uid)
    reconcile = resources.launch(uid)
    cleaning = ensure(reconcile, "clean-up").run_id
    reconcile.end(finalizers=())
    assert resources.state(uid) != "gone"
    resources.world.launch(cleaning).finish()
    resources.launch(uid).end()
    assert resources.state(uid) == "gone"


@pytest.mark.parametrize("children", ["cancel", "leave"])
def test_a_reconcile_that_does_not_know_of_the_deletion_starts_no_further_child(resources, children):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    first = ensure(reconcile, flow=ASKS)
    resources.delete(uid, children=children)
    assert ensure(reconcile, flow=ASKS).run_id == first.run_id, "what is there is found"
    with pytest.raises(Rejected, match="being deleted"):
        ensure(reconcile, "late", flow=ASKS)
    reconcile.fail()
    resources.launch(uid).end()
    assert resources.state(uid) == "gone"


@pytest.mark.parametrize("children", ["cancel", "leave"])
def test_a_run_that_is_restarted_when_its_resource_is_gone_is_nobodys_child(resources, children):
    uid, run_id = running(resources)
    resources.delete(uid, abandon=True, children=children)
    if children == "leave":
        resources.world.cancel(run_id)
    start = resources.world.start_command(linear(1), restarted_from=run_id, restart_root=run_id, restart_no=1)
    again = resources.world.do(restart_run, RestartRun(start=start, expected_revision=2)).run_id
    assert resources.world.sql(f"SELECT called_by, call_key FROM runs WHERE run_id = '{again}'") == [
        (None, None)
    ]
    resources.world.launch(again).finish()


@pytest.mark.parametrize("children", ["cancel", "leave"])
def test_a_name_is_free_for_another_life_when_the_children_that_went_with_the_last_one_are_dead(
    resources, children
):
    uid, run_id = running(resources)
    runner = resources.world.launch(run_id)
    resources.delete(uid, abandon=True, children=children)
    if children == "cancel":
        with pytest.raises(Conflict, match="not proved dead"):
            resources.apply()
        runner.gone(stopped=True)
    assert resources.apply().change == "created"


def test_after_delete_and_apply_old_children_do_not_count(resources):
    uid, run_id = running(resources, ASKS)
    resources.delete(uid, abandon=True)
    reconcile = resources.launch(resources.apply().uid)
    assert reconcile.told.children == ()
    assert ensure(reconcile).run_id != run_id


def prune_and_drop(resources: Resources) -> None:
    """Everything that ended before now, and the values that nothing refers to any more."""
    world = resources.world
    pass_days(world, 40)
    prune(world, days=0)
    world.do(drop_values, tuple(digest for (digest,) in world.sql("SELECT digest FROM contents")))


def test_a_child_that_was_pruned_is_never_started_again_while_its_resource_lives(resources):
    uid, run_id = running(resources)
    large = canonical("x" * (INLINE_BYTES_MAX + 1))
    runner = resources.world.launch(run_id)
    kept = resources.world.do(
        lambda tx, _: keep_for(tx, large, runner.fence.entity_no, runner.fence.generation)
    )
    runner.finish(output=Value(digest=kept, size=len(large)))
    runner.gone()
    resources.settle(uid)
    before = resources.view(uid).children
    prune_and_drop(resources)
    assert resources.world.sql("SELECT count(*) FROM runs") == [(0,)]

    resources.control(reconcile_resource, uid)
    reconcile = resources.launch(uid)
    assert reconcile.told.children == resources.view(uid).children == before
    assert ensure(reconcile) == before[0]
    value = OfResource(resource_no=reconcile.fence.entity_no, digest=before[0].output.digest)
    assert resources.world.read(resource_refers, value)
    assert resources.world.read(load_content, kept) == large
    assert resources.world.do(cancel_child, CancelChild(fence=reconcile.fence, key="k")).child == before[0]
    with pytest.raises(Conflict, match=run_id):
        ensure(reconcile, fingerprint="g")
    assert resources.world.sql("SELECT count(*) FROM runs") == [(0,)]


def test_of_a_pruned_child_its_last_restart_is_what_counts(resources):
    uid, run_id = running(resources)
    resources.world.cancel(run_id)
    start = resources.world.start_command(linear(1), restarted_from=run_id, restart_root=run_id, restart_no=1)
    again = resources.world.do(restart_run, RestartRun(start=start, expected_revision=2)).run_id
    runner = resources.world.launch(again)
    runner.finish()
    runner.gone()
    prune_and_drop(resources)
    resources.settle(uid)
    (child,) = resources.view(uid).children
    assert (child.run_id, child.status, child.attempts) == (again, "completed", 2)


def test_a_resource_that_is_gone_is_pruned_after_its_children(resources):
    uid, _ = running(resources)
    resources.delete(uid, abandon=True)
    resources.world.clock.forward(1_000)
    now = resources.world.clock.wall_ms
    first = resources.world.do(prune_tree, PruneTree(before_ms=now))
    assert first.trees == 1, "the run"
    place = first.after
    while place is not None:
        place = resources.world.do(prune_tree, PruneTree(before_ms=now, after=place)).after
    assert resources.world.sql("SELECT count(*) FROM entities WHERE entity_no > 0") == [(0,)]
