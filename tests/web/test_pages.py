"""Reading changes nothing, one POST with a token decides, and nobody without a token learns or leaves anything."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pwf.config import Web
from pwf.protocol.decision_spec import ChoiceSpec, DecisionSpec, TextSpec
from pwf.protocol.notices import NoticeView
from pwf.protocol.runner import Ask
from pwf.protocol.web import hash_of, new_token
from pwf.store.control import Control, cancel
from pwf.store.web_tokens import Invite, invite
from pwf.web.app import make_app
from tests.store.test_control import waiting
from tests.store.test_decisions import HOUR, SHIP, ask, decided, look
from tests.store.test_web_tokens import link
from tests.store.world import World, graph, node, value
from tests.web.browser import Browser
from tests.web.reading import Read, faults
from tests.web.store_client import StoreClient


def sign_in(world: World, browser: Browser) -> Browser:
    token = new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor="client:ann"))
    assert browser.post(f"/sign-in/{token}").status == 303
    return browser


def forms(page: str) -> list[dict[str, str]]:
    """What the forms of a page would send, each choice alone."""
    found: list[dict[str, str]] = []
    for element in Read(page).elements:
        if element.tag == "form":
            found.append({})
        elif element.tag in ("input", "textarea") and found:
            found[-1][element.attributes["name"]] = element.attributes.get("value", "")
    return [form for form in found if "choice" in form or "answer" in form]


# --- a link ---------------------------------------------------------------------------------------------------


def test_an_approval_link_fetched_ten_times_changes_nothing_and_one_post_decides(
    world: World, browser: Browser, client: StoreClient
) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    before = world.dump()
    for _ in range(5):
        assert browser.get(address).status == browser.head(address).status == 200
    assert (world.dump(), client.wrote) == (before, [])

    (ship, _) = forms(browser.get(address).text)
    done = browser.post(address, ship)
    assert (done.status, done.headers["location"]) == (303, address)
    winner = look(world, run_id).winner
    assert (winner.choice, winner.who, winner.channel) == ("ship", "client:ann", "web")
    assert "Decided: " in browser.get(address).text

    after = world.dump()
    again = browser.post(address, ship)
    assert (again.status, world.dump()) == (303, after)
    assert forms(browser.get(address).text) == []


def test_who_chooses_otherwise_by_a_used_link_is_told_what_was_decided(
    world: World, browser: Browser
) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    ship, revise = forms(browser.get(address).text)
    browser.post(address, ship)
    other = browser.post(address, {**revise, "text": "no"})
    assert other.status == 409
    assert "was decided as &#39;ship&#39; by client:ann (web)" in other.text
    assert look(world, run_id).winner.choice == "ship"


def test_a_text_that_is_missing_is_asked_for_and_what_was_typed_stays(world: World, browser: Browser) -> None:
    address = f"/answer/{link(world, ask(world))}"
    _, revise = forms(browser.get(address).text)
    refused = browser.post(address, {**revise, "text": "x" * 21})
    assert refused.status == 422
    assert "takes 20" in refused.text
    assert "x" * 21 in refused.text
    assert faults(refused.text) == []
    assert browser.post(address, {**revise, "text": "a\r\nb"}).status == 303


def test_where_answers_on_pages_do_not_count_it_is_said_and_the_link_stays(
    world: World, browser: Browser, client: StoreClient
) -> None:
    run_id = ask(world)
    client.counting = {"operator": ("telegram",)}
    address = f"/answer/{link(world, run_id)}"
    ship, _ = forms(browser.get(address).text)
    refused = browser.post(address, ship)
    assert (refused.status, look(world, run_id).winner) == (409, None)
    assert "do not count through web: answer through telegram" in refused.text
    client.counting = {}
    assert browser.post(address, ship).status == 303


def test_a_form_that_lacks_something_leaves_no_trace(world: World, browser: Browser) -> None:
    address = f"/answer/{link(world, ask(world))}"
    ship, _ = forms(browser.get(address).text)
    before = world.dump()
    for name in ship:
        assert browser.post(address, {**ship, name: ""}).status == 400
    assert browser.post(address, {}).status == 400
    assert world.dump() == before


def test_a_link_shows_its_decision_and_leads_nowhere_else(world: World, browser: Browser) -> None:
    run_id, other = ask(world), ask(world)
    address = f"/answer/{link(world, run_id)}"
    page = Read(browser.get(address).text)
    assert [one.attributes["href"] for one in page.all("a")] == ["#main"]
    token = address.rpartition("/")[2]
    for path in ("/", f"/runs/{run_id}", f"/decisions/{world.request_of(other)}", f"/sign-in/{token}"):
        assert browser.get(path).status == 401


def test_a_link_of_a_run_that_has_ended_says_so_and_changes_nothing(world: World, browser: Browser) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    ship, _ = forms(browser.get(address).text)
    world.do(cancel, Control(run_id=run_id, actor="client:ann"))
    pressed = browser.post(address, ship)
    assert pressed.status == 409
    assert f"is closed: its run {run_id} is cancelled" in pressed.text
    assert forms(pressed.text) == []
    assert look(world, run_id).winner.provenance == "cancelled"


# --- nobody ---------------------------------------------------------------------------------------------------

NOWHERE = "/answer/" + "0" * 64


PATHS = (
    "/",
    "/runs/{run}",
    "/decisions/{decision}",
    "/questions/{decision}",
    NOWHERE,
    "/answer/x",
    "/answer/{decision}",
    "/sign-in/" + "0" * 64,
    "/sign-out",
    "/no/such/page",
)


def test_an_unknown_link_to_a_decision_says_so_and_only_the_command_is_code(browser: Browser) -> None:
    page = browser.get(f"/answer/{'0' * 64}")
    assert (page.status, "This link is unknown or over" in page.text) == (401, True)
    assert "<code>pwf decide DECISION --link</code>" in page.text


def test_without_credentials_every_address_gives_401_and_leaves_no_trace(
    world: World, browser: Browser, client: StoreClient
) -> None:
    run_id = ask(world)
    before = world.dump()
    for method in ("GET", "HEAD", "POST"):
        for path in PATHS:
            path = path.format(run=run_id, decision=world.request_of(run_id))
            kind = "application/x-www-form-urlencoded"
            answer = browser.send(method, path, b"choice=ship", content_type=kind)
            assert answer.status in (401, 405), (method, path)
            assert (answer.status == 401) or method == "POST" or path == "/sign-out"
            assert "Ship" not in answer.text
    assert (world.dump(), client.wrote) == (before, [])


def test_a_cookie_that_is_no_browsers_opens_nothing(world: World, browser: Browser) -> None:
    token = link(world, ask(world))
    for cookie in (token, "0" * 64, "", "x"):
        browser.cookies = {"pwf_browser_7930": cookie}
        assert browser.get("/").status == 401


# --- a browser that has signed in -----------------------------------------------------------------------------


def test_a_preview_of_a_sign_in_link_uses_nothing_up_and_a_press_does(world: World, browser: Browser) -> None:
    token = new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor="client:ann"))
    for _ in range(3):
        assert browser.get(f"/sign-in/{token}").status == browser.head(f"/sign-in/{token}").status == 200
    done = browser.post(f"/sign-in/{token}")
    assert (done.status, done.headers["location"]) == (303, "/")
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in done.headers["set-cookie"]
    assert "Secure" not in done.headers["set-cookie"]
    assert browser.post(f"/sign-in/{token}").status == 401
    assert browser.get("/").status == 200


def test_under_an_encrypted_public_name_the_cookie_never_leaves_in_the_clear(
    world: World, client: StoreClient
) -> None:
    web = Web(public_url="https://pwf.example.org/")
    browser = Browser(make_app(client, web, web.urls), host="pwf.example.org")  # type: ignore[arg-type]
    token = new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor="client:ann"))
    done = browser.post(f"/sign-in/{token}", origin="https://pwf.example.org")
    assert "Secure" in done.headers["set-cookie"]


def test_the_inbox_shows_what_is_open_and_a_press_decides_it(world: World, browser: Browser) -> None:
    run_id, question, done = ask(world), waiting(world), ask(world)
    decided(world, done, "ship")
    sign_in(world, browser)
    page = browser.get("/").text
    address = f"/decisions/{world.request_of(run_id)}"
    assert address in page
    assert f"/questions/{world.request_of(question)}" in page
    assert world.request_of(done) not in page
    ship, _ = forms(browser.get(address).text)
    assert browser.post(address, ship).status == 303
    assert look(world, run_id).winner.who == "client:ann"
    assert address not in browser.get("/").text


def test_the_inbox_shows_what_runs_have_said(world: World, browser: Browser, client: StoreClient) -> None:
    facts = {"run_id": "k3", "workflow": "w", "node": "tell", "visit": 1, "attempt": 2, "at_ms": 1}
    client.notices = (NoticeView(kind="final", text=HOSTILE, **facts),)  # type: ignore[arg-type]
    page = sign_in(world, browser).get("/").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert 'href="/runs/k3"' in page
    assert faults(page) == []


@pytest.mark.parametrize("spoilt", ["form", "digest"])
def test_a_form_without_its_token_or_of_another_proposal_decides_nothing(
    world: World, browser: Browser, spoilt: str
) -> None:
    run_id, other = ask(world), ask(world)
    sign_in(world, browser)
    ship, _ = forms(browser.get(f"/decisions/{world.request_of(run_id)}").text)
    theirs, _ = forms(browser.get(f"/decisions/{world.request_of(other)}").text)
    address = f"/decisions/{world.request_of(run_id)}"
    for wrong in (theirs[spoilt], "", "x"):
        assert browser.post(address, {**ship, spoilt: wrong}).status in (400, 409)
    assert look(world, run_id).winner is None


def test_a_question_is_answered_once(world: World, browser: Browser) -> None:
    run_id = waiting(world)
    sign_in(world, browser)
    address = f"/questions/{world.request_of(run_id)}"
    (form,) = forms(browser.get(address).text)
    assert browser.post(address, {**form, "answer": '{"a": 1}'}).status == 303
    assert "Answered: " in browser.get(address).text
    assert browser.post(address, {**form, "answer": "2"}).status == 409


def test_signing_out_ends_it_and_nothing_else(world: World, browser: Browser) -> None:
    sign_in(world, browser)
    kept = dict(browser.cookies)
    assert browser.post("/sign-out").status == 200
    browser.cookies = kept
    assert browser.get("/").status == 401


def test_a_run_is_shown_in_the_words_of_the_terminal(world: World, browser: Browser) -> None:
    run_id = ask(world)
    sign_in(world, browser)
    page = browser.get(f"/runs/{run_id}").text
    for part in ("waits for a decision", f"pwf decide {world.request_of(run_id)}", "write", "completed"):
        assert part in page
    assert browser.get("/runs/nosuchrun").status == 404


# --- what is shown --------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\u202e\u0007\"'&"


def hostile(world: World) -> str:
    """A decision whose every text wants to be markup."""
    label = "\U0001f680\u05d0" * 1_500
    spec = DecisionSpec(
        audience=HOSTILE,
        choices=(
            ChoiceSpec(id="ship", label=label),
            ChoiceSpec(id="no", label=HOSTILE, text=TextSpec(label=HOSTILE)),
        ),
    )
    flow = graph(
        node(
            "gate",
            "decision",
            decision=spec,
            open_ms=HOUR,
            default=SHIP,
            field="choice",
            cases={"ship": "d", "no": "d"},
        ),
        node("d"),
    )
    runner = world.launch(world.start(flow))
    blocks: list[dict[str, Any]] = [
        {"block": "paragraph", "text": HOSTILE},
        {"block": "section", "title": HOSTILE},
        {"block": "bullets", "items": [HOSTILE]},
        {"block": "fields", "fields": {HOSTILE: HOSTILE}},
        {"block": "preformatted", "text": HOSTILE},
        {"block": "diff", "text": "+" + HOSTILE},
    ]
    shown = value({"title": HOSTILE, "summary": HOSTILE, "blocks": blocks})
    subject = value({"secret": "the-subject"})
    assert runner.send(runner.make(Ask, kind="decision", prompt=shown, timeout_ms=HOUR, subject=subject)) == [
        "park"
    ]
    runner.leave()
    return runner.run_id


def test_what_a_run_says_is_text_on_every_page_and_the_subject_is_on_none(
    world: World, browser: Browser
) -> None:
    run_id = hostile(world)
    address = f"/answer/{link(world, run_id)}"
    pages = [browser.get(address)]
    sign_in(world, browser)
    paths = ("/", f"/runs/{run_id}", f"/decisions/{world.request_of(run_id)}")
    pages += [browser.get(path) for path in paths]
    for page in pages:
        assert page.status == 200
        assert faults(page.text) == []
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", page.text)
        assert "the-subject" not in page.text


def test_a_label_of_three_thousand_characters_is_cut_with_a_mark_and_its_choice_is_whole(
    world: World, browser: Browser
) -> None:
    run_id = hostile(world)
    address = f"/answer/{link(world, run_id)}"
    page = browser.get(address).text
    button = Read(page).all("button")[0].text
    assert "…" in button
    assert len(button) < 500
    assert browser.post(address, forms(page)[0]).status == 303
    assert look(world, run_id).winner.choice == "ship"


def test_every_page_can_be_read_by_a_screen_reader_and_on_a_phone(world: World, browser: Browser) -> None:
    run_id, question = ask(world), waiting(world)
    token = new_token()
    world.do(invite, Invite(token_hash=hash_of(token), actor="client:ann"))
    pages = [
        browser.get("/"),
        browser.get(f"/sign-in/{token}"),
        browser.get(f"/answer/{link(world, run_id)}"),
    ]
    sign_in(world, browser)
    for path in (
        "/",
        f"/runs/{run_id}",
        f"/decisions/{world.request_of(run_id)}",
        f"/questions/{world.request_of(question)}",
        "/runs/no",
    ):
        pages.append(browser.get(path))
    for page in pages:
        assert faults(page.text) == []


def test_colours_can_be_told_from_their_ground_by_day_and_by_night(browser: Browser) -> None:
    sheet = browser.get("/style.css").text
    for part in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        pairs = [(ink, ground) for ink in colours for ground in ("ground", "card") if ink not in NOT_INK]
        for ink, ground in [*pairs, ("on-button", "button")]:
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


NOT_INK = {"ground", "card", "line", "button", "on-button"}


def contrast(one: str, other: str) -> float:
    """As WCAG 2 counts it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
