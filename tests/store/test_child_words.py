"""What a manager says to its child runs: changes of settings and follow-ups, once for each key, by its owner alone."""

import msgspec
import pytest

from pwf.errors import ClaimLost, Conflict, NotFound, Rejected
from pwf.store.child_words import (
    ChangeChild,
    QueueForChild,
    RemoveForChild,
    actor_of,
    change_child,
    child_receipt,
    queue_for_child,
    remove_for_child,
    run_of_child,
)
from pwf.store.children import FindChild
from pwf.store.follow_ups import Queue, queue_follow_up
from pwf.store.restart import RestartRun, restart_run
from pwf.store.settings import ChangeSettings
from tests.store.session_world import ALONE, Session
from tests.store.test_children import ASKS, ensure
from tests.store.test_settings import SPEC, facts, looped, routed


@pytest.fixture
def reconcile(resources):
    """A resource whose reconcile goes on."""
    return resources.launch(resources.apply().uid)


def change(reconcile, run_id, n, *, on, key="once"):
    actor = actor_of(reconcile.fence)
    receipt = child_receipt(reconcile.fence, run_id, "settings.change", key, [n])
    value = msgspec.json.encode({"n": n})
    made = ChangeSettings(run_id=run_id, change=on, value=value, paths=(), actor=actor, receipt=receipt)
    return reconcile.resources.world.do(change_child, ChangeChild(fence=reconcile.fence, change=made))


def queue(reconcile, text="Go on.", *, child="k", key="once"):
    command = QueueForChild(fence=reconcile.fence, child=child, key=key, text=text)
    return reconcile.resources.world.do(queue_for_child, command).follow_up_id


def remove(reconcile, follow_up):
    command = RemoveForChild(fence=reconcile.fence, child="k", follow_up=follow_up)
    return reconcile.resources.world.do(remove_for_child, command)


def test_a_change_is_made_once_under_its_key_and_a_repeat_gets_the_first_number(world, reconcile):
    run_id = ensure(reconcile, flow=routed()).run_id
    assert change(reconcile, run_id, 1, on=0).change == 1
    assert change(reconcile, run_id, 2, on=1, key="twice").change == 2
    assert change(reconcile, run_id, 1, on=2).change == 1
    assert facts(world, run_id).value == b'{"n":2}'
    with pytest.raises(Conflict, match="another payload"):
        change(reconcile, run_id, 3, on=2)
    assert change(reconcile, run_id, 9, on=1, key="late") is None, "it was made on older ones"


def test_a_child_that_was_restarted_has_its_first_settings_and_takes_the_change_again(world, reconcile):
    run_id = ensure(reconcile, flow=routed()).run_id
    change(reconcile, run_id, 1, on=0)
    revision = world.cancel(run_id).revision
    start = world.start_command(routed(), restarted_from=run_id, restart_root=run_id, restart_no=1)
    world.do(restart_run, RestartRun(start=start, expected_revision=revision))
    again = world.do(run_of_child, FindChild(fence=reconcile.fence, key="k"))
    assert again != run_id
    assert facts(world, again).value == b'{"n":0}'
    assert change(reconcile, again, 1, on=0).change == 1
    assert facts(world, again).value == b'{"n":1}'


def test_a_word_that_was_refused_leaves_its_key_free(world, reconcile):
    Session(world)
    run_id = ensure(reconcile, flow=routed()).run_id
    with pytest.raises(Rejected, match="has no session: nobody would get a follow-up"):
        queue(reconcile)
    world.cancel(run_id)
    with pytest.raises(Rejected, match="has ended"):
        change(reconcile, run_id, 1, on=0)
    assert world.sql("SELECT count(*) FROM receipts WHERE scope_key LIKE 'resource:%'") == [(0,)]


def test_the_only_settings_need_no_name_and_of_several_one_is_named(world, reconcile):
    alone = ensure(reconcile, flow=routed()).run_id
    inner = ensure(reconcile, "inner", flow=looped()).run_id
    both = ensure(reconcile, "both", flow=looped(settings=SPEC)).run_id
    assert facts(world, alone, None).scope == ""
    with pytest.raises(Rejected, match="is not in 'm' now"):
        facts(world, inner, None)
    with pytest.raises(Rejected, match="several settings: say which are meant"):
        facts(world, both, None)
    with pytest.raises(Rejected, match="has no settings"):
        facts(world, ensure(reconcile, "none", flow=ASKS).run_id, None)


def test_only_the_owner_of_the_lease_is_heard(resources):
    uid = resources.apply().uid
    stale = resources.launch(uid)
    run_id = ensure(stale, flow=routed()).run_id
    stale.die(stopped=True)
    resources.launch(uid)
    for word in (lambda: change(stale, run_id, 1, on=0), lambda: queue(stale), lambda: remove(stale, "1")):
        with pytest.raises(ClaimLost):
            word()


def test_there_must_be_a_child_under_the_key(reconcile):
    with pytest.raises(NotFound, match="no child run under 'no'"):
        queue(reconcile, child="no")


def test_follow_ups_are_for_a_child_with_a_session_each_once_and_in_order(world, reconcile):
    Session(world)
    run_id = ensure(reconcile, flow=ALONE, session_id="chat").run_id
    first = queue(reconcile)
    assert queue(reconcile) == first
    assert queue(reconcile, "And then.", key="twice") != first
    with pytest.raises(Conflict):
        queue(reconcile, "Another text.")
    shown = world.view(run_id).follow_ups
    assert [(one.summary, one.queued_by) for one in shown] == [
        ("Go on.", actor_of(reconcile.fence)),
        ("And then.", actor_of(reconcile.fence)),
    ]


def test_a_manager_removes_its_own_follow_ups_and_no_others(world, reconcile):
    Session(world)
    run_id = ensure(reconcile, flow=ALONE, session_id="chat").run_id
    own = queue(reconcile)
    theirs = world.do(queue_follow_up, Queue(run_id=run_id, text="Mine.", actor="client:ann")).follow_up_id
    remove(reconcile, own)
    remove(reconcile, own)  # it is so already
    with pytest.raises(Rejected, match=r"was queued by client:ann"):
        remove(reconcile, theirs)
    assert [one.status for one in world.view(run_id).follow_ups] == ["dropped", "queued"]


def test_a_child_that_has_ended_takes_no_follow_up(world, reconcile):
    Session(world)
    run_id = ensure(reconcile, flow=ASKS, session_id="chat").run_id
    world.cancel(run_id)
    with pytest.raises(Rejected, match="takes no follow-up"):
        queue(reconcile)
