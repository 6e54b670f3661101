"""What a living resource keeps: effects that are asked for, and of its history the newest and the recent."""

from __future__ import annotations

import re

import pytest

from pwf.store import resource_retention, resource_state
from pwf.store.queries import load_queries
from pwf.store.resource_retention import DAY_MS, KEPT_MS, anything_old, drop_old_effects, trim_events
from pwf.store.retention import gone_runs
from tests.store.resource_world import Resources, told
from tests.store.test_resource_effects import ambiguous, word
from tests.store.world import MANUAL, graph, node

EVENTS_AT_ONCE = 64  # that one reconcile may say
EVENTS_KEPT, REMOVED_MAX = 200, 50  # in place of the product's bounds


@pytest.fixture
def resources(world, monkeypatch) -> Resources:
    for module in (resource_state, resource_retention):
        monkeypatch.setattr(module, "EVENTS_KEPT", EVENTS_KEPT)
    monkeypatch.setattr(resource_retention, "REMOVED_MAX", REMOVED_MAX)
    return Resources(world)


def effect(resources: Resources, uid: str, part: str = "one") -> str:
    """A reconcile that asks for it; what it got."""
    resources.apply(spec={"at": resources.world.clock.wall_ms})
    reconcile = resources.launch(uid)
    verdict = reconcile.begins(part).verdict
    if verdict == "apply":
        reconcile.settles(part)
    reconcile.end()
    return verdict


def prune(resources: Resources) -> tuple[int, int]:
    """Effects and events that went."""
    world = resources.world
    before_ms = world.clock.wall_ms - KEPT_MS
    found = world.read(anything_old, before_ms)
    effects = events = 0
    while gone := world.do(drop_old_effects, before_ms):
        assert gone <= REMOVED_MAX
        effects += gone
    while (trimmed := world.do(trim_events, before_ms)) is not None:
        assert trimmed <= REMOVED_MAX
        events += trimmed
    assert found == bool(effects or events)
    return effects, events


def talk(resources: Resources, uid: str, events: int) -> None:
    """Reconciles that say so much."""
    while events > 0:
        resources.apply(spec={"left": events, "at": resources.world.clock.wall_ms})
        said = [told("Said", n=number) for number in range(min(events, EVENTS_AT_ONCE))]
        resources.settle(uid, events=tuple(said))
        events -= EVENTS_AT_ONCE


def history(resources: Resources, uid: str) -> list[int]:
    sql = "SELECT v.revision FROM events v JOIN resources r ON r.resource_no = v.entity_no WHERE r.uid = :uid"
    return sorted(row[0] for row in resources.world.sql(sql, {"uid": uid}))


# --- effects ----------------------------------------------------------------------------------------------------


def test_a_settled_effect_goes_after_thirty_days_in_which_nobody_asked_for_it(resources):
    uid = resources.apply().uid
    assert effect(resources, uid) == "apply"
    resources.world.clock.forward(30 * DAY_MS)
    assert prune(resources) == (0, 0)
    resources.world.clock.forward(DAY_MS + 1)
    assert prune(resources) == (1, 0)
    assert resources.view(uid).effects == ()
    assert effect(resources, uid) == "apply", "it is another occasion"


def test_an_effect_that_is_asked_for_now_and_then_stays(resources):
    uid = resources.apply().uid
    effect(resources, uid)
    for _ in range(5):
        resources.world.clock.forward(20 * DAY_MS)
        assert effect(resources, uid) == "applied"
        assert prune(resources) == (0, 0)


def test_an_effect_that_is_not_settled_stays_and_one_that_a_person_settled_stays_for_its_time(resources):
    uid, key = ambiguous(resources)
    resources.world.clock.forward(90 * DAY_MS)
    assert prune(resources) == (0, 0)
    word(resources, uid, "happened", effect_key=key)
    assert prune(resources) == (0, 0)
    resources.world.clock.forward(32 * DAY_MS)
    assert prune(resources) == (1, 0)


def test_what_a_resource_has_printed_is_no_gone_runs_as_long_as_it_has_a_row(resources):
    uid = resources.apply().uid
    assert resources.world.read(gone_runs, (uid, "nobody")) == ("nobody",)


def test_that_an_effect_is_asked_for_is_written_once_a_day(resources):
    uid = resources.apply().uid
    effect(resources, uid)
    (before,) = resources.world.sql("SELECT asked_wall_ms FROM effects")
    resources.world.clock.forward(DAY_MS // 2)
    effect(resources, uid)
    assert resources.world.sql("SELECT asked_wall_ms FROM effects") == [before]


def test_the_effects_of_runs_do_not_go_by_this(resources):
    resources.world.clock.forward(90 * DAY_MS)
    sender = resources.world.run(graph(node("send", "action", effect=MANUAL)))
    sender.finish("sent", settled="applied")
    resources.world.clock.forward(90 * DAY_MS)
    assert prune(resources) == (0, 0)
    assert resources.world.sql("SELECT count(*) FROM effects") == [(1,)]


# --- events -----------------------------------------------------------------------------------------------------


def test_of_a_long_history_the_newest_stay_and_what_is_older_than_thirty_days_goes(resources):
    uid = resources.apply().uid
    talk(resources, uid, EVENTS_KEPT + 2 * REMOVED_MAX)
    revision = resources.view(uid).summary.resource_version
    assert prune(resources) == (0, 0), "they are recent"
    resources.world.clock.forward(31 * DAY_MS)
    assert prune(resources) == (0, revision - EVENTS_KEPT)
    assert history(resources, uid) == list(range(revision - EVENTS_KEPT + 1, revision + 1))
    assert prune(resources) == (0, 0)


def test_what_is_recent_stays_however_much_it_is(resources):
    uid = resources.apply().uid
    talk(resources, uid, REMOVED_MAX)
    old = resources.view(uid).summary.resource_version
    resources.world.clock.forward(31 * DAY_MS)
    talk(resources, uid, EVENTS_KEPT + REMOVED_MAX)
    assert prune(resources) == (0, old)
    assert history(resources, uid)[0] == old + 1
    resources.world.clock.forward(31 * DAY_MS)
    assert prune(resources)[1] > 0
    assert len(history(resources, uid)) == EVENTS_KEPT


def test_a_short_history_stays_however_old_it_is(resources):
    uid = resources.apply().uid
    talk(resources, uid, EVENTS_KEPT - 2 * EVENTS_AT_ONCE)
    before = history(resources, uid)
    resources.world.clock.forward(400 * DAY_MS)
    assert prune(resources) == (0, 0)
    assert history(resources, uid) == before


@pytest.mark.parametrize(
    ("name", "index"),
    [("old_effect", "effects_asked"), ("old_effects", "effects_asked"), ("to_trim", "resources_to_trim")],
)
def test_what_is_to_go_is_found_by_an_index_that_has_nothing_else(resources, name, index):
    sql = dict(load_queries("pwf/store/resource_retention.sql"))[name]
    facts = dict.fromkeys(re.findall(r":([a-z_]+)", sql), 1)
    plan = [row[3] for row in resources.world.sql(f"EXPLAIN QUERY PLAN {sql}", facts)]
    assert re.match(rf"SEARCH \w+ USING INDEX {index} ", plan[0]), plan
    assert not [step for step in plan if "SCAN" in step or "TEMP B-TREE" in step]
