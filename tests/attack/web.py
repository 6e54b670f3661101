"""Attacks on the answer pages: names and pages of others, links that are fetched, replayed or swapped, odd requests."""

from __future__ import annotations

import socket
import sqlite3
import threading
from contextlib import closing
from typing import NamedTuple

import psutil

from tests.attack.attack import attack, contains, held
from tests.e2e.home import Home, wait_for
from tests.e2e.test_web import Page, a_run, ask, hidden, is_served, with_pages

SERVED_S_MAX = 60.0
AT_ONCE = 12
FORM = "application/x-www-form-urlencoded"


class Asked(NamedTuple):
    """A home with pages, and a run that asks for a decision."""

    url: str
    run_id: str
    link: str

    @property
    def token(self) -> str:
        return self.link.rpartition("/")[2]


def asked(home: Home) -> Asked:
    url = with_pages(home)
    run_id = a_run(home)
    wait_for(lambda: is_served(home, url), SERVED_S_MAX)
    return Asked(url, run_id, link_to(home, run_id))


def link_to(home: Home, run_id: str) -> str:
    return str(home.json("decide", f"run:{run_id}", "--link")["url"])


def trace(home: Home) -> list[tuple[object, ...]]:
    """What a decision would leave in the database."""
    with closing(sqlite3.connect(home.home / "pwf.db")) as database:
        return [
            *database.execute("SELECT * FROM web_tokens ORDER BY 1"),
            *database.execute("SELECT * FROM answers"),
            *database.execute("SELECT request_id, status, revision FROM requests"),
            *database.execute("SELECT scope_key FROM receipts ORDER BY 1"),
        ]


def raw(url: str, data: bytes) -> bytes:
    """Bytes as they stand; all that comes back until the server closes, or has said enough."""
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        received = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while len(received) < 100_000 and (more := connection.recv(65_536)):
                received += more
        except OSError:
            pass
        return received


def status_of(answer: bytes) -> int:
    words = answer.split(b"\r\n", 1)[0].split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


@attack("pages")
def a_page_under_a_name_of_its_own(home: Home) -> str:
    """Reach the pages as evil.example, which leads to 127.0.0.1 (DNS rebinding), also in odd forms of a request."""
    at = asked(home)
    ship, _ = hidden(ask(at.link).text)
    before = trace(home)
    port = at.url.rpartition(":")[2]
    for host in (f"evil.example:{port}", "evil.example", "127.0.0.1", f"127.0.0.1:{port}.evil.example"):
        held(ask(at.link, Host=host).status == 421, f"it answers as {host}")
        held(ask(at.link, "POST", ship, Host=host).status == 421, f"a form is taken as {host}")
    path = f"/answer/{at.token}"
    two = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n"
    none = f"GET {path} HTTP/1.0\r\n\r\n"
    whole = f"GET http://evil.example{path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    for text in (two, none, whole):
        answer = raw(at.url, text.encode())
        held(status_of(answer) in (0, 400, 421), f"it answers {answer[:60]!r} to {text!r}")
    held(trace(home) == before, "something was stored")
    return "421 under every other name"


@attack("pages")
def a_form_from_another_page(home: Home) -> str:
    """Send a form with a good token, or a good cookie, from another origin."""
    at = asked(home)
    cookie = ask(home.json("web", "--link")["url"], "POST", {}).headers["set-cookie"].partition(";")[0]
    decision = home.json("decisions")["decisions"][0]["request"]["request_id"]
    own = f"{at.url}/decisions/{decision}"
    ship, _ = hidden(ask(at.link).text)
    mine, _ = hidden(ask(own, Cookie=cookie).text)
    before = trace(home)
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": at.url, "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        held(ask(at.link, "POST", ship, **headers).status == 403, f"a link takes a form with {headers}")
        answer = ask(own, "POST", mine, Cookie=cookie, **headers)
        held(answer.status == 403, f"a browser's form is taken with {headers}")
    without = {name: value for name, value in mine.items() if name != "form"}
    answer = ask(own, "POST", without, Cookie=cookie, Origin=at.url)
    held(answer.status == 409, "a form without its own token is taken")
    held(trace(home) == before, "something was stored")
    held(ask(own, "POST", mine, Cookie=cookie, Origin=at.url).status == 303, "the good form is refused")
    return "403, with a good token and a good cookie"


@attack("pages")
def a_link_that_is_fetched_swapped_and_replayed(home: Home) -> str:
    """Fetch a link by GET and HEAD, use it for another decision, press it many times at once, and again later."""
    at = asked(home)
    other = a_run(home)
    ship, fix = hidden(ask(at.link).text)
    before = trace(home)
    for _ in range(10):
        held({ask(at.link).status, ask(at.link, "HEAD").status} == {200}, "the link does not open")
    held(trace(home) == before, "a look has stored something")

    theirs, _ = hidden(ask(link_to(home, other)).text)
    held(ask(at.link, "POST", theirs).status == 409, "a link decides another proposal")
    held(home.status(other) == "waiting", "another decision was decided")

    pages: list[Page] = []
    forms = [ship, {**fix, "text": "no"}] * (AT_ONCE // 2)
    pressing = [
        threading.Thread(target=lambda f=form: pages.append(ask(at.link, "POST", f))) for form in forms
    ]
    for thread in pressing:
        thread.start()
    for thread in pressing:
        thread.join()
    with closing(sqlite3.connect(home.home / "pwf.db")) as database:
        winners = database.execute("SELECT choice FROM answers WHERE won = 1").fetchall()
    held(len(winners) == 1, f"{len(winners)} answers have won")
    held({page.status for page in pages} <= {303, 409}, f"{[page.status for page in pages]}")
    held(ask(at.link, "POST", ship).status in (303, 409), "a replay is not answered")
    held("Decided: " in ask(at.link).text, "the link does not show what was decided")
    return f"{AT_ONCE} presses at once, one winner"


@attack("pages")
def nobody_at_the_port(home: Home) -> str:
    """Without a token: every address by every method, and every part of the database that a decision would change."""
    at = asked(home)
    decision = home.json("decisions")["decisions"][0]["request"]["request_id"]
    before = trace(home)
    paths = (
        "/",
        f"/runs/{at.run_id}",
        f"/decisions/{decision}",
        f"/questions/{decision}",
        f"/answer/{decision}",
        "/answer/" + "0" * 64,
        "/sign-in/" + "0" * 64,
        "/sign-out",
        "/../../etc/passwd",
        "/templates/base.html",
        f"/answer/{at.token}/",
        f"//answer/{at.token[:-1]}0",
    )
    for path in paths:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            answer = ask(at.url + path, method, {"choice": "ship"} if method == "POST" else None)
            held(answer.status in (401, 403, 404, 405, 307), f"{method} {path} is answered {answer.status}")
            held("Ship it" not in answer.text, f"{method} {path} shows the decision")
    held(
        ask(at.url + "/", Cookie=f"pwf_browser_{at.url.rpartition(':')[2]}={at.token}").status == 401,
        "a link signs in",
    )
    held(trace(home) == before, "something was stored")
    return f"{len(paths)} addresses by 8 methods, no trace"


@attack("pages")
def odd_requests_at_the_port(home: Home) -> str:
    """Bodies and headers that are too large, broken or endless, line breaks in addresses, other protocols."""
    at = asked(home)
    host = at.url.rpartition("/")[2]
    before = trace(home)
    post = f"POST /answer/{at.token} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {FORM}\r\n"
    large = b"choice=ship&text=" + b"x" * 1_000_000
    chunks = b"".join(b"10000\r\n" + b"x" * 65_536 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
    for data in (
        f"{post}Content-Length: {len(large)}\r\n\r\n".encode() + large,
        f"{post}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks,
        f"{post}Content-Length: -1\r\n\r\n".encode(),
        f"{post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef".encode(),
        f"{post}Content-Length: 11\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: {host}\r\nX: {'x' * 200_000}\r\n\r\n".encode(),
        f"GET /{'x' * 5_000} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode(),
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 4_096,
    ):
        answer = raw(at.url, data)
        held(status_of(answer) not in (200, 303, 101), f"{data[:80]!r} is answered {answer[:80]!r}")
    for path in ("/runs/x%0d%0aSet-Cookie:%20a=b", "/answer/%0d%0aX-Evil:%201", "/%2e%2e/%00"):
        for text in raw(at.url, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split(b"\r\n"):
            held(not text.lower().startswith((b"set-cookie", b"x-evil")), f"{path} makes a header")
    held(trace(home) == before, "something was stored")
    held(ask(at.link).status == 200, "the server answers no more")
    return "refused, and the server goes on"


@attack("pages")
def tokens_in_files_arguments_and_environments(home: Home) -> str:
    """Look for every token that was made in all files of the home, a backup, and all processes' words and variables."""
    at = asked(home)
    sign_in = home.json("web", "--link")["url"]
    cookie = ask(sign_in, "POST", {}).headers["set-cookie"].partition(";")[0]
    for _ in range(3):
        ask(at.link)
        ask(f"{at.url}/answer/{'0' * 64}")
        ask(f"{at.url}/runs/{at.run_id}", Cookie=cookie)
    ship, _ = hidden(ask(at.link).text)
    ask(at.link, "POST", ship)
    backup = home.project / "backup.db"
    home.run("state", "backup", str(backup))
    tokens = [url.rpartition("/")[2].encode() for url in (at.link, sign_in)]
    tokens.append(cookie.partition("=")[2].encode())
    processes = 0
    for process in psutil.process_iter():
        try:
            words = "\0".join([*process.cmdline(), *process.environ().values()]).encode("utf-8", "replace")
        except psutil.Error:
            continue
        processes += 1
        held(not any(token in words for token in tokens), f"process {process.pid} has a token")
    for token in tokens:
        for folder in (home.home, home.project):
            held(not contains(folder, token), f"a token is in {contains(folder, token)}")
    return f"in no file and none of {processes} processes"
