"""Operations that make a run: start and restart.

Holds no state. Promises: a start is refused before any row exists when its workflow, environment or input
is wrong; a repeat under the same key gets the first run, even when the file no longer loads.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from pwf.actors.base.apart import apart
from pwf.actors.code.definitions import Known
from pwf.actors.operations.contents import value_of
from pwf.actors.operations.services import (
    Answer,
    Asked,
    OperationHandler,
    Services,
    first_answer,
    kept_refusal,
)
from pwf.actors.sessions.session_coordinator import SessionHandle
from pwf.discovery import Found
from pwf.errors import ContentWanted, InvalidArgument, PwfError, VariablesWanted
from pwf.ids import check_id
from pwf.protocol.forks import ForkPayload, RestartPayload
from pwf.protocol.graph import MAX_STEPS_LIMIT
from pwf.protocol.kinds import KINDS
from pwf.protocol.operations import RunStarted, StartPayload
from pwf.protocol.origin import Origin
from pwf.secrets import how_to_give, without_source
from pwf.store.at_run import AtRun, at_run
from pwf.store.once import REFUSALS, Done
from pwf.store.receipts import ReceiptKey
from pwf.store.restart import LookRestart, RestartRun, look_restart, restart_run
from pwf.store.runs import RunEnvironment, StartRun, start_run
from pwf.values import canonical_texts, digest


async def start(services: Services, asked: Asked[StartPayload]) -> Answer:
    """`run.start`."""
    payload = asked.payload
    if payload.run_id is not None:
        check_id(payload.run_id, "run id")
    try:
        value = await value_of(services, asked, "input")
    except ContentWanted as error:
        return await _asked_before(services, asked, error)
    looked = await services.definitions.look(payload.workflow, payload.origin, asked.caller.received_ns)
    name = await apart(len(value), lambda: digest(value))
    receipt = start_receipt(asked, name, looked.root)
    try:
        known = looked.get()
        warnings = await missing(services, known, payload.origin)
        value = await check_input(services, payload.workflow, known, value)
        session_id = _session_of(asked.caller.session, payload.session)
        agent = await services.agents.of(known.definition.graph, payload.agent, session_id)
        if payload.max_steps is not None:
            check_max_steps(payload.max_steps)
        if payload.budget is not None:  # it goes before that of the configuration
            await services.people.check(asked.caller, "give a run a budget")
    except PwfError as error:
        # A repeat gets its first answer even when the file no longer loads.
        return await first_answer(services.store, receipt, RunStarted, error)
    command = StartRun(
        code=known.code,
        environment=known.environment,
        input=value,
        run_id=payload.run_id,
        at_ms=payload.at_ms,
        priority=payload.priority,
        agent=agent,
        session_id=session_id,
        max_steps=payload.max_steps,
        budget=payload.budget,
        receipt=receipt,
        actor=asked.actor,
        state_bytes_max=services.config.max_state_size,
    )
    if payload.at_ms is not None and payload.at_ms > services.clock.now().wall_ms:
        return started(await services.store.write(start_run, command), known, warnings)  # nothing to admit
    return started(await services.scheduler.start(command), known, warnings)


def _session_of(own: SessionHandle | None, named: str | None) -> str | None:
    """The session that owns the run: what a session starts is its own, whatever its payload says."""
    if own is not None and named not in (None, own.session_id):
        raise InvalidArgument("a session starts runs of its own only")
    return named if own is None else own.session_id


class Who(NamedTuple):
    """Who does the steps of agents, as `StartRun` has it."""

    agent: str | None = None
    session_id: str | None = None
    is_said: bool = False


async def who(services: Services, known: Known, asked: Asked[ForkPayload] | Asked[RestartPayload]) -> Who:
    """Of a run that comes from another: as before unless it is said."""
    payload = asked.payload
    if payload.agent is None and payload.session is None:
        if any(KINDS[node.kind].headless for node in known.definition.graph.nodes):
            await services.agents.refresh()  # it goes on with the agent as it is configured by now
        return Who()
    if payload.session is not None:
        _session_of(asked.caller.session, payload.session)
    agent = await services.agents.of(known.definition.graph, payload.agent, payload.session)
    return Who(agent, payload.session, is_said=True)


async def missing(
    services: Services, known: Known, origin: Origin, *, goes_on: bool = False
) -> tuple[str, ...]:
    """What to say of declared variables and secrets that the run does not have.

    `goes_on`: it has the variables of a run before it. Raises `VariablesWanted` while they may come.
    """
    graph = known.definition.graph
    what = "workflow" if graph.manager is None else "manager"
    names = [name for name in graph.environment if name not in origin.environment]
    if names and not (goes_on or origin.whole):
        raise VariablesWanted(
            f"the {what} declares variables that did not come along: {', '.join(names)}",
            hint="send them with the origin, or say that there are none (origin.whole)",
            details={"names": names},
        )
    how = (
        "which the run before did not have: only `pwf run` takes variables along"
        if goes_on
        else "which is not set: export it, or give --env {}=VALUE"
        if graph.manager is None
        else "which is not set: export it, and apply again"
    )
    unset = tuple(f"the {what} declares {name}, {how.format(name)}" for name in names)
    return (*unset, *await _unsourced(services, known))


async def check_input(services: Services, workflow: str, known: Known, value: bytes) -> bytes:
    """The input as it is kept, once it fits what the workflow declares."""
    schema = known.definition.graph.input_schema
    return await apart(len(value), lambda: services.schemas.check_input(workflow, schema, value))


async def _asked_before(services: Services, asked: Asked[StartPayload], error: ContentWanted) -> Answer:
    """A repeat gets its first answer, though what was sent before it was sent to another daemon."""
    payload = asked.payload
    looked = await services.definitions.look(payload.workflow, payload.origin, asked.caller.received_ns)
    receipt = start_receipt(asked, asked.request.contents["input"], looked.root)
    return await first_answer(services.store, receipt, RunStarted, error)


def check_max_steps(limit: int) -> None:
    """Raises `InvalidArgument` for a number of steps that no workflow may have."""
    if not 1 <= limit <= MAX_STEPS_LIMIT:
        raise InvalidArgument(f"max_steps is {limit:,}", hint=f"give a number from 1 to {MAX_STEPS_LIMIT:,}")


def start_receipt(asked: Asked[StartPayload], name: str, root: Path) -> ReceiptKey:
    """What makes a start the same start: project, workflow, input (its digest) and id, not when it was typed."""
    facts = [
        str(root),
        _stem(asked.payload.workflow),
        name,
        asked.payload.run_id,
        asked.payload.agent,
        asked.payload.session,
        None if asked.payload.max_steps is None else str(asked.payload.max_steps),
        None if asked.payload.budget is None else msgspec.json.encode(asked.payload.budget).decode(),
    ]
    assert asked.scope_key is not None  # a start changes something
    return ReceiptKey(
        scope_key=asked.scope_key,
        operation=asked.request.operation,
        payload_digest=digest(canonical_texts(facts, what="start")),
    )


def _stem(workflow: str) -> str:
    """`Path(workflow).stem`, at less cost for what is mostly typed."""
    name = workflow.rpartition("/")[2]
    if name.endswith(".py") and len(name) > len(".py"):
        return name.removesuffix(".py")
    return name if name.isidentifier() else Path(workflow).stem


async def _unsourced(services: Services, known: Known) -> tuple[str, ...]:
    """What to say of declared secrets of which nothing says where they are."""
    names, config = known.definition.graph.secrets, services.places.config
    if not names:
        return ()

    return tuple(
        f"{name} is declared as a secret, which has no source: {how_to_give(name, config)}"
        for name in await trio.to_thread.run_sync(without_source, names, config)
    )


def started(done: Done[RunStarted], known: Known, warnings: tuple[str, ...] = ()) -> Answer:
    """The answer, with what the code warns of."""
    result = done.unwrap()
    if known.definition.warnings or warnings:
        told = (*result.warnings, *known.definition.warnings, *warnings)
        result = msgspec.structs.replace(result, warnings=told)
    return Answer(result, done.adopted)


async def restart(services: Services, asked: Asked[RestartPayload]) -> Answer:
    """`run.restart`: the original input, environment and priority, the present code."""
    expected = asked.request.expected_revision
    says_who = asked.payload != RestartPayload()
    receipt = await asked.make_receipt()  # made here and not in the store's transaction
    looked = await services.store.write(
        at_run,
        AtRun(
            asked.run_ref,
            look_restart,
            lambda run_id: LookRestart(
                run_id=run_id, expected_revision=expected, says_who=says_who, receipt=receipt
            ),
        ),
    )
    if looked.done is not None:
        return Answer(looked.done.unwrap(), looked.done.adopted)
    facts, run_id = looked.facts, looked.run_id
    assert facts is not None, "a look gives facts or an answer"
    origin = origin_of(facts.environment)
    try:
        known = await present_code(services, facts.path, origin)
        value = await check_input(services, facts.path, known, facts.input)
        by = await who(services, known, asked)
    except REFUSALS as refusal:
        return await kept_refusal(services.store, receipt, RunStarted, refusal)
    command = StartRun(
        code=known.code,
        environment=known.environment,
        input=value,
        priority=facts.priority,
        max_steps=facts.max_steps,
        restarted_from=run_id,
        restart_root=facts.restart_root,
        restart_no=facts.restart_no,
        agent=by.agent,
        session_id=by.session_id,
        says_who=by.is_said,
        receipt=receipt,
        actor=asked.actor,
        state_bytes_max=services.config.max_state_size,
    )
    done = await services.store.write(restart_run, RestartRun(start=command, expected_revision=expected))
    services.scheduler.wake()
    return started(done, known, await missing(services, known, origin, goes_on=True))


def origin_of(environment: RunEnvironment) -> Origin:
    """A run that comes from another is started from where that was, and nobody has more of its variables."""
    return Origin(
        cwd=environment.root,
        python=environment.interpreter,
        environment=environment.variables,
        whole=True,
    )


async def present_code(services: Services, path: str, origin: Origin) -> Known:
    """What the file of an earlier run is now, in that run's environment."""
    found = Found(name=Path(path).stem, path=Path(path), scope="path", root=Path(origin.cwd))
    return await services.definitions.at(found, origin)


HANDLERS: dict[str, OperationHandler] = {"run.start": start, "run.restart": restart}
