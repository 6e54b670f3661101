"""One copy of the settings for each attempt: that of the launch, then the newest that an answer has brought."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf import Workflow, idempotent
from pwf.protocol.runner import Finish
from pwf.protocol.settings import ScopedCopy, SettingsCopy
from tests.runner.peer import memory_run, run_inline


def copy(change: int) -> SettingsCopy:
    return SettingsCopy(change=change, value=msgspec.Raw(b"%d" % (10 * change)))


def flow_of(seen: list[Any]) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("w")
    flow.settings(int, 0)

    def look(ctx: Any) -> int:
        seen.append((ctx.settings, ctx.settings))
        return int(ctx.settings)

    first = flow.action(look, effect=idempotent("x"), id="first")
    second = flow.action(look, effect=idempotent("x"), id="second")
    third = flow.settings_route(look, id="third")
    flow.graph(first >> second >> third)
    return flow


def test_a_step_sees_the_settings_as_they_were_when_its_attempt_began() -> None:
    seen: list[Any] = []
    flow = flow_of(seen)
    run = memory_run(flow, settings=copy(2))

    def decide(message: Any) -> None:
        run.newer = copy(5) if isinstance(message, Finish) and message.attempt == 1 else None

    run.decide = decide
    run_inline(flow, run)
    assert seen == [(20, 20), (50, 50), (50, 50)]
    finished = [message for message in run.received if isinstance(message, Finish)]
    assert [message.settings for message in finished] == [2, 5, 5]


def test_a_workflow_without_settings_says_so_to_nobody() -> None:
    flow: Workflow[Any] = Workflow("w")
    flow.compute(lambda ctx: 1, id="only")  # type: ignore[call-overload]
    run = memory_run(flow)
    run_inline(flow, run)
    assert [message.settings for message in run.received if isinstance(message, Finish)] == [0]


def test_what_is_included_sees_the_settings_of_its_own_entry_and_never_those_of_another() -> None:
    seen: list[Any] = []
    flow: Workflow[Any] = Workflow("outer")
    mount = flow.include(flow_of(seen), id="inner")

    def again(ctx: Any) -> bool:
        return bool(ctx.visit < 2)

    more = flow.compute(again, id="more")
    end = flow.compute(lambda ctx: 1, id="end")  # type: ignore[call-overload]
    flow.graph(mount >> more, more.switch(cases={True: mount, False: end}))
    ten = SettingsCopy(
        change=1, value=msgspec.Raw(b"null"), scopes={"inner": ScopedCopy(entry=2, value=msgspec.Raw(b"10"))}
    )
    run_inline(flow, memory_run(flow, settings=ten))
    assert seen == [(0, 0)] * 3 + [(10, 10)] * 3
