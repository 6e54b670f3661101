"""What comes under another name, from another page, or in another form than ours is refused before it is looked at."""

from __future__ import annotations

from tests.store.test_decisions import ask, look
from tests.store.test_web_tokens import link
from tests.store.world import World
from tests.web.browser import Browser
from tests.web.store_client import StoreClient
from tests.web.test_pages import forms, sign_in


def test_a_name_that_is_not_ours_is_refused_also_with_a_good_token(world: World, browser: Browser) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    ship, _ = forms(browser.get(address).text)
    for host in (
        "evil.example:7930",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:7930.evil.example",
        "",
        "evil@127.0.0.1:7930",
    ):
        assert browser.get(address, host=host).status == 421
        assert browser.post(address, ship, host=host).status == 421
    assert look(world, run_id).winner is None


def test_our_own_names_are_taken(browser: Browser) -> None:
    for host in ("127.0.0.1:7930", "localhost:7930", "LOCALHOST:7930", "[::1]:7930"):
        assert browser.get("/style.css", host=host).status == 200


ANOTHER_PAGES: tuple[dict[str, str], ...] = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://127.0.0.1:7930", "sec_fetch_site": "cross-site"},
    {"origin": "", "sec_fetch_site": "same-site"},
    {"origin": "", "sec_fetch_site": "", "cookie": "x=y"},
)


def test_what_another_page_sends_decides_nothing(world: World, browser: Browser, client: StoreClient) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    ship, _ = forms(browser.get(address).text)
    for headers in ANOTHER_PAGES:
        assert browser.post(address, ship, **headers).status == 403
    sign_in(world, browser)
    own = f"/decisions/{world.request_of(run_id)}"
    ship, _ = forms(browser.get(own).text)
    wrote = list(client.wrote)
    for headers in ANOTHER_PAGES:
        assert browser.post(own, ship, **headers).status == 403
    assert (look(world, run_id).winner, client.wrote) == (None, wrote)


def test_a_program_without_cookies_may_post_to_a_link(world: World, browser: Browser) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    ship, _ = forms(browser.get(address).text)
    assert browser.post(address, ship, origin="", sec_fetch_site="").status == 303


def test_other_methods_do_nothing(world: World, browser: Browser, client: StoreClient) -> None:
    address = f"/answer/{link(world, ask(world))}"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get"):
        assert browser.send(method, address).status in (400, 403, 405)
    assert client.wrote == []


FORM = "application/x-www-form-urlencoded"
BODIES = (
    (b"x" * 65_537, FORM, 413),
    (b'{"choice": "ship"}', "application/json", 415),
    (b"choice=ship", "text/plain", 415),
    (b"choice=%ff", FORM, 400),
    (b"\xff", FORM, 400),
    (b"&".join([b"a=b"] * 50), FORM, 400),
)


def test_a_body_that_is_no_small_form_is_refused(world: World, browser: Browser) -> None:
    run_id = ask(world)
    address = f"/answer/{link(world, run_id)}"
    for body, kind, status in BODIES:
        for size in (str(len(body)), ""):  # also where its size is not said
            answer = browser.send("POST", address, body, content_type=kind, content_length=size)
            assert answer.status == status, (body[:20], size)
    assert look(world, run_id).winner is None


def test_an_address_that_is_too_long_is_refused(browser: Browser) -> None:
    assert browser.get("/answer/" + "x" * 5_000).status == 414
    assert browser.get("/?" + "x" * 5_000).status == 414


def test_every_answer_says_that_nothing_is_kept_framed_or_run(world: World, browser: Browser) -> None:
    address = f"/answer/{link(world, ask(world))}"
    answers = [browser.get(path) for path in (address, "/", "/style.css")]
    answers += [browser.get("/", host="evil.example"), browser.send("PUT", "/")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in policy
        assert "access-control-allow-origin" not in answer.headers
