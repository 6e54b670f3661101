"""Two people answer within ten milliseconds, each through another channel: one has decided, the other learns who.

On fakes in virtual time, for every ordered pair of ways to answer, each as it tells the daemon.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest
import trio

from pwf.protocol.channel_port import Answered, Verdict
from pwf.protocol.decisions import DecisionListPayload
from pwf.protocol.web import hash_of
from pwf.store.deadlines import time_out
from pwf.store.decisions import Decide, decide, decision_list
from pwf.store.web_tokens import MakeLink, make_link
from tests.actors.test_channels import Setting
from tests.store.test_decisions import HOUR, ask, look

pytestmark = pytest.mark.trio

APART_S = 0.01
#: What each kind tells with an answer: the number of the choice or its id, and how far it has read.
TELLS: dict[str, dict[str, Any]] = {
    "telegram": {"choice_no": 0, "cursor": "s:1"},
    "slack": {"choice_no": 0},
    "ntfy": {"choice_no": 0, "cursor": "s:2"},
    "webhook": {"choice": "ship"},
    "mcp": {"choice": "ship"},
}
WAYS = (*TELLS, "email", "terminal", "web")  # a letter has a link, which decides as a page does
NEXT = list(
    zip(WAYS, WAYS[1:] + WAYS[:1], strict=True)
)  # what runs always; the other pairs are slow together
Answer = Callable[[], Awaitable[tuple[bool, str]]]


def adapters_answer(at: Setting, name: str, kind: str, who: str) -> Answer:
    """As a person's press, told by the adapter of a channel; whether it has won, and what the person is told."""
    adapter = at.adapters[name]
    show = at.shows(name)[-1]

    async def answer() -> tuple[bool, str]:
        press = Answered(epoch=adapter.epoch, number=1, token=show.message.token, who=who, **TELLS[kind])
        await adapter.tell(press)
        (verdict,) = [one for one in adapter.said if isinstance(one, Verdict)]
        return verdict.taken, verdict.said

    return answer


async def own_answer(at: Setting, channel: str, who: str, request_id: str, digest: str) -> Answer:
    """As the daemon's operation takes it: typed, or from a page by the token of the link that was sent."""
    token = None
    if channel != "terminal":
        token = f"{who:x<32}"
        await at.store.write(make_link, MakeLink(decision=request_id, token_hash=hash_of(token), actor=who))

    async def answer() -> tuple[bool, str]:
        facts = {"decision": request_id, "choice": "ship", "text": None, "digest": digest, "actor": who}
        done = await at.store.write(decide, Decide(channel="terminal", token=token, **facts))
        return done.refusal is None, "" if done.refusal is None else done.refusal.message

    return answer


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(*pair, marks=() if pair in NEXT else pytest.mark.rest) for pair in product(WAYS, WAYS)],
)
async def test_one_of_two_who_answer_at_once_has_decided_and_the_other_is_told_who(
    autojump_clock, tmp_path, nursery, first, second
):
    at = Setting(tmp_path)
    view = look(at.world, ask(at.world))
    request_id = view.request.request_id
    await at.begin(nursery, "one", "two")

    async def way(name: str, kind: str, who: str) -> Answer:
        if kind in TELLS:
            return adapters_answer(at, name, kind, who)
        return await own_answer(at, kind, who, request_id, view.digest)

    ways = {"ann": await way("one", first, "ann"), "bob": await way("two", second, "bob")}
    came: dict[str, tuple[bool, str]] = {}

    async def answers(who: str, answer: Answer, after_s: float) -> None:
        await trio.sleep(after_s)
        came[who] = await answer()

    async with trio.open_nursery() as people:
        for number, (who, answer) in enumerate(ways.items()):
            people.start_soon(answers, who, answer, number * APART_S)
    assert (came["ann"][0], came["bob"][0]) == (True, False)
    assert "ann" in came["bob"][1]
    (view,) = (await at.store.read(decision_list, DecisionListPayload(decision_id=request_id))).decisions
    assert [(one.who.rpartition(":")[2], one.won) for one in view.answers] == [("ann", True), ("bob", False)]


@pytest.mark.parametrize("way", list(TELLS))
async def test_an_answer_that_comes_with_the_settlement_of_its_deadline_has_not_won(
    autojump_clock, tmp_path, nursery, way
):
    at = Setting(tmp_path)
    request_id = look(at.world, ask(at.world)).request.request_id
    await at.begin(nursery, "one")
    at.world.clock.wall_ahead_ms = HOUR
    at.world.clock.elapsed_ms += HOUR
    answer = adapters_answer(at, "one", way, "ann")
    came: list[tuple[bool, str]] = []

    async def answers() -> None:
        came.append(await answer())

    async with trio.open_nursery() as people:
        people.start_soon(answers)
        people.start_soon(at.store.write, time_out, None)
    (view,) = (await at.store.read(decision_list, DecisionListPayload(decision_id=request_id))).decisions
    assert view.winner.provenance == "timeout"
    assert [taken for taken, _ in came] == [False]
