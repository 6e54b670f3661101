"""One channel: its adapter's process, which is given one thing to do at a time, and what that says.

Owns the process and its epoch. Promises: what is sent is stored as begun before the adapter hears of it, and what
came of it after; an answer is answered after its commit; of a process that has ended, or belongs to an earlier epoch,
nothing counts any more, and what it was sending is ambiguous.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import trio
from trio_util import AsyncBool

from pwf.actors.base.changes import REREAD_S, Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.retry import Retries
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.channels.adapter_process import Adapter
from pwf.config import Channel
from pwf.errors import (
    ClaimLost,
    OutcomeUnknown,
    PersonNeeded,
    PwfError,
    RunnerCrashed,
    StoreBroken,
    Unavailable,
    ValueDamaged,
)
from pwf.host.identity import Identity
from pwf.protocol.channel_port import Answered, Begin, Close, FromAdapter, Ready, Sent, Show, Trouble, Verdict
from pwf.store.channel_answers import ChannelAnswer, take_answer
from pwf.store.channel_messages import (
    BeginWork,
    Missing,
    SettleWork,
    begin_work,
    look_for_work,
    make_missing,
    settle_work,
)
from pwf.store.channel_rows import (
    MESSAGES_KEY,
    ChannelStands,
    StoredChannel,
    begin_epoch,
    channel_stands,
)
from pwf.store.channel_times import Showing
from pwf.store.values import UNREADABLE

READY_S = 30.0
WORK_S = 330.0  # for one thing: more than any adapter gives its own
DAMAGED = "what is asked can not be read: look with pwf doctor"

OpenAdapter = Callable[[], AbstractAsyncContextManager[Adapter]]
CheckHost = Callable[[Identity], Awaitable[None]]  # raises `PersonNeeded`


class Audiences(msgspec.Struct, frozen=True, kw_only=True):
    """Of each that the configuration names: where it is shown, and through which channels its answers count."""

    shown: dict[str, Showing] = {}
    counting: dict[str, tuple[str, ...]] = {}


class ChannelSupervisor:
    """See the module. `drain`: begin nothing more; `busy`: something is being sent."""

    def __init__(
        self,
        name: str,
        channel_no: int,
        settings: Channel,
        audiences: Audiences,
        *,
        store: StoreHandle,
        changes: Changes,
        open_adapter: OpenAdapter,
        config: str,
        pages: str | None,
        wake_scheduler: Callable[[], object],
        check_host: CheckHost,
        log: Log,
    ) -> None:
        self._name = name
        self._channel_no = channel_no
        self._settings = settings
        self._audiences = audiences
        self._store = store
        self._changes = changes
        self._open = open_adapter
        self._config = config
        self._pages = pages
        self._wake_scheduler = wake_scheduler
        self._check_host = check_host
        self._log = log
        self._news = Watch()
        self._held_until = -math.inf  # the service takes nothing before
        self.draining = False
        self.busy = AsyncBool()

    async def run(self) -> None:
        """Work until cancelled, with one process after another."""
        retries = Retries()
        with (
            self._changes.calling(MESSAGES_KEY, self._news.wake),
            self._changes.calling("requests", self._news.wake),
        ):
            while True:
                began = trio.current_time()
                try:
                    await self._one_process()
                except PwfError as error:
                    if isinstance(error, OutcomeUnknown | StoreBroken):
                        raise
                    retry_in_s = retries.failed(trio.current_time() - began)
                    self._log.warning(
                        "channel.down", channel=self._name, code=error.code, error=error.message
                    )
                    await trio.sleep(retry_in_s)

    async def _one_process(self) -> None:
        channel = await self._store.write(begin_epoch, self._channel_no)
        epoch = channel.generation
        try:
            async with self._open() as adapter:
                await adapter.say(self._begin(channel))
                await self._ready(adapter, epoch)
                await self._stands(epoch, "up")
                self._log("channel.up", channel=self._name, epoch=epoch)
                await self._serve(adapter, epoch)
        except PwfError as error:
            if not isinstance(error, ClaimLost | Unavailable | StoreBroken):
                await self._stands(epoch, "down", error.message)
            raise

    def _begin(self, channel: StoredChannel) -> Begin:
        return Begin(
            epoch=channel.generation,
            name=self._name,
            kind=channel.kind,
            settings=msgspec.Raw(msgspec.json.encode(self._settings)),
            config=self._config,
            cursor=channel.cursor,
        )

    async def _ready(self, adapter: Adapter, epoch: int) -> None:
        with trio.move_on_after(READY_S):
            while not isinstance(said := await adapter.hear(), Ready):
                await self._take(adapter, said, epoch)
            return
        raise RunnerCrashed(f"the adapter was not ready within {READY_S:g} s")

    async def _stands(self, epoch: int, state: str, trouble: str | None = None) -> None:
        stands = ChannelStands(channel_no=self._channel_no, epoch=epoch, state=state, trouble=trouble)
        await self._store.write(channel_stands, stands)

    # --- while it is up ---------------------------------------------------------------------------------------

    async def _serve(self, adapter: Adapter, epoch: int) -> None:
        """Give it work, and take what it says, until one of both fails."""
        failed: list[PwfError] = []
        told, heard = trio.open_memory_channel[Sent](16)
        async with trio.open_nursery() as nursery:

            async def until_it_fails(work: Callable[[], object]) -> None:
                try:
                    await work()  # type: ignore[misc]
                except PwfError as error:
                    failed.append(error)
                except UNREADABLE as error:
                    failed.append(ValueDamaged(f"a row can not be read: {type(error).__name__}"))
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_it_fails, lambda: self._listen(adapter, epoch, told))
            nursery.start_soon(until_it_fails, lambda: self._work(adapter, epoch, heard))
        if failed:
            raise failed[0]

    async def _listen(self, adapter: Adapter, epoch: int, told: trio.MemorySendChannel[Sent]) -> None:
        while True:
            said = await adapter.hear()
            if isinstance(said, Sent):
                await told.send(said)
            else:
                await self._take(adapter, said, epoch)

    async def _take(self, adapter: Adapter, said: FromAdapter, epoch: int) -> None:
        """What it says by itself. Of another epoch it counts for nothing."""
        if said.epoch != epoch:
            self._log.warning("channel.stale", channel=self._name, epoch=said.epoch, present=epoch)
        elif isinstance(said, Answered):
            verdict = await self._judge(said)
            if verdict.taken:
                self._wake_scheduler()
            await adapter.say(verdict)
        elif isinstance(said, Trouble):
            hint = f"; {said.what_to_do}" if said.what_to_do else ""
            await self._stands(epoch, "up", None if said.why is None else said.why + hint)
            if said.why is not None:
                self._log.warning("channel.trouble", channel=self._name, why=said.why, hint=said.what_to_do)

    async def _judge(self, said: Answered) -> Verdict:
        if said.peer is not None:
            try:
                await self._check_host(said.peer)
            except PersonNeeded as refusal:
                self._log.warning(
                    "channel.no_person", channel=self._name, pid=said.peer.pid, why=refusal.message
                )
                return Verdict(number=said.number, said=refusal.message, taken=False)
        answer = ChannelAnswer(channel_no=self._channel_no, said=said, counting=self._audiences.counting)
        try:
            return await self._store.write(take_answer, answer)
        except UNREADABLE:  # what it answers; so much is read all the same
            read = msgspec.structs.replace(answer, said=msgspec.structs.replace(said, token=""))
            await self._store.write(take_answer, read)
            return Verdict(number=said.number, said=DAMAGED, taken=False)

    async def _work(self, adapter: Adapter, epoch: int, heard: trio.MemoryReceiveChannel[Sent]) -> None:
        missing: Missing | None = Missing(channel_no=self._channel_no, audiences=self._audiences.shown)
        while missing is not None:
            missing = await self._store.write(make_missing, missing)
        while True:
            look = await self._store.glance(look_for_work, self._channel_no)
            held_s = self._held_until - trio.current_time()
            if look.in_ms == 0 and held_s > 0:
                await trio.sleep(held_s)
            elif look.in_ms == 0 and not self.draining:
                self.busy.value = True
                try:
                    await self._do_one(adapter, epoch, heard)
                finally:
                    self.busy.value = False
            else:
                in_s = REREAD_S if look.in_ms is None or self.draining else look.in_ms / 1_000
                await self._news.wait(min(REREAD_S, in_s))

    async def _do_one(self, adapter: Adapter, epoch: int, heard: trio.MemoryReceiveChannel[Sent]) -> None:
        begin = BeginWork(
            channel_no=self._channel_no, epoch=epoch, audiences=self._audiences.shown, pages=self._pages
        )
        work = await self._store.write(begin_work, begin)
        say = work.say
        if say is None:
            return
        await adapter.say(say)
        said = await self._outcome(say, heard)
        if said is None:  # what it does is not known: with its end that is ambiguous
            raise RunnerCrashed(f"the adapter said nothing for {WORK_S:g} s of what it was to send")
        if not await self._store.write(
            settle_work, SettleWork(channel_no=self._channel_no, said=said, audiences=self._audiences.shown)
        ):
            self._log.warning("channel.stale", channel=self._name, message=said.message_id)
        elif said.retry_after_s is not None:
            self._held_until = trio.current_time() + said.retry_after_s

    async def _outcome(self, say: Show | Close, heard: trio.MemoryReceiveChannel[Sent]) -> Sent | None:
        message_id = say.message.message_id if isinstance(say, Show) else say.message_id
        with trio.move_on_after(WORK_S):
            while True:
                said = await heard.receive()
                if (said.message_id, said.attempt) == (message_id, say.attempt):
                    return said
        return None
