"""The threaded executor under clients that give up and send again, with the simulation's auditor looking on.

Real threads and real time: the auditor reads the file between commits, and holds the store to every answer.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from pwf.actors.base.store_actor import StoreActor, StoreHandle
from pwf.errors import PwfError
from pwf.store.control import Control, cancel, pause, resume
from pwf.store.executor import ThreadExecutor
from pwf.store.once import Done
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import StartRun, start_run
from tests.sim.stage import Stage, answer
from tests.sim.workload import PURE, NodeModel

pytestmark = pytest.mark.trio

CLIENTS = 6
RUNS = 8
PATIENCE_S = 0.002
HANDLERS = {"run.pause": pause, "run.resume": resume, "run.cancel": cancel}


class Client:
    """Starts runs and steers them. A command is sent until it is answered, however often its sender gives up."""

    def __init__(self, stage: Stage, store: StoreHandle, number: int, start: StartRun) -> None:
        self._stage, self._store, self._number, self._start = stage, store, number, start
        self._chance = random.Random(number)
        self.given_up = 0

    async def run(self) -> None:
        for index in range(RUNS):
            run_id = f"r{self._number}-{index}"
            payload = {"workflow": "flow", "input": {}, "run_id": run_id}
            await self._send("run.start", payload, None, start_run, replace(self._start, run_id=run_id))
            for _ in range(4):
                operation = self._chance.choice(sorted(HANDLERS))
                await self._send(operation, {}, run_id, HANDLERS[operation], Control(run_id=run_id))

    async def _send(
        self, operation: str, payload: Any, run_id: str | None, handler: Any, command: Any
    ) -> None:
        request = self._stage.request(operation, payload, run_id)
        self._stage.auditor.sent(request)
        key = ReceiptKey(scope_key=request.request_id, operation=operation, payload_digest="p")
        keyed = replace(command, receipt=key)
        for _ in range(1 + self._chance.randrange(2)):  # the second time it is a repeat
            done = await self._until_answered(handler, keyed)
            self._look()
            if done.refusal is not None:
                self._refused(request, done.refusal)
            else:
                assert done.result is not None
                how = "adopted" if done.adopted else "accepted"
                facts = {"revision": done.result.revision, "run_id": done.result.run_id}
                self._stage.auditor.answered(request, answer(request, how, **facts))

    def _refused(self, request: Any, refusal: PwfError) -> None:
        assert refusal.code == "rejected", refusal
        run = self._stage.auditor.runs[request.run_id]
        assert run.status == "cancelled", f"only what has ended refuses {request.operation}: {run}"

    async def _until_answered(self, handler: Any, command: Any) -> Done[Any]:
        while True:
            with trio.move_on_after(self._chance.random() * PATIENCE_S):
                done: Done[Any] = await self._store.write(handler, command)
                return done
            self.given_up += 1

    def _look(self) -> None:
        """One snapshot: the writer's thread may commit meanwhile."""
        self._stage.auditor.rows("BEGIN")
        try:
            self._stage.look()
        finally:
            self._stage.auditor.rows("COMMIT")


async def test_what_is_answered_is_in_the_file_and_done_once_whoever_gives_up_meanwhile(tmp_path):
    stage = Stage(tmp_path, NodeModel("a", PURE[0]))
    start = stage.store.start_command(stage.graph, input={})
    stage.store.close()
    async with trio.open_nursery() as nursery:
        store = await nursery.start(StoreActor(ThreadExecutor(stage.store.spec)).run)
        clients = [Client(stage, store, number, start) for number in range(CLIENTS)]
        async with trio.open_nursery() as own:
            for client in clients:
                own.start_soon(client.run)
        assert sum(client.given_up for client in clients) > 0
        stage.auditor.promises.hold()
        ((runs,),) = stage.auditor.rows("SELECT count(*) FROM runs")
        assert runs == CLIENTS * RUNS
        nursery.cancel_scope.cancel()
    stage.auditor.detach()
