"""What a simulated step does that makes several effects in one visit: begin, apply or observe, settle, one by one.

Speaks `BeginPart` and `SettlePart` as the real runner does, and shares no code with it. It dies, fails and is late at
any point; a function that swallows a failure and one that does not get as far as the last time are faults of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    CALL_BYTES_MAX,
    BeginPart,
    PartAnswer,
    PutChunk,
    SettlePart,
    StepError,
    Value,
    encode_line,
    value_answer,
)
from pwf.values import canonical, digest
from tests.sim.bounds import CHUNK_BYTES
from tests.sim.workload import LARGE, NodeModel, PartModel

SWALLOWED = 0.6  # of the failures of an effect: the step's function goes on
GIVES_UP_EARLY = 0.1  # of the steps do not get to their last effects
OTHER_REQUEST = 0.25  # of the calls for what is stored name another request than that
OTHER_ATTEMPT = 0.05  # of the calls are of an attempt that is not the present one


class PartFailed(Exception):
    """An effect did not happen, or nobody knows. `outcome`: how the step ends, if it lets this pass."""

    def __init__(self, outcome: str, error: StepError | None = None, *, unsure: bool = False) -> None:
        self.outcome, self.error, self.unsure = outcome, error, unsure


class Parts:
    """Those of one attempt. `runner`: a `SimRunner`."""

    def __init__(self, runner: Any, node: NodeModel, key: str) -> None:
        self._runner, self._node, self._key = runner, node, key
        self._world, self._chance = runner._world, runner._chance
        self._splitter = FrameSplitter(CALL_BYTES_MAX)

    async def make(self) -> None:
        """All of them, in their order. Raises `PartFailed`."""
        for part in self._node.parts:
            if self._chance.random() < GIVES_UP_EARLY and not self._world.calm:
                return
            try:
                await self._one(part)
            except PartFailed as failure:
                if failure.unsure or self._chance.random() >= SWALLOWED:
                    raise

    async def _one(self, part: PartModel) -> None:
        answer = await self._begin(part)
        if answer.verdict == "observe":
            await self._runner._pass()
            if self._runner._happens("step_fails"):
                raise PartFailed("failed", unsure=True)
            if self._world.outside.happened(self._of(part)):
                await self._settle(part, "applied")
                return
            await self._settle(part, "rejected", answer.error)
            if answer.error is not None:
                late = answer.error.code == "runner_timed_out"
                raise PartFailed("timed_out" if late else "failed", answer.error)
            answer = await self._begin(part)
        if answer.verdict == "applied":
            return
        if answer.verdict != "apply":
            raise PartFailed("failed")
        await self._apply(part)

    async def _apply(self, part: PartModel) -> None:
        await self._runner._pass()
        unknown = "unknown" if part.effect == "manual" else "failed"
        error = StepError(code="sim", message="failed", node=self._node.id)
        if self._runner._happens("step_fails"):
            sure = part.effect == "manual" and self._chance.random() < 0.5
            await self._settle(part, "rejected" if sure else unknown, error)
            raise PartFailed("failed")
        done = await self._runner._apply(part, self._of(part))
        await self._runner._pass()
        if not done or self._runner._happens("step_fails"):
            await self._settle(part, unknown, error)
            raise PartFailed("failed")
        await self._settle(part, "applied")

    def _of(self, part: PartModel) -> str:
        return f"{self._key}/{part.key}"

    # --- the wire -------------------------------------------------------------------------------------------

    async def _begin(self, part: PartModel) -> PartAnswer:
        request = {"n": part.key, "large": LARGE if part.large else ""}
        key = self._of(part)
        strange = self._world.auditor.ledger.knows(key) and self._chance.random() < OTHER_REQUEST
        if self._chance.random() < OTHER_ATTEMPT:
            answer = await self._begin_with(part, request, attempt=self._runner._attempt - 1)
            refused = answer.verdict == "refused"
            self._world.auditor.check(refused, f"an attempt that is over begins no effect: {key} {answer}")
        answer = await self._begin_with(part, request | {"other": True} if strange else request)
        self._world.auditor.ledger.answered(key, answer, self._runner._generation, strange=strange)
        if not strange:
            return answer
        answer = await self._begin_with(part, request)
        self._world.auditor.ledger.answered(key, answer, self._runner._generation, strange=False)
        return answer

    async def _begin_with(
        self, part: PartModel, request: dict[str, Any], *, attempt: int | None = None
    ) -> PartAnswer:
        call = BeginPart(
            attempt=self._runner._attempt if attempt is None else attempt,
            part=part.key,
            kind="sim",
            mode=part.effect,
            request=await self._put(canonical(request)),
            observable=part.observable,
        )
        return await self._call(call)

    async def _settle(self, part: PartModel, status: Any, error: StepError | None = None) -> None:
        output = None if status != "applied" else await self._put(canonical({"did": part.key}))
        call = SettlePart(
            attempt=self._runner._attempt, part=part.key, status=status, output=output, error=error
        )
        answer = await self._call(call)
        self._world.auditor.check(answer.verdict == "settled", f"{self._of(part)} is settled: {answer}")
        if status == "applied":
            self._world.auditor.ledger.settled(self._of(part))

    async def _put(self, data: bytes) -> Value:
        if len(data) <= 4_096:
            return Value(json=msgspec.Raw(data), size=len(data))
        name = digest(data)
        pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
        for index, piece in enumerate(pieces[:-1]):
            await self._send(PutChunk(digest=name, index=index, data=piece))
        last = PutChunk(digest=name, index=len(pieces) - 1, data=pieces[-1], last=True, size=len(data))
        answer = await self._call(last)
        self._world.auditor.check(answer.verdict == "settled", f"a value is taken: {answer}")
        return Value(digest=name, size=len(data))

    async def _send(self, message: Any) -> None:
        await self._runner._process.breathe(self._runner._latency())
        try:
            await self._runner._values.send_all(encode_line([message]))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._runner.hangs_up()

    async def _call(self, message: Any) -> PartAnswer:
        await self._send(message)
        while True:
            try:
                received = await self._runner._values.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                received = b""
            await self._runner._process.breathe(self._runner._latency())
            if not received:
                self._runner.hangs_up()
            for line in self._splitter.feed(bytes(received)):
                answer = value_answer.decode(line)
                assert isinstance(answer, PartAnswer)
                return answer
