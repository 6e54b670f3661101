"""A store that is driven by hand, with an auditor that looks at it: for what shares the auditor without the world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.clock import Now
from pwf.protocol.frames import Request, Response
from tests.sim.auditor import Auditor, Violation
from tests.sim.outside import Outside
from tests.sim.workload import NodeModel, WorkflowModel
from tests.store.support import HandClock
from tests.store.world import Runner, World, graph

_encode = msgspec.json.Encoder().encode


class StageMachine:
    """The clocks that a test moves, and no processes."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self._begin_ms = clock.elapsed_ms
        self.steps = 0

    @property
    def true_ms(self) -> int:
        return self._clock.elapsed_ms - self._begin_ms

    def now(self) -> Now:
        return self._clock.now()

    def everyone(self) -> list[Any]:
        return []

    def living(self) -> Iterator[Any]:
        return iter(())


class StageCode:
    """One file, edited `edits` times since its only run was started."""

    edits = 0

    def __init__(self, current: dict[str, WorkflowModel]) -> None:
        self.current = current
        self.known = {"d": WorkflowModel("flow", {}, "a", 100, None, {"t": b"text"})}  # type: ignore[arg-type]

    def edition(self, name: str, definition: str | None = None) -> int:
        return self.edits if definition is None else 0


class Stage:
    """One workflow, one store, one auditor. `look` is what the auditor does after a commit."""

    life = None
    calm_since_ms = 0

    def __init__(self, folder: Path, *nodes: NodeModel) -> None:
        self.store = World(folder)
        self.store.checked = False
        self.database = folder / "pwf.db"
        self.machine = StageMachine(self.store.clock)
        self.outside = Outside()
        self.faults: Counter[str] = Counter()
        self.graph = graph(*(node.spec() for node in nodes))
        self.models = {"flow": WorkflowModel("flow", {n.id: n for n in nodes}, nodes[0].id, 100, None, {})}  # type: ignore[arg-type]
        self.code = StageCode(self.models)
        self.auditor = Auditor(self)
        self._requests = 0

    def close(self) -> None:
        self.auditor.detach()
        self.store.close()

    def model_of(self, definition: str) -> WorkflowModel:
        return self.code.known.get(definition, self.models["flow"])

    def note(self, event: str, **facts: object) -> None:
        return None

    def fail(self, text: str) -> None:
        return None

    def look(self) -> None:
        self.auditor.look(None)

    def doctor(self, sql: str, **values: object) -> None:
        """Change the only run behind everybody's back, and its revision, so that the auditor looks."""
        self.store.sql(sql, values)
        self.store.sql("UPDATE entities SET revision = revision + 1 WHERE kind = 'run'")
        self.store.sql(
            "INSERT INTO events SELECT entity_no, revision, 'doctored', 'nobody', generation, 0, x'7b7d'"
            " FROM entities WHERE kind = 'run'"
        )

    # --- what happens -----------------------------------------------------------------------------------------

    def run(self) -> Runner:
        """The run begins; the auditor has looked."""
        runner = self.store.run(self.graph)
        self.look()
        return runner

    def finish(self, runner: Runner, data: object, **more: Any) -> str:
        """A runner's step ends with an output, which the auditor hears of."""
        message = runner.finished(data, **more)
        if message.output is not None:
            output = bytes(message.output.json or b"")
            fence = runner.fence
            self.auditor.said.finish_sent(fence.run_id, fence.generation, message.attempt, output)
        return runner.send(message)[0]

    def request(
        self, operation: str, payload: object = None, run_id: str | None = None, **more: Any
    ) -> Request:
        """A client's command."""
        self._requests += 1
        return Request(
            request_id=f"r{self._requests}",
            client_id="ann",
            operation=operation,
            run_id=run_id,
            payload=msgspec.Raw(_encode(payload or {})),
            **more,
        )

    def sent(self, operation: str, payload: object = None, run_id: str | None = None) -> Request:
        """A client sends a command, and the auditor hears of it."""
        request = self.request(operation, payload, run_id)
        self.auditor.sent(request)
        return request


def answer(request: Request, outcome: str, *, revision: int | None = None, **result: Any) -> Response:
    """What a daemon might answer."""
    return Response(
        request_id=request.request_id,
        revision=revision,
        outcome=outcome,  # type: ignore[arg-type]
        result=msgspec.Raw(_encode(result)) if result else None,
    )


def breaks(rule: str) -> Any:
    """The auditor finds that this rule is broken."""
    return pytest.raises(Violation, match=rule)
