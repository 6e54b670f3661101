"""Lists and views: every run exactly once, what people see is what is filtered by, and every page fits a frame."""

import msgspec
import pytest

from pwf.errors import NotFound
from pwf.protocol.frames import FRAME_BYTES_MAX
from pwf.protocol.operations import EffectListPayload, RunListPayload
from pwf.protocol.runner import UPDATE_BYTES_MAX, UPDATES_MAX, Publish, StepError
from pwf.store.effect_rows import effect_list
from pwf.store.read_runs import (
    EventsQuery,
    Refers,
    RunQuery,
    list_runs,
    refers,
    run_events,
    run_summary,
    run_view,
)
from pwf.store.updates import PublishUpdates, publish_updates
from tests.store.channel_world import ChannelWorld
from tests.store.test_control import (
    ambiguous,
    due_later,
    no_progress,
    paused,
    queued,
    running,
    source_changed,
    unreaped_waiting,
    waiting,
)
from tests.store.test_decisions import ask
from tests.store.world import IDEMPOTENT, MANUAL, graph, linear, node


def pages(world, **query):
    """All pages of a list: run ids per page."""
    found, cursor = [], None
    while True:
        listed = world.do(list_runs, RunListPayload(cursor=cursor, **query))
        found.append([run.run_id for run in listed.runs])
        cursor = listed.next_cursor
        if cursor is None:
            return found


def ids(world, **query):
    return [run_id for page in pages(world, **query) for run_id in page]


def paused_waiting(world):
    run_id = waiting(world)
    world.pause(run_id)
    return run_id


def completed(world):
    runner = world.run(linear(1))
    runner.finish()
    runner.leave()
    return runner.run_id


SHOWN = {
    queued: "queued",
    due_later: "queued",
    running: "running",
    waiting: "waiting",
    paused: "paused",
    paused_waiting: "paused",
    no_progress: "held",
    source_changed: "held",
    unreaped_waiting: "held",
    ambiguous: "ambiguous",
    completed: "completed",
}


@pytest.fixture
def one_of_each(world):
    """status -> ids, newest first."""
    found: dict[str, list[str]] = {}
    makers = sorted(SHOWN, key=lambda make: make in (queued, due_later))  # those that may be admitted last
    for make in makers * 2:
        if make is queued:
            continue
        found.setdefault(SHOWN[make], []).insert(0, make(world))
    found["queued"].insert(0, queued(world))
    return found


def test_a_list_is_newest_first_and_pages_meet(world):
    runs = [world.start(linear(1)) for _ in range(7)][::-1]
    for limit in (1, 2, 3, 6, 7, 8):
        found = pages(world, limit=limit)
        assert [run_id for page in found for run_id in page] == runs
        assert all(len(page) <= limit for page in found)


def test_a_list_by_status_shows_what_people_see(world, one_of_each):
    for status, runs in one_of_each.items():
        for limit in (1, 2, 100):
            assert ids(world, statuses=(status,), limit=limit) == runs, status
        listed = world.do(list_runs, RunListPayload(statuses=(status,)))
        assert {run.status for run in listed.runs} == {status}


def test_several_statuses_are_one_list(world, one_of_each):
    wanted = ("held", "paused", "waiting", "ambiguous")
    order = {run_id: number for number, run_id in enumerate(ids(world))}
    runs = sorted((run for status in wanted for run in one_of_each[status]), key=order.__getitem__)
    for limit in (1, 3, 100):
        assert ids(world, statuses=wanted, limit=limit) == runs


def test_a_list_by_workflow_and_status_has_both(world):
    other = graph(node("a"), name="other")
    mine = []
    for number in range(40):
        run_id = world.start(other if number % 10 == 0 else linear(1))
        if number % 10 == 0:
            mine.insert(0, run_id)
    world.pause(mine[1])
    assert ids(world, workflow="other", limit=3) == mine
    assert ids(world, workflow="other", statuses=("queued",), limit=2) == [mine[0], *mine[2:]]
    assert ids(world, workflow="other", statuses=("paused", "completed"), limit=1) == [mine[1]]
    assert ids(world, workflow="nothing") == []


def test_a_summary_names_hold_request_and_parent(world):
    run_id = unreaped_waiting(world)
    summary = world.view(run_id).summary
    assert (summary.status, summary.hold) == ("held", "process_unreaped")
    assert summary.request_id == world.request_of(run_id)
    assert "could not be shown dead" in summary.reason


@pytest.mark.parametrize("query", [run_summary, run_view])
def test_an_unknown_run_is_not_found(world, query):
    with pytest.raises(NotFound):
        world.do(query, RunQuery(run_id="none"))


@pytest.mark.parametrize(
    ("make", "controls"),
    [
        (queued, ("pause", "cancel")),
        (running, ("pause", "cancel")),
        (waiting, ("pause", "cancel", "answer")),
        (paused_waiting, ("resume", "cancel", "answer")),
        (paused, ("resume", "cancel")),
        (ambiguous, ("recover", "pause", "cancel")),
        (completed, ("restart", "fork")),
    ],
)
def test_controls_are_what_is_possible_now(world, make, controls):
    assert world.view(make(world)).controls == controls


# --- one run --------------------------------------------------------------------------------------------------------


def test_steps_come_in_pages_the_newest_first(world):
    flow = graph(node("a", to="b"), node("b", to="a"), max_steps=50)
    runner = world.run(flow)
    for number in range(20):
        runner.finish(number, to="b" if number % 2 == 0 else "a")
    last = world.do(run_view, RunQuery(run_id=runner.run_id, limit=8))
    assert [step.attempt for step in last.steps] == list(range(14, 22))
    assert (last.steps_total, last.steps[-1].status) == (21, "active")
    before = world.do(run_view, RunQuery(run_id=runner.run_id, limit=8, before_attempt=14))
    assert [step.attempt for step in before.steps] == list(range(6, 14))
    assert before.steps[0].summary == "5"
    assert bytes(before.steps[0].output.json) == b"5"


def test_the_steps_of_one_node_come_in_pages_of_their_own(world):
    flow = graph(node("a", to="b"), node("b", to="a"), max_steps=50)
    runner = world.run(flow)
    for number in range(8):
        runner.finish(number, to="b" if number % 2 == 0 else "a")
    only_b = RunQuery(run_id=runner.run_id, node="b", limit=2)
    assert [step.attempt for step in world.do(run_view, only_b).steps] == [6, 8]
    earlier = RunQuery(run_id=runner.run_id, node="b", limit=2, before_attempt=6)
    assert [step.attempt for step in world.do(run_view, earlier).steps] == [2, 4]


def test_a_run_warns_at_four_fifths_of_max_steps_until_it_has_ended(world):
    runner = world.run(graph(node("a", to="b"), node("b", to="a"), max_steps=10))
    for number in range(6):
        runner.finish(to="b" if number % 2 == 0 else "a")
    assert (world.row(runner.run_id)["steps"], world.view(runner.run_id).warnings) == (7, ())
    runner.finish(to="b")
    (warning,) = world.view(runner.run_id).warnings
    assert warning == "it is in step 8 of at most 10 (max_steps): with more than 2 more it fails"
    runner.finish(to="a")
    runner.finish(to="b")
    (warning,) = world.view(runner.run_id).warnings
    assert warning == "it is in step 10 of at most 10 (max_steps): it fails if this is not the last"
    runner.fail()
    assert world.view(runner.run_id).warnings == ()


def test_texts_that_a_page_has_no_room_for_say_that_they_are_cut(world):
    runner = world.run(graph(node("a", to="a", on={"failed": "a"}), max_steps=2_000))
    big = StepError(code="node_failed", message="m" * 60_000, traceback="t" * 60_000)
    for _ in range(5):
        runner.finish(outcome="failed", error=big, to="a")
    first = world.view(runner.run_id).steps[0]
    assert first.error.message.endswith("m… (60,000 characters)")
    assert first.error.traceback == "(left out here: 60,000 characters)"
    assert first.summary.endswith("m… (60,000 characters)")


def test_a_view_fits_a_frame_whatever_its_run_has_put_there(world):
    flow = graph(node("a", to="a", on={"failed": "a"}), max_steps=2_000)
    runner = world.run(flow, input="i" * 4_000)
    big = StepError(code="node_failed", message="m" * 60_000, traceback="t" * 60_000)
    for number in range(120):
        if number % 3 == 0:
            runner.finish(outcome="failed", error=big, to="a")
        else:
            runner.finish("\x01" * 600, to="a")
    publish(world, runner, *[("progress", f"k{n}", b'"%s"' % (b"u" * 60_000)) for n in range(64)])
    view = world.view(runner.run_id)
    assert len(msgspec.json.encode(view)) < FRAME_BYTES_MAX
    assert len(view.steps) == 100
    assert view.steps[-1].attempt == 121
    omitted = [update for update in view.updates if b"omitted_bytes" in bytes(update.data)]
    assert len(view.updates) == 64
    assert 0 < len(omitted) < 64  # and it says so


def test_a_run_list_fits_a_frame_and_goes_on_from_where_it_ended(world):
    runs = []
    for _ in range(300):
        run_id = world.start(linear(1))
        world.checked = False
        world.cancel(run_id, reason="\x01" * 1_000)
        runs.insert(0, run_id)
    found = pages(world, limit=1_000)
    assert len(found) > 1
    assert [run_id for page in found for run_id in page] == runs
    page = world.do(list_runs, RunListPayload(limit=1_000))
    assert len(msgspec.json.encode(page)) < FRAME_BYTES_MAX


def test_events_come_in_order_and_pages_meet(world):
    runner = world.run(linear(3))
    for to in ("b", "c", None):
        runner.finish(to=to)
    found, after = [], 0
    while True:
        page = world.do(run_events, EventsQuery(run_id=runner.run_id, after_revision=after, limit=2))
        found += page.events
        if page.next_after is None:
            break
        after = page.next_after
    assert [event.revision for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event.actor for event in found] == ["client", "daemon", "daemon", "runner", "runner", "runner"]


def test_the_ledger_is_listed_by_status_oldest_first_or_newest_first(world):
    flow = graph(node("a", "action", effect=IDEMPOTENT, to="b"), node("b", "action", effect=MANUAL))
    runs = []
    for _ in range(3):
        runner = world.run(flow)
        runner.finish(to="b")
        runs.append(runner)
        world.clock.forward(1_000)
    runs[0].gone()
    everything = world.do(effect_list, EffectListPayload()).effects
    assert len(everything) == 6
    assert everything[0].run_id == runs[2].run_id
    applied = world.do(effect_list, EffectListPayload(statuses=("applied",), limit=2)).effects
    assert [effect.run_id for effect in applied] == [runs[0].run_id, runs[1].run_id]
    both = world.do(effect_list, EffectListPayload(statuses=("applying", "ambiguous"))).effects
    assert [(effect.run_id, effect.status) for effect in both] == [
        (runs[0].run_id, "ambiguous"),
        (runs[1].run_id, "applying"),
        (runs[2].run_id, "applying"),
    ]


def test_the_ledgers_list_has_what_channels_sent_only_where_asked_and_what_is_unsettled_always(world):
    phone = ChannelWorld(world, phone=("decide",))
    ask(world)
    work = phone.work("phone")

    def types(**query):
        return [effect.type for effect in world.read(effect_list, EffectListPayload(**query)).effects]

    assert types(statuses=("applying",)) == ["channel.decide"]
    assert phone.say("phone", work)
    assert types() == types(statuses=("applied",)) == ["write"]
    assert sorted(types(messages=True)) == ["channel.decide", "write"]


def test_a_digest_opens_only_what_the_run_refers_to(world):
    first = world.start(linear(1), input="x" * 5_000)
    second = world.start(linear(1))
    digest = world.view(first).input.digest
    assert world.do(refers, Refers(run_id=first, digest=digest)) is True
    assert world.do(refers, Refers(run_id=second, digest=digest)) is False
    assert world.do(refers, Refers(run_id=first, digest="0" * 64)) is False


# --- updates --------------------------------------------------------------------------------------------------------


def publish(world, runner, *records):
    updates = tuple(
        Publish(attempt=runner.attempt, kind=kind, key=key, data=msgspec.Raw(data))
        for kind, key, data in records
    )
    return world.do(publish_updates, PublishUpdates(fence=runner.fence, updates=updates)).dropped


def test_a_record_replaces_the_current_item_of_its_kind_and_key(world):
    runner = world.run(linear(1))
    revision = world.row(runner.run_id)["revision"]
    assert publish(world, runner, ("p", "b", b"1"), ("p", "a", b"2"), ("p", "b", b"3")) == 0
    shown = [(update.key, bytes(update.data)) for update in world.view(runner.run_id).updates]
    assert shown == [("a", b"2"), ("b", b"3")]
    assert world.row(runner.run_id)["revision"] == revision


def test_updates_beyond_the_limits_are_dropped_and_counted(world):
    runner = world.run(linear(1))
    assert publish(world, runner, *[("p", f"k{n}", b"1") for n in range(UPDATES_MAX + 3)]) == 3
    assert publish(world, runner, ("p", "k0", b"2")) == 0  # a known one may still change
    assert publish(world, runner, ("p", "k0", b'"%s"' % (b"x" * UPDATE_BYTES_MAX))) == 1
    assert bytes(world.view(runner.run_id).updates[0].data) == b"2"


def test_a_runner_is_told_which_updates_are_current_where_a_node_may_publish(world):
    runner = world.run(graph(node("a", "action", effect=IDEMPOTENT, to="b"), node("b")))
    publish(world, runner, ("p", "k", b"1"))
    assert runner.launch.updates == ()
    runner.gone()
    world.clock.forward(1_000)
    assert world.launch(runner.run_id).launch.updates == (("p", "k"),)


def progress_each_second(world, runner, counts, **more):
    for count in counts:
        world.clock.forward(1_000)
        publish(world, runner, ("progress", "files", msgspec.json.encode({"completed": count, **more})))


def test_progress_that_is_under_way_is_shown_with_rate_and_time_left(world):
    runner = world.run(linear(2))
    progress_each_second(world, runner, range(0, 60, 5), total=155)
    [shown] = world.view(runner.run_id).updates
    assert (shown.estimate.rate, shown.estimate.left_ms, shown.estimate.confidence) == (5, 20_000, "high")
    assert runner.finish(to="b") == "go"
    assert world.view(runner.run_id).updates[0].estimate is None  # of a step that has ended


def test_a_count_that_begins_again_and_another_attempt_begin_new_samples(world):
    runner = world.run(linear(2))
    progress_each_second(world, runner, range(0, 60, 5))
    publish(world, runner, ("progress", "files", b'{"completed":1}'))
    assert world.view(runner.run_id).updates[0].estimate is None
    progress_each_second(world, runner, range(5, 60, 5))
    publish(world, runner, ("progress", "files", b'{"phase":"no count"}'))
    assert world.view(runner.run_id).updates[0].estimate is not None
    assert runner.finish(to="b") == "go"
    progress_each_second(world, runner, [60])
    assert world.view(runner.run_id).updates[0].estimate is None


@pytest.mark.parametrize("data", [b"3", b'{"completed":"x"}', b'{"completed":-1}', b"[]"])
def test_what_is_no_count_is_kept_and_never_sampled(world, data):
    runner = world.run(linear(1))
    assert publish(world, runner, ("progress", "k", data)) == 0
    assert world.sql("SELECT samples FROM updates") == [(None,)]
    world.view(runner.run_id)


def test_a_stale_runner_publishes_nothing(world):
    runner = world.run(linear(1))
    runner.finish()
    before = world.dump()
    with pytest.raises(Exception, match="another owner"):
        publish(world, runner, ("p", "k", b"1"))
    assert world.dump() == before


# --- narrowed lists -------------------------------------------------------------------------------------------


def test_a_list_since_a_time_has_what_was_made_then_or_later(world):
    old = completed(world)
    world.clock.wall_ms += 60_000
    since = world.clock.now().wall_ms
    new = [completed(world) for _ in range(3)]
    assert ids(world, since_ms=since, limit=2) == [*reversed(new)]
    assert ids(world, since_ms=since, limit=2, workflow="none") == []
    assert old not in ids(world, since_ms=since)


def test_a_list_by_title_has_every_run_with_that_text_and_no_other(world):
    made = {}
    for title in ("Release 1.4", None, "release 1.5", "Straße"):
        run_id = completed(world)
        world.sql("UPDATE runs SET title = :title WHERE run_id = :run_id", {"title": title, "run_id": run_id})
        made[title] = run_id
    assert ids(world, title="RELEASE", limit=1) == [made["release 1.5"], made["Release 1.4"]]
    assert ids(world, title="strasse") == [made["Straße"]]
    assert ids(world, title="1.4", statuses=("completed",)) == [made["Release 1.4"]]
