"""Behind a real pseudo terminal: the live tree, questions on the spot, Ctrl-C, hostile text."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pexpect
import pytest

from pwf.cli import exits
from pwf.errors import Conflict, InvalidAnswer
from pwf.protocol.operations import Answered, Nothing, RunList
from tests.cli.conftest import Spawn, script_run
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

HOSTILE: list[str] = json.loads((Path(__file__).parents[1] / "data/strings/blns.json").read_text())
# What rich itself sends: colours, cursor movement and erasing, showing and hiding the cursor.
OWN_SEQUENCES = re.compile(r"\x1b\[[0-9;]*m|\x1b\[[0-9]*[A-K]|\x1b\[\?25[hl]")


def waiting(**changes: Any) -> Any:
    return samples.run_view(
        summary=samples.summary(status="waiting", node="review", request_id="q1w2e3r4t5y6"),
        steps=(
            samples.step("collect"),
            samples.step("review", 2, status="active", ended_ms=None, summary=""),
        ),
        request=samples.request(**changes),
    )


def ended(**changes: Any) -> Any:
    head = samples.summary(status="completed", node=None, ended_ms=samples.NOW)
    return samples.run_view(summary=head, steps=(samples.step("collect"),), **changes)


def asking(daemon: FakeDaemon, take: Any, **changes: Any) -> None:
    """A run that asks, and ends when an answer is taken."""
    subscribed: list[str] = []
    taken: list[bool] = []
    script_run(daemon)

    def push(request: Any, payload: Any) -> None:
        subscribed.append(payload.id)
        daemon.push(payload.id, "snapshot", 1, waiting(**changes))

    def answer(request: Any, payload: Any) -> Any:
        refusal = take(payload)
        taken.append(refusal is None)
        return refusal or Answered(request_id="q1w2e3r4t5y6", run_id=samples.RUN, status="queued", revision=4)

    def finish(request: Any, payload: Any) -> None:
        if taken[-1]:
            daemon.push(subscribed[-1], "snapshot", 2, ended(output=samples.value("shipped")))

    daemon.on("after:view.subscribe", push)
    daemon.on("request.answer", answer)
    daemon.on("after:request.answer", finish)


def exit_code(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_the_tree_shows_nodes_status_time_and_output(daemon: FakeDaemon, terminal: Spawn) -> None:
    script_run(daemon, ended(output=samples.value({"tag": "v1"})))
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("release 1.2  k3v9x2m4p7qa  ✓ completed")
    child.expect("✓ collect  1.0s")
    child.expect("· failed → apologise")
    child.expect('"tag": "v1"')
    assert exit_code(child) == exits.OK


def test_a_timer_counts_down(daemon: FakeDaemon, terminal: Spawn) -> None:
    head = samples.summary(status="queued", node="review", due_ms=samples.NOW + 86_400_000 * 3)
    script_run(daemon, samples.run_view(summary=head, steps=(samples.step("collect"),)))
    child = terminal("watch", samples.RUN, NO_COLOR="1")
    child.expect(r"◷ review  due in 2d23h \(at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)")


def test_a_checkpoint_is_asked_until_the_answer_is_taken(daemon: FakeDaemon, terminal: Spawn) -> None:
    schema = {"$ref": "#/$defs/V", "$defs": {"V": {"enum": ["ship", "again"]}}}
    given: list[bytes] = []

    def take(payload: Any) -> Any:
        given.append(bytes(payload.answer))
        return None if given[-1] == b'"ship"' else InvalidAnswer("3 is not one of ship, again")

    asking(daemon, take, schema=schema)
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("review asks")
    child.expect("Ship it")
    child.expect('"ship" | "again"')
    child.expect("answer> ")
    child.sendline("maybe not")
    child.expect('\'maybe not\' does not fit; it takes "ship" . "again"')
    child.expect("answer> ")
    child.sendline("ship")
    child.expect("shipped")
    assert exit_code(child) == exits.OK
    assert given == [b'"ship"']


def test_an_empty_line_leaves_the_question_open(daemon: FakeDaemon, terminal: Spawn) -> None:
    asking(daemon, lambda payload: None)
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("answer> ")
    child.sendline("")
    child.expect("left open; answer it with:  pwf answer q1w2e3r4t5y6")
    child.expect("waits for an answer")
    child.sendintr()
    assert exit_code(child) == exits.INTERRUPTED
    assert daemon.of("request.answer") == []


def test_a_question_that_is_answered_elsewhere_is_let_go(daemon: FakeDaemon, terminal: Spawn) -> None:
    subscribed: list[str] = []
    script_run(daemon)

    def push(request: Any, payload: Any) -> None:
        subscribed.append(payload.id)
        daemon.push(payload.id, "snapshot", 1, waiting())

    daemon.on("after:view.subscribe", push)
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("answer> ")
    daemon.push(subscribed[0], "snapshot", 2, ended(output=samples.value("done elsewhere")))
    child.expect("settled elsewhere")
    child.expect("done elsewhere")
    assert exit_code(child) == exits.OK


def test_the_loser_of_two_answers_learns_it(daemon: FakeDaemon, terminal: Spawn) -> None:
    asking(daemon, lambda payload: Conflict("client:ada has answered it"))
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("answer> ")
    child.sendline("1")
    child.expect("not taken: client:ada has answered it")
    child.sendintr()
    assert exit_code(child) == exits.INTERRUPTED


def test_ctrl_c_leaves_the_run_going_and_says_how_to_come_back(daemon: FakeDaemon, terminal: Spawn) -> None:
    script_run(daemon, samples.run_view())
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("collect")
    child.sendintr()
    child.expect(f"the run goes on; come back with:  pwf watch {samples.RUN}")
    assert exit_code(child) == exits.INTERRUPTED
    assert daemon.of("run.cancel") == []


def test_leaving_a_watched_run_names_that_run_and_not_the_reference_to_it(
    daemon: FakeDaemon, terminal: Spawn
) -> None:
    script_run(daemon, samples.run_view())
    child = terminal("watch", "@last", NO_COLOR="1")
    child.expect("collect")
    child.sendintr()
    child.expect(f"come back with:  pwf watch {samples.RUN}")
    child.expect(f"pwf cancel {samples.RUN}")
    assert exit_code(child) == exits.INTERRUPTED


def test_until_parked_asks_nothing_on_the_spot(daemon: FakeDaemon, terminal: Spawn) -> None:
    asking(daemon, lambda payload: None)
    child = terminal("run", "release", "--until", "parked", NO_COLOR="1")
    child.expect("the run needs a person")
    assert exit_code(child) == exits.NEEDS_PERSON
    assert "answer>" not in child.before


def test_the_tree_survives_a_lost_connection(daemon: FakeDaemon, terminal: Spawn) -> None:
    views = iter([samples.run_view(), ended(output=samples.value("after all"))])
    script_run(daemon)
    daemon.on(
        "after:view.subscribe", lambda request, payload: daemon.push(payload.id, "snapshot", 1, next(views))
    )
    child = terminal("run", "release", NO_COLOR="1")
    child.expect("collect")
    threading.Timer(0.1, daemon.drop).start()
    child.expect("after all")
    assert exit_code(child) == exits.OK


def test_the_list_of_all_runs_is_live(daemon: FakeDaemon, terminal: Spawn) -> None:
    daemon.on("view.subscribe", lambda request, payload: Nothing())
    listed = RunList(runs=(samples.summary(run_id="one"), samples.summary(run_id="two", status="held")))
    daemon.on("after:view.subscribe", lambda request, payload: daemon.push(payload.id, "snapshot", 1, listed))
    child = terminal("watch", NO_COLOR="1")
    child.expect("RUN +WORKFLOW")
    child.expect("one .*running")
    child.expect("two .*held")
    child.sendintr()
    assert exit_code(child) == exits.INTERRUPTED


@pytest.mark.parametrize("part", range(4))
def test_hostile_text_never_acts_on_the_terminal(daemon: FakeDaemon, terminal: Spawn, part: int) -> None:
    chosen = [*HOSTILE[part::4], "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "a\rb\x08c"]
    steps = tuple(
        samples.step("collect", number, summary=words[:200]) for number, words in enumerate(chosen, 1)
    )
    title = "".join(chosen)[:2000]
    head = samples.summary(status="completed", node=None, ended_ms=samples.NOW, title=title)
    script_run(daemon, samples.run_view(summary=head, steps=steps, output=samples.value(chosen)))
    child = terminal("run", "release")
    child.expect(pexpect.EOF)
    shown = OWN_SEQUENCES.sub("", child.before)
    assert "collect" in shown
    assert not set(shown) & (set(map(chr, range(0x20))) - set("\r\n") | set(map(chr, range(0x7F, 0xA0))))
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
