"""Effects of managed resources: applied once under their key, observed, or settled by a person's word."""

from __future__ import annotations

import pytest

from pwf.errors import Rejected
from pwf.protocol.operations import EffectListPayload
from pwf.store import effect_rows
from pwf.store.effect_rows import effect_list
from pwf.store.effects import ResolveEffect
from pwf.store.resource_words import (
    ResolveResourceEffect,
    ResourceEffectQuery,
    resolve_resource_effect,
    resource_effect_detail,
    resource_named,
)
from pwf.store.resources import reconcile_resource
from tests.store.resource_world import Resources, manager


def test_an_effect_is_applied_once_under_its_key_and_another_request_is_a_conflict(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    assert reconcile.begins("one", {"to": "x"}).verdict == "apply"
    assert reconcile.settles("one", output={"id": 7}).verdict == "settled"
    assert bytes(reconcile.begins("one", {"to": "x"}).output.json) == b'{"id":7}'
    other = reconcile.begins("one", {"to": "y"})
    assert (other.verdict, len(other.fingerprint)) == ("conflict", 64)
    reconcile.end()


def test_an_interrupted_effect_is_observed_by_the_next_reconcile(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.begins("one", observable=True)
    reconcile.die()
    resources.world.clock.forward(2_000)
    again = resources.launch(uid)
    assert again.begins("one", observable=True).verdict == "observe"
    again.settles("one")
    again.end()
    assert resources.state(uid) == "settled"


def test_an_interrupted_effect_that_nobody_can_observe_is_ambiguous_and_stops_the_resource(resources):
    uid = resources.apply(spec={"a": 1}).uid
    reconcile = resources.launch(uid)
    reconcile.begins("one")
    reconcile.die(stopped=True)

    assert (resources.state(uid), resources.ready(uid)) == ("ambiguous", ("False", "EffectAmbiguous"))
    assert f"{uid}:reconcile:1/one" in resources.view(uid).summary.message
    assert resources.admit() == ()
    resources.apply(spec={"a": 2})
    assert resources.launch(uid).told is not None, "a new spec wakes it"


def test_after_delete_and_apply_old_effects_do_not_count(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.begins("one")
    reconcile.settles("one")
    reconcile.end()
    resources.delete(uid)
    again = resources.launch(resources.apply().uid)
    assert again.begins("one").verdict == "apply"
    again.settles("one")
    again.end()


def test_after_a_persons_word_nobody_reconciles_it_before_its_last_process_is_proved_dead(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.begins("one")
    reconcile.fail("nobody can tell", code="effect_ambiguous", proved=False)
    word(resources, uid, "happened", effect_key=f"{uid}:reconcile:1/one")
    assert (resources.state(uid), resources.admit()) == ("queued", ())
    reconcile.die()
    assert resources.launch(uid).begins("one").verdict == "applied"


def test_the_newest_effects_are_those_of_today_however_old_their_resource_is(resources, monkeypatch):
    monkeypatch.setattr(effect_rows, "LOOKED", 2)
    old = resources.apply("old").uid
    resources.settle(old)
    young = resources.apply("young").uid
    for uid, count in ((young, 3), (old, 1)):
        resources.control(reconcile_resource, uid)
        reconcile = resources.launch(uid)
        for number in range(count):
            reconcile.begins(f"{number}")
            reconcile.settles(f"{number}")
            resources.world.clock.forward(1_000)
        reconcile.end()
    found = resources.world.read(effect_list, EffectListPayload(limit=2)).effects
    assert [effect.effect_key for effect in found] == [f"{old}:reconcile:1/0", f"{young}:reconcile:1/2"]


def ambiguous(resources: Resources, *, observable: bool = False) -> tuple[str, str]:
    """A resource with an effect that nobody can tell about: its uid, and the effect's key."""
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.begins("one", {"to": "x"}, observable=observable)
    reconcile.fail("nobody can tell", code="effect_ambiguous")
    assert resources.state(uid) == "ambiguous"
    return uid, f"{uid}:reconcile:1/one"


def word(resources: Resources, uid: str, verdict: str, **more) -> str:
    number = resources.world.read(resource_named, uid)
    said_ = ResolveEffect(run_id="", verdict=verdict, actor="client:ann", **more)
    command = ResolveResourceEffect(resource_no=number, word=said_)
    return str(resources.world.do(resolve_resource_effect, command).status)


@pytest.mark.parametrize(
    ("verdict", "then"),
    [("happened", "applied"), ("not_happened", "apply"), ("give_up", "abandoned"), ("observe", "observe")],
)
def test_a_persons_word_settles_an_ambiguous_effect_and_wakes_the_resource(resources, verdict, then):
    uid, key = ambiguous(resources, observable=True)
    number = resources.world.read(resource_named, uid)
    detail = resources.world.read(
        resource_effect_detail, ResourceEffectQuery(resource_no=number, effect_key=key)
    )
    assert {one.verdict for one in detail.words} == {"happened", "not_happened", "give_up", "observe"}
    assert [effect.effect_key for effect in resources.view(uid).effects] == [key]

    assert word(resources, uid, verdict, effect_key=key) == "queued"

    reconcile = resources.launch(uid)
    assert "effect" in reconcile.told.reasons
    assert reconcile.begins("one", {"to": "x"}, observable=True).verdict == then


def test_a_late_word_about_another_effect_is_a_conflict(resources):
    uid, key = ambiguous(resources)
    word(resources, uid, "happened", effect_key=key)
    with pytest.raises(Rejected, match="no ambiguous effect"):
        word(resources, uid, "give_up", effect_key=key)


def test_a_resource_with_an_ambiguous_effect_is_not_let_go_unless_it_is_abandoned(resources):
    uid, _ = ambiguous(resources)
    resources.delete(uid)
    assert resources.state(uid) != "gone"
    assert resources.delete(uid, abandon=True).state == "gone"


# --- what a person or a new spec has lifted stays lifted ------------------------------------------------------------


def lift(resources: Resources, uid: str, by: str) -> None:
    if by == "person":
        resources.control(reconcile_resource, uid)
    elif by == "delete":
        resources.delete(uid)
    else:
        resources.apply(spec={"size": 2} if by == "spec" else {}, graph=manager(every_ms=5_000))


@pytest.mark.parametrize("by", ["spec", "code", "person", "delete"])
def test_a_stop_does_not_put_back_a_hold_that_was_lifted(resources, by):
    uid, _ = ambiguous(resources)
    lift(resources, uid, by)
    resources.launch(uid).die(stopped=True)
    assert resources.state(uid) == "queued"
    assert "restarted" in resources.launch(uid).told.reasons


@pytest.mark.parametrize("by", ["spec", "code", "person", "delete"])
@pytest.mark.parametrize("how", ["settled", "fails", "is unknown", "dies"])
def test_a_hold_that_is_lifted_during_a_reconcile_is_not_put_back_by_its_end(resources, by, how):
    uid, _ = ambiguous(resources)
    resources.control(reconcile_resource, uid)
    reconcile = resources.launch(uid)
    lift(resources, uid, by)
    if how == "settled":
        reconcile.end()
    elif how == "dies":
        reconcile.die()
    else:
        reconcile.fail(code="effect_ambiguous" if how == "is unknown" else "node_failed")
    assert resources.launch(uid).told is not None, "at once"


def test_what_is_still_ambiguous_holds_it_after_the_look_that_was_asked_for(resources):
    uid, _ = ambiguous(resources)
    resources.control(reconcile_resource, uid)
    reconcile = resources.launch(uid)
    resources.control(reconcile_resource, uid)
    reconcile.end()
    resources.launch(uid).end()
    assert resources.state(uid) == "ambiguous"


def test_what_a_reconcile_itself_leaves_open_holds_its_resource_whatever_has_woken_it(resources):
    uid = resources.apply().uid
    reconcile = resources.launch(uid)
    reconcile.begins("one")
    resources.apply(spec={"size": 2})
    reconcile.end()
    assert resources.state(uid) == "ambiguous"


def test_a_word_that_is_said_during_a_reconcile_brings_one_more(resources):
    uid, key = ambiguous(resources)
    resources.control(reconcile_resource, uid)
    reconcile = resources.launch(uid)
    assert reconcile.begins("one", {"to": "x"}).verdict == "unknown"
    assert word(resources, uid, "happened", effect_key=key) == "running"
    reconcile.end()
    again = resources.launch(uid)
    assert (again.told.reasons, again.begins("one", {"to": "x"}).verdict) == (("effect",), "applied")
