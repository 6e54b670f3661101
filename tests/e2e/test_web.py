"""`pwf web` with a real daemon and a real port: a link that is looked at and then pressed, and nobody else gets in."""

from __future__ import annotations

import http.client
import re
import signal
import socket
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import psutil
import pytest

from pwf.protocol.runner import MARKER_VARIABLE, run_marker
from tests.e2e.home import Home, wait_for
from tests.e2e.test_decisions import RELEASE
from tests.e2e.world import PATIENCE_S


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def ask(url: str, method: str = "GET", form: dict[str, str] | None = None, **headers: str) -> Page:
    """A request as a program sends it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    body = None if form is None else urlencode(form)
    kind = {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        connection.request(method, parts.path, body, {**kind, **headers})
        answer = connection.getresponse()
        return Page(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
    finally:
        connection.close()


def hidden(page: str) -> list[dict[str, str]]:
    """What each form brings back unseen."""
    found = []
    for form in page.split('<form class="choice"')[1:]:
        found.append(dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def url(home: Home) -> str:
    return with_pages(home)


def with_pages(home: Home) -> str:
    """Have the daemon of a home serve pages; where they are, once `is_served`."""
    port = free_port()
    home.config(f"[web]\nserve = true\nport = {port}\n")
    return f"http://127.0.0.1:{port}"


def is_served(home: Home, url: str) -> bool:
    return bool(home.json("status")["pages"] == f"{url}/")


def a_run(home: Home) -> str:
    """One that waits for its decision."""
    home.workflow("decide_release", RELEASE)
    run_id = home.start("decide_release")
    home.wait_status(run_id, "waiting", seconds=PATIENCE_S)
    return run_id


def test_a_link_is_looked_at_and_pressed_and_a_browser_signs_in_once(home: Home, url: str) -> None:
    home.workflow("decide_release", RELEASE)
    run_id = home.start("decide_release")
    wait_for(lambda: is_served(home, url), PATIENCE_S)
    home.wait_status(run_id, "waiting", seconds=PATIENCE_S)
    link = home.json("decide", f"run:{run_id}", "--link")["url"]
    assert link.startswith(f"{url}/answer/")

    for _ in range(10):
        assert ask(link).status == ask(link, "HEAD").status == 200
    assert home.status(run_id) == "waiting"
    assert ask(link.rpartition("/")[0] + "/" + "0" * 64, "POST", {"choice": "ship"}).status == 401
    assert ask(link, Host="evil.example").status == 421

    ship, _ = hidden(ask(link).text)
    assert ask(link, "POST", ship, Origin="http://evil.example").status == 403
    assert ask(link, "POST", ship).status == 303
    home.wait_status(run_id, "completed", seconds=PATIENCE_S)
    page = ask(link)
    assert "Decided: <bdi>ship, by client:" in page.text
    assert "s3cret-subject" not in page.text
    (view,) = home.json("decisions", "--all")["decisions"]
    assert (view["winner"]["channel"], view["winner"]["provenance"]) == ("web", "person")

    assert ask(url + "/").status == 401
    sign_in = home.json("web", "--link")["url"]
    cookie = ask(sign_in, "POST", {}).headers["set-cookie"].partition(";")[0]
    assert ask(sign_in, "POST", {}).status == 401
    assert f"/runs/{run_id}" in ask(url + "/", Cookie=cookie).text
    assert "completed" in ask(f"{url}/runs/{run_id}", Cookie=cookie).text

    tokens = [url.rpartition("/")[2].encode() for url in (link, sign_in)]
    tokens.append(cookie.partition("=")[2].encode())
    for file in home.home.rglob("*"):
        assert not file.is_file() or not any(token in file.read_bytes() for token in tokens), file


@pytest.mark.rest
def test_a_server_that_is_killed_comes_back_and_a_port_that_is_taken_is_told(home: Home, url: str) -> None:
    home.run("start")
    wait_for(lambda: is_served(home, url), PATIENCE_S)
    (server,) = [one for one in psutil.Process(home.pid).children() if "--supervised" in one.cmdline()]
    server.kill()
    wait_for(lambda: not server.is_running() and is_served(home, url), PATIENCE_S)
    assert ask(f"{url}/").status == 401

    done = home.run("web", code=5)
    assert "can not be listened to" in done.stderr
    home.run("stop")
    with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2]))):
        home.run("start")
        wait_for(lambda: "answer pages" in str(home.json("status")["problems"]), PATIENCE_S)
        assert "can not be listened to" in str(home.json("status")["problems"])
        assert home.json("status")["pages"] is None


@pytest.mark.rest
def test_pwf_web_in_a_terminal_prints_a_link_that_signs_in_and_ends_in_order(home: Home) -> None:
    port = free_port()
    home.config(f"[web]\nport = {port}\n")
    process = home.spawn("web")
    assert process.stdout is not None
    link = process.stdout.readline().decode().strip()
    assert link.startswith(f"http://127.0.0.1:{port}/sign-in/")
    assert ask(link, "POST", {}).status == 303
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.rest
def test_a_step_of_a_run_can_not_serve_pages_nor_make_links(home: Home) -> None:
    home.config(f"[web]\nport = {free_port()}\n")
    home.run("start")
    home.environment[MARKER_VARIABLE] = run_marker("h", "r", 1)
    for words in (("web",), ("web", "--link"), ("web", "--sign-out")):
        done = home.run(*words, code=4)
        assert "only a person may" in done.stderr
