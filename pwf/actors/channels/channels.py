"""Channels: makes messages of what has happened, and has one supervisor for each channel that is configured.

Owns which channels there are. Promises: a message is a row before anybody sends it; a channel that fails, fails alone;
what has happened while no daemon ran, or no channel could be reached, is told later. Without a channel it does nothing.
In: wake-ups (the store's keys "requests" and of runs), `Reload`, `Drain`. Out: transactions; what adapters are told.
If it dies: the daemon ends.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from pwf.actors.base.changes import ANY_RUN, REREAD_S, Changes, Watch
from pwf.actors.base.logging import Log
from pwf.actors.base.mailbox import Mailbox, Message, ask
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.channels.channel_supervisor import Audiences, ChannelSupervisor, CheckHost, OpenAdapter
from pwf.config import Audience, Channel, Config
from pwf.errors import OutcomeUnknown, Unavailable
from pwf.store.channel_messages import anything_happened, make_messages
from pwf.store.channel_rows import ConfiguredChannel, configure
from pwf.store.channel_times import Showing, minutes_of
from pwf.store.values import UNREADABLE

# --- limits ---------------------------------------------------------------------------------------------------

INBOX_MAX = 16
RETRY_S = 0.5
LOOK_S = 0.01  # after a wake-up: what happens together is told together

# --- messages -------------------------------------------------------------------------------------------------


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of channels and audiences."""

    channels: dict[str, Channel] = {}
    audiences: Audiences = Audiences()
    pages: str | None = None  # where people outside reach the answer pages


class Reload(Message[None], frozen=True, kw_only=True, eq=False):
    """Have these from now on; every adapter begins anew."""

    settings: ChannelSettings


class Drain(Message[None], frozen=True, kw_only=True, eq=False):
    """Begin nothing more, and let what is being sent end, for so long at most."""

    most_s: float


# --- the handle -----------------------------------------------------------------------------------------------


class ChannelsHandle:
    """For others."""

    def __init__(self, inbox: Mailbox[Reload | Drain], settings: Callable[[], ChannelSettings]) -> None:
        self._inbox = inbox
        self._settings = settings

    @property
    def audiences(self) -> Audiences:
        """As they were configured last."""
        return self._settings().audiences

    async def reload(self, settings: ChannelSettings) -> None:
        """Returns when the channels are those, and their adapters begin."""
        await ask(self._inbox, Reload(settings=settings))

    async def drain(self, most_s: float) -> None:
        """Returns when nothing is being sent any more, or the time is over."""
        await ask(self._inbox, Drain(most_s=most_s))


# --- the actor ------------------------------------------------------------------------------------------------


class Channels:
    """The actor."""

    def __init__(
        self,
        store: StoreHandle,
        changes: Changes,
        settings: ChannelSettings,
        *,
        open_adapter: OpenAdapter,
        config: str,
        wake_scheduler: Callable[[], object],
        check_host: CheckHost,
        log: Log,
    ) -> None:
        self._store = store
        self._changes = changes
        self._settings = settings
        self._open_adapter = open_adapter
        self._config = config
        self._wake_scheduler = wake_scheduler
        self._check_host = check_host
        self._log = log
        self._inbox: Mailbox[Reload | Drain] = Mailbox(INBOX_MAX, "the channels")
        self._supervisors: list[ChannelSupervisor] = []
        self._news = Watch()
        self.handle = ChannelsHandle(self._inbox, lambda: self._settings)

    async def run(self) -> None:
        """Serve until cancelled."""
        reload: Reload | None = None
        with self._inbox.open():
            while True:
                await self._configure()
                if reload is not None:
                    reload.reply.give(None)
                async with trio.open_nursery() as nursery:
                    for supervisor in self._supervisors:
                        nursery.start_soon(supervisor.run)
                    if self._supervisors:
                        nursery.start_soon(self._make)
                    reload = await self._until_reload()
                    nursery.cancel_scope.cancel()
                self._settings = reload.settings

    async def _until_reload(self) -> Reload:
        while True:
            (message,) = await self._inbox.take(1)
            if isinstance(message, Reload):
                await self._drain(REREAD_S)
                return message
            await self._drain(message.most_s)
            message.reply.give(None)

    async def _drain(self, most_s: float) -> None:
        for supervisor in self._supervisors:
            supervisor.draining = True
        with trio.move_on_after(most_s):
            for supervisor in self._supervisors:
                await supervisor.busy.wait_value(False)

    async def _configure(self) -> None:
        wanted = tuple(
            ConfiguredChannel(name=name, kind=kind_of(one), tells=one.tells)
            for name, one in self._settings.channels.items()
        )
        while True:
            try:
                numbers = await self._store.write(configure, wanted)
                break
            except Unavailable as error:
                if isinstance(error, OutcomeUnknown):
                    raise
                self._log.warning("channels.unavailable", code=error.code)
                await trio.sleep(RETRY_S)
        self._supervisors = [
            ChannelSupervisor(
                name,
                numbers[name],
                one,
                self._settings.audiences,
                store=self._store,
                changes=self._changes,
                open_adapter=self._open_adapter,
                config=self._config,
                pages=self._settings.pages,
                wake_scheduler=self._wake_scheduler,
                check_host=self._check_host,
                log=self._log,
            )
            for name, one in self._settings.channels.items()
        ]

    async def _make(self) -> None:
        """Make messages of what happens, for ever."""
        wake = self._news.wake
        with self._changes.calling("requests", wake), self._changes.calling(ANY_RUN, wake):
            while True:
                try:
                    more = await self._store.glance(anything_happened, None)
                    while more:
                        more = await self._store.write(make_messages, self._settings.audiences.shown)
                except Unavailable as error:
                    if isinstance(error, OutcomeUnknown):
                        raise
                    self._log.warning("channels.unavailable", code=error.code)
                    await trio.sleep(RETRY_S)
                except UNREADABLE as error:
                    self._log.error("channels.unreadable", error=type(error).__name__)
                await self._news.wait(REREAD_S)
                await trio.sleep(LOOK_S)


# --- pure functions -------------------------------------------------------------------------------------------


def settings_of(config: Config) -> ChannelSettings:
    """What a configuration says of channels and audiences."""
    return ChannelSettings(
        channels=dict(config.channels),
        pages=None if config.web.public_url is None else config.web.url(""),
        audiences=Audiences(
            shown={name: showing_of(one) for name, one in config.audiences.items()},
            counting={name: one.answers for name, one in config.audiences.items() if one.answers},
        ),
    )


def showing_of(audience: Audience) -> Showing:
    """How an audience is shown what it is to decide."""
    return Showing(
        channels=audience.channels,
        escalate_ms=round((audience.escalate_s or 0) * 1_000),
        remind_ms=None if audience.remind_s is None else round(audience.remind_s * 1_000),
        quiet=None if audience.quiet is None else minutes_of(audience.quiet),
    )


def kind_of(channel: Channel) -> str:
    """As the configuration calls it."""
    kind = type(channel).__struct_config__.tag
    assert isinstance(kind, str)
    return kind
