"""Operations on requests and effects: what waits for a person, and a person's word on it.

Holds no state. Promises: an answer is checked against the request's stored schema before anything is
written, so a wrong one leaves the request pending and says where it is wrong; no step of a run settles an effect, and
none answers a checkpoint unless the configuration lets it (`people`).
"""

from __future__ import annotations

from pwf.actors.base.apart import apart
from pwf.actors.code.schemas import as_kept
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services, canonical_of
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import AnswerPayload, EffectListPayload, RecoverPayload, RequestListPayload
from pwf.store.at_run import AtRun, at_run
from pwf.store.effects import RecoverEffect, recover_effect
from pwf.store.read_runs import effect_list, request_list
from pwf.store.requests import AnswerRequest, RequestFacts, answer, request_facts


async def list_requests(services: Services, asked: Asked[RequestListPayload]) -> Answer:
    """`request.list`, oldest first."""
    return Answer(await services.store.read(request_list, asked.payload))


async def answer_request(services: Services, asked: Asked[AnswerPayload]) -> Answer:
    """`request.answer`. A second, equal answer is adopted; a different one is a conflict."""
    payload = asked.payload
    actor = await services.people.who_answers(asked.caller, asked.actor)
    value = await canonical_of(services, payload.answer, "answer")
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


def _kept(services: Services, facts: RequestFacts, value: bytes, *, checks: bool) -> bytes:
    """The answer as it is kept; `InvalidAnswer` when it does not fit."""
    value = as_kept(facts.schema, value)
    if checks:
        services.schemas.check_answer(facts.request_id, facts.schema, value)
    return value


async def list_effects(services: Services, asked: Asked[EffectListPayload]) -> Answer:
    """`effect.list`."""
    return Answer(await services.store.read(effect_list, asked.payload))


async def recover(services: Services, asked: Asked[RecoverPayload]) -> Answer:
    """`effect.recover`: settle the ambiguous effect of a run."""
    payload = asked.payload
    await services.people.check(asked.caller, "settle an effect")
    output = await canonical_of(services, payload.output, "output")
    receipt = await asked.make_receipt()
    done = await services.store.write(
        at_run,
        AtRun(
            asked.run_ref,
            recover_effect,
            lambda run_id: RecoverEffect(
                run_id=run_id,
                verdict=payload.verdict,
                effect_key=payload.effect_key,
                output=output,
                expected_revision=asked.request.expected_revision,
                actor=asked.actor,
                receipt=receipt,
            ),
        ),
    )
    services.scheduler.wake()
    return Answer(done.unwrap(), done.adopted)


HANDLERS: dict[str, OperationHandler] = {
    "request.list": list_requests,
    "request.answer": answer_request,
    "effect.list": list_effects,
    "effect.recover": recover,
}
