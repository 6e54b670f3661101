"""Settings of a run: changes in order, one copy for each attempt, and a route that a change has overtaken."""

import msgspec
import pytest

from pwf.errors import Rejected
from pwf.protocol.graph import MountSpec
from pwf.protocol.runner import Finish
from pwf.protocol.settings import PathRule, SettingsSpec
from pwf.store.launch import LaunchTerms
from pwf.store.receipts import ReceiptKey
from pwf.store.settings import (
    ChangeSettings,
    CheckQuery,
    SettingsQuery,
    change_settings,
    settings_facts,
    settings_launch,
)
from tests.store.test_fork import fork
from tests.store.test_retention import pass_days, prune
from tests.store.world import IDEMPOTENT, PARTS, graph, linear, node

SPEC = SettingsSpec(initial='{"n":0}', paths=(PathRule(path="", may={"human": ("replace",)}),))


def routed(*more, kind="settings_route", settings=SPEC):
    """a routes by the settings; then b."""
    return graph(node("a", kind, to="b"), node("b"), *more, settings=settings)


def change(world, run_id, n, *, on, receipt=None, scope="", entry=0):
    value = msgspec.json.encode({"n": n})
    command = ChangeSettings(
        run_id=run_id,
        scope=scope,
        entry=entry,
        change=on,
        value=value,
        paths=("replace /n",),
        actor="client:ann",
        receipt=receipt,
    )
    return world.do(change_settings, command)


def changed_twice(world):
    """A run that is running, with settings at change 2."""
    runner = world.run(routed())
    change(world, runner.run_id, 1, on=0)
    change(world, runner.run_id, 2, on=1)
    return runner


def facts(world, run_id, scope=""):
    return world.read(settings_facts, SettingsQuery(run_id=run_id, scope=scope))


def test_settings_are_as_declared_until_they_are_changed_and_then_numbered(world):
    runner = world.run(routed())
    assert (facts(world, runner.run_id).change, facts(world, runner.run_id).value) == (0, b'{"n":0}')
    assert change(world, runner.run_id, 5, on=0).change == 1
    assert change(world, runner.run_id, 6, on=1).change == 2
    assert facts(world, runner.run_id).value == b'{"n":6}'
    assert world.view(runner.run_id).settings_change == 2


def test_a_change_of_what_was_changed_since_commits_nothing_and_is_no_refusal_either(world):
    runner = changed_twice(world)
    key = ReceiptKey(scope_key="k", operation="settings.change", payload_digest="d")
    assert change(world, runner.run_id, 9, on=1, receipt=key) is None
    assert facts(world, runner.run_id).value == b'{"n":2}'
    assert change(world, runner.run_id, 9, on=2, receipt=key).change == 3
    assert change(world, runner.run_id, 9, on=1, receipt=key).change == 3  # the repeat
    assert facts(world, runner.run_id).change == 3


def test_what_leaves_them_as_they_are_is_no_change(world):
    runner = changed_twice(world)
    revision = world.row(runner.run_id)["revision"]
    done = world.done(
        change_settings,
        ChangeSettings(run_id=runner.run_id, change=2, value=b'{"n":2}', paths=(), actor="client:ann"),
    )
    assert (done.adopted, done.result.change) == (True, 2)
    assert world.row(runner.run_id)["revision"] == revision


def test_a_run_that_has_ended_takes_none(world):
    runner = world.run(routed())
    world.cancel(runner.run_id)
    with pytest.raises(Rejected, match="has ended"):
        change(world, runner.run_id, 1, on=0)


def test_a_run_without_settings_says_so(world):
    runner = world.run(linear(1))
    with pytest.raises(Rejected, match="has no settings"):
        facts(world, runner.run_id)
    assert runner.launch.settings is None
    assert world.view(runner.run_id).settings_change is None


def test_a_launch_and_the_answer_to_a_step_bring_the_newest(world):
    runner = world.run(routed(kind="compute"))
    assert runner.launch.settings.change == 0
    change(world, runner.run_id, 7, on=0)
    [reply] = runner.apply([runner.finished(to="b")]).replies
    assert (reply.verdict, reply.settings.change, bytes(reply.settings.value)) == ("go", 1, b'{"n":7}')
    runner.gone()
    assert world.launch(runner.run_id).launch.settings.change == 1


def test_who_knows_the_newest_is_not_told_again(world):
    runner = world.run(routed(kind="compute"))
    [reply] = runner.apply([runner.finished(to="b")]).replies
    assert (reply.verdict, reply.settings) == ("go", None)


def test_of_several_answers_only_the_last_brings_them(world):
    runner = world.run(graph(node("a", to="b"), node("b", to="c"), node("c"), settings=SPEC))
    change(world, runner.run_id, 7, on=0)
    replies = runner.apply([runner.finished(to="b"), runner.finished(to="c")]).replies
    assert [reply.settings is not None for reply in replies] == [False, True]


def test_a_route_that_a_change_has_overtaken_runs_again(world):
    runner = world.run(routed())
    change(world, runner.run_id, 7, on=0)
    assert runner.finish({"to": "b"}, to="b") == "park"
    assert world.status(runner.run_id) == "queued"
    assert [step.status for step in world.view(runner.run_id).steps] == ["interrupted"]
    runner.leave()
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.visit, again.launch.settings.change) == ("a", 1, 1)
    assert again.finish({"to": "b"}, to="b", settings=1) == "go"


def test_a_route_that_knows_the_newest_goes_on(world):
    runner = changed_twice(world)
    assert runner.finish(to="b", settings=2) == "go"


def test_a_route_that_failed_by_settings_that_were_changed_since_runs_again(world):
    runner = world.run(routed())
    change(world, runner.run_id, 7, on=0)
    assert runner.fail() == "park"
    runner.leave()
    again = world.launch(runner.run_id)
    assert again.launch.settings.change == 1
    assert again.fail(settings=1) == "end"


def test_what_follows_an_overtaken_route_in_one_message_is_thrown_away(world):
    runner = world.run(routed())
    change(world, runner.run_id, 7, on=0)
    replies = runner.apply([runner.finished(to="b"), runner.finished()]).replies
    assert [reply.verdict for reply in replies] == ["park", "park"]
    assert world.view(runner.run_id).steps_total == 1


def test_the_repeat_of_an_overtaken_routes_message_gets_the_same_answer(world):
    runner = world.run(routed())
    change(world, runner.run_id, 7, on=0)
    message = runner.finished(to="b")
    assert isinstance(message, Finish)
    assert runner.send(message) == ["park"]
    assert runner.send(message) == ["park"]


def test_a_pause_holds_an_overtaken_route(world):
    runner = world.run(routed())
    change(world, runner.run_id, 7, on=0)
    world.pause(runner.run_id)
    assert runner.finish(to="b") == "park"
    runner.leave()
    assert world.status(runner.run_id) == "paused"


def test_a_check_is_told_the_value_and_nothing_of_the_run_changes(world):
    runner = world.run(routed())
    revision = world.row(runner.run_id)["revision"]
    query = CheckQuery(run_id=runner.run_id, value=b"1", terms=LaunchTerms(), marker="m")
    launch = world.read(settings_launch, query)
    assert (launch.judges_settings, bytes(launch.judge.json), launch.marker) == (True, b"1", "m")
    assert world.row(runner.run_id)["revision"] == revision


@pytest.mark.parametrize(
    ("declares", "value"), [(SPEC, b'{"n":2}'), (msgspec.structs.replace(SPEC, initial="3"), b"3")]
)
def test_a_retry_goes_on_with_the_settings_where_its_code_declares_the_same(world, declares, value):
    runner = changed_twice(world)
    runner.fail(settings=2)
    runner.leave()
    forked = fork(world, runner.run_id, flow=routed(settings=declares))
    assert (facts(world, forked.run_id).change, facts(world, forked.run_id).value) == (0, value)


def test_they_go_with_their_run(world):
    runner = changed_twice(world)
    world.cancel(runner.run_id)
    runner.gone()
    pass_days(world, 31)
    prune(world)
    assert world.sql("SELECT count(*) FROM settings") == [(0,)]


def looped(**more):
    """m is entered, m.a routes by the settings of what is included; then `again` leads to m, or ends."""
    mount = MountSpec(workflow="child", exits={"out": ("m.a",)}, settings=SPEC)
    entry = msgspec.structs.replace(node("m", "include", to="m.a"), mount=mount)
    return graph(
        entry,
        node("m.a", "settings_route", to="again"),
        node("again", cases={1: "m", 2: "end"}),
        node("end"),
        **more,
    )


def test_each_entry_of_an_included_workflow_has_settings_of_its_own(world):
    runner = world.run(looped(settings=SPEC))
    with pytest.raises(Rejected, match="is not in 'm' now"):
        facts(world, runner.run_id, "m")
    runner.finish(to="m.a")
    assert (facts(world, runner.run_id, "m").entry, facts(world, runner.run_id, "m").value) == (1, b'{"n":0}')
    assert change(world, runner.run_id, 1, on=0).change == 1
    assert change(world, runner.run_id, 5, on=1, scope="m", entry=1).change == 2
    assert change(world, runner.run_id, 6, on=1, scope="m", entry=1) is None
    assert [facts(world, runner.run_id, scope).value for scope in ("", "m")] == [b'{"n":1}', b'{"n":5}']
    runner.finish(to="again", settings=2)
    runner.finish(1, to="m")
    runner.finish(to="m.a")
    assert (facts(world, runner.run_id, "m").entry, facts(world, runner.run_id, "m").value) == (2, b'{"n":0}')
    assert change(world, runner.run_id, 6, on=2, scope="m", entry=1) is None, (
        "it was made for the entry before"
    )
    assert change(world, runner.run_id, 7, on=2, scope="m", entry=2).change == 3
    assert world.sql("SELECT count(*) FROM events WHERE kind = 'settings_changed'") == [(3,)]


def test_only_a_change_of_its_own_settings_overtakes_a_route(world):
    runner = world.run(looped(settings=SPEC))
    runner.finish(to="m.a")
    change(world, runner.run_id, 1, on=0)
    assert runner.finish(to="again") == "go"
    runner.finish(1, to="m")
    runner.finish(to="m.a")
    change(world, runner.run_id, 2, on=1, scope="m", entry=2)
    assert runner.finish(to="again", settings=1) == "park"


def test_a_scope_that_is_none_is_answered_with_those_that_are(world):
    run_id = world.run(looped()).run_id
    with pytest.raises(Rejected, match="itself has no settings") as refused:
        facts(world, run_id)
    assert refused.value.hint == "the run has: --scope m"
    with pytest.raises(Rejected, match="includes as 'x' has no settings"):
        facts(world, run_id, "x")


def test_a_retry_within_an_included_workflow_goes_on_with_that_entrys_settings(world):
    runner = world.run(looped())
    runner.finish(to="m.a")
    change(world, runner.run_id, 5, on=0, scope="m", entry=1)
    runner.fail(settings=1)
    runner.leave()
    forked = fork(world, runner.run_id, flow=looped())
    found = facts(world, forked.run_id, "m")
    assert (found.entry, found.change, found.value) == (1, 0, b'{"n":5}')
    launch = world.launch(forked.run_id).launch
    assert bytes(launch.settings.scopes["m"].value) == b'{"n":5}'


def paying(kind):
    return graph(node("a", "action", effect=kind, to="b"), node("b"), settings=SPEC)


@pytest.mark.parametrize("when", ["during the try", "between two"])
def test_a_further_try_sees_the_settings_by_which_an_effect_was_begun(world, when):
    runner = world.run(paying(IDEMPOTENT))
    if when == "during the try":
        change(world, runner.run_id, 7, on=0)
    runner.gone()
    change(world, runner.run_id, 8, on=1 if when == "during the try" else 0)
    again = world.launch(runner.run_id)
    assert (again.launch.tries, again.launch.settings.change) == (2, 0)
    (reply,) = again.apply([again.finished(to="b", settings=0)]).replies
    assert bytes(reply.settings.value) == b'{"n":8}', "the next step sees the newest"


def test_a_further_try_sees_the_newest_where_no_effect_was_begun(world):
    runner = world.run(paying(PARTS))
    change(world, runner.run_id, 7, on=0)
    runner.gone()
    again = world.launch(runner.run_id)
    assert again.launch.settings.change == 1
    again.part("p")
    again.settle("p")
    change(world, runner.run_id, 8, on=1)
    again.gone()
    world.clock.forward(1_000)
    assert world.launch(runner.run_id).launch.settings.change == 1


def test_a_further_try_within_what_is_included_sees_those_of_its_entry(world):
    mount = MountSpec(workflow="child", exits={"out": ("m.a",)}, settings=SPEC)
    entry = msgspec.structs.replace(node("m", "include", to="m.a"), mount=mount)
    pays = node("m.a", "action", effect=IDEMPOTENT, to="end")
    runner = world.run(graph(entry, pays, node("end"), settings=SPEC))
    runner.finish(to="m.a")
    change(world, runner.run_id, 5, on=0, scope="m", entry=1)
    change(world, runner.run_id, 6, on=1)
    change(world, runner.run_id, 7, on=2, scope="m", entry=1)
    runner.gone()
    again = world.launch(runner.run_id).launch.settings
    assert (again.change, bytes(again.scopes["m"].value)) == (0, b'{"n":0}')


def test_a_fork_says_which_changed_settings_it_has_not(world):
    other = msgspec.structs.replace(SPEC, initial="3")
    unchanged = world.run(routed())
    unchanged.fail()
    unchanged.leave()
    runner = changed_twice(world)
    runner.fail(settings=2)
    runner.leave()
    assert fork(world, runner.run_id, flow=routed(), repeat_effects=True).warnings == ()
    (said,) = fork(world, runner.run_id, "a", flow=routed(settings=other)).warnings
    assert said == (
        f"its settings are as declared: the code declares them otherwise than that of run {runner.run_id}, where "
        "they were changed"
    )
    (said,) = fork(world, runner.run_id, "a", flow=routed(settings=None)).warnings
    assert said.startswith("its settings are gone")
    assert fork(world, unchanged.run_id, flow=routed(settings=other)).warnings == ()
