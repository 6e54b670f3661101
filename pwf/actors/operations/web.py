"""Operations for the answer pages: making links, signing in and out, and what a token is for.

Holds no state. Promises: only a person makes a link or signs everybody out (`people`); a token that is not known, or
over, leaves no trace.
"""

from __future__ import annotations

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.web import EnterPayload, InvitePayload, LeavePayload, LinkPayload, TokenPayload
from pwf.store.web_tokens import Enter, Invite, Leave, MakeLink, enter, invite, leave, look_token, make_link


async def link_decision(services: Services, asked: Asked[LinkPayload]) -> Answer:
    """`decision.link`."""
    await services.people.check(asked.caller, "make a link to a decision")
    command = MakeLink(
        decision=asked.payload.decision_id,
        token_hash=asked.payload.token_hash,
        actor=asked.actor,
        receipt=await asked.make_receipt(),
    )
    done = await services.store.write(make_link, command)
    return Answer(done.unwrap(), done.adopted)


async def invite_browser(services: Services, asked: Asked[InvitePayload]) -> Answer:
    """`web.invite`."""
    await services.people.check(asked.caller, "make a link to sign in")
    command = Invite(
        token_hash=asked.payload.token_hash, actor=asked.actor, receipt=await asked.make_receipt()
    )
    done = await services.store.write(invite, command)
    return Answer(done.unwrap(), done.adopted)


async def let_enter(services: Services, asked: Asked[EnterPayload]) -> Answer:
    """`web.enter`. The link proves who it is."""
    payload = asked.payload
    command = Enter(
        token=payload.token, browser_hash=payload.browser_hash, receipt=await asked.make_receipt()
    )
    done = await services.store.write(enter, command)
    return Answer(done.unwrap(), done.adopted)


async def let_leave(services: Services, asked: Asked[LeavePayload]) -> Answer:
    """`web.leave`."""
    if asked.payload.token is None:
        await services.people.check(asked.caller, "sign everybody out")
    command = Leave(token=asked.payload.token, receipt=await asked.make_receipt())
    done = await services.store.write(leave, command)
    return Answer(done.unwrap(), done.adopted)


async def show_token(services: Services, asked: Asked[TokenPayload]) -> Answer:
    """`web.token`."""
    return Answer(await services.store.read(look_token, asked.payload.token))


HANDLERS: dict[str, OperationHandler] = {
    "decision.link": link_decision,
    "web.invite": invite_browser,
    "web.enter": let_enter,
    "web.leave": let_leave,
    "web.token": show_token,
}
