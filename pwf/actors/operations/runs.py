"""Operations on runs that exist: list, look, steer, wait.

Holds no state. Promises: a reference to a run is resolved in the transaction that acts on it; what must
happen after a commit (admission, ending a runner) is a row that the scheduler finds by itself, and the
wake-up here only makes it sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import trio

from pwf.actors.base.changes import REREAD_S
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.budgets import Budget
from pwf.discovery import verify_sources
from pwf.protocol.agents import ResumePayload
from pwf.protocol.operations import (
    CancelPayload,
    EventsPayload,
    Explained,
    Nothing,
    PausePayload,
    RunChanged,
    RunListPayload,
    StepsPayload,
    WaitPayload,
    WaitResult,
)
from pwf.protocol.resources import ResourceView
from pwf.protocol.views import ENDED, NEEDS_PERSON, RunSummary, RunView
from pwf.store.at_run import AtRun, at_run
from pwf.store.control import Control, cancel, pause, resume
from pwf.store.definitions import definition_sources
from pwf.store.once import Done
from pwf.store.read_runs import (
    EventsQuery,
    RunQuery,
    list_runs,
    output_of,
    run_events,
    run_summary,
    run_view,
    summary_of,
)
from pwf.store.tx import Tx

V = TypeVar("V", RunView, ResourceView)

OperationOnRun = Callable[[Tx, Any], Done[RunChanged]]

WAIT_MS_MAX = 366 * 24 * 3_600_000


# --- looking ----------------------------------------------------------------------------------------------


async def list_(services: Services, asked: Asked[RunListPayload]) -> Answer:
    """`run.list`."""
    return Answer(await services.store.read(list_runs, asked.payload))


async def status(services: Services, asked: Asked[Nothing]) -> Answer:
    """`run.status`: the line and the reason."""
    return Answer(await _explained(services, asked.run_ref))


async def view(services: Services, asked: Asked[StepsPayload]) -> Answer:
    """`run.view`."""
    page = asked.payload
    found = await services.store.read(
        at_run,
        AtRun(
            asked.run_ref,
            run_view,
            lambda run_id: RunQuery(
                run_id=run_id,
                load=services.scheduler.load(),
                before_attempt=page.before_attempt,
                limit=page.limit,
                node=page.node,
            ),
        ),
    )
    return Answer(await with_newer_code(services, found))


async def events(services: Services, asked: Asked[EventsPayload]) -> Answer:
    """`run.events`."""
    page = asked.payload
    return Answer(
        await services.store.read(
            at_run,
            AtRun(
                asked.run_ref,
                run_events,
                lambda run_id: EventsQuery(
                    run_id=run_id, after_revision=page.after_revision, limit=page.limit
                ),
            ),
        )
    )


async def with_newer_code(services: Services, found: V) -> V:
    """Say whether the files differ by now from what it executes: a run, or the manager of a resource."""
    root = found.root if isinstance(found, RunView) else found.summary.root
    newer = await services.newer_code.differs(found.definition_id, root)
    return msgspec.structs.replace(found, newer_code=True) if newer else found


async def _explained(services: Services, ref: str) -> Explained:
    load = services.scheduler.load()
    return await services.store.read(
        at_run, AtRun(ref, run_summary, lambda run_id: RunQuery(run_id=run_id, load=load))
    )


# --- steering ---------------------------------------------------------------------------------------------


async def pause_(services: Services, asked: Asked[PausePayload]) -> Answer:
    """`run.pause`."""
    now = asked.payload.now
    done = await _control(services, asked, pause, now=now)
    if now:
        await _stop(services, done)
    return _changed(done)


async def resume_(services: Services, asked: Asked[ResumePayload]) -> Answer:
    """`run.resume`. Held for changed files, the run goes on only if they are as they were recorded. More budget is a
    person's word.
    """
    budget = asked.payload.budget
    if budget is not None:
        await services.people.check(asked.caller, "lift a budget")
    explained = await _explained(services, asked.run_ref)
    sources_ok = False
    if explained.summary.hold == "source_changed":
        sources_ok = await _sources_are_back(services, explained.summary)
    accounts = services.agents.config.accounts
    done = await _control(services, asked, resume, sources_ok=sources_ok, budget=budget, accounts=accounts)
    services.scheduler.wake()
    return _changed(done)


async def cancel_(services: Services, asked: Asked[CancelPayload]) -> Answer:
    """`run.cancel`: committed first, then the processes are stopped."""
    done = await _control(services, asked, cancel, reason=asked.payload.reason)
    await _stop(services, done)
    return _changed(done)


async def _stop(services: Services, done: Done[RunChanged]) -> None:
    """End the runner. A late repeat ends none that was admitted since."""
    changed = done.unwrap()
    await services.scheduler.stop_run(changed.run_id, changed.revision)


async def _control(
    services: Services,
    asked: Asked[PausePayload] | Asked[ResumePayload] | Asked[CancelPayload],
    handler: OperationOnRun,
    *,
    now: bool = False,
    reason: str | None = None,
    sources_ok: bool = False,
    budget: Budget | None = None,
    accounts: dict[str, str] | None = None,
) -> Done[RunChanged]:
    receipt = await asked.make_receipt()  # made here and not in the store's transaction

    def command(run_id: str) -> Control:
        return Control(
            run_id=run_id,
            actor=asked.actor,
            expected_revision=asked.request.expected_revision,
            now=now,
            reason=reason,
            sources_ok=sources_ok,
            budget=budget,
            receipt=receipt,
            accounts=accounts or {},
        )

    return await services.store.write(at_run, AtRun(asked.run_ref, handler, command))


def _changed(done: Done[RunChanged]) -> Answer:
    return Answer(done.unwrap(), done.adopted)


async def _sources_are_back(services: Services, summary: RunSummary) -> bool:
    found = await services.store.read(run_view, RunQuery(run_id=summary.run_id, limit=1))
    sources = await services.store.read(definition_sources, found.definition_id)
    return not await trio.to_thread.run_sync(verify_sources, sources, found.root)


# --- waiting ----------------------------------------------------------------------------------------------


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    until: str


async def wait(services: Services, asked: Asked[WaitPayload]) -> Answer:
    """`run.wait`: until the run has ended or needs a person. Woken by commits; re-reads at the 5 s bound."""
    until, timeout_ms = asked.payload.until, asked.payload.timeout_ms
    wait_ms = WAIT_MS_MAX if timeout_ms is None else max(0, min(timeout_ms, WAIT_MS_MAX))
    ends = trio.current_time() + wait_ms / 1_000
    run_id = asked.run_ref
    while True:
        # Mostly the reference is the id itself; where it is not, the first look says which run to listen for.
        with services.changes.watch(f"stand:{run_id}") as watch:
            found = await _look_at(services, run_id, until)
            while found.summary.run_id == run_id and not found.done:
                left_s = ends - trio.current_time()
                if left_s <= 0:
                    return Answer(found)
                await watch.wait(min(REREAD_S, left_s))
                found = await _look_at(services, run_id, until)
        if found.done:
            return Answer(found)
        run_id = found.summary.run_id


async def _look_at(services: Services, ref: str, until: str) -> WaitResult:
    return await services.store.glance(
        at_run, AtRun(ref, _look, lambda run_id: _Look(run_id=run_id, until=until))
    )


def _look(tx: Tx, query: _Look) -> WaitResult:
    """One snapshot: the line, and the output where the wait is over."""
    summary = summary_of(tx, query.run_id)
    if not _arrived(summary, query.until):
        return WaitResult(summary=summary, done=False)
    return WaitResult(summary=summary, done=True, output=output_of(tx, query.run_id))


def _arrived(summary: RunSummary, until: str) -> bool:
    if summary.status in ENDED:
        return True
    return until == "parked" and summary.status in NEEDS_PERSON


HANDLERS: dict[str, OperationHandler] = {
    "run.list": list_,
    "run.status": status,
    "run.view": view,
    "run.events": events,
    "run.pause": pause_,
    "run.resume": resume_,
    "run.cancel": cancel_,
    "run.wait": wait,
}
