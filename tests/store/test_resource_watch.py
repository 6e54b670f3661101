"""Files that wake resources: what differs from what the last reconcile has seen, and nothing else."""

from __future__ import annotations

from pwf.store.resource_watch import FilesChanged, Watching, wake_watching, watching
from pwf.store.resources import pause_resource, resume_resource
from tests.store.resource_world import Resources, manager


def change(resources: Resources, marks: dict[str, str], *numbers: int) -> int:
    seen = numbers or tuple(one.resource_no for one in resources.world.read(watching, 0))
    return resources.world.do(wake_watching, FilesChanged(resource_nos=seen, marks=marks))


def test_what_a_reconcile_has_seen_is_kept_and_listed(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one", "/b": "absent"})
    resources.settle(resources.apply(key="other").uid)

    (found,) = resources.world.read(watching, 0)
    assert found == Watching(resource_no=found.resource_no, marks={"/a": "one", "/b": "absent"})
    assert resources.world.read(watching, found.resource_no) == ()


def test_a_file_that_differs_wakes_and_one_that_does_not_wakes_nobody(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one"})

    assert change(resources, {"/a": "one", "/b": "x"}) == 0
    assert resources.state(uid) == "settled"
    assert change(resources, {"/a": "two"}) == 1
    assert resources.launch(uid).told.reasons == ("file",)


def test_a_change_during_a_reconcile_brings_one_more(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one"})
    change(resources, {"/a": "two"})
    live = resources.launch(uid)
    change(resources, {"/a": "three"})
    live.end(watch={"/a": "two"})

    assert resources.launch(uid).told.reasons == ("file",)


def test_what_is_said_as_it_was_makes_no_event(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one"})
    version = resources.view(uid).summary.resource_version
    change(resources, {"/a": "two"})
    resources.settle(uid, watch={"/a": "two"})

    assert resources.view(uid).summary.resource_version == version


def test_a_failure_and_a_stale_result_leave_what_was_seen(resources):
    uid = resources.apply(spec={"n": 1}).uid
    resources.settle(uid, watch={"/a": "one"})
    change(resources, {"/a": "two"})
    resources.launch(uid).fail(watch={"/a": "two"})
    resources.apply(spec={"n": 2})
    live = resources.launch(uid)
    resources.apply(spec={"n": 3})
    live.end(watch={"/a": "two"})

    assert [one.marks for one in resources.world.read(watching, 0)] == [{"/a": "one"}]


def test_a_paused_one_sees_the_change_when_it_is_resumed(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one"})
    resources.control(pause_resource, uid)

    assert change(resources, {"/a": "two"}) == 0
    resources.control(resume_resource, uid)
    assert resources.launch(uid).told is not None


def test_nothing_is_watched_for_one_that_is_gone_or_names_nothing(resources):
    uid = resources.apply().uid
    resources.settle(uid, watch={"/a": "one"})
    (found,) = resources.world.read(watching, 0)
    resources.delete(uid)  # it has no finalizers, so it goes at once

    assert resources.state(uid) == "gone"
    assert resources.world.read(watching, 0) == ()
    assert change(resources, {"/a": "two"}, found.resource_no) == 0


def test_one_that_only_its_interval_will_wake_is_settled(resources):
    resources.manager = manager(every_ms=5_000)
    uid = resources.apply().uid
    resources.settle(uid)
    view = resources.view(uid)

    assert (view.summary.state, view.explanation.code) == ("settled", "settled")
    assert view.summary.due_ms == resources.world.clock.now().wall_ms + 5_000
    resources.world.clock.forward(5_000)
    assert resources.launch(uid).told.reasons == ("interval",)
