"""Channels on the store of a world, as short calls: what their adapters would say, without any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pwf.protocol.channel_port import Answered, Close, Sent, Show
from pwf.store.channel_answers import ChannelAnswer, take_answer
from pwf.store.channel_messages import (
    BeginWork,
    Missing,
    SettleWork,
    begin_work,
    make_messages,
    make_missing,
    settle_work,
)
from pwf.store.channel_rows import ChannelStands, ConfiguredChannel, begin_epoch, channel_stands, configure
from pwf.store.channel_times import Showing
from tests.store.world import World

ALL = ("decide", "waiting", "held", "failed", "ended", "notice")


class ChannelWorld:
    """`audiences`: channels by audience; `counting`: whose answers count; `kinds`: of channels, `fake` unless said."""

    kinds: Mapping[str, str] = {}

    def __init__(self, world: World, **tells: tuple[str, ...]) -> None:
        self.world = world
        self.audiences: dict[str, Showing] = {}
        self.counting: dict[str, tuple[str, ...]] = {}
        self.epochs: dict[str, int] = {}
        self.pages: str | None = None
        self.configure(**tells)

    def configure(self, **tells: tuple[str, ...]) -> None:
        """Have exactly these channels, each with an adapter that is up."""
        kinds = self.kinds
        wanted = tuple(
            ConfiguredChannel(name=name, kind=kinds.get(name, "fake"), tells=told)
            for name, told in tells.items()
        )
        self.numbers: dict[str, int] = self.world.do(configure, wanted)
        for name in tells:
            self.begin(name)

    def begin(self, name: str) -> None:
        """A new process works for it."""
        number = self.numbers[name]
        self.epochs[name] = self.world.do(begin_epoch, number).generation
        stands = ChannelStands(channel_no=number, epoch=self.epochs[name], state="up")
        self.world.do(channel_stands, stands)
        missing: Missing | None = Missing(channel_no=number, audiences=self.audiences)
        while missing is not None:
            missing = self.world.do(make_missing, missing)

    def work(self, name: str) -> Show | Close | None:
        """What the adapter is to do now."""
        while self.world.do(make_messages, self.audiences):
            pass
        while True:
            facts = {"channel_no": self.numbers[name], "epoch": self.epochs[name]}
            command = BeginWork(audiences=self.audiences, pages=self.pages, **facts)
            work = self.world.do(begin_work, command)
            if work.say is not None or work.in_ms != 0:
                return work.say  # type: ignore[no-any-return]

    def say(self, name: str, work: Show | Close, outcome: str = "done", **more: Any) -> bool:
        """What came of it."""
        message_id = work.message.message_id if isinstance(work, Show) else work.message_id
        facts = {"epoch": self.epochs[name], "attempt": work.attempt, "message_id": message_id}
        said = Sent(**(facts | {"outcome": outcome} | more))
        return bool(
            self.world.do(
                settle_work, SettleWork(channel_no=self.numbers[name], said=said, audiences=self.audiences)
            )
        )

    def show(self, name: str, ref: str = "r1") -> Show:
        """The next message is sent."""
        work = self.work(name)
        assert isinstance(work, Show), work
        assert self.say(name, work, ref=ref)
        return work

    def answer(self, name: str, token: str, choice: str, who: str = "ann", **more: Any) -> Any:
        """A person answers through it; the verdict."""
        facts = {"epoch": self.epochs[name], "number": 1, "token": token, "choice": choice, "who": who}
        said = Answered(**(facts | more))
        command = ChannelAnswer(channel_no=self.numbers[name], said=said, counting=self.counting)
        return self.world.do(take_answer, command)

    def states(self) -> list[tuple[str, str]]:
        """(event, state) of all messages, in order."""
        return self.world.sql("SELECT event, state FROM channel_messages ORDER BY message_no")
