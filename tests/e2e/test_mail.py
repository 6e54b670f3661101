"""A decision by mail: a letter from a real daemon, a press on its link, and the password of the server nowhere."""

from __future__ import annotations

import contextlib
import re

import psutil
import pytest

from tests.channels.fake_smtp import mail_server
from tests.e2e.home import Home, wait_for
from tests.e2e.test_decisions import RELEASE
from tests.e2e.test_web import ask, free_port, hidden, is_served
from tests.e2e.world import PATIENCE_S
from tests.secret_files import keep_secret

CANARY = "c4n4ry-0f-the-ma1l"

CONFIG = """
[web]
serve = true
port = {pages}
public_url = "http://127.0.0.1:{pages}"

[channels.post]
kind = "email"
host = "127.0.0.1"
port = {smtp}
security = "none"
sender = "pwf@example.org"
to = ["ann@example.org"]
user = "ann"
password = "mail"
"""


@pytest.mark.rest
def test_a_link_in_a_letter_decides_and_the_password_is_in_no_file_and_no_process(home: Home) -> None:
    home.home.mkdir(mode=0o700)
    secret = home.home / "secrets" / "mail"
    keep_secret(secret, CANARY)
    pages = free_port()
    with mail_server() as server:
        home.config(CONFIG.format(pages=pages, smtp=server.port))
        home.workflow("decide_release", RELEASE)
        run_id = home.start("decide_release")
        wait_for(lambda: bool(server.letters), PATIENCE_S)
        wait_for(lambda: is_served(home, f"http://127.0.0.1:{pages}"), PATIENCE_S)
        (link,) = re.findall(r"http://127\.0\.0\.1:\d+/answer/\w+", server.letters[0].get_content())
        assert ask(link).status == 200
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                assert CANARY not in " ".join([*process.cmdline(), *process.environ().values()])
        ship, _ = hidden(ask(link).text)
        assert ask(link, "POST", ship).status == 303
        home.wait_status(run_id, "completed", seconds=PATIENCE_S)
        assert "s3cret-subject" not in server.letters[0].get_content()
        home.run("state", "backup", str(home.home / "backup.db"))
    token = link.rpartition("/")[2]
    files = [path for path in home.home.rglob("*") if path.is_file() and path != secret]
    for canary in (CANARY, token):
        assert [path for path in files if canary.encode() in path.read_bytes()] == []
