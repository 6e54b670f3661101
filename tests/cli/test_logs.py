"""`pwf logs RUN`: what steps have printed, piece by piece, as a person and as a program reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pwf.cli.main import main
from pwf.protocol.printed import Printed, PrintedPiece, PrintedStep
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon

FILES = {
    (1, "out"): "hello\nw\N{LATIN SMALL LETTER O WITH DIAERESIS}rld".encode(),
    (1, "err"): b"\x1b[31moops\n",
    (3, "out"): b"\xff\x00raw",
}


def step(attempt: int, node: str, status: str = "completed", **sizes: Any) -> PrintedStep:
    return PrintedStep(
        attempt=attempt,
        node=node,
        visit=1,
        tries=1,
        status=status,
        printed_bytes=sizes.pop("printed", 0),
        **sizes,
    )


STEPS = (
    step(1, "build", out_bytes=len(FILES[1, "out"]), err_bytes=len(FILES[1, "err"])),
    step(2, "quiet"),
    step(3, "ship", out_bytes=len(FILES[3, "out"])),
)


def serve(daemon: FakeDaemon, *listings: Printed, piece_bytes: int = 4) -> list[Any]:
    """Answers with each listing in turn, the last one again and again; gives what was asked for."""
    left = list(listings)
    asked: list[Any] = []

    def listed(request: Any, payload: Any) -> Printed:
        asked.append(payload)
        return left.pop(0) if len(left) > 1 else left[0]

    def read(request: Any, payload: Any) -> PrintedPiece:
        data = FILES[payload.attempt, payload.stream][payload.offset : payload.offset + piece_bytes]
        return PrintedPiece(data=data, next_offset=payload.offset + len(data))

    daemon.on("run.printed", listed)
    daemon.on("run.read_printed", read)
    return asked


def ended(*steps: PrintedStep) -> Printed:
    return Printed(run_id="k3", ended=True, steps=steps)


def test_each_attempt_and_stream_has_a_head_and_is_printed_safely(pwf: Pwf, daemon: FakeDaemon) -> None:
    asked = serve(daemon, ended(*STEPS))
    assert pwf("logs", "k3", "build", "--attempt", "1").out == (
        "── build, attempt 1: stdout\nhello\nwörld\n── build, attempt 1: stderr\n\\x1b[31moops\n"
        "── ship, attempt 3: stdout\n\N{REPLACEMENT CHARACTER}\\x00raw\n"
    )
    assert (asked[0].node, asked[0].attempt) == ("build", 1)


def test_one_stream_can_be_asked_for(pwf: Pwf, daemon: FakeDaemon) -> None:
    serve(daemon, ended(*STEPS))
    assert pwf("logs", "k3", "--err").out == "── build, attempt 1: stderr\n\\x1b[31moops\n"


def test_raw_gives_the_very_bytes(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    serve(daemon, ended(STEPS[2]))
    assert main(["logs", "k3", "--out", "--raw"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00raw"


def test_json_is_a_line_for_each_piece(pwf: Pwf, daemon: FakeDaemon) -> None:
    serve(daemon, ended(STEPS[0]), piece_bytes=8)
    lines = [json.loads(line) for line in pwf("logs", "k3", "--out", "--json").out.splitlines()]
    assert lines[0] == {
        "attempt": 1,
        "node": "build",
        "visit": 1,
        "try": 1,
        "stream": "stdout",
        "offset": 0,
        "text": "hello\nw",
    }
    assert "".join(line["text"] for line in lines) == "hello\nwörld"  # a character that two pieces share, too


def test_follow_prints_what_comes_until_the_run_has_ended(
    pwf: Pwf, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.cli.logs.FOLLOW_S", 0.001)
    running = [
        Printed(run_id="k3", ended=False, steps=(step(1, "build", "active", out_bytes=n),)) for n in (2, 6)
    ]
    asked = serve(daemon, *running, ended(step(1, "build", out_bytes=12)))
    assert pwf("logs", "k3", "--follow").out == "── build, attempt 1: stdout\nhello\nwörld\n"
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("listed", "words", "said"),
    [
        (ended(STEPS[1]), ["--err"], "nothing was printed to stderr by its steps"),
        (
            Printed(run_id="k3", ended=False, steps=(STEPS[1],)),
            ["quiet"],
            "nothing was printed by node 'quiet' so far",
        ),
        (Printed(run_id="k3", ended=False, steps=()), ["later"], "node 'later' has not run yet"),
    ],
)
def test_nothing_is_said_to_be_nothing(
    pwf: Pwf, daemon: FakeDaemon, listed: Printed, words: list[str], said: str
) -> None:
    serve(daemon, listed)
    result = pwf("logs", "k3", *words)
    assert (result.code, result.out) == (0, "")
    assert said in result.err


def test_output_that_the_home_has_not_any_more_is_an_error_that_says_why(
    pwf: Pwf, daemon: FakeDaemon
) -> None:
    serve(daemon, ended(step(1, "build", printed=1_234)))
    result = pwf("logs", "k3")
    assert result.code == 3
    assert "1,234 bytes that its steps printed are not here any more: they are in no backup" in result.err
    assert "pwf show k3" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attempt", "1"], "need a RUN"),
        (["k3", "--raw"], "--raw needs --out or --err"),
        (["k3", "--raw", "--out", "--json"], "exclude each other"),
        (["k3", "--lines", "3"], "--lines is for the daemon's log"),
        (["k3", "--out", "--err"], "not allowed with argument"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    pwf: Pwf, daemon: FakeDaemon, words: list[str], said: str
) -> None:
    result = pwf("logs", *words)
    assert result.code == 2
    assert said in result.err
