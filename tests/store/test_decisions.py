"""A person decides once: what was shown is bound by a digest, one answer wins for ever, and all others are told so."""

import msgspec
import pytest

from pwf.errors import Conflict, InvalidAnswer, NotFound, Rejected
from pwf.protocol.decision_spec import ChoiceSpec, DecisionSpec, TextSpec, digest_facts
from pwf.protocol.decisions import DecisionListPayload
from pwf.protocol.runner import Ask, Value
from pwf.store.deadlines import time_out
from pwf.store.decisions import Decide, decide, decision_list
from pwf.store.verify import verify
from pwf.values import canonical, digest
from tests.store.test_retention import prune
from tests.store.world import IDEMPOTENT, graph, key, node, value

HOUR = 3_600_000
SPEC = DecisionSpec(
    audience="operator",
    choices=(
        ChoiceSpec(id="ship", label="Ship it"),
        ChoiceSpec(id="revise", label="Revise", text=TextSpec(label="What must change?", max_chars=20)),
    ),
)
SHIP = '{"choice":"ship","text":null}'


def flow(**more):
    facts = {"open_ms": HOUR, "default": SHIP, **more}
    return graph(
        node("write", "action", effect=IDEMPOTENT, to="gate"),
        node(
            "gate",
            "decision",
            cases={"ship": "done", "revise": "write"},
            field="choice",
            decision=SPEC,
            **facts,
        ),
        node("done"),
    )


def shown(summary="Ship 1.2?", **more):
    return value({"title": "gate", "summary": summary, "blocks": [], **more})


def ask(world, run_id=None, summary="Ship 1.2?", graph_=None, **more):
    """A run that waits for a decision."""
    runner = world.launch(run_id or world.start(graph_ or flow()))
    if runner.launch.node == "write":
        runner.finish(to="gate")
    facts = {"timeout_ms": HOUR, **more}
    assert runner.send(runner.make(Ask, kind="decision", prompt=shown(summary), **facts)) == ["park"]
    runner.leave()
    return runner.run_id


def look(world, run_id):
    (view,) = world.read(decision_list, DecisionListPayload(decision_id=world.request_of(run_id))).decisions
    return view


def command(world, run_id, choice, text=None, **more):
    view = look(world, run_id)
    facts = {"decision": view.request.request_id, "digest": view.digest, "actor": "client:ann"}
    return Decide(**(facts | {"choice": choice, "text": text, "channel": "terminal"} | more))


def decided(world, run_id, choice, text=None, **more):
    return world.do(decide, command(world, run_id, choice, text, **more))


def test_a_decision_shows_what_is_asked_and_of_whom(world):
    run_id = ask(world)
    view = look(world, run_id)
    assert (view.title, view.audience, view.timeout_ms, view.default) == ("gate", "operator", HOUR, "ship")
    assert [choice.id for choice in view.choices] == ["ship", "revise"]
    assert (view.winner, view.answers, view.earlier) == (None, (), None)
    assert world.read(decision_list, DecisionListPayload()).decisions == (view,)
    assert "asked for a decision" in world.why(run_id).reason
    assert f"pwf decide {view.request.request_id}" in world.why(run_id).commands


def test_a_persons_choice_is_the_output_and_leads_on(world):
    run_id = ask(world)
    done = decided(world, run_id, "revise", "shorter")
    assert (done.run_id, done.status, done.choice) == (run_id, "queued", "revise")
    launch = world.launch(run_id).launch
    assert launch.node == "write"
    assert bytes(launch.past[-1].output.json) == b'{"choice":"revise","text":"shorter"}'
    winner = look(world, run_id).winner
    assert (winner.provenance, winner.who, winner.channel) == ("person", "client:ann", "terminal")
    assert (winner.choice, winner.text, winner.at_ms) == ("revise", "shorter", world.clock.wall_ms)


def test_the_same_answer_again_is_adopted_and_another_is_told_who_won(world):
    run_id = ask(world)
    first, other = command(world, run_id, "ship"), command(world, run_id, "revise", "x", actor="client:bob")
    world.do(decide, first)
    before = world.dump()
    assert world.done(decide, first).adopted
    assert world.dump() == before
    with pytest.raises(Conflict, match=r"was decided as 'ship' by client:ann \(terminal\)"):
        world.do(decide, other)
    view = look(world, run_id)
    assert [(one.who, one.won) for one in view.answers] == [("client:ann", True), ("client:bob", False)]
    assert "was decided as 'ship'" in view.answers[1].why_not
    assert view.winner.choice == "ship"


def test_the_same_answer_of_somebody_else_is_kept_as_theirs_and_told_who_won(world):
    run_id = ask(world)
    first, other = command(world, run_id, "ship"), command(world, run_id, "ship", actor="client:bob")
    world.do(decide, first)
    with pytest.raises(Conflict, match=r"was decided as 'ship' by client:ann \(terminal\)"):
        world.do(decide, other)
    assert [(one.who, one.won) for one in look(world, run_id).answers] == [
        ("client:ann", True),
        ("client:bob", False),
    ]


def test_a_repeat_of_a_late_answer_is_refused_again_and_kept_once(world):
    run_id = ask(world)
    late = command(world, run_id, "revise", "x", receipt=key("late", operation="decision.answer"))
    decided(world, run_id, "ship")
    for _ in range(3):
        with pytest.raises(Conflict, match="was decided as 'ship'"):
            world.do(decide, late)
    assert len(look(world, run_id).answers) == 2


def test_an_answer_to_another_proposal_is_stale(world):
    run_id = ask(world)
    old = command(world, run_id, "ship")
    decided(world, run_id, "revise", "x")
    ask(world, run_id, "Ship 1.3?")
    with pytest.raises(Conflict, match="answer is to another proposal"):
        world.do(decide, msgspec.structs.replace(old, decision=f"run:{run_id}"))
    with pytest.raises(Conflict, match="was decided as 'revise'"):
        world.do(decide, old)
    assert look(world, run_id).request.status == "pending"


def digest_of(world, **more):
    return look(world, ask(world, **more)).digest


def test_the_digest_binds_all_that_is_asked_and_not_the_deadline(world):
    run_id = ask(world)
    first = look(world, run_id).digest
    world.pause(run_id)
    world.clock.forward(HOUR)
    world.resume(run_id)
    assert look(world, run_id).digest == first
    changes = [
        {},  # another run
        {"summary": "Ship 1.3?"},
        {"subject": value({"commit": "abc"})},
        {"subject": value({"commit": "abd"})},
        {"graph_": flow(open_ms=2 * HOUR), "timeout_ms": 2 * HOUR},
    ]
    assert len({first, *(digest_of(world, **change) for change in changes)}) == 1 + len(changes)


FACTS = {
    "run_id": "r",
    "node": "gate",
    "visit": 1,
    "decision": SPEC,
    "title": "gate",
    "presentation": "p",
    "subject": "s",
    "timeout_ms": HOUR,
    "default": SHIP,
}
OTHER = {
    "decision": msgspec.structs.replace(SPEC, audience="others"),
    "visit": 2,
    "subject": None,
    "timeout_ms": None,
    "default": None,
}


def bound(facts):
    return digest(canonical(digest_facts(**facts)))


@pytest.mark.parametrize("fact", FACTS)
def test_another_fact_alone_is_another_digest(fact):
    assert bound(FACTS) != bound(FACTS | {fact: OTHER.get(fact, "another")})


def test_the_digest_is_that_of_what_was_asked(world):
    run_id = ask(world, subject=value({"commit": "abc"}))
    facts = {
        "run_id": run_id,
        "presentation": digest(bytes(shown().json)),
        "subject": digest(canonical({"commit": "abc"})),
    }
    assert look(world, run_id).digest == bound(FACTS | facts)


def test_the_subject_is_in_no_view_list_or_event(world):
    run_id = ask(world, subject=value({"commit": "s3cret-subject"}))
    view = look(world, run_id)
    decided(world, run_id, "ship")
    seen = [
        view,
        look(world, run_id),
        world.read(decision_list, DecisionListPayload(statuses=("settled",))),
        world.view(run_id),
        world.why(run_id),
        world.launch(run_id).launch,
    ]
    assert all(b"s3cret" not in msgspec.json.encode(one) for one in seen)
    events = world.sql("SELECT payload FROM events")
    assert all(b"s3cret" not in bytes(payload) for (payload,) in events)
    assert b"s3cret" in bytes(world.sql("SELECT subject FROM decisions")[0][0])


def test_nobody_decides_in_time_and_the_default_is_the_choice(world):
    run_id = ask(world)
    world.clock.forward(HOUR)
    late = command(world, run_id, "revise", "x")
    with pytest.raises(Conflict, match="the time to answer"):
        world.do(decide, late)
    world.do(time_out)
    assert world.do(time_out) is None
    winner = look(world, run_id).winner
    assert (winner.provenance, winner.choice, winner.who) == ("timeout", "ship", "pwf")
    with pytest.raises(Conflict, match="as 'ship', its default, since nobody decided in time"):
        world.do(decide, late)
    with pytest.raises(Conflict, match="its default, since nobody decided in time"):
        world.do(decide, command(world, run_id, "ship"))
    assert world.launch(run_id).launch.node == "done"


def test_who_comes_late_and_names_the_run_is_told_who_has_won(world):
    run_id = ask(world)
    late = command(world, run_id, "ship", decision=f"run:{run_id}")
    world.do(decide, command(world, run_id, "revise", "x"))
    with pytest.raises(Conflict, match=r"was decided as 'revise' by client:ann \(terminal\)"):
        world.do(decide, late)
    asked_again = ask(world, run_id)
    assert look(world, asked_again).winner is None
    assert look(world, run_id).request.request_id == world.request_of(run_id)


def test_what_was_asked_last_is_the_last_decision_though_something_else_was_asked_since(world):
    run_id = ask(world)
    world.clock.forward(10)
    other = world.run(graph(node("gate", "checkpoint", to="done"), node("done")))
    other.ask("?")
    assert decided(world, run_id, "ship", decision="@last").run_id == run_id
    with pytest.raises(Rejected, match="of kind checkpoint, and no decision"):
        decided(world, run_id, "ship", decision="@last")


def test_a_run_that_never_asked_and_a_name_that_nobody_has_lead_to_the_list_of_decisions(world):
    for ref in (f"run:{world.start(flow())}", "nosuch", "@last"):
        with pytest.raises(NotFound) as unknown:
            world.read(decision_list, DecisionListPayload(decision_id=ref))
        assert "pwf decisions" in unknown.value.hint


def test_what_a_proposal_says_of_its_time_and_default_stands_in_place_of_the_nodes(world):
    two = DecisionSpec(audience="operator", choices=(*SPEC.choices, ChoiceSpec(id="drop", label="Drop")))
    flows = graph(
        node("gate", "decision", cases={"ship": "ship", "revise": "gate", "drop": "drop"}, field="choice",
             decision=two, open_ms=HOUR, default=SHIP),
        node("ship"),
        node("drop"),
    )  # fmt: skip
    first = ask(world, graph_=flows)
    run_id = ask(world, graph_=flows, timeout_ms=60_000, default=SHIP.replace("ship", "drop"))
    assert (look(world, run_id).timeout_ms, look(world, run_id).default) == (60_000, "drop")
    assert look(world, first).default == "ship"
    world.clock.forward(60_000)
    world.do(time_out)
    assert look(world, run_id).winner.choice == "drop"
    assert world.launch(run_id).launch.node == "drop"
    for_ever = ask(world, graph_=flows, timeout_ms=None, default=None)
    world.clock.forward(1_000 * HOUR)
    world.do(time_out)
    assert look(world, for_ever).winner is None


def test_without_a_default_it_has_expired(world):
    late = graph(
        node("gate", "decision", on={"timed_out": "late"}, decision=SPEC, open_ms=HOUR), node("late")
    )
    run_id = ask(world, graph_=late)
    old = command(world, run_id, "ship")
    world.clock.forward(HOUR)
    world.do(time_out)
    winner = look(world, run_id).winner
    assert (winner.provenance, winner.choice) == ("expired", None)
    with pytest.raises(Conflict, match="nobody decided in time"):
        world.do(decide, old)
    assert world.launch(run_id).launch.node == "late"


def test_a_cancelled_run_closes_its_decision_and_an_answer_says_so(world):
    run_id = ask(world)
    late = command(world, run_id, "ship")
    world.cancel(run_id)
    assert look(world, run_id).winner.provenance == "cancelled"
    assert world.read(decision_list, DecisionListPayload()).decisions == ()
    before = world.trail(run_id)
    with pytest.raises(Conflict, match=r"is closed: its run .* is cancelled"):
        world.do(decide, late)
    assert (world.trail(run_id), world.status(run_id)) == (before, "cancelled")


def test_an_answer_under_a_pause_is_taken_and_the_run_does_not_go_on(world):
    run_id = ask(world)
    world.pause(run_id)
    world.clock.forward(9 * HOUR)
    assert decided(world, run_id, "ship").status == "paused"
    assert world.admit() == ()
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "done"


@pytest.mark.parametrize(
    ("choice", "text", "said"),
    [
        ("sink", None, "there is no choice 'sink'"),
        ("ship", "why not", "takes no text"),
        ("revise", None, "needs a text: What must change"),
        ("revise", "  ", "needs a text"),
        ("revise", "x" * 21, "21 characters"),
        ("revise", "a\x1b[31mb", "control characters"),
    ],
)
def test_what_no_choice_takes_is_refused_and_changes_nothing(world, choice, text, said):
    run_id = ask(world)
    before = world.dump()
    with pytest.raises(InvalidAnswer, match=said):
        decided(world, run_id, choice, text)
    assert world.dump() == before


def test_a_decision_takes_no_plain_answer_and_a_checkpoint_no_decision(world):
    run_id = ask(world)
    with pytest.raises(Rejected, match="takes no plain answer") as caught:
        world.answer(run_id, {"choice": "ship", "text": None})
    assert caught.value.hint == f"pwf decide {world.request_of(run_id)}"
    runner = world.run(graph(node("gate", "checkpoint")))
    runner.ask()
    runner.leave()
    asked = Decide(
        decision=f"run:{runner.run_id}", choice="ship", text=None, digest="x", actor="a", channel="t"
    )
    with pytest.raises(Rejected, match="no decision"):
        world.do(decide, asked)


def test_revised_three_times_then_shipped_the_effect_ran_four_times_and_each_proposal_is_kept(world):
    run_id = world.start(flow())
    for number, (choice, text) in enumerate(
        [("revise", "a"), ("revise", "b"), ("revise", "c"), ("ship", None)]
    ):
        ask(world, run_id, f"proposal {number}")
        view = look(world, run_id)
        if number:
            assert view.earlier.winner.text == "abc"[number - 1]
            assert f"proposal {number - 1}".encode() in bytes(view.earlier.presentation.json)
        decided(world, run_id, choice, text)
    world.launch(run_id).finish()
    assert world.effects(run_id) == [("write", visit, "applied", 1) for visit in (1, 2, 3, 4)]
    assert world.status(run_id) == "completed"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"prompt": value("Ship?")}, "needs a presentation"),
        ({"prompt": shown("x" * 70_000)}, "at most 65536 bytes"),
        ({"prompt": shown(), "default": '{"choice":"revise","text":null}'}, "a choice that needs no text"),
        ({"prompt": shown(), "default": "3"}, "a choice that needs no text"),
        ({"prompt": shown(), "subject": Value(digest="0" * 64, size=1)}, "inline"),
    ],
)
def test_what_no_person_could_be_shown_is_refused(world, message, said):
    runner = world.launch(world.start(flow()))
    runner.finish(to="gate")
    (reply,) = runner.apply([runner.make(Ask, kind="decision", **message)]).replies
    assert reply.verdict == "refused"
    assert said in reply.error


def test_the_index_lets_no_second_answer_win(world):
    run_id = ask(world)
    decided(world, run_id, "ship")
    with pytest.raises(Exception, match="UNIQUE"):
        world.sql(
            "INSERT INTO answers SELECT request_id, 9, provenance, who, channel, digest, choice, text, 1, NULL, 1"
            " FROM answers WHERE won = 1"
        )


def test_late_answers_are_kept_within_a_bound(world, monkeypatch):
    monkeypatch.setattr("pwf.store.decision_rows.REFUSED_MAX", 3)
    run_id = ask(world)
    late = command(world, run_id, "revise", "x")
    decided(world, run_id, "ship")
    for _ in range(5):
        with pytest.raises(Conflict):
            world.do(decide, late)
    assert len(look(world, run_id).answers) == 3


def test_retention_takes_decisions_and_answers_with_their_run(world):
    run_id = ask(world)
    decided(world, run_id, "ship")
    runner = world.launch(run_id)
    runner.finish()
    runner.leave()
    world.clock.forward(1)
    prune(world, days=0)
    assert world.sql("SELECT * FROM decisions") == world.sql("SELECT * FROM answers") == []


@pytest.mark.parametrize(
    ("rule", "sql"),
    [
        ("decision_unwon", "DELETE FROM answers"),
        ("decision_misled", "UPDATE answers SET choice = 'revise'"),
        ("row_damaged", "UPDATE decisions SET choices = x'00'"),
        ("row_damaged", "UPDATE decisions SET subject = x'31'"),
    ],
)
def test_what_somebody_has_changed_behind_is_found(world, rule, sql):
    run_id = ask(world, subject=value({"a": 1}))
    decided(world, run_id, "ship")
    world.checked = False
    world.sql(sql)
    assert rule in {violation.rule for violation in world.read(verify, world.epoch).violations}


def test_a_decision_that_has_won_before_its_request_is_closed_is_found(world):
    ask(world)
    world.checked = False
    world.sql(
        "INSERT INTO answers SELECT request_id, 1, 'person', 'a', 't', NULL, 'ship', NULL, 1, NULL, 1 FROM decisions"
    )
    assert ("decision_unwon") in {violation.rule for violation in world.read(verify, world.epoch).violations}


def test_a_large_presentation_is_bound_by_its_bytes(world):
    text = "x" * 9_000
    run_id = ask(world, summary=text)
    assert look(world, run_id).request.prompt.size == len(
        canonical({"title": "gate", "summary": text, "blocks": []})
    )
