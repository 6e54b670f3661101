"""`pwf decide` shows the whole proposal and what has changed, sends what was seen, and says who was first."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.errors import Conflict, InvalidAnswer
from pwf.present.decision import decision_lines, winner_line
from pwf.protocol.decision_spec import Bullets, Diff, Fields, Paragraph, Preformatted, Section, Shown
from pwf.protocol.decisions import AnswerView, Decided, DecidePayload, DecisionList, EarlierProposal
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

DECISION = samples.request().request_id


@pytest.fixture
def asked(daemon: FakeDaemon) -> list[Any]:
    """What was sent to a daemon that has one open decision."""
    sent: list[Any] = []
    daemon.on("decision.list", lambda request, payload: DecisionList(decisions=(samples.decision(),)))

    def answer(request: Any, payload: Any) -> Decided:
        sent.append(payload)
        return Decided(decision_id=DECISION, run_id="k3", status="queued", revision=4, choice=payload.choice)

    daemon.on("decision.answer", answer)
    return sent


def test_a_choice_goes_with_the_digest_of_what_was_seen(pwf: Pwf, asked: list[Any]) -> None:
    done = pwf("decide", DECISION, "fix", "--text", "the tests hang")
    assert done.out.startswith(f"decided  {DECISION}  fix  run k3")
    (payload,) = asked
    assert (payload.choice, payload.text, payload.digest) == ("fix", "the tests hang", "d" * 64)
    pwf("decide", DECISION, "ship", "--digest", "e" * 64)
    assert asked[-1].digest == "e" * 64


def test_no_client_says_by_itself_where_an_answer_is_from() -> None:
    facts = {"decision_id": DECISION, "choice": "ship", "digest": "d"}
    assert msgspec.convert(facts, DecidePayload).choice == "ship"
    with pytest.raises(msgspec.ValidationError, match="channel"):
        msgspec.convert({**facts, "channel": "telegram"}, DecidePayload)


@pytest.mark.parametrize("option", ["--text", "--digest"])
def test_what_goes_with_a_choice_is_not_dropped_without_one(pwf: Pwf, asked: list[Any], option: str) -> None:
    done = pwf("decide", DECISION, option, "x")
    assert (done.code, "go with a choice" in done.err, asked) == (exits.USAGE, True, [])


def test_a_choice_without_the_text_that_it_needs_is_refused_with_the_whole_command(
    pwf: Pwf, asked: list[Any]
) -> None:
    done = pwf("decide", DECISION, "fix", "--text", " ")
    assert (done.code, asked) == (exits.USAGE, [])
    assert f"pwf decide {DECISION} fix --text 'some text'" in done.err


def test_a_text_comes_from_stdin(pwf: Pwf, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    pwf("decide", DECISION, "fix", "--text", "-")
    assert asked[-1].text == "two\nlines"


def test_without_a_choice_the_proposal_is_shown_and_a_command_is_named(pwf: Pwf, asked: list[Any]) -> None:
    done = pwf("decide", DECISION)
    assert done.code == exits.USAGE
    for part in ("Ship it?", "ship      Ship it", "fix TEXT  Fix first: What must change?", "for operator"):
        assert part in done.out
    assert f"pwf decide {DECISION} ship" in done.err
    assert asked == []


def test_without_a_decision_those_that_are_open_are_listed(pwf: Pwf, asked: list[Any]) -> None:
    for command in (("decide",), ("decisions",)):
        done = pwf(*command)
        assert "ship | fix" in done.out
        assert "Ship it?" in done.out
        assert f"pwf decide {DECISION}" in done.err
    assert json.loads(pwf("decide", DECISION, "--json").out)["digest"] == "d" * 64


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("was decided as 'fix' by client:bob (terminal)"), exits.REFUSED),
        (InvalidAnswer("choice 'fix' needs a text: What must change?"), exits.USAGE),
    ],
)
def test_a_refusal_says_what_the_daemon_says(
    pwf: Pwf, daemon: FakeDaemon, asked: list[Any], error: Any, code: int
) -> None:
    daemon.on("decision.answer", lambda request, payload: error)
    done = pwf("decide", DECISION, "fix", "--text", "x")
    assert (done.code, error.message in done.err) == (code, True)


# --- what is shown ------------------------------------------------------------------------------------------------


BLOCKS = (
    Fields({"verdict": "ship", "n": "2"}),
    Section("Why"),
    Bullets(("one", "two\nlines")),
    Paragraph("Words."),
    Preformatted("a  b"),
    Diff("+new\n-old"),
)


def shown(summary: str = "Ship 1.2?", blocks: Any = ()) -> Shown:
    return Shown(title="review", summary=summary, blocks=blocks)


def text_of(*arguments: Any) -> list[str]:
    return [line for line, _ in decision_lines(*arguments)]


def test_every_block_is_shown_and_no_line_can_harm_a_terminal() -> None:
    lines = text_of(samples.decision(), shown("Ship \x1b[31m?", BLOCKS), None, samples.NOW)
    text = "\n".join(lines)
    for part in (
        "verdict  ship",
        "  Why",
        "  - one",
        "    lines",
        "  Words.",
        "    a  b",
        "    +new",
        "    -old",
    ):
        assert part in text
    assert "\x1b" not in text


def test_what_has_changed_since_the_last_proposal_is_a_diff_with_what_was_asked_for() -> None:
    won = AnswerView(
        provenance="person",
        won=True,
        who="client:ann",
        channel="terminal",
        at_ms=1,
        choice="fix",
        text="shorter",
    )
    earlier = EarlierProposal(decision_id="q0", visit=1, presentation=samples.value("x"), winner=won)
    view = samples.decision(visit=2, earlier=earlier)
    before, now = shown(blocks=(Fields({"size": "10"}),)), shown(blocks=(Fields({"size": "7"}),))
    text = "\n".join(text_of(view, now, before, samples.NOW))
    for part in ("proposal 2", "after fix: shorter", "changed since", "-size  10", "+size  7"):
        assert part in text
    assert "nothing has changed" in "\n".join(text_of(view, now, now, samples.NOW))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"provenance": "person", "choice": "ship"}, "ship, by client:ann (terminal)"),
        ({"provenance": "timeout", "choice": "ship"}, "ship, the default: nobody decided in time"),
        ({"provenance": "expired"}, "nobody decided in time"),
        ({"provenance": "cancelled"}, "closed with its run"),
    ],
)
def test_the_winner_is_told_with_its_provenance(facts: Any, said: str) -> None:
    answer = AnswerView(won=True, who="client:ann", channel="terminal", at_ms=samples.NOW, **facts)
    assert said in winner_line(answer, samples.NOW)
