"""Zygotes and templates that are kept warm: made once for all who ask, bounded in number, ended when idle.

Owns both tables; only the pool's tasks change them. What stands by is published: `standing_by`. A zygote with live
runners is never closed (they would end with it): one that is of no more use is retired until they have ended. A
template may be closed at any time. Starts no task: `zygote` and `template` say which task the pool has to start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import trio

from pwf.actors.base.reply import Reply
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.standing_by import StandbyRunners, TemplateKey
from pwf.actors.processes.template import Template
from pwf.actors.processes.zygote import Zygote
from pwf.errors import PwfError
from pwf.protocol.spawn import SourceBundle

TEMPLATES_MAX = 8
ZYGOTES_MAX = 4
UNSAFE_MAX = 256  # definitions remembered as not safe to fork
IDLE_S = 600.0
ZYGOTE_IDLE_S = 1_800.0
IDLE_CHECK_S_MAX = 60.0
LOAD_DEADLINE_S = 30.0

LoadBundle = Callable[[], Awaitable[SourceBundle]]


class Warm(Protocol):
    """A zygote or a template."""

    runners: set[RunnerProcess]

    @property
    def used_at(self) -> float:
        """When it was used without the pool's doing."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether new processes may come from it."""
        ...

    def close(self) -> None:
        """Have it end."""


T = TypeVar("T", bound=Warm)


class Slot(Generic[T]):
    """One process that is being made or is there."""

    def __init__(self) -> None:
        self.requests = 0  # that it works on
        self.value: T | None = None
        self._touched_at = trio.current_time()
        self._error: PwfError | None = None
        self._askers: list[Reply[T]] = []

    def fill(self, value: T) -> None:
        """It is there."""
        self.value = value
        while self._askers:
            self._askers.pop().give(value)

    def fail(self, error: PwfError) -> None:
        """It never will be: the answer of all who wait. Nothing, once it is there or has failed."""
        if self.value is not None or self._error is not None:
            return
        self._error = error
        while self._askers:
            self._askers.pop().fail(error)

    async def get(self) -> T:
        """The value, once it is there."""
        if self._error is not None:
            raise self._error
        if self.value is not None:
            return self.value
        reply: Reply[T] = Reply()
        self._askers.append(reply)
        return await reply.wait()

    @property
    def live(self) -> int:
        """Its runners that are in use, and the requests that it works on: with any, it is not ended."""
        runners = () if self.value is None else self.value.runners
        return self.requests + sum(not process.stands_by for process in runners)

    @property
    def used_at(self) -> float:
        """When it was used last."""
        return self._touched_at if self.value is None else max(self._touched_at, self.value.used_at)

    @property
    def is_over(self) -> bool:
        """Whether another one must be made."""
        return self._error is not None or (self.value is not None and not self.value.is_usable)

    def touch(self) -> None:
        self._touched_at = trio.current_time()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this block the process is asked for something, so that it is not ended as idle."""
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            self.touch()


class WarmProcesses:
    """The tables."""

    def __init__(
        self,
        *,
        templates_max: int = TEMPLATES_MAX,
        zygotes_max: int = ZYGOTES_MAX,
        idle_s: float = IDLE_S,
        zygote_idle_s: float = ZYGOTE_IDLE_S,
    ) -> None:
        self.standing_by = StandbyRunners()
        self._templates_max = templates_max
        self._zygotes_max = zygotes_max
        self._idle_s = idle_s
        self._zygote_idle_s = zygote_idle_s
        self._zygotes: dict[str, Slot[Zygote]] = {}
        self._retired: list[Slot[Zygote]] = []
        self._templates: dict[TemplateKey, Slot[Template]] = {}
        self._unsafe: dict[TemplateKey, str] = {}

    def why_unsafe(self, key: TemplateKey) -> str | None:
        """Why runners of this definition must be fresh processes, if that is known."""
        return self._unsafe.get(key)

    def note_unsafe(self, key: TemplateKey, why: str) -> None:
        """Remember it, within a bound."""
        self._unsafe[key] = why
        while len(self._unsafe) > UNSAFE_MAX:
            del self._unsafe[next(iter(self._unsafe))]

    def zygote(self, interpreter: str) -> tuple[Slot[Zygote], bool]:
        """The interpreter's zygote, and whether it is new, since there was none that can be used: its task begins."""
        slot = self._zygotes.get(interpreter)
        if slot is not None and slot.is_over:
            self._retire(interpreter)
            slot = None
        is_new = slot is None
        if slot is None:
            slot = self._zygotes[interpreter] = Slot()
            self._bound_zygotes()
        slot.touch()
        return slot, is_new

    def template(self, key: TemplateKey) -> tuple[Slot[Template], bool]:
        """The definition's template, and whether it is new, in the same way."""
        slot = self._templates.get(key)
        if slot is not None and slot.is_over:
            self.drop_template(key)
            slot = None
        is_new = slot is None
        if slot is None:
            slot = self._templates[key] = Slot()
            self._bound_templates()
        slot.touch()
        return slot, is_new

    def publish(self, key: TemplateKey, slot: Slot[Template], template: Template) -> None:
        """The template is there; from now on runners may be taken that stand by."""
        slot.fill(template)
        if self._templates.get(key) is slot:
            self.standing_by[key] = template.standing_by

    def drop_template(self, key: TemplateKey) -> None:
        """End the template; its runners go on."""
        self.standing_by.pop(key, None)
        slot = self._templates.pop(key, None)
        if slot is not None and slot.value is not None:
            slot.value.close()

    async def keep_bounded(self) -> None:
        """End what is idle, for ever. Wakes at most once a minute, and does nothing when there is nothing."""
        while True:
            await trio.sleep(min(self._idle_s / 2, self._zygote_idle_s / 2, IDLE_CHECK_S_MAX))
            self.end_idle()

    def end_idle(self) -> None:
        """End what has not been used for its idle time, and what is too many. A template keeps its zygote."""
        before = trio.current_time() - self._idle_s
        for key, template in list(self._templates.items()):
            if template.value is None:
                continue
            template.value.standing_by.keep_at_most(template.value.wanted)
            if template.live == 0 and template.used_at <= before:
                self.drop_template(key)
        before = trio.current_time() - self._zygote_idle_s
        used = {slot.value.zygote for slot in self._templates.values() if slot.value is not None}
        for interpreter, zygote in list(self._zygotes.items()):
            idle = zygote.value is not None and zygote.live == 0 and zygote.used_at <= before
            if idle and zygote.value not in used:
                self._retire(interpreter)
        self._bound_templates()  # those that were in the making when the last one was asked for
        self._bound_zygotes()
        self.close_retired()

    def close_all(self) -> None:
        """End everything: the zygotes end what is below them."""
        for key in list(self._templates):
            self.drop_template(key)
        for slot in self._all_zygotes():
            if slot.value is not None:
                slot.value.close()

    def _retire(self, interpreter: str) -> None:
        slot = self._zygotes.pop(interpreter)
        if slot.value is not None:
            self._retired.append(slot)
            self.close_retired()

    def close_retired(self) -> None:
        """End those zygotes of no more use whose last runner has ended."""
        for slot in [slot for slot in self._retired if slot.live == 0 and slot.value is not None]:
            self._retired.remove(slot)
            assert slot.value is not None
            slot.value.close()

    def _bound_templates(self) -> None:
        while len(self._templates) > self._templates_max:
            made = [key for key, slot in self._templates.items() if slot.value is not None]
            if not made:
                return
            idle = [key for key in made if self._templates[key].live == 0]
            self.drop_template(min(idle or made, key=lambda key: self._templates[key].used_at))

    def _bound_zygotes(self) -> None:
        while len(self._zygotes) > self._zygotes_max:
            made = [name for name, slot in self._zygotes.items() if slot.value is not None]
            if not made:
                return
            idle = [name for name in made if self._zygotes[name].live == 0]
            oldest = min(idle or made, key=lambda name: self._zygotes[name].used_at)
            for key in [key for key in self._templates if key[0] == oldest]:
                self.drop_template(key)
            self._retire(oldest)

    def note_use(self, origins: Iterable[object]) -> None:
        """A runner of these has ended that had been used."""
        slots: list[Slot[Zygote] | Slot[Template]] = [*self._all_zygotes(), *self._templates.values()]
        for slot in slots:
            if any(slot.value is origin for origin in origins):
                slot.touch()

    def _all_zygotes(self) -> list[Slot[Zygote]]:
        return [*self._zygotes.values(), *self._retired]
