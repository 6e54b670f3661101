"""A pool with real processes, a project to run, and the daemon's side of one run's conversation."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trio

from pwf import host
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.template import Template
from pwf.actors.processes.warm import Slot
from pwf.host import Identity
from pwf.protocol.graph import WorkflowDefinition
from pwf.protocol.runner import (
    Finish,
    FromRunner,
    Launch,
    Leaving,
    StepReply,
    Value,
    encode_line,
    from_runner,
)
from pwf.protocol.spawn import PinnedSource, Resolved, SourceBundle

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}


@dataclass
class Project:
    """One workflow of one compute node, and how often its bundle was asked for."""

    root: Path
    pool: RunnerPool
    interpreter: str = sys.executable
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    answer: Resolved | None = None
    loads: int = 0
    runs: int = 0
    options: str = ""  # of the workflow
    leaving: Leaving | None = None  # the last run's last word

    @property
    def definition(self) -> WorkflowDefinition:
        assert self.answer is not None
        assert self.answer.definition is not None, self.answer.error
        return self.answer.definition

    async def write(self, body: str = "return None", head: str = "") -> Resolved:
        """Write the workflow and resolve it."""
        text = (
            textwrap.dedent(head)
            + "\nfrom pwf import Workflow\n\nflow = Workflow('flow'"
            + self.options
            + ")\n\n"
        )
        text += (
            "@flow.compute\ndef step(ctx):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
        )
        path = self.root / "flow.py"
        await trio.Path(path).write_text(text)
        self.answer = await self.pool.resolve(self.interpreter, str(path), str(self.root), self.environment)
        return self.answer

    async def load_bundle(self) -> SourceBundle:
        self.loads += 1
        assert self.answer is not None
        return SourceBundle(
            definition_id=self.definition.definition_id,
            root=self.definition.root,
            sources=tuple(
                PinnedSource(
                    path=source.path,
                    kind=source.kind,
                    module=source.module,
                    text=self.answer.texts[source.digest],
                )
                for source in self.definition.sources
                if source.kind != "data"
            ),
        )

    async def acquire(self, *, isolate: str = "fork") -> RunnerProcess:
        self.runs += 1
        return await self.pool.acquire(
            bundle_key=self.definition.definition_id,
            load_bundle=self.load_bundle,
            interpreter=self.interpreter,
            environment=self.environment,
            root=str(self.root),
            marker=f"home{os.getpid()}:run{self.runs}:1",
            isolate=isolate,
        )

    async def launch(self, process: RunnerProcess) -> None:
        """Tell the runner to begin."""
        launch = Launch(
            run_id="run",
            generation=1,
            graph=self.definition.graph,
            input=Value(json=msgspec.Raw(b"null"), size=4),
            node=self.definition.graph.start,
            visit=1,
            attempt=1,
            root=str(self.root),
            marker=process.marker,
            runs_per_process=50,
        )
        await process.stream.send_all(encode_line([launch]))

    async def run(self, process: RunnerProcess) -> Any:
        """Launch, let the one node end, and give its output."""
        await self.launch(process)
        buffer = b""
        output: Any = None
        async for data in process.stream:
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                message: FromRunner = from_runner.decode(line)
                if isinstance(message, Finish):
                    assert message.error is None, message.error
                    assert message.output is not None
                    assert message.output.json is not None
                    output = msgspec.json.decode(message.output.json)
                    if message.next is not None:
                        await process.stream.send_all(encode_line([StepReply(seq=message.seq, verdict="go")]))
                else:
                    assert isinstance(message, Leaving)
                    self.leaving = message
                    if message.stays:
                        return output
        return output

    async def output(self, **options: Any) -> Any:
        """Of a whole run, whose process is proved dead at the end."""
        process = await self.acquire(**options)
        result = await self.run(process)
        assert await process.exited() == 0
        assert await process.prove_dead()
        await process.aclose()
        return result


async def two_projects(folder: Path, pool: RunnerPool) -> tuple[Project, Project]:
    """Projects `a` and `b`, each with a workflow that returns its name."""
    first, second = Project(folder / "a", pool), Project(folder / "b", pool)
    for project in (first, second):
        project.root.mkdir()
        await project.write(f"return {project.root.name!r}")
    return first, second


def template_slots(pool: RunnerPool) -> list[Slot[Template]]:
    """What the pool knows of its templates."""
    return list(pool._warm._templates.values())


def the_template(pool: RunnerPool) -> Template:
    """The only one that there is."""
    (slot,) = template_slots(pool)
    assert slot.value is not None
    return slot.value


async def waiting_runners(pool: RunnerPool, count: int = 1) -> list[Identity]:
    """Those that wait for a run, once the pool has so many."""
    with trio.fail_after(5):
        while len(found := _waiting(pool)) < count:  # noqa: ASYNC110 - nobody says when
            await trio.sleep(0.005)
    return found


async def waiting_runner(pool: RunnerPool) -> Identity:
    """The one that waits, once the pool has it."""
    return (await waiting_runners(pool))[0]


def _waiting(pool: RunnerPool) -> list[Identity]:
    made = [slot.value for slot in template_slots(pool) if slot.value is not None]
    return [process.identity for template in made for process in template.standing_by.processes()]


@asynccontextmanager
async def running_pool(**options: Any) -> AsyncIterator[RunnerPool]:
    """A pool whose task runs; at the end nothing of it is left."""
    pool = RunnerPool(**options)
    before = {identity.pid for identity in host.descendants(os.getpid())}
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        yield pool
        below = host.descendants(os.getpid())
        nursery.cancel_scope.cancel()
    assert not [one for one in below if one.pid not in before and host.is_alive(one)]


async def until_dead(identities: list[Identity], seconds: float = 5.0) -> bool:
    """Whether all of them end in time."""
    with trio.move_on_after(seconds):
        while any(host.is_alive(identity) for identity in identities):  # noqa: ASYNC110 - the kernel tells nobody
            await trio.sleep(0.01)
        return True
    return False


async def until_exists(path: Path, seconds: float = 5.0) -> str:
    """The text of a file that somebody writes."""
    with trio.fail_after(seconds):
        while True:
            text = await trio.Path(path).read_text() if await trio.Path(path).exists() else ""
            if text.endswith("\n"):
                return text.strip()
            await trio.sleep(0.01)


def named(name: str) -> list[Identity]:
    """The living processes below this one with that name. A fork has its parent's name for a moment."""
    return [
        identity
        for identity in host.descendants(os.getpid())
        if _name(identity.pid) == name and _name(_parent(identity.pid)) != name
    ]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    process = host.read_process(pid)
    return process.parent if process is not None else 0
