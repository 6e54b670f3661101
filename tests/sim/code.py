"""The files of workflows, which somebody edits while runs go on, and the auditor's rules of code.

A run finishes on the code that it started with, whatever its file has become: its launches say so, and its processes
have loaded just that. What is started has code that stood in the file when it was asked for, or later. An edit changes
the text alone, or makes another workflow under the same name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pwf.protocol.frames import Request
from tests.sim.model import RunModel
from tests.sim.virtual_time import sleep
from tests.sim.workload import draw_workflow, with_text

SHARE = 0.4  # of the seeds have edits
EVERY_S = (2.0, 8.0)
STARTS = ("run.start", "run.restart", "run.fork")

Mark = tuple[int, int, int, int]


class Code:
    """One per world. `current`: by name, what stands in the file; `known`: by definition, all that ever stood there."""

    def __init__(self, world: Any, seed: int, chance: random.Random) -> None:
        self._world = world
        self._seed = seed
        self._chance: random.Random = world.stream("edits")
        names = [f"w{n}" for n in range(chance.randint(1, 3))]
        self.current = {name: draw_workflow(name, seed, chance) for name in names}
        self.known = {model.definition.definition_id: model for model in self.current.values()}
        self._editions = {name: [self.current[name].definition.definition_id] for name in names}
        self.every_s = self._chance.choice(EVERY_S) if self._chance.random() < SHARE else None

    async def run(self) -> None:
        """Edit until faults are over."""
        while self.every_s is not None:
            await sleep(self._chance.expovariate(1 / self.every_s))
            if self._world.calm:
                return
            self._edit(self._chance.choice(sorted(self.current)))

    def _edit(self, name: str) -> None:
        edition = len(self._editions[name])
        if self._chance.random() < 0.5:
            model = with_text(self.current[name], f"# {name} of seed {self._seed}, {edition}\n".encode())
        else:
            model = draw_workflow(name, self._seed, self._chance, edition)
        self.current[name] = self.known[model.definition.definition_id] = model
        self._editions[name].append(model.definition.definition_id)
        self._world.fault("edit", workflow=name, edition=edition)

    def edition(self, name: str, definition: str | None = None) -> int:
        """The number of a definition among those of its file; the present one's."""
        editions = self._editions[name]
        return len(editions) - 1 if definition is None else editions.index(definition)

    def mark_of(self, real: Callable[[str], Mark | None], path: str) -> Mark | None:
        """As `pwf.watch.mark_of`: a file of this world has another mark after each edit."""
        for name, model in self.current.items():
            if path == model.path:
                return (self.edition(name), 0, 0, 1)
        return real(path)


class CodeRules:
    """Kept by the auditor."""

    def __init__(self, auditor: Any, world: Any) -> None:
        self._auditor = auditor
        self._world = world
        self._since: dict[str, dict[str, int]] = {}  # request -> the editions when it was sent first

    def sent(self, request: Request) -> None:
        """A client asks for a run."""
        if request.operation in STARTS and request.request_id not in self._since:
            code = self._world.code
            self._since[request.request_id] = {name: code.edition(name) for name in code.current}

    def look(self, old: RunModel | None, new: RunModel) -> None:
        """After a commit that changed a run."""
        same = old is None or old.definition == new.definition
        self._auditor.check(same, f"a run keeps the code that it started with: {old} -> {new}")

    def told(self, request: Request, run_id: str) -> None:
        """A client's own request has made a run."""
        run = self._auditor.runs.get(run_id)
        if run is None:
            return  # it was pruned
        check, old = self._auditor.check, self._auditor.runs.get(request.run_id)
        if request.operation == "run.fork" and json.loads(bytes(request.payload)).get("code") == "stored":
            same = old is None or old.definition == run.definition
            check(same, f"a fork with stored code has that of {old}: {run}")
            return
        edition = self._world.code.edition(run.workflow, run.definition)
        asked = self._since[request.request_id][run.workflow]
        check(edition >= asked, f"{run} has code of edition {edition}, and was asked for at {asked}")

    def loaded(self, name: str, bundle: Any) -> None:
        """A template is given what its definition was recorded with."""
        check = self._auditor.check
        check(bundle.definition_id == name, f"the bundle is of its definition: {bundle.definition_id} {name}")
        if name in self._world.code.known:
            texts = {source.text for source in bundle.sources}
            check(texts == set(self._auditor.model_of(name).texts.values()), f"{name} has its recorded text")

    def launched(self, process: Any, launch: Any, run: RunModel) -> None:
        """A runner was told of its run."""
        check, model = self._auditor.check, self._auditor.model_of(run.definition)
        check(
            process.code == run.definition, f"{process.marker} has loaded the code of {run}: {process.code}"
        )
        graph = model.definition.graph
        if run.max_steps is not None:
            graph = replace(graph, max_steps=run.max_steps)
        check(launch.graph == graph, f"{process.marker} is told the graph of {run}")
