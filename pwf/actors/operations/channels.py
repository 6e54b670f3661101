"""Operations on channels: how they stand, a test, a person's word on a message, the configuration read anew.

Holds no state. Promises: no step of a run says what became of a message (`people`).
"""

from __future__ import annotations

import trio

from pwf.actors.channels.channels import settings_of
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.config import load_config
from pwf.protocol.channels import ChannelNothing, ChannelRef, MessageRef, RecoverMessage
from pwf.store.channel_words import (
    ProbeChannel,
    Recover,
    channel_list,
    message_of,
    probe_channel,
    recover_message,
)


async def list_(services: Services, asked: Asked[ChannelNothing]) -> Answer:
    """`channel.list`."""
    return Answer(await services.store.read(channel_list, None))


async def message(services: Services, asked: Asked[MessageRef]) -> Answer:
    """`channel.message`."""
    return Answer(await services.store.read(message_of, asked.payload.message_id))


async def test(services: Services, asked: Asked[ChannelRef]) -> Answer:
    """`channel.test`: send a message that says that the channel works."""
    await services.people.check(asked.caller, "send something to people")
    command = ProbeChannel(channel=asked.payload.channel, receipt=await asked.make_receipt())
    done = await services.store.write(probe_channel, command)
    return Answer(done.unwrap(), done.adopted)


async def recover(services: Services, asked: Asked[RecoverMessage]) -> Answer:
    """`channel.recover`: a person says that a message arrived, or has it sent again."""
    await services.people.check(asked.caller, "say what became of a message")
    shown = services.channels.audiences.shown
    command = Recover(
        said=asked.payload, actor=asked.actor, audiences=shown, receipt=await asked.make_receipt()
    )
    done = await services.store.write(recover_message, command)
    return Answer(done.unwrap(), done.adopted)


async def reload(services: Services, asked: Asked[ChannelNothing]) -> Answer:
    """`channel.reload`: channels and audiences as the configuration has them now. A mistake in it changes nothing."""
    await services.people.check(asked.caller, "change the channels")
    config = await trio.to_thread.run_sync(load_config, services.places.config)
    await services.channels.reload(settings_of(config))
    return Answer(await services.store.read(channel_list, None))


HANDLERS: dict[str, OperationHandler] = {
    "channel.list": list_,
    "channel.message": message,
    "channel.test": test,
    "channel.recover": recover,
    "channel.reload": reload,
}
