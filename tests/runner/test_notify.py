"""Notify nodes: the text is the output, cut; one that can not be made leads on all the same."""

from __future__ import annotations

from pwf import Workflow
from pwf.protocol.notices import NOTICE_BYTES_MAX
from pwf.testing import run


def test_a_text_that_is_too_long_is_cut_and_one_that_can_not_be_made_leads_on() -> None:
    flow = Workflow("tell")

    @flow.notify
    def long(ctx) -> str:
        return "x" * (NOTICE_BYTES_MAX + 1)

    @flow.notify
    def raises(ctx) -> str:
        raise ValueError("no words")

    @flow.notify(kind="final")
    def number(ctx):
        return 3

    flow.graph(long >> raises >> number)

    done = run(flow)

    assert done.status == "completed"
    assert [(step.node, step.outcome) for step in done.steps] == [
        ("long", "completed"),
        ("raises", "failed"),
        ("number", "failed"),
    ]
    assert len(done.steps[0].output) <= NOTICE_BYTES_MAX
