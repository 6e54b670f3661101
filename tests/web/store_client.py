"""The daemon's client for the pages, on a store of the test: the rules are the real ones, and there is no process."""

from __future__ import annotations

from typing import Any

from pwf.protocol.notices import NoticeList, NoticeView
from pwf.protocol.operations import RequestListPayload, RunListPayload
from pwf.store.decisions import Decide, decide, decision_list
from pwf.store.read_runs import list_runs, request_list
from pwf.store.web_tokens import Enter, Leave, enter, leave, look_token
from tests.store.world import World, canonical


class StoreClient:
    """What the pages use of `pwf.client.aio.Client`. `wrote`: operations that have changed something."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wrote: list[str] = []
        self.counting: dict[str, tuple[str, ...]] = {}
        self.notices: tuple[NoticeView, ...] = ()

    async def call(self, operation: str, payload: Any = None, **more: Any) -> Any:
        world = self.world
        match operation:
            case "decision.list":
                return world.read(decision_list, payload)
            case "request.list":
                return world.read(request_list, payload)
            case "notice.list":
                return NoticeList(notices=self.notices)
            case "web.token":
                return world.read(look_token, payload.token)
        self.wrote.append(operation)
        match operation:
            case "decision.answer":
                command = Decide(
                    decision=payload.decision_id,
                    choice=payload.choice,
                    text=payload.text,
                    digest=payload.digest,
                    token=payload.token,
                    actor="client:web",
                    channel="terminal",
                    counting=self.counting,
                )
                return world.do(decide, command)
            case "web.enter":
                return world.do(enter, Enter(token=payload.token, browser_hash=payload.browser_hash))
            case "web.leave":
                return world.do(leave, Leave(token=payload.token))
        raise AssertionError(f"the pages ask for {operation}")

    async def list(self, *, limit: int) -> Any:
        return self.world.read(list_runs, RunListPayload(limit=limit)).runs

    async def show(self, run_id: str) -> Any:
        return self.world.view(run_id)

    async def answer(self, request_id: str, answer: object) -> Any:
        self.wrote.append("request.answer")
        (asked,) = self.world.read(request_list, RequestListPayload(request=request_id)).requests
        return self.world.answer(asked.run_id, answer)

    async def read_value(self, run_id: str, value: Any) -> bytes:
        return bytes(value.json) if value.json is not None else canonical("large")
