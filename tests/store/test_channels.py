"""What channels show is a row and an effect: sent once, closed when settled, and never repeated blindly."""

import time

import pytest

from pwf.errors import ClaimLost, Conflict, NotFound, Rejected
from pwf.protocol.channel_port import Close, Show
from pwf.protocol.channels import RecoverMessage
from pwf.protocol.decision_spec import ChoiceSpec, DecisionSpec, TextSpec
from pwf.protocol.runner import Ask
from pwf.store import channel_kind
from pwf.store.channel_content import TITLE_CHARS
from pwf.store.channel_kind import CHANNEL
from pwf.store.channel_messages import CLOSE_TRIES_MAX, REMINDERS_MAX, TRIES_MAX
from pwf.store.channel_rows import ChannelStands, channel_stands
from pwf.store.channel_times import Showing, after_quiet, minutes_of
from pwf.store.channel_troubles import channel_problems
from pwf.store.channel_words import ProbeChannel, Recover, channel_list, probe_channel, recover_message
from pwf.store.deadlines import time_out
from pwf.store.decisions import decide
from pwf.store.queries import load_queries
from pwf.store.updates import PublishUpdates, publish_updates
from tests.store.channel_world import ALL, ChannelWorld
from tests.store.test_control import ambiguous
from tests.store.test_decisions import HOUR, ask, command, decided, flow, look, shown
from tests.store.test_home import ELSEWHERE, serve
from tests.store.test_retention import prune
from tests.store.world import graph, linear, node, value

DECIDE = ("decide",)


@pytest.fixture
def phone(world):
    return ChannelWorld(world, phone=DECIDE)


def effects(world):
    return world.sql("SELECT status, ref, attempts FROM effects WHERE type LIKE 'channel.%' ORDER BY part")


def test_a_decision_is_due_for_a_channel_in_the_transaction_that_asks(world, phone):
    ask(world)
    assert world.sql("SELECT event FROM happenings") == [("asked",)]
    work = phone.work("phone")
    assert isinstance(work, Show)
    assert (work.message.event, work.message.title) == ("decide", "flow: gate")
    assert [choice.id for choice in work.message.choices] == ["ship", "revise"]
    assert work.message.shown.summary == "Ship 1.2?"
    assert world.sql("SELECT * FROM happenings") == []


def test_without_a_channel_nothing_is_written_for_any(world):
    ask(world)
    world.cancel(world.start(linear(1)))
    assert world.sql("SELECT * FROM happenings") == []


def test_the_intent_is_stored_before_and_the_outcome_after(world, phone):
    ask(world)
    work = phone.work("phone")
    assert effects(world) == [("applying", None, 1)]
    assert phone.say("phone", work, ref="4711")
    assert effects(world) == [("applied", "4711", 1)]
    assert phone.states() == [("decide", "shown")]
    assert phone.work("phone") is None


def test_the_subject_and_the_token_stand_in_no_message_and_no_row(world, phone):
    ask(world, subject=value({"secret": "s3cret-subject"}))
    work = phone.work("phone")
    assert "s3cret-subject" not in repr(work)
    assert len(work.message.token) == 32
    assert work.message.token not in repr(world.dump())


def test_what_is_settled_is_closed_wherever_it_was_shown(world):
    both = ChannelWorld(world, phone=DECIDE, chat=DECIDE)
    run_id = ask(world)
    both.show("phone", "a")
    both.show("chat", "b")
    decided(world, run_id, "ship")
    for name, ref in (("phone", "a"), ("chat", "b")):
        work = both.work(name)
        assert isinstance(work, Close)
        assert (work.ref, work.said) == (ref, "decided: Ship it, by client:ann (terminal)")
        assert both.say(name, work)
    assert both.states() == [("decide", "closed")] * 2


@pytest.mark.parametrize("end", ["cancel", "time_out"])
def test_a_question_that_ends_by_itself_leaves_every_inbox(world, phone, end):
    run_id = ask(world)
    phone.show("phone")
    if end == "cancel":
        world.cancel(run_id)
        said = "closed: its run has ended"
    else:
        world.clock.forward(HOUR)
        world.do(time_out)
        said = "Ship it: the default, since nobody decided in time"
    work = phone.work("phone")
    assert isinstance(work, Close)
    assert work.said == said


def test_what_is_settled_before_it_is_shown_is_never_shown(world, phone):
    run_id = ask(world)
    phone.work("phone")
    phone.begin("phone")
    other = ask(world)
    decided(world, other, "ship")
    decided(world, run_id, "ship")
    assert phone.work("phone") is None
    assert phone.states() == [("decide", "ambiguous")]


def test_what_is_settled_while_it_is_sent_is_closed_right_after(world, phone):
    run_id = ask(world)
    work = phone.work("phone")
    decided(world, run_id, "ship")
    assert phone.say("phone", work, ref="9")
    assert isinstance(phone.work("phone"), Close)


def test_a_closing_is_repeated_until_it_is_done_or_the_bound_is_reached(world, phone):
    run_id = ask(world)
    phone.show("phone")
    decided(world, run_id, "ship")
    tries = 0
    while isinstance(work := phone.work("phone"), Close):
        tries += 1
        assert phone.say("phone", work, "unknown", why="timeout")
        assert phone.work("phone") is None
        world.clock.forward(HOUR)
    assert tries == CLOSE_TRIES_MAX
    assert phone.states() == [("decide", "closed")]


# --- refusals and what nobody knows -----------------------------------------------------------------------------


def test_a_known_refusal_is_tried_again_within_a_bound(world, phone):
    ask(world)
    for attempt in range(1, TRIES_MAX + 1):
        work = phone.work("phone")
        assert work.attempt == attempt
        assert phone.say("phone", work, "refused", why="503")
        assert phone.work("phone") is None, "not at once"
        world.clock.forward(HOUR)
    assert phone.states() == [("decide", "refused")]
    assert effects(world) == [("rejected", None, TRIES_MAX)]


def test_a_refusal_that_is_final_is_not_tried_again(world, phone):
    ask(world)
    assert phone.say("phone", phone.work("phone"), "refused", why="no such chat", final=True)
    world.clock.forward(HOUR)
    assert phone.work("phone") is None
    assert phone.states() == [("decide", "refused")]


def test_a_service_that_says_when_to_try_again_is_not_asked_before(world, phone):
    ask(world)
    phone.say("phone", phone.work("phone"), "refused", why="429", retry_after_s=60)
    world.clock.forward(59_000)
    assert phone.work("phone") is None
    world.clock.forward(1_000)
    assert isinstance(phone.work("phone"), Show)


def test_an_unknown_outcome_is_ambiguous_and_nothing_is_sent_again(world, phone):
    ask(world)
    phone.say("phone", phone.work("phone"), "unknown", why="timeout")
    world.clock.forward(100 * HOUR)
    phone.begin("phone")
    assert phone.work("phone") is None
    assert effects(world) == [("ambiguous", None, 1)]


def test_a_message_whose_adapter_died_while_it_sent_is_ambiguous(world, phone):
    run_id = ask(world)
    phone.work("phone")
    phone.begin("phone")
    assert phone.states() == [("decide", "ambiguous")]
    assert phone.work("phone") is None
    assert "channel phone: ambiguous" in world.why(run_id).reason


def recover(world, word, **more):
    (row,) = world.sql("SELECT message_id FROM channel_messages")
    said = RecoverMessage(message_id=row[0][:6], word=word, **more)
    return world.do(recover_message, Recover(said=said, actor="client:ann"))


def test_a_person_confirms_with_the_reference_that_was_found_and_it_is_closed_by_that(world, phone):
    run_id = ask(world)
    phone.say("phone", phone.work("phone"), "unknown", why="timeout")
    recover(world, "confirm", ref="found")
    assert world.sql("SELECT status, ref, settled_by FROM effects WHERE type = 'channel.decide'") == [
        ("applied", "found", "client:ann")
    ]
    with pytest.raises(Conflict, match="nothing to retry"):
        recover(world, "retry")
    decided(world, run_id, "ship")
    assert phone.work("phone").ref == "found"


def test_a_person_has_it_sent_again_with_a_new_token_and_only_while_it_is_open(world, phone):
    run_id = ask(world)
    first = phone.work("phone")
    phone.say("phone", first, "unknown", why="timeout")
    recover(world, "retry")
    again = phone.work("phone")
    assert again.message.token != first.message.token
    assert phone.answer("phone", first.message.token, "ship").taken is False
    phone.say("phone", again, "unknown", why="timeout")
    decided(world, run_id, "ship")
    with pytest.raises(Conflict, match="is settled: it is not sent again"):
        recover(world, "retry")


# --- epochs -----------------------------------------------------------------------------------------------------


def test_a_stale_adapter_settles_nothing_and_brings_no_answer(world, phone):
    ask(world)
    work = phone.work("phone")
    phone.begin("phone")
    phone.epochs["phone"] -= 1
    with pytest.raises(ClaimLost):
        phone.say("phone", work)
    with pytest.raises(ClaimLost):
        phone.answer("phone", work.message.token, "ship")
    with pytest.raises(ClaimLost):
        phone.work("phone")
    assert phone.states() == [("decide", "ambiguous")]


def test_a_word_on_an_earlier_attempt_counts_for_nothing(world, phone):
    ask(world)
    first = phone.work("phone")
    phone.say("phone", first, "refused", why="503")
    world.clock.forward(HOUR)
    assert isinstance(phone.work("phone"), Show)
    assert phone.say("phone", first) is False
    assert phone.states() == [("decide", "sending")]


# --- who is shown what ------------------------------------------------------------------------------------------


def test_a_channel_that_is_added_shows_each_open_decision_once(world, phone):
    runs = [ask(world) for _ in range(3)]
    decided(world, runs[0], "ship")
    phone.configure(phone=DECIDE, chat=DECIDE)
    shown = [phone.show("chat").message.run_id for _ in range(2)]
    assert set(shown) == set(runs[1:])
    phone.begin("chat")
    assert phone.work("chat") is None


def test_an_audience_is_shown_in_its_channels_alone(world, phone):
    phone.audiences = {"operator": Showing(channels=("chat",))}
    phone.configure(phone=DECIDE, chat=DECIDE)
    ask(world)
    assert phone.work("phone") is None
    assert isinstance(phone.work("chat"), Show)
    phone.begin("phone")
    assert phone.work("phone") is None


def test_a_channel_that_is_taken_away_shows_nothing_more_and_comes_back_as_itself(world, phone):
    ask(world)
    number = phone.numbers["phone"]
    phone.configure()
    assert world.sql("SELECT state FROM channels") == [("off",)]
    assert world.sql("SELECT * FROM happenings") != []
    phone.configure(phone=DECIDE)
    assert phone.numbers["phone"] == number
    assert isinstance(phone.work("phone"), Show)
    assert phone.epochs["phone"] == 2


def test_each_event_is_told_where_the_configuration_asks_for_it(world):
    both = ChannelWorld(world, all=ALL, failed=("failed",))
    run_id = world.run(graph(node("a", "checkpoint", to="b"), node("b")))
    run_id.ask()
    run_id.leave()
    assert both.show("all").message.event == "waiting"
    ambiguous(world)
    assert both.show("all").message.event == "held"
    world.cancel(run_id.run_id)
    kinds = [type(both.work("all"))]
    assert kinds == [Close]
    runner = world.run(linear(1))
    runner.fail()
    runner.leave()
    told = both.show("failed").message
    assert (told.event, told.run_id) == ("failed", runner.run_id)
    assert both.work("failed") is None


def test_what_a_notify_node_says_is_told_once_where_the_configuration_asks_for_it(world):
    both = ChannelWorld(world, notices=("notice",), phone=DECIDE)
    long = "Version 1.2 is out.\n" + "It is better. " * 30
    runner = world.run(
        graph(node("a", "notify", to="b", notice="progress"), node("b", "notify", notice="final"))
    )
    runner.finish("begun", to="b")
    assert both.show("notices").message.title.endswith(": begun")
    runner.finish(long)
    runner.leave()
    last = both.show("notices").message
    assert (last.event, last.run_id, last.text) == ("notice", runner.run_id, long)
    assert len(last.title) <= TITLE_CHARS
    assert (both.work("notices"), both.work("phone")) == (None, None)


# --- when -------------------------------------------------------------------------------------------------------


def test_an_audience_is_shown_in_one_channel_after_another_until_somebody_decides(world):
    three = ChannelWorld(world, phone=DECIDE, chat=DECIDE, pager=DECIDE)
    order = Showing(channels=("chat", "phone", "pager"), escalate_ms=60_000)
    three.audiences = {"operator": order}
    run_id = ask(world)
    assert isinstance(three.work("chat"), Show)
    assert three.work("phone") is None
    world.clock.forward(60_000)
    assert isinstance(three.work("phone"), Show)
    decided(world, run_id, "ship")
    world.clock.forward(60_000)
    assert three.work("pager") is None
    assert three.states()[-1] == ("decide", "void")


def test_people_are_reminded_while_nobody_decides_within_a_bound(world, phone):
    phone.audiences = {"operator": Showing(channels=("phone",), remind_ms=HOUR)}
    run_id = ask(world, timeout_ms=None, graph_=flow(open_ms=None, default=None))
    phone.show("phone")
    for _ in range(REMINDERS_MAX):
        assert phone.work("phone") is None
        world.clock.forward(HOUR)
        message = phone.show("phone").message
        assert (message.event, message.title) == ("remind", "still open: flow: gate")
    world.clock.forward(HOUR)
    assert phone.work("phone") is None
    assert phone.answer("phone", message.token, "ship").taken
    closed = []
    while isinstance(work := phone.work("phone"), Close):
        closed.append(phone.say("phone", work))
    assert len(closed) == REMINDERS_MAX + 1
    assert look(world, run_id).winner.choice == "ship"


@pytest.mark.parametrize(
    ("quiet", "hour", "then"),
    [
        ("22:00-07:00", 23, 31),
        ("22:00-07:00", 3, 7),
        ("22:00-07:00", 7, 7),
        ("12:00-13:00", 12, 13),
        ("12:00-13:00", 14, 14),
    ],
)
def test_nothing_new_is_shown_in_quiet_hours(monkeypatch, quiet, hour, then):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    day_ms = 1_700_006_400_000  # a midnight
    try:
        assert after_quiet(day_ms + hour * HOUR, minutes_of(quiet)) == day_ms + then * HOUR
        assert after_quiet(day_ms, None) == day_ms
    finally:
        monkeypatch.undo()
        time.tzset()


# --- answers ----------------------------------------------------------------------------------------------------


def test_an_answer_through_a_channel_wins_with_who_and_through_what(world, phone):
    run_id = ask(world)
    token = phone.show("phone").message.token
    verdict = phone.answer("phone", token, "revise", text="shorter", cursor="17")
    assert (verdict.taken, verdict.said) == (True, "decided: Revise “shorter”, by phone:ann (phone)")
    winner = look(world, run_id).winner
    assert (winner.who, winner.channel, winner.choice, winner.text) == (
        "phone:ann",
        "phone",
        "revise",
        "shorter",
    )
    assert world.sql("SELECT cursor FROM channels") == [("17",)]


def test_the_same_press_told_twice_is_one_answer(world, phone):
    run_id = ask(world)
    token = phone.show("phone").message.token
    assert phone.answer("phone", token, "ship", cursor="1").taken
    again = phone.answer("phone", token, "ship", cursor="2")
    assert again.taken
    assert again.said == "decided: Ship it, by phone:ann (phone)"
    assert len(look(world, run_id).answers) == 1


def test_who_comes_second_through_another_channel_is_told_who_won(world):
    both = ChannelWorld(world, phone=DECIDE, chat=DECIDE)
    ask(world)
    one, other = both.show("phone").message.token, both.show("chat").message.token
    assert both.answer("phone", one, "ship").taken
    verdict = both.answer("chat", other, "revise", who="bob", text="x")
    assert (verdict.taken, verdict.said) == (False, "decided: Ship it, by phone:ann (phone)")


def test_a_token_is_good_in_its_own_channel_only(world):
    both = ChannelWorld(world, phone=DECIDE, chat=DECIDE)
    ask(world)
    token = both.show("phone").message.token
    assert not both.answer("chat", token, "ship").taken
    assert not both.answer("phone", "0" * 32, "ship").taken
    assert both.answer("phone", token, "ship").taken


def test_only_the_channels_that_an_audience_names_decide(world):
    both = ChannelWorld(world, phone=DECIDE, chat=DECIDE)
    both.counting = {"operator": ("chat",)}
    run_id = ask(world)
    verdict = both.answer("phone", both.show("phone").message.token, "ship")
    assert not verdict.taken
    assert "do not count through phone" in verdict.said
    with pytest.raises(Rejected, match="do not count through terminal"):
        decided(world, run_id, "ship", counting=both.counting)
    assert both.answer("chat", both.show("chat").message.token, "ship").taken


@pytest.mark.parametrize("choice", ["nope", "revise"])
def test_a_wrong_answer_is_told_and_the_question_stays_open(world, phone, choice):
    ask(world)
    token = phone.show("phone").message.token
    verdict = phone.answer("phone", token, choice, cursor="3")
    assert not verdict.taken
    assert world.sql("SELECT cursor FROM channels") == [("3",)]
    assert phone.answer("phone", token, "ship").taken


def test_a_choice_is_named_by_its_number_too_and_asks_for_its_text(world, phone):
    run_id = ask(world)
    token = phone.show("phone").message.token
    verdict = phone.answer("phone", token, "", choice_no=1)
    assert (verdict.taken, verdict.asks) == (False, "What must change?")
    assert not phone.answer("phone", token, "", choice_no=7).taken
    assert phone.answer("phone", token, "", choice_no=1, text="x").taken
    assert look(world, run_id).winner.choice == "revise"


def test_where_people_reach_the_answer_pages_a_message_has_a_link_that_decides_once(world, phone):
    run_id = ask(world)
    phone.pages = "https://pwf.example"
    link = phone.show("phone").message.link
    assert link.startswith("https://pwf.example/answer/")
    by_link = command(world, run_id, "ship", token=link.rpartition("/")[2])
    world.do(decide, by_link)
    winner = look(world, run_id).winner
    assert (winner.who, winner.channel) == ("phone", "web")
    assert link.rpartition("/")[2] not in repr(world.dump())


# --- everywhere else --------------------------------------------------------------------------------------------


def test_in_a_copied_home_sends_are_ambiguous_tokens_void_and_open_ones_shown_anew_once_resumed(world):
    serve(world)
    phone = ChannelWorld(world, phone=DECIDE)
    first, second = ask(world), ask(world)
    tokens = [phone.show("phone").message.token, phone.work("phone").message.token]

    serve(world, **ELSEWHERE)
    assert phone.states() == [("decide", "void"), ("decide", "ambiguous")]
    phone.configure(phone=DECIDE)
    assert phone.work("phone") is None
    assert [phone.answer("phone", token, "ship").taken for token in tokens] == [False, False]
    assert (look(world, first).winner, look(world, second).winner) == (None, None)

    world.resume(first)
    world.resume(second)
    assert phone.show("phone").message.run_id == first
    assert phone.work("phone") is None, "a person says what became of the other"


def test_what_channels_showed_goes_with_its_run(world, phone):
    run_id = ask(world)
    phone.show("phone")
    other = ask(world)
    phone.work("phone")
    world.cancel(run_id)
    world.cancel(other)
    phone.begin("phone")
    world.clock.forward(HOUR)
    prune(world, 0)
    assert phone.states() == []
    assert effects(world) == []


def test_a_test_says_only_that_the_channel_works_and_earlier_ones_go(world, phone):
    for _ in range(2):
        world.do(probe_channel, ProbeChannel(channel="phone"))
        assert phone.show("phone").message.event == "test"
    assert phone.states() == [("test", "shown")]
    with pytest.raises(NotFound):
        world.do(probe_channel, ProbeChannel(channel="nope"))


def test_the_list_shows_channels_and_what_went_wrong(world, phone):
    run_id = ask(world)
    phone.say("phone", phone.work("phone"), "refused", why="403: blocked", final=True)
    stands = ChannelStands(channel_no=phone.numbers["phone"], epoch=1, state="down", trouble="it died")
    world.do(channel_stands, stands)
    listed = world.read(channel_list, None)
    (line,) = listed.channels
    assert (line.name, line.state, line.trouble, line.messages) == (
        "phone",
        "down",
        "it died",
        {"refused": 1},
    )
    assert [(one.run_id, one.why) for one in listed.messages] == [(run_id, "403: blocked")]
    assert "channel phone: refused: 403: blocked" in world.why(run_id).reason
    assert world.read(channel_problems, None).problems == ("channel phone is down: it died",)


def test_the_status_names_what_a_person_should_look_at(world, phone):
    ask(world)
    work = phone.work("phone")
    phone.say("phone", work, "unknown", why="timeout")
    message_id = work.message.message_id
    assert world.read(channel_problems, None).problems == (
        f"channel phone: nobody knows whether message {message_id} arrived",
    )


def test_a_channel_whose_row_does_not_decode_is_named(world, phone):
    world.checked = False
    world.sql("UPDATE channels SET tells = x'7b22ff'")
    assert "row_damaged" in {found for found, _ in world.violations()}


PLANTED = [
    ("message_stale", "UPDATE requests SET status = 'settled', settled_wall_ms = 1"),
    ("message_unbooked", "UPDATE channel_messages SET state = 'ambiguous'"),
    ("send_stray", "UPDATE channel_messages SET message_id = 'another'"),
    ("send_unowned", "UPDATE channel_messages SET state = 'sending'"),
    ("message_forgotten", "UPDATE channel_messages SET state = 'due', due_wall_ms = 1"),
]


@pytest.mark.parametrize(("rule", "damage"), PLANTED)
def test_verify_names_what_breaks_a_rule(world, phone, rule, damage):
    ask(world)
    phone.show("phone")
    world.checked = False
    if rule == "message_stale":
        world.sql("DROP TRIGGER request_closed")
    if rule in ("send_unowned", "message_forgotten"):
        world.sql("UPDATE channels SET state = 'off'")
    world.sql(damage)
    assert rule in {found for found, _ in world.violations()}


def test_every_rule_has_its_planted_violation():
    assert {rule for rule, _ in PLANTED} == set(CHANNEL.rules)
    assert len(load_queries(channel_kind.__file__)) == len(CHANNEL.rules) + 4


def test_a_message_is_titled_by_the_run_where_somebody_has_named_it(world, phone):
    runner = world.launch(world.start(flow()))
    world.do(publish_updates, PublishUpdates(fence=runner.fence, updates=(), title="Release 1.2"))
    runner.finish(to="gate")
    assert runner.send(runner.make(Ask, kind="decision", prompt=shown(), timeout_ms=HOUR)) == ["park"]
    work = phone.show("phone")
    assert work.message.title == "Release 1.2: gate"
    decided(world, work.message.run_id, "ship")
    close = phone.work("phone")
    assert (type(close), close.title) == (Close, "Release 1.2: gate")


def test_a_text_that_may_be_left_out_is_asked_for_when_the_person_wants_that(world, phone):
    stop = ChoiceSpec(id="stop", label="Stop", text=TextSpec(label="Why?", required=False))
    spec = DecisionSpec(audience="operator", choices=(stop,))
    gate = node("gate", "decision", cases={"stop": "done"}, field="choice", decision=spec, open_ms=None)
    run_id = ask(world, graph_=graph(gate, node("done")), timeout_ms=None)
    token = phone.show("phone").message.token
    asked = phone.answer("phone", token, "stop", with_text=True)
    assert (asked.taken, asked.asks, look(world, run_id).winner) == (False, "Why?", None)
    assert phone.answer("phone", token, "stop", with_text=True, text="the tests hang").taken
    assert look(world, run_id).winner.text == "the tests hang"
