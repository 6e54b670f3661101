"""The answer pages in a real Chromium: read, pressed, heard by a screen reader, and attacked by another page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.home import Home, wait_for
from tests.e2e.test_web import a_run, is_served, with_pages
from tests.e2e.world import PATIENCE_S
from tests.web.chromium import Chromium, chromium, executable

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(
        executable() is None, reason="there is no Chromium on this machine: apt install chromium"
    ),
]


@pytest.fixture
def url(home: Home) -> str:
    found = with_pages(home)
    home.run("start")
    wait_for(lambda: is_served(home, found), PATIENCE_S)
    return found


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Chromium]:
    with chromium(tmp_path / "profile") as opened:
        yield opened


def test_a_person_signs_in_sends_a_proposal_back_and_ships_it_on_a_phone_without_scripts(
    home: Home, url: str, page: Chromium
) -> None:
    run_id = a_run(home)
    page.as_phone()
    page.without_scripts()
    page.open(home.json("web", "--link")["url"])
    page.press("Sign in here")
    page.wait("location.pathname == '/' && document.readyState == 'complete'")
    assert "Ship it?" in page.text()
    assert page.look("document.cookie") == ""
    assert page.look("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"

    page.open(page.look("document.querySelector('main a').href"))
    page.write("textarea", "the tests hang")
    page.press("Fix first")
    page.wait("document.querySelector('.done')")
    assert "fix: the tests hang, by client:" in page.text()
    wait_for(lambda: len(home.json("decisions")["decisions"]) == 1, PATIENCE_S)

    page.open(url)
    page.open(page.look("document.querySelector('main a').href"))
    assert "changed since the last proposal" in page.text()
    page.press("Ship it")
    page.wait("document.querySelector('.done')")
    home.wait_status(run_id, "completed", seconds=PATIENCE_S)
    page.open(f"{url}/runs/{run_id}")
    assert "completed" in page.text()
    assert page.complaints == []


def test_a_screen_reader_says_each_choice_and_what_is_to_be_written(
    home: Home, url: str, page: Chromium
) -> None:
    run_id = a_run(home)
    page.open(home.json("decide", f"run:{run_id}", "--link")["url"])
    heard = page.heard_by_a_screen_reader()
    for said in (
        ("heading", "approve"),
        ("heading", "Your decision"),
        ("button", "Ship it (default)"),
        ("textbox", "What must change?"),
        ("button", "Fix first"),
        ("link", "Skip to the content"),
    ):
        assert said in heard
    assert any(role == "main" for role, _ in heard)


def test_by_night_the_page_is_dark(home: Home, url: str, page: Chromium) -> None:
    link = home.json("decide", f"run:{a_run(home)}", "--link")["url"]
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.as_phone(dark=False)
    page.open(link)
    assert page.look(ground) == "rgb(255, 255, 255)"
    page.as_phone(dark=True)
    assert page.look(ground) == "rgb(19, 19, 22)"


def test_a_page_on_another_port_can_neither_press_nor_frame_nor_read(
    home: Home, url: str, page: Chromium
) -> None:
    """The cookie goes along: for a browser, all ports of a machine are one site."""
    run_id = a_run(home)
    page.open(home.json("web", "--link")["url"])
    page.press("Sign in here")
    page.wait("location.pathname == '/' && document.readyState == 'complete'")
    own = page.look("document.querySelector('main a').href")
    page.open(own)
    fields = page.look("Object.fromEntries(new FormData(document.querySelector('form.choice')))")
    hidden = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    evil = (
        f'<form id="f" method="post" action="{own}">{hidden}</form><iframe src="{own}"></iframe>'
        f"<script>fetch({own!r}, {{credentials: 'include'}}).then(a => a.text())"
        ".then(t => document.title = 'read', e => document.title = 'refused')</script>"
    )
    with serving(evil) as elsewhere:
        page.open(elsewhere)
        page.wait("document.title == 'refused'")
        assert page.look("frames[0].length") == 0
        page.look("document.getElementById('f').submit()")
        page.wait("document.body && document.body.innerText.includes('Another page has sent this')")
    assert home.status(run_id) == "waiting"
    assert any("frame" in complaint for complaint in page.complaints)


class serving:
    """A page of somebody else, on a port of this machine."""

    def __init__(self, page: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
