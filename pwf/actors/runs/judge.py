"""One process that gives one verdict: whether what somebody wants to put into a run is accepted.

Promises: it is heard for a bounded time; what it sends besides its verdict changes nothing; it has no effects. Whoever
made it proves it dead, or closes it: then it ends itself.
"""

from __future__ import annotations

from functools import partial

import trio

from pwf.actors.base.beside import beside
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.runs.launching import Supervision
from pwf.actors.runs.runner_calls import SecretReads, serve_calls
from pwf.errors import ProtocolError
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    Judged,
    Launch,
    Leaving,
    PartAnswer,
    StepError,
    decode_from_runner,
    encode_line,
)

ERRAND_S = 60.0
RECEIVE_BYTES = 64 * 1024

Verdict = tuple[bool, str]  # accepted, or why not


class Judge:
    """`function`: what is asked, for people."""

    def __init__(self, world: Supervision, run_id: str, function: str) -> None:
        self._world = world
        self._run_id = run_id
        self._function = function
        self.process: RunnerProcess | None = None
        self._childless = False
        self.fell_silent = False  # it ended, or hung up, without a verdict

    async def converse(self, process: RunnerProcess, launch: Launch) -> Verdict | None:
        """The verdict; None where there is none."""
        self.process = process
        verdict: Verdict | None = None
        # None: a reason is shown to whoever has submitted.
        secrets = SecretReads((), self._world.secrets_from, process.prints.masks)
        with trio.move_on_after(ERRAND_S) as time:
            calls = process.values, self._world.store, self._run_id, secrets, _refuse
            verdict = await beside(partial(self._hear, process, launch), serve_calls, *calls)
        if verdict is None and time.cancelled_caught:
            return False, f"{self._function} took longer than {ERRAND_S:g} s"
        self.fell_silent = verdict is None
        return verdict

    async def _hear(self, process: RunnerProcess, launch: Launch) -> Verdict | None:
        splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        verdict: Verdict | None = None
        try:
            await process.stream.send_within(encode_line([launch]), ERRAND_S)
            while data := await process.stream.receive_some(RECEIVE_BYTES):
                for message in [decode_from_runner(line) for line in splitter.feed(data)]:
                    if isinstance(message, Judged) and verdict is None:
                        verdict = message.accepted, message.reason or f"{self._function} gave no reason"
                    if isinstance(message, Leaving):
                        self._childless = message.childless and verdict is not None
                        return verdict
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return verdict
        except ProtocolError as error:
            return False, f"the process that validated it sent something unknown: {error}"
        return verdict

    @property
    def obituary(self) -> str:
        """Why there is no verdict, of a process that is dead."""
        how = self.process.died_of if self.process is not None else ""
        return f"the process that validated it ended without a verdict ({how or 'nobody could tell how'})"

    async def prove_dead(self) -> bool:
        """End the process and all that it started. Whether that is proved."""
        return self.process is None or await self.process.prove_dead(childless=self._childless)

    def close(self) -> None:
        """Let go of it. One that is still there ends itself."""
        if self.process is not None:
            self.process.close()


async def _refuse(_call: object) -> PartAnswer:
    """An errand has no effects, whatever it asks for."""
    error = StepError(code="rejected", message="what judges a submission has no effects")
    return PartAnswer(verdict="refused", error=error)
