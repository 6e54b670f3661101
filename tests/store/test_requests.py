"""A question is answered once, by its id; the answer is the node's output, and no process is needed for it."""

import msgspec
import pytest

from pwf.errors import Ambiguous, Conflict, NotFound, Rejected
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.protocol.operations import RequestListPayload
from pwf.protocol.runner import Ask
from pwf.store.read_runs import request_list
from pwf.store.requests import answer, request_facts
from pwf.store.verify import verify
from tests.store.world import ENVIRONMENT, IDEMPOTENT, graph, key, node, value

GATE = graph(
    node("gate", "checkpoint", cases={"ship": "ship", "revise": "gate"}, returns={"type": "string"}),
    node("ship"),
)


def ask(world, flow=GATE, prompt="ship it?"):
    return world.asking(flow, prompt, schema={"type": "string"})


def test_a_waiting_run_holds_nothing_and_shows_its_question(world):
    run_id = ask(world)
    row = world.row(run_id)
    assert (row["status"], row["lease_token"]) == ("waiting", None)
    assert world.admit() == ()
    request = world.view(run_id).request
    assert (request.node, request.status, request.schema) == ("gate", "pending", {"type": "string"})
    assert bytes(request.prompt.json) == b'"ship it?"'
    assert request.deadline_ms is None


def test_an_answer_routes_without_a_process(world):
    run_id = ask(world)
    answered = world.answer(run_id, "ship")
    assert (answered.run_id, answered.status) == (run_id, "queued")
    assert world.sql("SELECT * FROM runners") == []
    assert world.trail(run_id) == ["gate.1 completed"]
    runner = world.launch(run_id)
    assert runner.launch.node == "ship"
    assert bytes(runner.launch.past[0].output.json) == b'"ship"'
    request = world.view(run_id).request
    assert (request.status, request.answered_by, bytes(request.answer.json)) == (
        "settled",
        "client:ann",
        b'"ship"',
    )


def test_an_answer_may_end_the_run(world):
    run_id = ask(world, graph(node("gate", "checkpoint")))
    assert world.answer(run_id, {"any": ["json", None]}).status == "completed"
    assert bytes(world.view(run_id).output.json) == b'{"any":["json",null]}'


def test_an_answer_without_a_case_fails_the_run_with_value_and_cases(world):
    run_id = ask(world)
    assert world.answer(run_id, "later").status == "failed"
    assert "no case for 'later'; its cases are 'ship', 'revise'" in world.view(run_id).summary.reason


def test_a_question_is_found_by_prefix_by_run_and_as_the_last_that_is_open(world):
    with pytest.raises(NotFound, match="no question is open"):
        request_facts_of(world, "@last")
    first = ask(world)
    world.clock.forward(1)
    second = ask(world)
    asked = {run_id: world.request_of(run_id) for run_id in (first, second)}
    for ref, run_id in ((asked[first][:8], first), (f"run:{first}", first), ("@last", second)):
        (found,) = world.read(request_list, RequestListPayload(request=ref)).requests
        assert (found.request_id, found.run_id) == (asked[run_id], run_id)
        assert request_facts_of(world, ref).request_id == asked[run_id]
    assert request_facts_of(world, f"@last:{ENVIRONMENT.root}").request_id == asked[second]
    with pytest.raises(NotFound, match="no question is open in the project /new"):
        request_facts_of(world, "@last:/new")
    world.answer(second, "ship")
    assert request_facts_of(world, "@last").request_id == asked[first]
    (settled,) = world.read(request_list, RequestListPayload(request=asked[second])).requests
    assert settled.status == "settled"


def request_facts_of(world, ref):
    return world.read(request_facts, ref)


def test_the_same_answer_again_is_adopted(world):
    run_id = ask(world)
    world.answer(run_id, "ship")
    before = world.dump()
    done = world.done(answer, world.answer_command(world.request_of(run_id), "ship"))
    assert done.adopted is True
    assert world.dump() == before


def test_another_answer_is_a_conflict_that_says_who_was_first(world):
    run_id = ask(world)
    world.answer(run_id, "ship")
    before = world.dump()
    with pytest.raises(Conflict, match="answered by client:ann already"):
        world.answer(run_id, "revise", actor="client:bob")
    assert world.dump() == before


def test_an_answer_that_expects_another_revision_is_a_conflict_and_changes_nothing(world):
    run_id = ask(world)
    seen = world.row(run_id)["revision"]
    world.pause(run_id)
    before = world.dump()
    with pytest.raises(Conflict, match=f"you expected {seen}"):
        world.answer(run_id, "ship", expected_revision=seen)
    assert world.dump() == before
    world.answer(run_id, "ship", expected_revision=seen + 1)
    assert world.view(run_id).request.status == "settled"


def test_a_paused_runs_answer_is_taken_and_does_not_go_on(world):
    run_id = ask(world)
    world.pause(run_id)
    assert world.answer(run_id, "ship").status == "paused"
    assert world.admit() == ()
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "ship"


def test_a_held_runs_answer_is_taken_and_the_hold_stays(world):
    runner = world.run(GATE)
    runner.ask()
    runner.gone(proved=False)
    run_id = runner.run_id
    assert world.view(run_id).summary.hold == "process_unreaped"
    world.pause(run_id)
    assert world.answer(run_id, "ship").status == "held"
    assert world.row(run_id) | {"hold": "process_unreaped", "pause_requested": 1} == world.row(run_id)
    runner.gone()
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "ship"


def test_a_question_under_a_pause_waits_and_is_paused(world):
    runner = world.run(GATE)
    world.pause(runner.run_id)
    assert runner.ask() == "park"
    runner.leave()
    assert (world.row(runner.run_id)["status"], world.status(runner.run_id)) == ("waiting", "paused")
    assert "its request" in world.why(runner.run_id).reason


OTHERS = sorted(set(REQUESTS) - {"checkpoint"})


@pytest.fixture(params=OTHERS)
def other(request, world, monkeypatch):
    """A run that waits for a request of another kind. Its node's row says that it asks so."""
    asks = msgspec.structs.replace(KINDS["checkpoint"], asks=request.param)
    monkeypatch.setitem(KINDS, "checkpoint", asks)
    return world.asking(GATE, "ship it?", schema={"type": "string"}, timeout_ms=60_000)


def test_a_request_of_any_kind_parks_the_run_and_is_listed_with_deadline_and_schema(world, other):
    row = world.row(other)
    assert (row["status"], row["lease_token"]) == ("waiting", None)
    assert world.sql("SELECT * FROM runners") == []
    (listed,) = world.read(request_list, RequestListPayload()).requests
    assert listed == world.view(other).request
    assert (listed.run_id, listed.status, listed.schema) == (other, "pending", {"type": "string"})
    assert listed.kind == KINDS["checkpoint"].asks
    assert listed.deadline_ms == listed.created_ms + 60_000
    assert "answer" not in world.view(other).controls


def test_a_request_of_another_kind_takes_no_plain_answer_and_names_what_fits(world, other):
    (request_id,), facts = world.sql("SELECT request_id FROM requests")[0], REQUESTS[KINDS["checkpoint"].asks]
    before = world.dump()
    with pytest.raises(
        Rejected, match=f"of kind {KINDS['checkpoint'].asks}; it takes no plain answer"
    ) as caught:
        world.answer(other, "ship")
    assert caught.value.hint == facts.how(request_id)
    assert world.dump() == before
    why = world.why(other)
    assert (why.code, why.changes_at_ms) == ("request_open", world.view(other).request.deadline_ms)
    assert facts.command is None or facts.command.format(request=request_id) in why.commands


def test_a_request_of_any_kind_is_closed_with_its_run(world, other):
    world.pause(other)
    assert world.status(other) == "paused"
    world.resume(other)
    world.cancel(other)
    assert world.view(other).request.status == "cancelled"
    assert world.read(verify, world.epoch).violations == ()


def test_a_node_asks_requests_of_its_kind_only(world):
    runner = world.run(GATE)
    (reply,) = runner.apply([runner.make(Ask, kind="decision", prompt=value("ship it?"))]).replies
    assert (reply.verdict, reply.error) == ("refused", "a checkpoint node asks no decision request")


@pytest.mark.parametrize("timeout_ms", [-1, 2**53 + 1])
def test_a_deadline_that_no_clock_reaches_is_refused(world, timeout_ms):
    runner = world.run(GATE)
    (reply,) = runner.apply(
        [runner.make(Ask, kind="checkpoint", prompt=value("?"), timeout_ms=timeout_ms)]
    ).replies
    assert (reply.verdict, reply.error) == ("refused", f"a request can not be open for {timeout_ms} ms")


def test_a_checkpoint_has_the_default_of_its_graph_and_no_other(world):
    runner = world.run(graph(node("gate", "checkpoint")))
    (reply,) = runner.apply([runner.make(Ask, kind="checkpoint", prompt=value("?"), default="1")]).replies
    assert reply.error == "the default of a checkpoint node is the one that its graph has"


def test_an_answer_that_does_not_belong_to_what_the_run_does_is_a_conflict(world):
    run_id = ask(world)
    world.checked = False
    world.sql("UPDATE requests SET attempt = 7")
    with pytest.raises(Conflict, match="does not belong"):
        world.answer(run_id, "ship")


def test_an_unknown_request_is_not_found(world):
    with pytest.raises(NotFound):
        world.do(answer, world.answer_command("nothing", 1))


def test_an_answer_is_done_once_per_key(world):
    run_id = ask(world)
    command = world.answer_command(
        world.request_of(run_id), "revise", receipt=key(operation="request.answer")
    )
    first = world.do(answer, command)
    world.launch(run_id).ask()
    again = world.done(answer, command)
    assert (again.result, again.adopted) == (first, True)
    assert world.view(run_id).request.status == "pending"  # the next visit's question is untouched


def test_revised_three_times_then_approved_the_effect_ran_once_per_visit(world):
    flow = graph(
        node("write", "action", effect=IDEMPOTENT, to="gate"),
        node("gate", "checkpoint", cases={"revise": "write", "ship": "done"}),
        node("done"),
    )
    run_id = world.start(flow)
    for word in ("revise", "revise", "revise", "ship"):
        runner = world.launch(run_id)
        assert runner.launch.node == "write"
        assert runner.finish(to="gate") == "go"
        runner.ask()
        runner.leave()
        world.answer(run_id, word)
    assert world.launch(run_id).finish() == "end"
    assert world.effects(run_id) == [("write", visit, "applied", 1) for visit in (1, 2, 3, 4)]
    steps = [f"{name}.{visit} completed" for visit in (1, 2, 3, 4) for name in ("write", "gate")]
    assert world.trail(run_id) == [*steps, "done.1 completed"]
    newest = world.view(run_id).request
    assert bytes(newest.answer.json) == b'"ship"'


def test_a_large_answer_is_kept_by_its_digest(world):
    run_id = ask(world, graph(node("gate", "checkpoint", to="b"), node("b")))
    world.answer(run_id, "x" * 10_000)
    past = world.launch(run_id).launch.past[0]
    assert (past.output.json, past.output.size) == (None, 10_002)


# --- references and lists -------------------------------------------------------------------------------------


def test_a_request_is_found_by_id_prefix_and_run(world):
    run_id = ask(world)
    request = world.request_of(run_id)
    for ref in (request, request[:5], f"run:{run_id}", f"run:{run_id[:6]}", "run:@last"):
        facts = world.do(request_facts, ref)
        assert (facts.request_id, facts.run_id, facts.status) == (request, run_id, "pending")
    assert facts.schema == {"type": "string"}


@pytest.mark.parametrize("ref", ["", "zzz", "run:", "run:zzz", "ä", "%", "_"])
def test_a_reference_to_no_request_is_not_found(world, ref):
    ask(world)
    with pytest.raises(NotFound):
        world.do(request_facts, ref)


def test_a_run_without_an_open_request_says_so(world):
    run_id = world.start(GATE)
    with pytest.raises(NotFound, match="has no open request"):
        world.do(request_facts, f"run:{run_id}")


def test_a_prefix_of_several_requests_is_ambiguous(world):
    first, second = ask(world), ask(world)
    world.checked = False
    for run_id, name in ((first, "same1"), (second, "same2")):
        world.sql("UPDATE requests SET request_id = :name WHERE run_id = :run", {"name": name, "run": run_id})
    with pytest.raises(Ambiguous, match="same1, same2"):
        world.do(request_facts, "same")


def test_a_list_of_requests_shows_the_oldest_first(world):
    runs = []
    for _ in range(3):
        runs.append(ask(world))
        world.clock.forward(1_000)
    world.answer(runs[1], "ship")
    listed = world.do(request_list, RequestListPayload())
    assert [request.run_id for request in listed.requests] == [runs[0], runs[2]]
    both = RequestListPayload(statuses=("settled", "pending"), limit=2)
    assert [request.run_id for request in world.do(request_list, both).requests] == runs[:2]
    msgspec.json.encode(listed)
