"""What is submitted for an agent is taken once, for the request that it names, and becomes the node's output."""

import pytest

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.agents import AgentCommand
from pwf.store.submissions import Submit, submit
from pwf.values import canonical
from tests.store.world import graph, key, node

REVIEW = graph(
    node("review", "agent", cases={"ship": "ship", "fix": "review"}, returns={"type": "string"}),
    node("ship"),
)
QUESTION = graph(node("gate", "checkpoint", to="b"), node("b"))


def ask(world, flow=REVIEW):
    return world.asking(flow, "Look at it.", schema={"type": "string"})


def command(world, run_id, data="ship", **more):
    facts = {"actor": "client:ann", "request_id": world.request_of(run_id)} | more
    return Submit(value=canonical(data), **facts)


def test_a_submission_routes_without_a_process_and_says_who_gave_it(world):
    run_id = ask(world)
    submitted = world.do(submit, command(world, run_id))
    assert (submitted.run_id, submitted.status) == (run_id, "queued")
    assert world.trail(run_id) == ["review.1 completed"]
    assert world.launch(run_id).launch.node == "ship"
    request = world.view(run_id).request
    assert (request.status, request.answered_by) == ("settled", "client:ann")


def test_the_same_submission_again_is_adopted_and_another_is_a_conflict(world):
    run_id = ask(world)
    world.do(submit, command(world, run_id))
    before = world.dump()
    assert world.done(submit, command(world, run_id)).adopted
    with pytest.raises(Conflict, match="settled by client:ann already"):
        world.do(submit, command(world, run_id, "fix"))
    assert world.dump() == before


def test_a_repeat_under_its_key_settles_no_later_visit(world):
    run_id = ask(world)
    first = command(world, run_id, "fix", receipt=key(operation="request.submit"))
    given = world.do(submit, first)
    world.launch(run_id).ask(kind="agent")
    again = world.done(submit, first)
    assert (again.result, again.adopted) == (given, True)
    assert world.view(run_id).request.status == "pending"


def test_a_resume_raises_the_requests_revision_and_what_names_an_earlier_one_comes_too_late(world):
    run_id = ask(world)
    assert world.view(run_id).request.revision == 1
    world.pause(run_id)
    world.resume(run_id)
    assert world.view(run_id).request.revision == 2
    before = world.dump()
    for revision in (1, 3):
        with pytest.raises(Conflict, match="is at revision 2"):
            world.do(submit, command(world, run_id, request_revision=revision))
    assert world.dump() == before
    assert world.do(submit, command(world, run_id, request_revision=2)).status == "queued"


def test_a_repeat_of_what_was_taken_is_adopted_whatever_revision_it_names(world):
    run_id = ask(world)
    world.do(submit, command(world, run_id, request_revision=1))
    assert world.done(submit, command(world, run_id, request_revision=9)).adopted


def test_under_a_pause_a_persons_submission_is_taken_and_the_run_does_not_go_on(world):
    run_id = ask(world)
    world.pause(run_id)
    assert world.do(submit, command(world, run_id)).status == "paused"
    assert world.admit() == ()
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "ship"


def test_each_operation_refuses_the_other_kind_and_names_the_command_that_fits(world):
    gate, review = ask(world, QUESTION), ask(world)
    before = world.dump()
    with pytest.raises(Rejected, match="of kind checkpoint; it takes no submission") as caught:
        world.do(submit, command(world, gate))
    assert caught.value.hint == f"pwf answer {world.request_of(gate)}"
    with pytest.raises(Rejected, match="of kind agent; it takes no plain answer") as caught:
        world.answer(review, "ship")
    assert caught.value.hint == f"pwf submit {world.request_of(review)}"
    assert world.dump() == before


def test_a_submission_for_a_run_that_has_ended_is_rejected_and_changes_nothing(world):
    run_id = ask(world)
    world.cancel(run_id)
    before = world.dump()
    with pytest.raises(Rejected, match="is closed: its run"):
        world.do(submit, command(world, run_id))
    assert world.dump() == before


def test_a_submission_for_an_earlier_attempt_is_a_conflict(world):
    run_id = ask(world)
    world.checked = False
    world.sql("UPDATE requests SET attempt = 7")
    with pytest.raises(Conflict, match="does not belong"):
        world.do(submit, command(world, run_id))


def test_a_submission_for_no_request_is_not_found(world):
    with pytest.raises(NotFound):
        world.do(submit, Submit(request_id="nothing", value=b"1", actor="client:ann"))


def test_a_run_that_waits_for_an_agent_says_so_and_how_a_person_can_step_in(world):
    run_id = ask(world)
    request_id = world.request_of(run_id)
    why, view = world.why(run_id), world.view(run_id)
    assert (why.code, why.commands[0]) == ("request_open", f"pwf submit {request_id}")
    assert "'review' asked an agent" in why.reason
    assert "submit" in view.controls
    assert "answer" not in view.controls
    with pytest.raises(Rejected, match="only waits for its request") as caught:
        world.resume(run_id)
    assert caught.value.hint == f"pwf submit {request_id}"


def test_a_runs_own_agent_completes_its_step_and_without_one_no_runner_may(world):
    run_id = world.start(REVIEW, agent="coder")
    runner = world.launch(run_id)
    assert runner.launch.agent == AgentCommand(name="coder")
    assert runner.finish("ship", to="ship") == "go"
    assert world.trail(run_id)[0] == "review.1 completed"

    other = world.run(REVIEW)
    assert other.launch.agent is None
    assert other.finish("ship", to="ship") == "refused"


def test_a_start_adopts_only_a_run_with_the_same_agent_and_a_restart_keeps_it(world):
    world.start(REVIEW, run_id="r", agent="coder")
    with pytest.raises(Conflict, match="its agent is coder, not person"):
        world.start(REVIEW, run_id="r")
    world.cancel("r")
    more = {"restarted_from": "r", "restart_root": "r", "restart_no": 1}
    assert world.view(world.start(REVIEW, **more)).agent == "coder"
