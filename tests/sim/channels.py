"""Simulated services that show messages to people, who press: sends are refused, lost or slow, and adapters die.

A service outlives daemons and adapters, and knows what has arrived. Nothing may arrive twice unless a person had it
sent again; at MCP hosts, whose forms go with the adapter's process, not twice from one process, and nothing for an
audience that does not name them. What the ledger says of a send is true; who was told that a press has won has won.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from pwf.config import Audience, Channel, CommandChannel, McpChannel
from pwf.errors import RunnerCrashed
from pwf.protocol.channel_port import Answered, Begin, ChannelMessage, Close, Ready, Sent, Show, Verdict
from pwf.protocol.channels import ChannelList
from pwf.protocol.frames import Request
from tests.sim.virtual_time import sleep
from tests.sim.workload import AUDIENCE, CHOICES

SHARE = 0.5  # of the seeds have channels
ALL = ("decide", "waiting", "held", "failed", "ended", "notice")
HOSTS = "hosts"  # the channel of MCP hosts
HOSTS_SHARE, NAMED_SHARE = 0.4, 0.7  # of those that have channels; and of these that the audience names it
FAULTS = ("refuse", "final", "lose", "drop", "die", "die_sent", "stale")  # of a send, while faults go on
FAULT_SHARE = 0.25
PRESS_S = 4.0

_DIGEST = "SELECT digest FROM decisions WHERE request_id = ?"
_SENDS = """SELECT c.name, m.message_id, e.status, e.settled_by FROM channel_messages m
JOIN channels c USING (channel_no) JOIN effects e ON e.entity_no = m.channel_no AND e.part = m.message_id"""
_LEFT = "SELECT event, run_id FROM happenings"
_DUE = "SELECT message_id, state FROM channel_messages WHERE state IN ('due', 'sending', 'shown') AND event = 'decide'"


class SimChannels:
    """All services of a seed."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._chance = world.stream("channels")
        count = self._chance.choice([1, 2]) if self._chance.random() < SHARE else 0
        self.configured: dict[str, Channel] = {
            f"s{number}": CommandChannel(command=("sim",), tells=ALL) for number in range(count)
        }
        self.audiences: dict[str, Audience] = {}
        hosts = world.stream(HOSTS)
        if self.configured and hosts.random() < HOSTS_SHARE:
            self.configured[HOSTS] = McpChannel(token="sim", hosts=("sim",))
            if hosts.random() < NAMED_SHARE:
                self.audiences[AUDIENCE] = Audience(channels=tuple(self.configured))
        self.arrived: Counter[str] = Counter()  # by message
        self._forms: Counter[tuple[str, int]] = Counter()  # by message and epoch
        self.again: Counter[str] = Counter()  # that a person had sent again
        self.shown: list[ChannelMessage] = []
        self._adapters: list[SimAdapter] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SimAdapter]:
        """A process of an adapter."""
        adapter = SimAdapter(self._world, self)
        self._adapters.append(adapter)
        try:
            await sleep(self._chance.random() * 0.2)
            if not self._world.calm and self._chance.random() < 0.05:
                raise RunnerCrashed("the adapter can not be started")
            yield adapter
        finally:
            self._adapters.remove(adapter)

    def fault(self) -> str | None:
        """What goes wrong with the next send."""
        wrong = not self._world.calm and self._chance.random() < FAULT_SHARE
        return self._chance.choice(FAULTS) if wrong else None

    def delay_s(self) -> float:
        """That a service takes."""
        return float(self._chance.random() * (0.3 if self._chance.random() < 0.9 else 5.0))

    def arrives(self, name: str, epoch: int, message: ChannelMessage) -> None:
        """A message is before people."""
        self.arrived[message.message_id] += 1
        times = self.arrived[message.message_id]
        if name == HOSTS:
            self._forms[message.message_id, epoch] += 1
            times = self._forms[message.message_id, epoch]
            self._world.auditor.check(bool(self.audiences), f"a form is for who names its channel: {message}")
        twice = times > 1 + self.again[message.message_id]
        self._world.auditor.check(not twice, f"nothing is sent again blindly: {message}")
        if message.token:
            self.shown.append(message)

    async def press(self) -> None:
        """People press, for ever: also twice, and what is over."""
        while True:
            await sleep(self._chance.random() * PRESS_S)
            if self.shown and self._adapters:
                message = self._chance.choice(self.shown[-10:])
                adapter = self._chance.choice(self._adapters)
                choice = self._chance.randrange(len(message.choices))
                for _ in range(self._chance.choice([1, 1, 2])):
                    adapter.pressed(message, choice)

    async def recover(self, client: Any) -> None:
        """A person looks at the service, and says what is true."""
        if not self.configured:
            return
        listed = await client.read("channel.list", {}, ChannelList)
        for message in listed.messages if listed else ():
            if message.state == "ambiguous":
                word = "confirm" if self.arrived[message.message_id] else "retry"
                self.again[message.message_id] += word == "retry"
                payload = {"message_id": message.message_id, "word": word, "ref": "found"}
                await client.send(client.request("channel.recover", payload))

    def at_rest(self) -> None:
        """After everything has ended: all is told, nothing is asked any more, and the ledger is right."""
        check = self._world.auditor.check
        left = self._world.auditor.rows(_LEFT)
        check(not left, f"all that has happened is told: {left}")
        due = self._world.auditor.rows(_DUE)
        check(not due, f"what is settled is shown as open nowhere: {due}")
        self.ledger()

    def ledger(self) -> None:
        """What it says of each send is true."""
        for name, message_id, status, by in self._world.auditor.rows(_SENDS):
            arrived = self.arrived[message_id]
            rejected = not arrived or name == HOSTS  # what went with a process may have arrived
            true = by is not None or {"applied": arrived > 0, "rejected": rejected}.get(status, True)
            self._world.auditor.check(true, f"{name}: {message_id} is {status}, and arrived {arrived} times")


class SimAdapter:
    """One process."""

    def __init__(self, world: Any, service: SimChannels) -> None:
        self._world = world
        self._service = service
        self._tell, self._told = trio.open_memory_channel[Any](1_000)
        self._epoch = 0
        self._name = ""
        self._pressed: dict[int, Request] = {}
        self._numbers = itertools.count(1)

    async def say(self, said: Any) -> None:
        await sleep(0.0)
        if isinstance(said, Begin):
            self._epoch, self._name = said.epoch, said.name
            self._tell.send_nowait(Ready(epoch=said.epoch))
        elif isinstance(said, Show):
            await self._show(said)
        elif isinstance(said, Close):
            self._tell.send_nowait(self._sent(said.attempt, said.message_id, "done"))
        elif isinstance(said, Verdict):
            request = self._pressed.pop(said.number, None)
            if said.taken and request is not None:
                self._world.auditor.questions.accepted(request)

    async def _show(self, said: Show) -> None:
        fault, message_id = self._service.fault(), said.message.message_id
        await sleep(self._service.delay_s())
        if fault in ("refuse", "final"):
            refusal = self._sent(said.attempt, message_id, "refused", final=fault == "final")
            self._tell.send_nowait(refusal)
            return
        if fault == "die":
            raise RunnerCrashed("the adapter died before it sent")
        if fault != "drop":
            self._service.arrives(self._name, self._epoch, said.message)
        if fault == "die_sent":
            raise RunnerCrashed("the adapter died after it sent")
        if fault == "stale":
            stale = self._sent(said.attempt - 1, message_id, "refused")
            self._tell.send_nowait(stale)
            self._tell.send_nowait(msgspec.structs.replace(stale, attempt=said.attempt + 1))
        outcome = "unknown" if fault in ("lose", "drop") else "done"
        self._tell.send_nowait(self._sent(said.attempt, message_id, outcome))

    def _sent(self, attempt: int, message_id: str, outcome: str, **more: Any) -> Sent:
        facts = {"epoch": self._epoch, "attempt": attempt, "message_id": message_id, "outcome": outcome}
        return Sent(ref="r", why=outcome, **facts, **more)  # type: ignore[arg-type]

    def pressed(self, message: ChannelMessage, choice: int) -> None:
        """Somebody presses. The auditor hears of it as of a person's answer, whatever channel the token is of."""
        number = next(self._numbers)
        rows = self._world.auditor.rows(_DIGEST, message.request_id)
        chosen = message.choices[choice].id
        text = "again" if chosen == CHOICES[1] else None
        facts = {"decision_id": message.request_id, "choice": chosen, "text": text}
        payload = facts | {"digest": rows[0][0] if rows else ""}
        request = Request(
            request_id=f"press:{message.message_id}",
            client_id="service",
            operation="decision.answer",
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
        self._world.auditor.said.sent(request)
        self._pressed[number] = request
        answered = Answered(
            epoch=self._epoch, number=number, token=message.token, choice_no=choice, text=text, who="sim"
        )
        self._tell.send_nowait(answered)

    async def hear(self) -> Any:
        return await self._told.receive()
