"""`pwf agent-loop` against a scripted daemon: whom it is for, replies, verdicts that take long, the end of a run."""

from __future__ import annotations

import pexpect
import pytest

from pwf.cli import exits
from pwf.protocol.sessions import RunEnd
from tests.cli.conftest import Pwf, Spawn
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon
from tests.mcp.conftest import Desk


@pytest.mark.parametrize("words", [(), ("release",), ("release", "--json")])
def test_without_a_terminal_it_says_what_programs_do(pwf: Pwf, words: tuple[str, ...]) -> None:
    refused = pwf("agent-loop", *words)
    assert refused.code == exits.USAGE
    assert "pwf submit" in refused.err


def test_a_reply_is_submitted_as_it_was_typed_and_asked_about_until_there_is_a_verdict(
    daemon: FakeDaemon, terminal: Spawn
) -> None:
    desk = Desk(daemon)
    desk.ask(kind="assistant", schema={"type": "string"})
    verdicts = iter([samples.submitted(verdict="validating"), samples.submitted()])
    daemon.on("request.assistant", lambda request, payload: next(verdicts))
    head = samples.summary(status="completed", node=None, ended_ms=samples.NOW)
    view = samples.run_view(summary=head, output=samples.value("out"))
    daemon.on("run.view", lambda request, payload: view)

    child = terminal("agent-loop", "--session", "s1")
    child.expect("a reply, as people shall read it")
    child.expect("submit> ")
    child.sendline(" 5 of 7 are out. ")
    child.expect("still being judged")
    child.expect("accepted")
    daemon.wait_for("session.turn", 2)  # its start and its end
    assert {bytes(request.payload) for request in daemon.of("request.assistant")} == {
        b'{"request_id":"q1","text":"5 of 7 are out.","revision":2}'
    }
    desk.say(kind="terminal", end=RunEnd(workflow="release", status="completed"))
    child.expect("out")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == exits.OK
