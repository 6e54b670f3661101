"""What the real pool holds in a property test: zygotes, templates and runners that are no processes, in virtual time.

Faults are drawn from one seed: what forks dies, forks too few or nothing, takes its time; code does not load; files are
edited; runners end at any time. What the pool must never do is checked where it does it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import trio

from pwf.actors.processes.link import LinkClosed
from pwf.actors.processes.template import Template
from pwf.errors import LoadFailed, RunnerCrashed
from pwf.host import Identity
from pwf.protocol.spawn import Forked


class Machine:
    """What all of them share."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.processes: list[FakeRunner] = []
        self.edition = 0  # of all files
        self.stopping = False
        self._last_pid = 100

    async def pause(self) -> None:
        await trio.sleep(self.chance.choice([0.0, 0.01, 0.5]))

    def identity(self) -> Identity:
        self._last_pid += 1
        return Identity(pid=self._last_pid, start_tick=self._last_pid, boot_id="b", session=self._last_pid)

    def living(self) -> list[FakeRunner]:
        return [process for process in self.processes if not process.ended.is_set()]


class FakeRunner:
    """As `RunnerProcess`, of what its template had loaded."""

    def __init__(self, machine: Machine, identity: Identity, sockets: Any, marker: str) -> None:
        self.identity, self.marker = identity, marker
        self.code, self.edition = sockets.code, sockets.edition
        self.zygote, self.template = sockets.zygote, sockets.template
        self.stands_by = False
        self.goes_back: Callable[[Any], None] | None = None
        self.ended, self._exited = trio.Event(), trio.Event()
        self.prints = SimpleNamespace(is_stuck=lambda: False)
        self.is_discarded = False
        machine.processes.append(self)

    async def watch(self) -> None:
        await self.ended.wait()
        await trio.sleep(0.05)  # it is known a moment later
        self._exited.set()

    @property
    def has_exited(self) -> bool:
        return self._exited.is_set()

    def discard(self) -> None:
        self.is_discarded = True
        self.ended.set()

    def close(self) -> None:
        return None


class FakeSockets(SimpleNamespace):
    """As `Sockets`; whoever forks with it says what the runner is of."""

    runner_descriptors = (0,)

    def close(self) -> None:
        return None


class FakeLink:
    """The socket of a template. It forks."""

    def __init__(self, machine: Machine) -> None:
        self.closed = trio.Event()
        self._machine = machine
        self._on_close: Callable[[], None] = lambda: None

    def next_call(self) -> int:
        return 1

    def when_closed(self, then: Callable[[], None]) -> None:
        self._on_close = then

    def close(self) -> None:
        self.closed.set()
        self._on_close()

    async def call(self, request: Any, answer: Any, descriptors: list[int]) -> Forked:
        await self._machine.pause()
        if self._machine.chance.random() < 0.1:
            self.close()
        if self.closed.is_set():
            raise LinkClosed
        count = len(descriptors) if self._machine.chance.random() < 0.8 else self._machine.chance.randrange(2)
        return Forked(
            call=1, identities=tuple(self._machine.identity() for _ in range(count)), error="no memory"
        )


class FakeTemplate(Template):
    """The real one, which has loaded `code`."""

    def __init__(self, zygote: Any, code: str, machine: Machine) -> None:
        exits: Any = SimpleNamespace(forget=lambda identity: None)
        super().__init__(zygote, FakeLink(machine), machine.identity(), exits)  # type: ignore[arg-type]
        self.code, self.edition = code, machine.edition
        self.files = SimpleNamespace(  # type: ignore[assignment]
            hold=lambda asked_ns: self.edition == machine.edition, __len__=lambda: 0
        )
        self._machine = machine

    @property
    def is_current(self) -> bool:
        return self.zygote.is_current and self.edition == self._machine.edition

    async def fork_runners(self, sockets: Any) -> tuple[Identity, ...]:
        for one in sockets:
            one.code, one.edition, one.zygote, one.template = self.code, self.edition, self.zygote, self
        return await super().fork_runners(sockets)


class FakeZygote:
    """As `Zygote`."""

    used_at = 0.0

    def __init__(self, machine: Machine, interpreter: str) -> None:
        self.runners: set[Any] = set()
        self.is_current = True
        self._machine = machine
        self._closed = trio.Event()
        self._templates: list[Template] = []

    @property
    def is_usable(self) -> bool:
        return self.is_current and not self._closed.is_set()

    async def run(self, tell: Callable[[Any], None]) -> None:
        await self._machine.pause()
        if self._machine.chance.random() < 0.1:
            self._closed.set()
            tell(RunnerCrashed("the zygote does not start"))
            return
        tell(None)
        await self._closed.wait()  # it ends everything below it
        for template in self._templates:
            template.close()
        for runner in self._machine.living():
            if runner.zygote is self:
                runner.ended.set()

    def close(self) -> None:
        used = [one for one in self.runners if not one.stands_by and not one.ended.is_set()]
        used = [one for one in used if not one.is_discarded]
        assert self._machine.stopping or not used, "a zygote with runners that are in use is never closed"
        self._closed.set()

    async def live_template(
        self, bundle: Any, environment: Any, deadline_s: float, live: Callable[[Template], Awaitable[None]]
    ) -> None:
        if self._closed.is_set():
            raise RunnerCrashed("the zygote does not answer")
        template = FakeTemplate(self, bundle, self._machine)
        self._templates.append(template)
        try:
            await self._machine.pause()
            if self._machine.chance.random() < 0.1:
                raise LoadFailed("it does not load")
            await live(template)
        finally:
            template.close()
