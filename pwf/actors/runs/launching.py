"""Launching: what the runs of a definition in an environment are launched from, and why one can't be.

Owns the Scheduler's memory of it, which is bounded, and all of which stands in the store. Never changes a run.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import trio
from trio_util import AsyncValue

from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.code.agents import Agents
from pwf.actors.processes.runner_pool import RunnerPool
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import TemplateKey, template_key
from pwf.actors.processes.warm import TEMPLATES_MAX
from pwf.actors.runs.deadlines import Deadlines
from pwf.config import Config
from pwf.discovery import changed_sources
from pwf.errors import (
    EnvironmentMissing,
    GraphError,
    LoadFailed,
    OutcomeUnknown,
    PwfError,
    SourceChanged,
    Unavailable,
)
from pwf.store.definitions import LaunchFacts, launch_facts, load_bundle
from pwf.store.launch import LaunchTerms
from pwf.store.queue import AdmittedRun
from pwf.store.resource_queue import AdmittedReconcile
from pwf.store.runs import RunEnvironment, environment_of
from pwf.store.settings import SettingsFacts
from pwf.store.submissions import DueErrand
from pwf.store.tx import Tx

C = TypeVar("C")
R = TypeVar("R")

LAUNCHABLES_MAX = 256
CHANGED_NAMED_MAX = 5  # files that a hold's reason names
RETRY_S = 1.0  # while the store can't take a write (disk full): the outcome waits, it is not lost


@dataclass(frozen=True)
class Supervision:
    """What every supervisor works with."""

    store: StoreHandle
    pool: RunnerPool
    config: Config
    agents: Agents
    secrets_from: Path  # the user's configuration, which says where they are
    log: Log
    terms: LaunchTerms
    draining: Callable[[], bool]
    deadlines: Deadlines
    wake: Callable[[tuple[int, int]], None]  # the Scheduler: what is published of this generation has changed
    stop_run: Callable[[str, int], Awaitable[None]]  # the Scheduler: as its handle's

    async def write(self, run_id: str, handler: Callable[[Tx, C], R], command: C, *, along: bool) -> R:
        """Write until the store takes it. `along`: nobody waits for it."""
        store = self.store
        write: Callable[[Callable[[Tx, C], R], C], Awaitable[R]] = store.write_along if along else store.write
        warned = False
        while True:
            try:
                return await write(handler, command)
            except OutcomeUnknown:
                raise  # the daemon stops and recovers from the file
            except Unavailable as error:
                if not warned:
                    self.log.warning("store.unavailable", run_id=run_id, code=error.code)
                warned = True
                await trio.sleep(RETRY_S)


class Launchable(NamedTuple):
    """What runs are launched from. `key`: of the template whose processes may stand by for them; None: none may."""

    definition_id: str
    environment_id: str
    facts: LaunchFacts
    environment: RunEnvironment
    key: TemplateKey | None


def launchable(
    admission: AdmittedRun | AdmittedReconcile | DueErrand | SettingsFacts,
    facts: LaunchFacts,
    environment: RunEnvironment,
) -> Launchable:
    """What a run that was admitted is launched from."""
    key = None
    if not facts.sources and facts.isolate != "spawn":
        # Else its files are compared first, or each runner is a process started for itself.
        key = template_key(environment.interpreter, admission.definition_id, environment.variables)
    return Launchable(admission.definition_id, admission.environment_id, facts, environment, key)


class Launchables:
    """The Scheduler's memory of what runs were launched from, the latest last: bounded, and all of it is in the store.

    `published`: the latest of them for which processes may stand by.
    """

    def __init__(self) -> None:
        self.published: AsyncValue[tuple[Launchable, ...]] = AsyncValue(())
        self._known: dict[tuple[str, str], Launchable] = {}

    def find(self, admission: AdmittedRun | AdmittedReconcile) -> Launchable | None:
        """What is known of it; it is the latest now."""
        found = self._known.get((admission.definition_id, admission.environment_id))
        if found is not None and found not in self.published.value:
            self.learn(found)
        return found

    def learn(self, found: Launchable) -> None:
        """A run was launched from it: further ones may be."""
        pair = found.definition_id, found.environment_id
        self._known.pop(pair, None)
        self._known[pair] = found
        if len(self._known) > LAUNCHABLES_MAX:
            del self._known[next(iter(self._known))]
        able = [one for one in self._known.values() if one.key is not None]
        self.published.value = tuple(able[-TEMPLATES_MAX:])


async def look_up(
    store: StoreHandle, admission: AdmittedRun | AdmittedReconcile | DueErrand | SettingsFacts
) -> Launchable:
    """Read it. Raises `Unavailable`."""
    environment = await store.read(environment_of, admission.environment_id)
    facts = await store.read(launch_facts, admission.definition_id)
    return launchable(admission, facts, environment)


async def acquire(world: Supervision, known: Launchable, run_id: str, generation: int) -> RunnerProcess:
    """A process for the run. Raises what the pool does, and what `refuse_changed` does."""
    await refuse_changed(known.facts, run_id)
    return await world.pool.acquire(
        bundle_key=known.definition_id,
        load_bundle=lambda: world.store.read(load_bundle, known.definition_id),
        interpreter=known.environment.interpreter,
        environment=known.environment.variables,
        root=known.facts.root,
        marker=world.terms.marker_of(run_id, generation),
        isolate=known.facts.isolate,
    )


async def refuse_changed(facts: LaunchFacts, run_id: str) -> None:
    """Raise `EnvironmentMissing` without its project, and under source="verify" `SourceChanged`. Reads the files."""
    if facts.sources:
        await trio.to_thread.run_sync(_refuse_changed_sources, facts, run_id)
    _refuse_missing(facts.root)


def _refuse_missing(root: str) -> None:
    if not os.path.isdir(root):
        raise EnvironmentMissing(f"the project folder {root} is gone")


def _refuse_changed_sources(facts: LaunchFacts, run_id: str) -> None:
    """Name the recorded and the present identity."""
    changed = changed_sources(facts.sources, facts.root)
    if changed:
        named = ", ".join(map(str, changed[:CHANGED_NAMED_MAX]))
        more = len(changed) - CHANGED_NAMED_MAX
        text = f"run {run_id} was started with other text of {named}"
        raise SourceChanged(text + (f" and {more} more files" if more > 0 else ""))


def hold_for(refusal: PwfError) -> str:
    """The hold of a run that can't be launched, and shall not be tried again by itself."""
    holds = {EnvironmentMissing: "environment_missing", SourceChanged: "source_changed"}
    hold = next((name for kind, name in holds.items() if isinstance(refusal, kind)), None)
    if hold is None:
        hold = "load_failed" if isinstance(refusal, LoadFailed | GraphError) else "broken"
    return hold
