"""Operations on the follow-ups of a run. Holds no state."""

from __future__ import annotations

from typing import Any

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.follow_ups import QueueFollowUp, RemoveFollowUp
from pwf.store.at_run import AtRun, at_run
from pwf.store.follow_ups import Queue, Remove, queue_follow_up, remove_follow_up


async def queue(services: Services, asked: Asked[QueueFollowUp]) -> Answer:
    """`follow_up.queue`: a person, the run's session or a step of the run itself."""
    who = await _who(services, asked)
    command = AtRun(
        asked.run_ref,
        queue_follow_up,
        lambda run_id: Queue(run_id=run_id, text=asked.payload.text, **who),
    )
    done = await services.store.write(at_run, command)
    return Answer(done.unwrap(), done.adopted)


async def remove(services: Services, asked: Asked[RemoveFollowUp]) -> Answer:
    """`follow_up.remove`: who has queued it, or a person."""
    who = await _who(services, asked)
    command = AtRun(
        asked.run_ref,
        remove_follow_up,
        lambda run_id: Remove(run_id=run_id, follow_up=asked.payload.follow_up, **who),
    )
    done = await services.store.write(at_run, command)
    return Answer(done.unwrap(), done.adopted)


async def _who(services: Services, asked: Asked[Any]) -> dict[str, Any]:
    session = asked.caller.session
    if session is not None:
        actor, person = asked.actor, False
    else:
        actor, person = await services.people.who_acts(asked.caller, asked.actor)
    return {
        "actor": actor,
        "person": person,
        "session": None if session is None else session.fence,
        "receipt": await asked.make_receipt(),
    }


HANDLERS: dict[str, OperationHandler] = {
    "follow_up.queue": queue,
    "follow_up.remove": remove,
}
