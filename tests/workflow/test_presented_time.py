"""How long a proposal is open, and its default, where `ctx.present` says them in place of the node."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pwf import Choice, Text, Workflow, hours, minutes, testing
from pwf.testing import NO_ANSWER, run

CHOICES = [Choice("ship", "Ship"), Choice("hold", "Hold"), Choice("fix", "Fix", text=Text("What?"))]


def left(declared: dict[str, Any], said: dict[str, Any], *, late: bool = False) -> testing.Tested:
    """What comes of a proposal that nobody decides."""
    flow: Workflow[Any] = Workflow("w")

    @flow.decision(audience="operator", choices=CHOICES, **declared)
    def ask(ctx: Any) -> Any:
        return ctx.present("Ship it?", **said)

    @flow.compute
    def done(ctx: Any) -> str:
        return ctx[ask].choice if ask in ctx.outputs else "late"

    ways = [ask.switch(ship=done, hold=done, fix=done)]
    flow.graph(*ways, *([ask.on("timed_out") >> done] if late else []))
    return run(flow, answers={"ask": NO_ANSWER})


DECLARED = {"timeout": hours(1), "default": "ship"}


@pytest.mark.parametrize(
    ("declared", "said", "waited", "choice"),
    [
        (DECLARED, {}, hours(1), "ship"),
        (DECLARED, {"timeout": minutes(5)}, minutes(5), "ship"),
        (DECLARED, {"default": "hold"}, hours(1), "hold"),
        ({"timeout": None}, {"timeout": minutes(5), "default": "hold"}, minutes(5), "hold"),
    ],
)
def test_what_is_said_with_a_proposal_stands_in_place_of_what_the_node_declares(
    declared: dict[str, Any], said: dict[str, Any], waited: timedelta, choice: str
) -> None:
    done = left(declared, said)
    assert (done.output, done.waited) == (choice, waited)


def test_a_proposal_may_wait_for_ever_though_its_node_declares_a_time() -> None:
    assert left(DECLARED, {"timeout": None}).status == "waiting"


def test_a_time_without_a_default_takes_the_way_out_for_timed_out() -> None:
    done = left({"timeout": hours(1)}, {"timeout": minutes(5)}, late=True)
    assert (done.output, done.waited) == ("late", minutes(5))


@pytest.mark.parametrize(
    ("declared", "said", "late", "words"),
    [
        ({"timeout": None}, {"timeout": hours(1)}, False, "nothing says what follows"),
        ({"timeout": None}, {"default": "hold"}, False, "waits for ever"),
        ({"timeout": hours(1)}, {"default": "hold"}, True, "never taken"),
        (DECLARED, {"default": "fix"}, False, "needs a text"),
        (DECLARED, {"default": "other"}, False, "there is no choice 'other'"),
        (DECLARED, {"default": None}, False, "there is no choice None"),
        (DECLARED, {"timeout": 5}, False, "has no unit"),
        (DECLARED, {"timeout": minutes(0)}, False, "longer than nothing"),
    ],
)
def test_a_time_or_default_that_leads_nowhere_fails_the_step(
    declared: dict[str, Any], said: dict[str, Any], late: bool, words: str
) -> None:
    done = left(declared, said, late=late)
    assert done.status == "failed"
    assert done.error is not None
    assert words in done.error.message
