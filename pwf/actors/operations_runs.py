"""Operations on runs: start, list, look, steer, wait.

Holds no state. Promises: a start is refused before any row exists when its workflow, environment or input
is wrong; a reference to a run is resolved in the transaction that acts on it; what must happen after a
commit (admission, ending a runner) is a row that the scheduler finds by itself, and the wake-up here only
makes it sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from pwf.actors.changes import REREAD_S
from pwf.actors.definitions import Known
from pwf.actors.services import Answer, Asked, OperationHandler, Services
from pwf.discovery import Found, verify_sources
from pwf.errors import PwfError
from pwf.ids import check_id
from pwf.protocol.frames import Request
from pwf.protocol.operations import (
    CancelPayload,
    EventsPayload,
    Explained,
    Nothing,
    Origin,
    PausePayload,
    RunChanged,
    RunListPayload,
    RunStarted,
    StartPayload,
    StepsPayload,
    WaitPayload,
    WaitResult,
)
from pwf.protocol.views import ENDED, RunSummary, RunView
from pwf.store.at_run import AtRun, at_run
from pwf.store.control import Control, cancel, pause, resume
from pwf.store.definitions import DefinitionRef, definition_sources
from pwf.store.once import Done
from pwf.store.read_runs import EventsQuery, RunQuery, list_runs, run_events, run_summary, run_view
from pwf.store.receipts import ReceiptKey, find_receipt
from pwf.store.restart import RestartRun, restart_run
from pwf.store.runs import Restart, RestartFacts, RunEnvironment, StartRun, restart_facts, start_run
from pwf.store.tx import Tx
from pwf.values import canonical, digest, parse_canonical

OperationOnRun = Callable[[Tx, Any], Done[RunChanged]]

WAIT_MS_MAX = 366 * 24 * 3_600_000


async def start(services: Services, asked: Asked[StartPayload]) -> Answer:
    """`run.start`."""
    payload = asked.payload
    if payload.run_id is not None:
        check_id(payload.run_id, "run id")
    value = parse_canonical(bytes(payload.input), limit=services.config.max_value_bytes, what="input")
    receipt = start_receipt(asked.request, payload, value)
    try:
        known = await services.definitions.find(payload.workflow, payload.origin)
        services.schemas.check_input(known.definition.graph.input_schema, value)
        await services.definitions.save(known)
    except PwfError as error:
        # A repeat gets its first answer even when the file no longer loads.
        return await _stored_start(services, receipt, error)
    command = StartRun(
        workflow=known.definition.graph.name,
        definition_id=known.definition.definition_id,
        environment=await environment_of(services, known, payload.origin),
        input=value,
        run_id=payload.run_id,
        at_ms=payload.at_ms,
        priority=payload.priority,
        receipt=receipt,
        actor=asked.actor,
    )
    done = await services.store.write(start_run, command)
    services.scheduler.wake()
    return _started(done, known)


def start_receipt(request: Request, payload: StartPayload, value: bytes) -> ReceiptKey:
    """What makes a start the same start: workflow, input and id, not where or when it was typed."""
    key = request.idempotency_key
    scope = f"key:{key}" if key is not None else f"request:{request.client_id}:{request.request_id}"
    facts = [Path(payload.workflow).stem, digest(value), payload.run_id]
    return ReceiptKey(
        scope_key=scope, operation=request.operation, payload_digest=digest(canonical(facts, what="start"))
    )


async def _stored_start(services: Services, receipt: ReceiptKey, error: PwfError) -> Answer:
    found = await services.store.read(find_receipt, receipt)
    if found is None or found.outcome != "accepted":
        raise error
    return Answer(msgspec.json.decode(found.response, type=RunStarted), adopted=True)


async def environment_of(services: Services, known: Known, origin: Origin) -> RunEnvironment:
    """What a new run records of where it will execute."""
    python, pwf = await services.interpreters.facts(known.interpreter)
    return RunEnvironment(
        root=str(known.found.root),
        interpreter=known.interpreter,
        python=python,
        pwf=pwf,
        variables=origin.environment,
    )


def _started(done: Done[RunStarted], known: Known) -> Answer:
    result = msgspec.structs.replace(done.unwrap(), warnings=known.definition.warnings)
    return Answer(result, done.adopted)


async def restart(services: Services, asked: Asked[Nothing]) -> Answer:
    """`run.restart`: the original input and environment, the present code."""
    expected = asked.request.expected_revision
    facts, run_id = await services.store.read(
        at_run,
        AtRun(
            asked.run_ref,
            lambda tx, query: (restart_facts(tx, query), query.run_id),
            lambda run_id: Restart(run_id=run_id, expected_revision=expected),
        ),
    )
    if facts.existing is not None:
        return Answer(facts.existing, adopted=True)
    known, origin = await _present_code(services, facts)
    services.schemas.check_input(known.definition.graph.input_schema, facts.input)
    await services.definitions.save(known)
    command = StartRun(
        workflow=known.definition.graph.name,
        definition_id=known.definition.definition_id,
        environment=await environment_of(services, known, origin),
        input=facts.input,
        priority=facts.priority,
        parent_run=run_id,
        root_run=facts.root_run,
        restart_no=facts.restart_no,
        receipt=asked.receipt,
        actor=asked.actor,
    )
    done = await services.store.write(restart_run, RestartRun(start=command, expected_revision=expected))
    services.scheduler.wake()
    return _started(done, known)


async def _present_code(services: Services, facts: RestartFacts) -> tuple[Known, Origin]:
    origin = Origin(
        cwd=facts.root, python=facts.environment.interpreter, environment=facts.environment.variables
    )
    path = Path(facts.path)
    found = Found(name=path.stem, path=path, scope="path", root=Path(facts.root))
    return await services.definitions.at(found, origin), origin


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


async def with_newer_code(services: Services, found: RunView) -> RunView:
    """Say whether the files differ by now from what the run executes."""
    newer = await services.newer_code.differs(found.definition_id, found.root)
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
        services.scheduler.stop_run(done.unwrap().run_id)
    return _changed(done)


async def resume_(services: Services, asked: Asked[Nothing]) -> Answer:
    """`run.resume`. Held for changed files, the run goes on only if they are as they were recorded."""
    explained = await _explained(services, asked.run_ref)
    sources_ok = False
    if explained.summary.hold == "source_changed":
        sources_ok = await _sources_are_back(services, explained.summary)
    done = await _control(services, asked, resume, sources_ok=sources_ok)
    services.scheduler.wake()
    return _changed(done)


async def cancel_(services: Services, asked: Asked[CancelPayload]) -> Answer:
    """`run.cancel`: committed first, then the processes are stopped."""
    done = await _control(services, asked, cancel, reason=asked.payload.reason)
    services.scheduler.stop_run(done.unwrap().run_id)
    return _changed(done)


async def _control(
    services: Services,
    asked: Asked[PausePayload] | Asked[Nothing] | Asked[CancelPayload],
    handler: OperationOnRun,
    *,
    now: bool = False,
    reason: str | None = None,
    sources_ok: bool = False,
) -> Done[RunChanged]:
    def command(run_id: str) -> Control:
        return Control(
            run_id=run_id,
            actor=asked.actor,
            expected_revision=asked.request.expected_revision,
            now=now,
            reason=reason,
            sources_ok=sources_ok,
            receipt=asked.receipt,
        )

    return await services.store.write(at_run, AtRun(asked.run_ref, handler, command))


def _changed(done: Done[RunChanged]) -> Answer:
    return Answer(done.unwrap(), done.adopted)


async def _sources_are_back(services: Services, summary: RunSummary) -> bool:
    found = await services.store.read(run_view, RunQuery(run_id=summary.run_id, limit=1))
    sources = await services.store.read(definition_sources, DefinitionRef(definition_id=found.definition_id))
    return not await trio.to_thread.run_sync(verify_sources, sources, found.root)


# --- waiting ----------------------------------------------------------------------------------------------


async def wait(services: Services, asked: Asked[WaitPayload]) -> Answer:
    """`run.wait`: until the run has ended or needs a person. Woken by commits; re-reads at the 5 s bound."""
    run_id = (await _explained(services, asked.run_ref)).summary.run_id
    until, timeout_ms = asked.payload.until, asked.payload.timeout_ms
    ends = trio.current_time() + min(WAIT_MS_MAX if timeout_ms is None else timeout_ms, WAIT_MS_MAX) / 1_000
    with services.changes.watch(f"run:{run_id}") as watch:
        while True:
            summary = (await _explained(services, run_id)).summary
            if _arrived(summary, until):
                found = await services.store.read(run_view, RunQuery(run_id=run_id, limit=1))
                return Answer(WaitResult(summary=found.summary, done=True, output=found.output))
            left_s = ends - trio.current_time()
            if left_s <= 0:
                return Answer(WaitResult(summary=summary, done=False))
            await watch.wait(min(REREAD_S, left_s))


def _arrived(summary: RunSummary, until: str) -> bool:
    if summary.status in ENDED:
        return True
    return until == "parked" and summary.status in ("waiting", "paused", "ambiguous", "held")


HANDLERS: dict[str, OperationHandler] = {
    "run.start": start,
    "run.restart": restart,
    "run.list": list_,
    "run.status": status,
    "run.view": view,
    "run.events": events,
    "run.pause": pause_,
    "run.resume": resume_,
    "run.cancel": cancel_,
    "run.wait": wait,
}
