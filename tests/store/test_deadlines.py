"""A question with a deadline has one winner: whoever answers in time, else its default or the way out `timed_out`."""

import pytest

from pwf.errors import Conflict
from pwf.store import request_clock
from pwf.store.deadlines import Q, next_deadline, time_out
from tests.store.test_home import ELSEWHERE, serve
from tests.store.world import graph, node

HOUR = 3_600_000
DEFAULT = graph(
    node("gate", "checkpoint", cases={"ship": "ship", "revise": "gate"}, open_ms=HOUR, default='"ship"'),
    node("ship"),
)
WAY = graph(
    node("gate", "checkpoint", to="ship", on={"timed_out": "late"}, open_ms=HOUR), node("ship"), node("late")
)
NONE = graph(node("gate", "checkpoint", to="ship", open_ms=HOUR), node("ship"))


def ask(world, flow=DEFAULT):
    return world.asking(flow, "ship it?", timeout_ms=HOUR)


def in_ms(world):
    return world.read(next_deadline, None).in_ms


def test_the_clock_starts_when_the_question_is_stored(world):
    assert in_ms(world) is None
    run_id = ask(world)
    assert in_ms(world) == HOUR
    request = world.view(run_id).request
    assert request.deadline_ms == request.created_ms + HOUR
    assert bytes(request.default.json) == b'"ship"'


def test_nothing_is_settled_before_its_time(world):
    run_id = ask(world)
    world.clock.forward(HOUR - 1)
    before = world.dump()
    assert world.do(time_out) is None
    assert world.dump() == before
    world.answer(run_id, "revise")
    assert world.launch(run_id).launch.node == "gate"


def test_the_default_is_the_answer_once_when_the_time_is_over(world):
    run_id = ask(world)
    world.clock.forward(HOUR)
    assert in_ms(world) == 0
    assert world.do(time_out) == world.request_of(run_id)
    assert world.do(time_out) is None
    request = world.view(run_id).request
    assert (request.status, request.answered_by, bytes(request.answer.json)) == (
        "settled",
        "timeout",
        b'"ship"',
    )
    assert world.trail(run_id) == ["gate.1 completed"]
    (launched,) = [world.launch(run_id)]
    assert (launched.launch.node, bytes(launched.launch.past[0].output.json)) == ("ship", b'"ship"')


def test_without_a_default_the_way_out_for_timed_out_is_taken(world):
    run_id = ask(world, WAY)
    world.clock.forward(HOUR)
    world.do(time_out)
    request = world.view(run_id).request
    assert (request.status, request.answered_by, request.answer) == ("cancelled", "timeout", None)
    assert world.trail(run_id) == ["gate.1 timed_out"]
    assert world.launch(run_id).launch.node == "late"


def test_without_either_the_run_has_timed_out(world):
    run_id = ask(world, NONE)
    world.clock.forward(HOUR)
    world.do(time_out)
    assert world.status(run_id) == "timed_out"
    assert world.view(run_id).summary.reason == "gate: nobody answered in time"


@pytest.mark.parametrize("flow", [DEFAULT, WAY])
def test_a_run_whose_time_is_over_while_its_runner_still_leaves_goes_on_after_that_runners_end(world, flow):
    runner = world.run(flow)
    assert runner.ask("ship it?", timeout_ms=HOUR) == "park"
    world.clock.forward(HOUR)
    assert world.do(time_out) is not None
    assert world.admit() == ()
    runner.leave()
    assert world.launch(runner.run_id).launch.node in ("ship", "late")


@pytest.mark.parametrize("late_ms", [0, 1])
def test_nobody_wins_at_or_after_the_deadline_though_the_daemon_is_late(world, late_ms):
    run_id = ask(world)
    world.clock.forward(HOUR + late_ms)
    before = world.dump()
    with pytest.raises(Conflict, match=r"the time to answer request .* is over"):
        world.answer(run_id, "revise")
    assert world.dump() == before
    world.do(time_out)
    with pytest.raises(Conflict, match="answered by timeout already"):
        world.answer(run_id, "revise")


def test_an_answer_a_millisecond_before_the_deadline_wins(world):
    run_id = ask(world)
    world.clock.forward(HOUR - 1)
    world.answer(run_id, "revise")
    world.clock.forward(1)
    assert world.do(time_out) is None
    assert world.view(run_id).request.answered_by == "client:ann"


def test_a_stepped_wall_clock_moves_no_deadline_within_a_boot(world):
    run_id = ask(world)
    world.clock.wall_ms += 24 * HOUR
    assert world.do(time_out) is None
    assert world.view(run_id).request.deadline_ms == world.clock.wall_ms + HOUR
    world.clock.wall_ms -= 48 * HOUR
    world.clock.forward(HOUR)
    assert world.do(time_out) == world.request_of(run_id)


def test_the_machines_sleep_counts(world):
    ask(world)
    world.clock.wall_ms += HOUR
    world.clock.elapsed_ms += HOUR  # and not the awake clock
    assert world.do(time_out) is not None


def test_across_a_reboot_the_wall_clock_says_what_is_left(world):
    ask(world)
    world.reboot(away_ms=HOUR - 10)
    assert world.do(request_clock.rebase_deadlines) == 1
    assert in_ms(world) == 10
    world.clock.forward(10)
    assert world.do(time_out) is not None


def test_a_deadline_that_passed_while_no_daemon_ran_is_settled_at_the_next_start(world):
    ask(world)
    world.reboot(away_ms=5 * HOUR)
    world.do(request_clock.rebase_deadlines)
    assert world.do(time_out) is not None


def test_the_clock_stands_still_while_the_run_is_paused(world):
    run_id = ask(world)
    world.clock.forward(HOUR - 10)
    world.pause(run_id)
    world.clock.forward(24 * HOUR)
    assert (in_ms(world), world.do(time_out)) == (None, None)
    request = world.view(run_id).request
    assert (request.status, request.left_ms, request.deadline_ms) == ("pending", 10, None)
    assert "for another 0.0 s once it goes on" in world.why(run_id).reason
    world.resume(run_id)
    assert in_ms(world) == 10
    world.clock.forward(10)
    assert world.do(time_out) is not None


def test_a_pause_that_comes_after_the_deadline_lets_nobody_win(world):
    run_id = ask(world)
    world.clock.forward(HOUR)
    world.pause(run_id)
    with pytest.raises(Conflict, match="the time to answer") as refused:
        world.answer(run_id, "revise")
    assert f"pwf resume {run_id}" in refused.value.hint, "nothing has come of it yet"
    assert "was not answered in time" in world.why(run_id).reason
    world.resume(run_id)
    world.do(time_out)
    assert world.view(run_id).request.answered_by == "timeout"


def test_a_pause_across_a_reboot_keeps_what_is_left(world):
    run_id = ask(world)
    world.reboot(away_ms=1_000)
    world.pause(run_id)  # before anything was rebased
    world.reboot(away_ms=24 * HOUR)
    world.do(request_clock.rebase_deadlines)
    assert world.do(time_out) is None
    world.resume(run_id)
    assert in_ms(world) == HOUR - 1_000


def test_a_question_under_a_pause_begins_to_be_open_when_the_run_is_resumed(world):
    runner = world.run(DEFAULT)
    world.pause(runner.run_id)
    runner.ask(timeout_ms=HOUR)
    runner.leave()
    world.clock.forward(24 * HOUR)
    assert in_ms(world) is None
    world.resume(runner.run_id)
    assert in_ms(world) == HOUR


def test_an_answer_under_a_pause_is_taken_and_the_run_does_not_go_on(world):
    run_id = ask(world)
    world.pause(run_id)
    world.clock.forward(24 * HOUR)
    assert world.answer(run_id, "ship").status == "paused"
    assert world.do(time_out) is None


def restored_after(world, ms):
    """A run whose question was asked, and so long later its home is a copy."""
    run_id = ask(world)
    world.clock.forward(ms)
    serve(world)
    serve(world, **ELSEWHERE)
    assert world.view(run_id).summary.hold == "restored"
    return run_id


def test_a_restored_home_times_nothing_out_before_its_run_is_resumed(world):
    run_id = restored_after(world, 24 * HOUR)
    assert world.do(time_out) is None
    world.resume(run_id)
    assert world.do(time_out) == world.request_of(run_id)


def test_in_a_restored_home_a_person_may_answer_after_the_deadline_until_the_run_is_resumed(world):
    run_id = restored_after(world, 24 * HOUR)
    told = world.why(run_id)
    assert "can be answered only now" in told.reason
    assert told.commands[0].startswith(f"pwf answer {world.request_of(run_id)}")
    assert world.answer(run_id, "revise").status == "held"
    assert world.do(time_out) is None
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "gate"


def test_a_closed_question_is_never_due(world):
    run_id = ask(world)
    world.cancel(run_id)
    world.clock.forward(HOUR)
    assert (in_ms(world), world.do(time_out)) == (None, None)


def test_those_that_are_due_go_one_at_a_time_the_oldest_first(world):
    asked = []
    for _ in range(3):
        asked.append(world.request_of(ask(world)))
        world.clock.forward(1)
    world.clock.forward(HOUR)
    assert [world.do(time_out) for _ in range(4)] == [*asked, None]


def test_a_run_that_can_not_be_handled_is_parked_and_keeps_nobody_waiting(world):
    broken, sound = ask(world), ask(world)
    world.checked = False
    world.sql("UPDATE runs SET visits = x'00' WHERE run_id = :run", {"run": broken})
    world.clock.forward(HOUR)
    assert {world.do(time_out), world.do(time_out)} == {world.request_of(broken), world.request_of(sound)}
    assert (world.row(broken)["hold"], world.row(sound)["status"]) == ("broken", "queued")
    assert world.do(time_out) is None


def test_an_open_request_of_an_ended_run_keeps_nobody_waiting(world):
    run_id = ask(world)
    request_id = world.request_of(run_id)
    world.cancel(run_id)
    world.checked = False
    world.sql("UPDATE requests SET status = 'pending', settled_wall_ms = NULL")
    world.clock.forward(HOUR)
    assert (world.do(time_out), world.do(time_out)) == (request_id, None)


def test_a_request_of_an_ended_run_that_can_not_be_read_keeps_nobody_waiting(world):
    run_id = ask(world)
    request_id = world.request_of(run_id)
    world.cancel(run_id)
    world.checked = False
    world.sql("UPDATE requests SET status = 'pending', settled_wall_ms = NULL")
    world.sql("UPDATE runs SET visits = x'00'")
    world.clock.forward(HOUR)
    assert (world.do(time_out), world.do(time_out)) == (request_id, None)


def test_a_run_that_was_parked_as_broken_at_its_deadline_waits_again_when_it_is_mended_and_resumed(world):
    run_id = ask(world)
    ((visits,),) = world.sql("SELECT visits FROM runs")
    world.checked = False
    world.sql("UPDATE runs SET visits = x'00'")
    world.clock.forward(HOUR)
    world.do(time_out)
    assert world.row(run_id)["hold"] == "broken"
    world.sql("UPDATE runs SET visits = :visits", {"visits": visits})
    world.checked = True
    world.resume(run_id)
    assert (world.status(run_id), in_ms(world), world.admit()) == ("waiting", 0, ())
    world.do(time_out)
    assert world.launch(run_id).launch.node == "ship"


def test_explain_says_what_the_deadline_brings(world):
    assert 'at its deadline the answer is its default, "ship"' in world.why(ask(world)).changes_when
    assert "at its deadline it has timed out" in world.why(ask(world, WAY)).changes_when


def test_what_is_due_next_is_found_by_an_index_whatever_else_is_open(world):
    for sql in (Q.next_by_wall, Q.next_by_elapsed):
        (plan,) = world.sql(f"EXPLAIN QUERY PLAN {sql}")
        assert "USING INDEX requests_due_" in plan[3]
