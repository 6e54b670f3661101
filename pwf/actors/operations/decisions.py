"""Operations on decisions: what people are asked to decide, and a person's answer.

Holds no state. Promises: no step of a run decides anything (`people`); an answer names what was seen, and one that
comes late or for another proposal is told who has won.
"""

from __future__ import annotations

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.decisions import DecidePayload, DecisionListPayload
from pwf.store.decisions import Decide, decide, decision_list

CHANNEL = "terminal"  # of all that comes without a token: no client says by itself where an answer is from


async def list_decisions(services: Services, asked: Asked[DecisionListPayload]) -> Answer:
    """`decision.list`, oldest first."""
    return Answer(await services.store.read(decision_list, asked.payload))


async def answer_decision(services: Services, asked: Asked[DecidePayload]) -> Answer:
    """`decision.answer`. The same answer again is adopted; a different one is a conflict."""
    await services.people.check(asked.caller, "decide")
    payload = asked.payload
    command = Decide(
        decision=payload.decision_id,
        choice=payload.choice,
        text=payload.text,
        digest=payload.digest,
        actor=asked.actor,
        channel=CHANNEL,
        token=payload.token,
        counting=services.channels.audiences.counting,
        receipt=await asked.make_receipt(),
    )
    done = await services.store.write(decide, command)
    services.scheduler.wake()
    return Answer(done.unwrap(), done.adopted)


HANDLERS: dict[str, OperationHandler] = {
    "decision.list": list_decisions,
    "decision.answer": answer_decision,
}
