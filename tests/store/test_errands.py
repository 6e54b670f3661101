"""Where a node judges what is submitted for it, the submission is stored, and an errand gives it one verdict."""

import pytest

from pwf.errors import Conflict, PwfError, Rejected
from pwf.protocol.spawn import Identity
from pwf.store.custody import standing_runners
from pwf.store.entity_kinds import RunnerGone
from pwf.store.requests import answer
from pwf.store.retention import PruneTree, prune_tree
from pwf.store.submission_kind import ERRANDS_MAX, KIND
from pwf.store.submissions import (
    BeginErrand,
    EndErrand,
    ErrandStarted,
    Submit,
    begin_errand,
    due_errand,
    end_errand,
    errand_started,
    submission_state,
    submit,
)
from pwf.store.verify import verify
from pwf.values import canonical
from tests.store.test_home import ELSEWHERE, serve
from tests.store.test_recovery import settle, take_over
from tests.store.test_submissions import command
from tests.store.world import graph, node

TYPE = {"type": "string"}
REVIEW = graph(
    node("review", "agent", cases={"ship": "ship", "fix": "review"}, returns=TYPE, validates=True),
    node("ship"),
)
PLAIN = graph(node("review", "agent", to="ship", returns=TYPE), node("ship"))
GATE = graph(node("review", "checkpoint", to="ship", returns=TYPE), node("ship"))
FLOWS = {"judged": REVIEW, "agent": PLAIN, "checkpoint": GATE}


def asking(world, flow=REVIEW):
    return world.asking(flow, "Look at it.", schema=TYPE)


def hand_in(world, run_id, data="ship", **more):
    return world.do(submit, command(world, run_id, data, **more))


class Errand:
    """The process of one errand, as the store sees it."""

    def __init__(self, world, *, told=True):
        self.world = world
        self.due = world.do(due_errand, 0)
        number, self.generation = self.due.submission_no, self.due.generation + 1
        begin = BeginErrand(
            submission_no=number,
            generation=self.due.generation,
            owner="daemon:1",
            epoch=world.epoch,
            lease_ms=9_000,
        )
        self.token = world.do(begin_errand, begin)
        identity = Identity(pid=77, start_tick=7, boot_id=world.clock.boot_id, session=77)
        started = ErrandStarted(
            submission_no=number, name=self.due.name, generation=self.generation, identity=identity
        )
        self.launch = world.do(errand_started, started) if told else None

    def end(self, accepted=None, reason="", **more):
        gone = RunnerGone(
            entity_no=self.due.submission_no,
            kind=KIND,
            name=self.due.name,
            generation=self.generation,
            **({"proved": True} | more),
        )
        self.world.do(end_errand, EndErrand(gone=gone, token=self.token, accepted=accepted, reason=reason))

    @property
    def state(self):
        return self.world.do(submission_state, self.due.submission_no)


def test_a_submission_that_is_to_be_judged_is_stored_and_its_run_stands_still(world):
    run_id = asking(world)
    submitted = hand_in(world, run_id)
    assert (submitted.verdict, submitted.status) == ("validating", "waiting")
    view = world.view(run_id)
    assert (view.request.status, view.request.submission.status) == ("pending", "validating")
    assert view.explanation.code == "validating"
    assert world.admit() == ()


def test_an_errand_is_told_of_its_run_and_of_what_was_submitted(world):
    run_id = asking(world)
    hand_in(world, run_id, "x" * 9_000)
    launch = Errand(world).launch
    assert (launch.run_id, launch.node, launch.visit) == (run_id, "review", 1)
    assert launch.judge.size == 9_002
    assert launch.marker.split(":")[1] == f"{run_id}/1"


def test_an_accepted_submission_settles_its_request_once_and_the_run_goes_on(world):
    run_id = asking(world)
    hand_in(world, run_id)
    errand = Errand(world)
    errand.end(accepted=True)
    errand.end(accepted=True)
    assert errand.state.status == "accepted"
    assert world.sql("SELECT * FROM runners") == []
    assert world.view(run_id).request.answered_by == "client:ann"
    assert world.trail(run_id) == ["review.1 completed"]
    assert world.launch(run_id).launch.node == "ship"


def test_a_rejected_one_leaves_the_request_open_and_says_why_until_another_is_accepted(world):
    run_id = asking(world)
    hand_in(world, run_id)
    Errand(world).end(accepted=False, reason="name the tests")
    view = world.view(run_id)
    assert (view.summary.status, view.request.status) == ("waiting", "pending")
    assert view.request.submission.reason == "name the tests"
    assert "rejected: name the tests" in world.why(run_id).reason
    assert hand_in(world, run_id).verdict == "validating"
    Errand(world).end(accepted=True)
    assert world.status(run_id) == "queued"


def test_while_one_is_judged_the_same_is_adopted_and_another_is_a_conflict(world):
    run_id = asking(world)
    first = hand_in(world, run_id)
    again = world.done(
        submit, Submit(value=canonical("ship"), request_id=world.request_of(run_id), actor="client:bob")
    )
    assert (again.adopted, again.result.submission) == (True, first.submission)
    with pytest.raises(Conflict, match="still being validated"):
        hand_in(world, run_id, "fix")


def test_an_errand_that_the_daemon_ended_is_tried_again_and_at_last_rejected(world):
    run_id = asking(world)
    hand_in(world, run_id)
    for errands in range(1, ERRANDS_MAX + 1):
        errand = Errand(world)
        assert world.do(due_errand, 0) is None, "one works for it"
        take_over(world)
        assert settle(world) == 1
        assert errand.state.status == ("rejected" if errands == ERRANDS_MAX else "validating")
    assert "3 times that was interrupted" in world.view(run_id).request.submission.reason
    assert world.view(run_id).request.status == "pending"
    told = world.sql("SELECT kind FROM events JOIN runs ON entity_no = run_no ORDER BY revision DESC LIMIT 2")
    assert told == [("submission_rejected",), ("submitted",)]


def test_an_errand_that_was_never_told_to_begin_is_not_counted(world):
    run_id = asking(world)
    hand_in(world, run_id)
    for _ in range(ERRANDS_MAX + 2):
        errand = Errand(world, told=False)
        errand.end(stopped=True)
        assert errand.state.status == "validating"


def test_one_that_was_tried_often_enough_is_rejected_only_when_its_last_process_is_proved_dead(world):
    run_id = asking(world)
    hand_in(world, run_id)
    for _ in range(ERRANDS_MAX):
        settle(world)
        errand = Errand(world)
        errand.end(accepted=True, proved=False)
    assert errand.state.status == "validating"
    settle(world)
    assert errand.state.status == "rejected"


def test_until_its_process_is_proved_dead_no_other_errand_begins(world):
    run_id = asking(world)
    hand_in(world, run_id)
    errand = Errand(world)
    errand.end(proved=False, stopped=True)
    assert world.do(due_errand, 0) is None
    assert settle(world) == 1
    assert world.do(due_errand, 0).submission_no == errand.due.submission_no


@pytest.mark.parametrize("accepted", [True, False])
def test_a_verdict_counts_only_when_its_process_is_proved_dead(world, accepted):
    run_id = asking(world)
    hand_in(world, run_id)
    errand = Errand(world)
    errand.end(accepted=accepted, reason="name the tests", proved=False)
    assert (errand.state.status, world.status(run_id)) == ("validating", "waiting")
    assert world.admit() == ()
    assert settle(world) == 1
    Errand(world).end(accepted=True)
    assert world.launch(run_id).launch.node == "ship"


def test_a_verdict_of_an_earlier_generation_changes_nothing(world):
    run_id = asking(world)
    hand_in(world, run_id)
    stale = Errand(world)
    take_over(world)
    settle(world)
    Errand(world)
    before = world.dump()
    stale.end(accepted=True)
    assert world.dump() == before


def test_a_cancel_ends_the_errand_and_its_verdict_counts_no_more(world):
    run_id = asking(world)
    hand_in(world, run_id)
    errand = Errand(world)
    world.cancel(run_id)
    assert errand.state == ("rejected", "its run has ended")
    errand.end(accepted=True)
    assert world.status(run_id) == "cancelled"
    assert world.sql("SELECT * FROM runners") == []
    assert world.do(standing_runners, None) == ()


def test_under_a_pause_the_errand_goes_on_and_acceptance_lifts_no_pause(world):
    run_id = asking(world)
    hand_in(world, run_id)
    world.pause(run_id)
    Errand(world).end(accepted=True)
    assert world.status(run_id) == "paused"
    assert world.view(run_id).request.status == "settled"
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "ship"


def test_a_resume_while_something_is_judged_leaves_the_revision_to_the_verdict(world):
    run_id = asking(world)
    hand_in(world, run_id)
    world.pause(run_id)
    world.resume(run_id)
    assert world.view(run_id).request.revision == 1


def test_in_a_copied_home_nothing_is_judged_before_its_run_is_resumed(world):
    serve(world)
    run_id = asking(world)
    hand_in(world, run_id)
    Errand(world)
    serve(world, **ELSEWHERE)
    assert world.view(run_id).summary.hold == "restored"
    assert world.do(due_errand, 0) is None
    assert world.sql("SELECT * FROM runners") == []
    world.resume(run_id)
    assert world.do(due_errand, 0) is not None


def test_submissions_go_with_their_run(world):
    run_id = asking(world)
    hand_in(world, run_id, "x" * 9_000)
    errand = Errand(world)
    world.cancel(run_id)
    world.clock.forward(10)
    prune = PruneTree(before_ms=world.clock.wall_ms)
    assert world.do(prune_tree, prune).kept == {"a process is not proved dead": 1}
    errand.end(stopped=True)
    assert world.do(prune_tree, prune).trees == 1
    assert world.sql("SELECT * FROM submissions") == []
    assert world.sql("SELECT name FROM entities WHERE kind = 'submission'") == []


@pytest.mark.parametrize(
    ("rule", "accepted", "damage"),
    [
        ("submission_stray", None, "UPDATE requests SET status = 'cancelled', settled_wall_ms = 1"),
        ("submission_lost", True, "UPDATE requests SET answer = x'31', answer_crc32 = 2212294583"),
    ],
)
def test_verify_names_what_breaks_a_rule_of_submissions(world, rule, accepted, damage):
    run_id = asking(world)
    hand_in(world, run_id)
    if accepted:
        Errand(world).end(accepted=True)
    world.checked = False
    world.sql(damage)
    found = [one.message for one in world.do(verify, world.epoch).violations if one.rule == rule]
    assert len(found) == 1
    assert f"submission:{run_id}/1" in found[0]


# --- every action against every kind and state ----------------------------------------------------------------


def settled(world, run_id, kind, data="ship"):
    if kind == "checkpoint":
        world.answer(run_id, data)
    else:
        hand_in(world, run_id, data)
        if kind == "judged":
            Errand(world).end(accepted=True)


def to_pending(world, kind):
    return asking(world, FLOWS[kind])


def to_paused(world, kind):
    run_id = asking(world, FLOWS[kind])
    world.pause(run_id)
    return run_id


def to_resumed(world, kind):
    run_id = to_paused(world, kind)
    world.resume(run_id)
    return run_id


def to_settled(world, kind):
    run_id = asking(world, FLOWS[kind])
    settled(world, run_id, kind)
    return run_id


def to_settled_otherwise(world, kind):
    run_id = asking(world, FLOWS[kind])
    settled(world, run_id, kind, "fix")
    return run_id


def to_cancelled(world, kind):
    run_id = asking(world, FLOWS[kind])
    world.cancel(run_id)
    return run_id


def to_completed(world, kind):
    run_id = to_settled(world, kind)
    runner = world.launch(run_id)
    assert runner.finish() == "end"
    runner.leave()
    return run_id


def to_held(world, kind):
    runner = world.run(FLOWS[kind])
    runner.ask("?", kind="checkpoint" if kind == "checkpoint" else "agent", schema=TYPE)
    runner.gone(proved=False)
    return runner.run_id


STATES = {
    "pending": to_pending,
    "paused": to_paused,
    "resumed": to_resumed,
    "held": to_held,
    "settled": to_settled,
    "settled otherwise": to_settled_otherwise,
    "cancelled": to_cancelled,
    "completed": to_completed,
}
OPEN = ("pending", "paused", "resumed", "held")
ACTIONS = ("answer", "submit", "submit for revision 1", "submit for revision 2")


def expected(action, kind, state):
    """What the contract says, in a few lines."""
    if (action == "answer") != (kind == "checkpoint"):
        return "rejected"
    if state in OPEN:
        revision = 2 if state == "resumed" else 1
        named = action.rpartition(" ")[2]
        return "conflict" if named.isdigit() and int(named) != revision else "accepted"
    return {
        "settled": "adopted",
        "completed": "adopted",
        "settled otherwise": "conflict",
        "cancelled": "rejected",
    }[state]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", FLOWS)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_is_taken_where_the_contract_says_so_and_changes_nothing_elsewhere(
    world, action, kind, state
):
    run_id = STATES[state](world, kind)
    request_id = world.request_of(run_id)
    before = world.dump()
    named = action.rpartition(" ")[2]
    try:
        if action == "answer":
            done = world.done(answer, world.answer_command(request_id, "ship"))
        else:
            revision = int(named) if named.isdigit() else None
            command = Submit(
                value=canonical("ship"), request_id=request_id, actor="client:ann", request_revision=revision
            )
            done = world.done(submit, command)
        done.unwrap()
        outcome = "adopted" if done.adopted else "accepted"
    except PwfError as error:
        outcome = {Rejected: "rejected", Conflict: "conflict"}[type(error)]
    assert outcome == expected(action, kind, state)
    if outcome != "accepted":
        assert world.dump() == before
