"""Operations on effects: the ledger, all that is known of one effect, and a person's word on it.

Holds no state. Promises: no step of a run settles an effect (`people`), and a word settles the effect that was shown or
none.
"""

from __future__ import annotations

from msgspec.structs import replace

from pwf.actors.base.apart import apart
from pwf.actors.operations.contents import value_of
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.errors import Rejected
from pwf.protocol.effects import EffectListPayload, EffectRef, ResolvePayload, read_effect_key
from pwf.protocol.operations import RunChanged
from pwf.store.at_run import AtRun, at_run
from pwf.store.channel_troubles import is_channel
from pwf.store.effect_detail import EffectQuery, effect_detail
from pwf.store.effect_rows import effect_list
from pwf.store.effects import OutputQuery, ResolveEffect, output_type, resolve_effect
from pwf.store.once import Done
from pwf.store.resource_words import (
    ResolveResourceEffect,
    ResourceEffectQuery,
    resolve_resource_effect,
    resource_effect_detail,
    resource_named,
)


async def list_(services: Services, asked: Asked[EffectListPayload]) -> Answer:
    """`effect.list`."""
    return Answer(await services.store.read(effect_list, asked.payload))


async def get(services: Services, asked: Asked[EffectRef]) -> Answer:
    """`effect.get`."""
    key, load = asked.payload.effect_key, services.scheduler.load()
    ref = read_effect_key(key)[0]
    number = await services.store.read(resource_named, ref)
    await _check_no_channel(services, ref, key)
    if number is not None:
        query = ResourceEffectQuery(resource_no=number, effect_key=key)
        return Answer(await services.store.read(resource_effect_detail, query))
    command = AtRun(ref, effect_detail, lambda run_id: EffectQuery(run_id=run_id, effect_key=key, load=load))
    return Answer(await services.store.read(at_run, command))


async def resolve(services: Services, asked: Asked[ResolvePayload]) -> Answer:
    """`effect.resolve`: settle the ambiguous effect of a run, or have it observed again."""
    payload = asked.payload
    await services.people.check(asked.caller, "settle an effect")
    output = await value_of(services, asked, "output")
    word = ResolveEffect(
        run_id="",
        verdict=payload.verdict,
        effect_key=payload.effect_key,
        output=output,
        ref=payload.ref,
        note=payload.note,
        expected_revision=asked.request.expected_revision,
        actor=asked.actor,
        receipt=await asked.make_receipt(),
    )
    await _check_no_channel(services, asked.run_ref, payload.effect_key)
    number = await services.store.read(resource_named, asked.run_ref)
    if number is not None:
        of_resource = ResolveResourceEffect(resource_no=number, word=word)
        done = await services.store.write(resolve_resource_effect, of_resource)
    else:
        done = await _resolve_of_run(services, asked.run_ref, word)
    services.scheduler.wake()
    return Answer(done.unwrap(), done.adopted)


async def _check_no_channel(services: Services, ref: str, key: str | None) -> None:
    """A send of a channel is its message's, of which people say more by that."""
    if await services.store.read(is_channel, ref):
        message_id = (key or "").partition("/")[2] or "MESSAGE"
        raise Rejected(
            f"{key or ref} is a message of channel {ref}",
            hint=f"pwf channel status shows it; pwf channel recover {message_id} confirm|retry settles it",
        )


async def _resolve_of_run(services: Services, run_ref: str, word: ResolveEffect) -> Done[RunChanged]:
    """An output that a person gives is checked as the node's own would be."""
    if word.verdict == "happened":
        about = AtRun(
            run_ref, output_type, lambda run_id: OutputQuery(run_id=run_id, effect_key=word.effect_key)
        )
        wanted = await services.store.read(at_run, about)
        output = await apart(
            len(word.output), lambda: services.schemas.check_output(wanted.node, wanted.schema, word.output)
        )
        run_ref = wanted.run_id
        word = replace(word, output=output, checked_for=wanted.node)
    command = AtRun(run_ref, resolve_effect, lambda run_id: replace(word, run_id=run_id))
    return await services.store.write(at_run, command)


HANDLERS: dict[str, OperationHandler] = {
    "effect.list": list_,
    "effect.get": get,
    "effect.resolve": resolve,
}
