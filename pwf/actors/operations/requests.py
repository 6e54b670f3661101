"""Operations on requests: what waits for an answer, the answer, and what is submitted for an agent.

Holds no state. Promises: an answer is checked against the request's stored schema before anything is
written, so a wrong one leaves the request pending and says where it is wrong; no step of a run submits anything here,
nor answers a checkpoint unless the configuration lets it (`people`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from pwf.actors.base.apart import apart
from pwf.actors.code.schemas import as_kept
from pwf.actors.operations.contents import value_of
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.errors import Rejected
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import AnswerPayload, RequestListPayload, SubmitPayload, Submitted
from pwf.protocol.replies import AssistantPayload, UpdatePayload
from pwf.store.read_runs import request_list
from pwf.store.read_sessions import Own, own_request
from pwf.store.request_updates import UpdateRequest, update_request
from pwf.store.requests import AnswerRequest, RequestFacts, answer, request_facts, submitted_facts
from pwf.store.submissions import Submit, submission_state, submit
from pwf.values import canonical

VERDICT_S = 30.0  # that a submission waits for its verdict


async def list_requests(services: Services, asked: Asked[RequestListPayload]) -> Answer:
    """`request.list`, oldest first."""
    return Answer(await services.store.read(request_list, asked.payload))


async def answer_request(services: Services, asked: Asked[AnswerPayload]) -> Answer:
    """`request.answer`. A second, equal answer is adopted; a different one is a conflict."""
    payload = asked.payload
    actor = await services.people.who_answers(asked.caller, asked.actor)
    value = await value_of(services, asked, "answer")
    receipt = await asked.make_receipt()
    facts = await services.store.read(request_facts, payload.request_id)
    # Another kind is refused, whatever its schema.
    checks = facts.status == "pending" and REQUESTS[facts.kind].plain
    value = await apart(len(value), lambda: _kept(services, facts, value, checks=checks))
    done = await services.store.write(
        answer,
        AnswerRequest(
            request_id=facts.request_id,
            answer=value,
            expected_revision=asked.request.expected_revision,
            actor=actor,
            receipt=receipt,
        ),
    )
    services.scheduler.wake()
    return Answer(done.unwrap(), done.adopted)


async def submit_value(services: Services, asked: Asked[SubmitPayload]) -> Answer:
    """`request.submit`: a session, or a person in an agent's place, hands in what was asked for. An equal second one is
    adopted.
    """
    payload = asked.payload
    await _check_holder(services, asked, payload.request_id)
    value = await value_of(services, asked, "value")
    facts = await services.store.read(submitted_facts, payload.request_id)
    return await _submitted(services, asked, facts, value)


async def reply(services: Services, asked: Asked[AssistantPayload]) -> Answer:
    """`request.assistant`: a session hands in the reply that it was asked for, as it has shown it."""
    payload = asked.payload
    if asked.caller.session is None:
        raise Rejected("only the session that shows a reply reports it", hint="pwf submit REQUEST TEXT")
    await _check_holder(services, asked, payload.request_id)
    facts = await services.store.read(submitted_facts, payload.request_id)
    if not REQUESTS[facts.kind].reply:
        raise Rejected(
            f"request {facts.request_id} is a request of kind {facts.kind}; it takes no reply",
            hint="submit a value that fits its schema",
        )
    value = canonical(payload.text, limit=services.config.max_value_bytes, what="the reply")
    return await _submitted(services, asked, facts, value)


async def update(services: Services, asked: Asked[UpdatePayload]) -> Answer:
    """`request.update`: the holder of a request says how its work goes."""
    payload, session = asked.payload, asked.caller.session
    await _check_holder(services, asked, payload.request_id)
    command = UpdateRequest(
        request_id=(await services.store.read(submitted_facts, payload.request_id)).request_id,
        kind=payload.kind,
        key=payload.key,
        data=await value_of(services, asked, "data"),
        request_revision=payload.revision,
        actor=asked.actor,
        session=None if session is None else session.fence,
        receipt=await asked.make_receipt(),
    )
    done = await services.store.write(update_request, command)
    return Answer(done.unwrap(), done.adopted)


async def _check_holder(services: Services, asked: Asked[Any], request_id: str) -> None:
    """Its session, or a person in an agent's place; no step of a run."""
    session = asked.caller.session
    if session is None:
        await services.people.check(asked.caller, "submit for an agent")
    else:
        await services.store.read(own_request, Own(fence=session.fence, ref=request_id))


async def _submitted(
    services: Services,
    asked: Asked[SubmitPayload] | Asked[AssistantPayload],
    facts: RequestFacts,
    value: bytes,
) -> Answer:
    session = asked.caller.session
    receipt = await asked.make_receipt()
    checks = facts.status == "pending" and REQUESTS[facts.kind].submitted
    value = await apart(len(value), lambda: _kept(services, facts, value, checks=checks))
    command = Submit(
        request_id=facts.request_id,
        value=value,
        request_revision=asked.payload.revision,
        actor=asked.actor,
        session=None if session is None else session.fence,
        receipt=receipt,
    )
    done = await services.store.write(submit, command)
    services.scheduler.wake()
    submitted = done.unwrap()
    if submitted.submission is not None:
        submitted = await _judged(services, submitted, submitted.submission)
    return Answer(submitted, done.adopted)


async def _judged(services: Services, submitted: Submitted, submission: int) -> Submitted:
    """With the verdict, as far as it comes in time."""
    with services.changes.watch("submissions") as watch, trio.move_on_after(VERDICT_S):
        while (await services.store.read(submission_state, submission)).status == "validating":
            await watch.wait()
    state = await services.store.read(submission_state, submission)
    return msgspec.structs.replace(submitted, verdict=state.status, reason=state.reason)


def _kept(services: Services, facts: RequestFacts, value: bytes, *, checks: bool) -> bytes:
    """The answer as it is kept; `InvalidAnswer` when it does not fit."""
    value = as_kept(facts.schema, value)
    if checks:
        services.schemas.check_answer(facts.request_id, facts.schema, value, facts.kind)
    return value


HANDLERS: dict[str, OperationHandler] = {
    "request.list": list_requests,
    "request.answer": answer_request,
    "request.submit": submit_value,
    "request.update": update,
    "request.assistant": reply,
}
