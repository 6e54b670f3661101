"""`run.fork`: go on from a node of a run, in a new run that takes over what came before.

Holds no state. Promises: what is taken over fits the code that the fork executes, or nothing is started; a
step of a run takes over no person's answer (`people`).
"""

from __future__ import annotations

from functools import partial

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.code.definitions import Known
from pwf.actors.operations.contents import read_whole, value_of
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services, kept_refusal
from pwf.actors.operations.start import (
    check_input,
    check_max_steps,
    missing,
    origin_of,
    present_code,
    started,
    who,
)
from pwf.errors import Rejected
from pwf.protocol.forks import ForkPayload
from pwf.protocol.graph import RoutingFailed, WorkflowGraph, route
from pwf.protocol.operations import RunStarted
from pwf.protocol.runner import Value
from pwf.store.adoption import Fork, visit_name
from pwf.store.at_run import AtRun, at_run
from pwf.store.definitions import stored_definition
from pwf.store.fork import ForkFacts, ForkRun, LookFork, Terms, fork_run, look_fork
from pwf.store.once import REFUSALS
from pwf.store.runs import StartRun


async def fork(services: Services, asked: Asked[ForkPayload]) -> Answer:
    """The input and the environment of the old run, the present code, unless others are said."""
    payload = asked.payload
    if payload.keep_answers:
        await services.people.check(asked.caller, "take over what people answered")
    has_input = payload.input is not None or "input" in asked.request.contents
    given = await value_of(services, asked, "input") if has_input else None
    receipt = await asked.make_receipt()  # made here and not in the store's transaction

    def terms(run_id: str) -> Terms:
        return Terms(
            run_id=run_id,
            node=payload.node,
            visit=payload.visit,
            repeat_effects=payload.repeat_effects,
            keep_answers=payload.keep_answers,
            expected_revision=asked.request.expected_revision,
        )

    look = AtRun(asked.run_ref, look_fork, lambda run_id: LookFork(terms=terms(run_id), receipt=receipt))
    looked = await services.store.write(at_run, look)
    if looked.done is not None:
        return Answer(looked.done.unwrap(), looked.done.adopted)
    facts = looked.facts
    assert facts is not None, "a look gives facts or an answer"
    try:
        known, start = await _new_run(services, asked, facts, given)
    except REFUSALS as refusal:
        return await kept_refusal(services.store, receipt, RunStarted, refusal)
    start = msgspec.structs.replace(start, receipt=receipt)
    command = ForkRun(start=start, terms=terms(facts.fork.run_id))
    done = await services.store.write(fork_run, command)
    services.scheduler.wake()
    origin = origin_of(facts.environment)
    return started(done, known, await missing(services, known, origin, goes_on=True))


async def _new_run(
    services: Services, asked: Asked[ForkPayload], facts: ForkFacts, given: bytes | None
) -> tuple[Known, StartRun]:
    """The new run, once what it takes over fits the code that it executes; that code."""
    payload = asked.payload
    known = await _code(services, facts, payload)
    graph = known.definition.graph
    refuse_missing(facts, graph)
    max_steps = facts.max_steps if payload.max_steps is None else payload.max_steps
    place = where(facts, graph)
    refuse_too_many_steps(facts, place, graph.max_steps if max_steps is None else max_steps)
    await _check_results(services, facts, known)
    value = facts.input if given is None else given
    by = await who(services, known, asked)
    return known, StartRun(
        code=known.code,
        environment=known.environment,
        input=await check_input(services, facts.path, known, value),
        priority=facts.priority,
        fork=msgspec.structs.replace(place, titled=given is None),
        max_steps=max_steps,
        agent=by.agent,
        session_id=by.session_id,
        says_who=by.is_said,
        actor=asked.actor,
        state_bytes_max=services.config.max_state_size,
    )


async def _code(services: Services, facts: ForkFacts, payload: ForkPayload) -> Known:
    if payload.code == "current":
        return await present_code(services, facts.path, origin_of(facts.environment))
    code = await services.store.read(stored_definition, facts.definition_id)
    return Known(code, facts.environment)


async def _check_results(services: Services, facts: ForkFacts, known: Known) -> None:
    """What is taken over must have the types of other code, too."""
    if known.definition.definition_id == facts.definition_id:
        return
    for result in facts.results:
        schema = known.definition.graph.node(result.node).returns
        if result.output is None or schema is None:
            continue
        data = await _read(services, result.output)
        name = visit_name(result.node, result.visit)
        check = partial(services.schemas.check_adopted, facts.fork.run_id, name, schema, data)
        await apart(len(data), check)


async def _read(services: Services, value: Value) -> bytes:
    if value.json is not None:
        return bytes(value.json)
    assert value.digest is not None
    return await read_whole(services.store, value.digest)


# --- pure functions -------------------------------------------------------------------------------------------


def refuse_missing(facts: ForkFacts, graph: WorkflowGraph) -> None:
    """The code must have every node that the old run has been through."""
    run_id = facts.fork.run_id
    wanted = [one.node for one in facts.results] + [facts.fork.node]
    known = {node.id for node in graph.nodes}
    missing = [node for node in dict.fromkeys(wanted) if node not in known]
    if missing:
        raise Rejected(
            f"the code has no node {', '.join(map(repr, missing))}, which run {run_id} has been through",
            hint=f"give the node its old name, take the code of the run (pwf fork {run_id} --code stored), or begin "
            f"anew: pwf restart {run_id}",
        )


def where(facts: ForkFacts, graph: WorkflowGraph) -> Fork:
    """Where the fork goes on; after a step that ended as it should, at what the code leads to now."""
    after = facts.after
    if after is None:
        return facts.fork
    again = f"to run that step again: pwf fork {facts.fork.run_id} --from {after.node}"
    output = None if after.output is None else msgspec.json.decode(after.output)
    try:
        target = route(graph.node(after.node), after.outcome, output)
    except RoutingFailed as error:
        raise Rejected(f"the run would fail as before: {error}", hint=f"add the case, or {again}") from error
    if target is None:
        raise Rejected(f"the code leads nowhere after node {after.node!r} {after.outcome}", hint=again)
    visits = {one.node: one.visit for one in facts.results}
    return msgspec.structs.replace(facts.fork, node=target, visit=visits.get(target, 0) + 1)


def refuse_too_many_steps(facts: ForkFacts, place: Fork, limit: int) -> None:
    """The steps that are taken over count."""
    check_max_steps(limit)
    visits = {one.node: one.visit for one in facts.results} | {place.node: place.visit}
    steps = sum(visits.values())
    if steps > limit:
        raise Rejected(
            f"run {place.run_id} took {steps - 1:,} steps up to there, and the limit is {limit:,}",
            hint=f"say a higher one: --max-steps {max(2 * limit, steps)}",
        )


HANDLERS: dict[str, OperationHandler] = {"run.fork": fork}
