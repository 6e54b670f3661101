"""What a runner proposes: accepted by the stored graph, applied in order, answered the same way twice."""

import msgspec
import pytest

from pwf.protocol.runner import Ask, Finish, Value, WaitUntil
from pwf.store.updates import PublishUpdates, publish_updates
from pwf.store.values import PutValueChunk, put_chunk
from pwf.values import digest
from tests.store.world import IDEMPOTENT, MANUAL, error, graph, linear, node, retry, value

SWITCH = graph(
    node("pick", cases={"left": "l", "right": "r"}, field="side"),
    node("l"),
    node("r"),
)


# --- ways -----------------------------------------------------------------------------------------------------


def test_a_linear_run_goes_from_start_to_output(world):
    runner = world.run(linear(3), input={"n": 1})
    assert runner.launch.node == "a"
    assert bytes(runner.launch.input.json) == b'{"n":1}'
    assert runner.finish(1, to="b") == "go"
    assert runner.finish(2, to="c") == "go"
    assert runner.finish({"x": 3}) == "end"
    runner.leave()
    view = world.view(runner.run_id)
    assert view.summary.status == "completed"
    assert bytes(view.output.json) == b'{"x":3}'
    assert world.trail(runner.run_id) == ["a.1 completed", "b.1 completed", "c.1 completed"]
    kinds = [row[0] for row in world.sql("SELECT kind FROM events WHERE entity_no <> 0 ORDER BY revision")]
    assert kinds == ["started", "admitted", "launched", *["step_finished"] * 3]


def test_a_switch_follows_the_value(world):
    runner = world.run(SWITCH)
    assert runner.finish({"side": "right"}, to="r") == "go"
    assert runner.current.node == "r"
    assert runner.finish() == "end"


def test_a_way_that_the_graph_has_not_is_refused_and_changes_nothing(world):
    runner = world.run(SWITCH)
    before = world.dump()
    applied = runner.apply([runner.make(Finish, outcome="completed", output=value(1), next="nowhere")])
    assert [reply.verdict for reply in applied.replies] == ["refused"]
    assert "no way from 'pick' to 'nowhere'" in applied.replies[0].error
    assert world.dump() == before


def test_a_run_may_not_end_where_the_graph_goes_on(world):
    runner = world.run(linear(2))
    assert runner.finish(1, to=None) == "refused"


def test_a_value_without_a_case_fails_the_run_with_value_and_cases(world):
    runner = world.run(SWITCH)
    text = "node 'pick' has no case for 'up'; its cases are 'left', 'right'"
    assert runner.finish({"side": "up"}, route_error=error(text, "routing_failed")) == "end"
    view = world.view(runner.run_id)
    assert view.summary.status == "failed"
    assert view.summary.reason == f"pick: {text}"
    assert view.error.code == "routing_failed"
    assert view.steps[0].status == "completed"


def test_a_failed_step_takes_its_way_out(world):
    flow = graph(node("a", on={"failed": "rescue"}, to="b"), node("b"), node("rescue"))
    runner = world.run(flow)
    assert runner.fail(to="rescue") == "go"
    assert runner.current.node == "rescue"
    assert runner.finish("saved") == "end"
    assert world.status(runner.run_id) == "completed"


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
def test_an_outcome_without_a_way_out_ends_the_run_with_it(world, outcome):
    runner = world.run(linear(2))
    assert runner.finish(outcome=outcome, error=error("no luck")) == "end"
    view = world.view(runner.run_id)
    assert view.summary.status == outcome
    assert view.summary.reason == "a: no luck"
    assert view.error.message == "no luck"


def test_max_steps_ends_a_loop_and_says_where(world):
    flow = graph(node("a", to="b"), node("b", to="a"), max_steps=5)
    runner = world.run(flow)
    for to in ("b", "a", "b", "a"):
        assert runner.finish(to=to) == "go"
    last = runner.finished(to="b")
    assert runner.send(last) == ["end"]
    view = world.view(runner.run_id)
    assert view.summary.status == "failed"
    assert "took 5 steps, its limit, and would enter 'b' next" in view.summary.reason
    assert runner.send(last) == ["end"]  # and a repeat hears the same


def test_a_second_visit_starts_with_no_tries(world):
    flow = graph(node("a", to="b", retry=retry(1)), node("b", cases={"again": "a", "done": "c"}), node("c"))
    runner = world.run(flow)
    assert runner.fail() == "park"
    runner.leave()
    world.clock.forward(1_000)
    runner = world.launch()
    runner.finish(to="b")
    runner.finish("again", to="a")
    assert world.row(runner.run_id) | {"visit": 2, "tries": 1, "failures": 0} == world.row(runner.run_id)
    assert runner.fail() == "park"  # the one retry of this visit


# --- retry ----------------------------------------------------------------------------------------------------


def test_a_retry_is_queued_due_later_and_holds_nothing(world):
    runner = world.run(graph(node("a", retry=retry(2, backoff_ms=4_000))))
    assert runner.fail() == "park"
    runner.leave()
    assert world.row(runner.run_id)["lease_token"] is None
    assert world.admission().next_in_ms == 4_000
    world.clock.forward(3_999)
    assert world.admit() == ()
    world.clock.forward(1)
    again = world.launch(runner.run_id)
    assert (again.launch.attempt, again.launch.tries, again.launch.visit) == (2, 2, 1)
    assert again.fail() == "park"
    again.leave()
    assert world.admission().next_in_ms == 8_000


def test_the_last_failure_takes_the_way_out(world):
    runner = world.run(graph(node("a", retry=retry(1, 0), on={"failed": "b"}), node("b")))
    assert runner.fail(to="b") == "park"
    runner.leave()
    assert world.launch().fail(to="b") == "go"
    assert world.trail(runner.run_id) == ["a.1 failed", "a.1 failed", "b.1 active"]


def test_interruptions_are_no_failed_tries(world):
    runner = world.run(graph(node("a", retry=retry(1, 0))))
    for _ in range(4):
        runner.gone(stopped=True)
        runner = world.launch()
    assert world.row(runner.run_id)["tries"] == 5
    assert runner.fail() == "park"
    runner.leave()
    assert world.launch().fail() == "end"


def test_timed_out_counts_as_a_failed_try(world):
    runner = world.run(graph(node("a", retry=retry(1, 0), timeout_ms=100)))
    assert runner.finish(outcome="timed_out") == "park"
    runner.leave()
    assert world.launch().finish(outcome="timed_out") == "end"
    assert world.status(runner.run_id) == "timed_out"


# --- order, repeats, stale writers ----------------------------------------------------------------------------


def test_a_batch_of_steps_is_one_command_with_a_reply_each(world):
    runner = world.run(linear(4))
    batch = [runner.finished(1, to="b"), runner.finished(2, to="c"), runner.finished(3, to="d")]
    assert runner.send(*batch) == ["go", "go", "go"]
    assert runner.current.node == "d"
    assert runner.finish() == "end"


def test_what_comes_after_the_end_gets_the_same_answer(world):
    runner = world.run(linear(2))
    world.pause(runner.run_id)
    assert runner.send(runner.finished(1, to="b"), runner.finished(2)) == ["park", "park"]
    assert world.trail(runner.run_id) == ["a.1 completed"]


def test_a_repeated_message_gets_its_first_reply_and_changes_nothing(world):
    runner = world.run(linear(3))
    first, second = runner.finished(1, to="b"), runner.finished(2, to="c")
    assert runner.send(first, second) == ["go", "go"]
    before = world.dump()
    assert runner.send(first) == ["go"]
    assert runner.send(first, second) == ["go", "go"]
    assert world.dump() == before
    assert runner.send(first, second, runner.finished(3)) == ["go", "go", "end"]
    assert runner.send(second) == ["go"]


def test_a_repeat_with_other_content_is_refused_and_changes_nothing(world):
    runner = world.run(linear(3))
    first = runner.finished(1, to="b")
    assert runner.send(first) == ["go"]
    before = world.dump()
    for other in (
        msgspec.structs.replace(first, output=value(2)),
        msgspec.structs.replace(first, outcome="failed", output=None, error=error("no")),
        msgspec.structs.replace(first, active_ms=7),
        WaitUntil(seq=first.seq, attempt=first.attempt, delay_ms=1),
    ):
        reply, after = runner.apply([other, runner.finished(2, to="c")]).replies
        assert (reply.verdict, reply.error) == ("refused", "message 1 came before, with other content")
        assert after.verdict == "refused", "nothing of such a runner is believed any more"
    assert world.dump() == before


@pytest.mark.parametrize("kind", ["wait", "checkpoint"])
def test_a_repeated_question_or_timer_with_other_content_is_refused(world, kind):
    runner = world.run(graph(node("a", kind)))
    asked = [WaitUntil, Ask][kind == "checkpoint"]
    facts = {"kind": kind, "prompt": value("?")} if kind == "checkpoint" else {"delay_ms": 10}
    message = runner.make(asked, **facts)
    assert runner.send(message) == ["park"]
    assert runner.send(msgspec.structs.replace(message, active_ms=7)) == ["refused"]
    assert runner.send(message) == ["park"]


@pytest.mark.parametrize("kind", ["wait", "checkpoint"])
def test_a_repeated_park_is_park(world, kind):
    runner = world.run(graph(node("a", kind)))
    message = (
        runner.make(WaitUntil, delay_ms=10)
        if kind == "wait"
        else runner.make(Ask, kind="checkpoint", prompt=value("?"))
    )
    assert runner.send(message) == ["park"]
    before = world.dump()
    assert runner.send(message) == ["park"]
    assert world.dump() == before


def test_a_gap_in_the_numbers_is_refused(world):
    runner = world.run(linear(2))
    runner.seq += 1
    applied = runner.apply([runner.finished(1, to="b")])
    assert applied.replies[0].verdict == "refused"
    assert applied.replies[0].error == "message 2 came after 0"


def test_another_attempts_number_is_refused(world):
    runner = world.run(linear(2))
    assert runner.send(runner.make(Finish, attempt=2, outcome="completed", output=value(1), next="b")) == [
        "refused"
    ]


def _stale_generation(world, runner):
    runner.gone(stopped=True)
    world.launch(runner.run_id)


def _stale_token(world, runner):
    runner.fence = msgspec.structs.replace(runner.fence, token="0" * 32)


def _cancelled(world, runner):
    world.cancel(runner.run_id)


def _recovered(world, runner):
    runner.gone(stopped=True)


@pytest.mark.parametrize("make_stale", [_stale_generation, _stale_token, _cancelled, _recovered])
def test_a_stale_runner_gets_claim_lost_and_nothing_changes(world, make_stale):
    runner = world.run(linear(2))
    make_stale(world, runner)
    before = world.dump()
    assert runner.finish(1, to="b") == "claim_lost"
    assert world.dump() == before


def test_a_message_after_the_terminal_commit_changes_nothing(world):
    runner = world.run(linear(1))
    assert runner.finish("the result") == "end"
    before = world.dump()
    assert runner.finish("another result") == "claim_lost"
    assert world.dump() == before


def test_a_drain_commits_the_step_and_parks(world):
    runner = world.run(linear(2))
    runner.drain = True
    assert runner.finish(1, to="b") == "park"
    runner.leave()
    assert world.status(runner.run_id) == "queued"
    again = world.launch(runner.run_id)
    assert (again.launch.node, again.launch.generation) == ("b", 2)
    assert [(step.node, step.outcome) for step in again.launch.past] == [("a", "completed")]


# --- what a runner may not say --------------------------------------------------------------------------------

REFUSED = [
    ("compute", None, {"output": None}, "without an output"),
    ("compute", None, {"output": Value()}, "value without content"),
    ("compute", None, {"settled": "applied"}, "declares no manual effect"),
    ("action", IDEMPOTENT, {"settled": "unknown", "outcome": "failed"}, "declares no manual effect"),
    ("action", MANUAL, {"settled": "rejected"}, "effect that is rejected"),
    ("action", MANUAL, {"outcome": "cancelled"}, "can not cancel"),
    ("checkpoint", None, {}, "not completed by its runner"),
    ("wait", None, {}, "not completed by its runner"),
    ("compute", None, {"output": Value(digest="0" * 64, size=9)}, "was not uploaded"),
]


@pytest.mark.parametrize(("kind", "effect", "facts", "why"), REFUSED)
def test_a_wrong_finish_is_refused_and_changes_nothing(world, kind, effect, facts, why):
    runner = world.run(graph(node("a", kind, effect=effect)))
    before = world.dump()
    applied = runner.apply([runner.finished(**facts)])
    assert applied.replies[0].verdict == "refused"
    assert why in applied.replies[0].error
    assert world.dump() == before


@pytest.mark.parametrize(
    ("kind", "message", "facts"),
    [
        ("compute", Ask, {"kind": "checkpoint", "prompt": value(1)}),
        ("wait", Ask, {"kind": "checkpoint", "prompt": value(1)}),
        ("compute", WaitUntil, {"delay_ms": 5}),
        ("wait", WaitUntil, {}),
        ("wait", WaitUntil, {"delay_ms": 5, "wall_ms": 5}),
        ("wait", WaitUntil, {"delay_ms": 2**63}),
        ("wait", WaitUntil, {"wall_ms": -(2**70)}),
    ],
)
def test_only_asking_nodes_ask_and_only_wait_nodes_wait(world, kind, message, facts):
    runner = world.run(graph(node("a", kind)))
    assert runner.send(runner.make(message, **facts)) == ["refused"]
    assert world.status(runner.run_id) == "running"


def test_an_uploaded_output_is_named_by_its_digest(world):
    runner = world.run(linear(2))
    data = b'"' + b"x" * 300_000 + b'"'
    for index in range(2):
        chunk = PutValueChunk(
            entity_no=runner.fence.entity_no,
            generation=1,
            digest=digest(data),
            index=index,
            data=data[index * 262_144 :][:262_144],
            last=index == 1,
        )
        world.do(put_chunk, chunk)
    output = Value(digest=digest(data), size=len(data))
    assert runner.finish(output=output, to="b") == "go"
    runner.gone(stopped=True)
    assert world.launch().launch.past[0].output == output


def test_an_upload_of_an_earlier_generation_does_not_count(world):
    runner = world.run(linear(1))
    data = b'"' + b"y" * 5_000 + b'"'
    upload = PutValueChunk(
        entity_no=runner.fence.entity_no, generation=1, digest=digest(data), index=0, data=data, last=True
    )
    world.do(put_chunk, upload)
    runner.gone(stopped=True)
    again = world.launch()
    applied = again.apply([again.finished(output=Value(digest=digest(data), size=len(data)))])
    assert applied.replies[0].verdict == "refused"
    assert "was not uploaded" in applied.replies[0].error


def test_the_past_has_the_latest_result_and_the_latest_output_of_each_node(world):
    flow = graph(node("a", to="b", on={"failed": "b"}), node("b", cases={1: "a", 2: "c"}), node("c"))
    runner = world.run(flow)
    runner.finish("old", to="b")
    runner.finish(1, to="a")
    runner.finish("good", to="b")
    runner.finish(1, to="a")
    runner.fail(to="b")
    runner.gone(stopped=True)
    past = [(step.node, step.visit, step.outcome) for step in world.launch().launch.past]
    assert past == [("a", 2, "completed"), ("b", 2, "completed"), ("a", 3, "failed")]


def test_a_title_is_kept_and_bounded(world):
    runner = world.run(linear(1))
    command = PublishUpdates(fence=runner.fence, updates=(), title="t" * 500)
    world.do(publish_updates, command)
    title = world.view(runner.run_id).summary.title
    assert len(title) == 200
    assert title.endswith("t… (500 characters)")
