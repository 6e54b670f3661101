"""Links and sign-ins: bound to what was shown, used once, over in time, and void in a copy."""

import pytest

from pwf.errors import Conflict, InvalidAnswer, Rejected, TokenRefused
from pwf.protocol.web import hash_of, new_token
from pwf.store.control import Control, cancel
from pwf.store.decisions import decide
from pwf.store.verify import verify
from pwf.store.web_tokens import (
    BROWSER_MS,
    LINKS_MAX,
    SIGN_IN_MS,
    SIGN_INS_MAX,
    Enter,
    Invite,
    Leave,
    MakeLink,
    enter,
    invite,
    leave,
    look_token,
    make_link,
)
from tests.store.test_decisions import ask, command, decided, look
from tests.store.test_home import ELSEWHERE, serve
from tests.store.test_retention import prune
from tests.store.world import key


def link(world, run_id, actor="client:ann"):
    token = new_token()
    decision = world.request_of(run_id)
    world.do(make_link, MakeLink(decision=decision, token_hash=hash_of(token), actor=actor))
    return token


def signed_in(world, actor="client:ann"):
    token, browser = new_token(), new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor=actor))
    world.do(enter, Enter(token=token, browser_hash=hash_of(browser)))
    return browser


def by(world, run_id, token, choice="ship", text=None, **more):
    """The answer of who holds a token, whoever has sent it on."""
    return world.do(decide, command(world, run_id, choice, text, token=token, actor="client:web", **more))


def test_a_link_decides_once_as_its_maker_on_the_web(world):
    run_id = ask(world)
    token = link(world, run_id)
    assert by(world, run_id, token).choice == "ship"
    winner = look(world, run_id).winner
    assert (winner.who, winner.channel, winner.provenance) == ("client:ann", "web", "person")
    assert world.read(look_token, token).used_ms == world.clock.wall_ms
    with pytest.raises(Conflict, match="was decided as 'ship'"):
        by(world, run_id, token, "revise", "x")


def test_no_token_stands_in_the_database(world):
    run_id = ask(world)
    tokens = [link(world, run_id), signed_in(world)]
    by(world, run_id, tokens[0], receipt=key("k"))
    dumped = str(world.dump())
    assert all(token not in dumped for token in tokens)


@pytest.mark.parametrize("token", ["unknown", "", "0" * 64])
def test_an_unknown_token_decides_nothing_and_leaves_no_trace(world, token):
    run_id = ask(world)
    before = world.dump()
    with pytest.raises(TokenRefused):
        by(world, run_id, token, receipt=key("k"))
    assert world.dump() == before


def test_the_link_of_another_decision_decides_nothing_and_leaves_no_trace(world):
    run_id, other = ask(world), ask(world)
    token = link(world, other)
    before = world.dump()
    with pytest.raises(TokenRefused, match="another decision"):
        by(world, run_id, token)
    assert world.dump() == before


def test_what_can_not_be_taken_does_not_use_a_link_up(world):
    run_id = ask(world)
    token = link(world, run_id)
    with pytest.raises(InvalidAnswer):
        by(world, run_id, token, "revise")
    assert world.read(look_token, token).used_ms is None
    assert by(world, run_id, token, "revise", "shorter").choice == "revise"


def test_a_link_is_over_with_its_decision(world):
    run_id = ask(world)
    token = link(world, run_id)
    world.do(cancel, Control(run_id=run_id, actor="client:ann"))
    with pytest.raises(Conflict, match="is closed: its run"):
        by(world, run_id, token)
    with pytest.raises(Rejected, match="no open decision"):
        link(world, run_id)


def test_who_is_second_by_another_link_is_told_who_was_first(world):
    run_id = ask(world)
    first, second = link(world, run_id, "client:ann"), link(world, run_id, "client:bob")
    by(world, run_id, first)
    with pytest.raises(Conflict, match=r"was decided as 'ship' by client:ann \(web\)"):
        by(world, run_id, second)
    assert world.read(look_token, second).used_ms is None


def test_the_same_choice_again_by_the_same_link_is_adopted(world):
    run_id = ask(world)
    token = link(world, run_id)
    by(world, run_id, token)
    assert world.done(decide, command(world, run_id, "ship", token=token)).adopted


def test_a_link_to_sign_in_works_once_and_for_ten_minutes(world):
    token, late = new_token(), new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor="client:ann"))
    world.do(invite, Invite(token_hash=hash_of(late), actor="client:ann"))
    world.do(enter, Enter(token=token, browser_hash=hash_of("b")))
    with pytest.raises(TokenRefused):
        world.do(enter, Enter(token=token, browser_hash=hash_of("c")))
    world.clock.forward(SIGN_IN_MS)
    with pytest.raises(TokenRefused):
        world.do(enter, Enter(token=late, browser_hash=hash_of("c")))


def test_a_browser_decides_what_it_likes_until_its_time_is_over_or_it_leaves(world):
    first, second, third = ask(world), ask(world), ask(world)
    browser, other = signed_in(world), signed_in(world)
    by(world, first, browser)
    world.do(leave, Leave(token=other))
    with pytest.raises(TokenRefused):
        by(world, second, other)
    by(world, second, browser)
    world.clock.forward(BROWSER_MS)
    with pytest.raises(TokenRefused):
        by(world, third, browser)


def test_a_link_to_a_decision_signs_nobody_in(world):
    token = link(world, ask(world))
    with pytest.raises(TokenRefused, match="no link to sign in"):
        world.do(enter, Enter(token=token, browser_hash=hash_of("b")))


def test_everybody_can_be_signed_out_and_links_to_decisions_stay(world):
    run_id = ask(world)
    token, browser = link(world, run_id), signed_in(world)
    assert world.do(leave, Leave()).count == 1
    with pytest.raises(TokenRefused):
        by(world, run_id, browser)
    by(world, run_id, token)


def test_links_and_sign_ins_are_bounded_and_old_ones_make_room(world):
    run_id = ask(world)
    world.checked = False
    for _ in range(LINKS_MAX):
        link(world, run_id)
    with pytest.raises(Rejected, match="links to decision"):
        link(world, run_id)
    for _ in range(SIGN_INS_MAX):
        world.do(invite, Invite(token_hash=hash_of(new_token()), actor="client:ann"))
    with pytest.raises(Rejected, match="browsers that are signed in"):
        signed_in(world)
    world.clock.forward(SIGN_IN_MS)
    signed_in(world)
    assert world.sql("SELECT count(*) FROM web_tokens WHERE expires_wall_ms IS NOT NULL") == [(1,)]


def test_in_a_copied_home_no_token_works(world):
    run_id = ask(world)
    tokens = [link(world, run_id), signed_in(world)]
    serve(world)
    serve(world, **ELSEWHERE)
    for token in tokens:
        with pytest.raises(TokenRefused):
            world.read(look_token, token)


def test_links_go_with_their_run(world):
    run_id = ask(world)
    by(world, run_id, link(world, run_id))
    runner = world.launch(run_id)
    runner.finish()
    runner.leave()
    world.clock.forward(1)
    prune(world, days=0)
    assert world.sql("SELECT * FROM web_tokens") == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE web_tokens SET digest = 'other'",
        "UPDATE answers SET channel = 'terminal'",
        "UPDATE answers SET provenance = 'timeout'",
    ],
)
def test_a_link_that_has_decided_something_else_is_found(world, sql):
    run_id = ask(world)
    by(world, run_id, link(world, run_id))
    world.checked = False
    world.sql(sql)
    assert "link_misled" in {one.rule for one in world.read(verify, world.epoch).violations}


def test_an_answer_at_the_terminal_needs_no_token(world):
    run_id = ask(world)
    link(world, run_id)
    assert decided(world, run_id, "ship").choice == "ship"
    assert look(world, run_id).winner.channel == "terminal"
