"""Zygotes and templates that are kept warm: made once for all who ask, bounded in number, ended when idle.

Owns both tables; only the pool's tasks change them, though a caller may take a runner that waits. A zygote with live
runners is never closed (they would end with it): one that is of no more use is retired until they have ended. A
template may be closed at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import trio

from pwf.actors.processes.link import Exits
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.template import Origin, Template
from pwf.actors.processes.zygote import Zygote
from pwf.errors import PwfError, Unavailable
from pwf.protocol.spawn import SourceBundle

TEMPLATES_MAX = 8
ZYGOTES_MAX = 4
UNSAFE_MAX = 256  # definitions remembered as not safe to fork
IDLE_S = 600.0
ZYGOTE_IDLE_S = 1_800.0
IDLE_CHECK_S_MAX = 60.0
LOAD_DEADLINE_S = 30.0

LoadBundle = Callable[[], Awaitable[SourceBundle]]
TemplateKey = tuple[str, str, tuple[tuple[str, str], ...]]  # interpreter, definition, environment
T = TypeVar("T")


def template_key(interpreter: str, bundle_key: str, environment: dict[str, str]) -> TemplateKey:
    """What one template serves: loading may depend on the environment."""
    return interpreter, bundle_key, tuple(sorted(environment.items()))


class Slot(Generic[T]):
    """One process that is being made or is there.

    `live` counts the runners that came from it and the requests that it works on: with any, it is not ended.
    """

    def __init__(self) -> None:
        self.live = 0
        self.used_at = trio.current_time()
        self.value: T | None = None
        self._error: PwfError | None = None
        self._done = trio.Event()

    async def fill(self, make: Callable[[], Awaitable[T]]) -> None:
        """Make the value. A `PwfError` is the answer of all who wait."""
        try:
            self.value = await make()
        except PwfError as error:
            self._error = error
        finally:
            self._done.set()

    async def get(self) -> T:
        """The value, once it is there."""
        await self._done.wait()
        if self.value is None:
            raise self._error or Unavailable("the runner pool is stopping")
        return self.value

    @property
    def has_failed(self) -> bool:
        return self._done.is_set() and self.value is None

    def touch(self) -> None:
        self.used_at = trio.current_time()


class WarmProcesses:
    """`nursery` is the pool's: what is made here ends with it."""

    def __init__(
        self,
        exits: Exits,
        nursery: trio.Nursery,
        *,
        templates_max: int = TEMPLATES_MAX,
        zygotes_max: int = ZYGOTES_MAX,
        idle_s: float = IDLE_S,
        zygote_idle_s: float = ZYGOTE_IDLE_S,
        load_deadline_s: float = LOAD_DEADLINE_S,
    ) -> None:
        self._exits = exits
        self._nursery = nursery
        self._templates_max = templates_max
        self._zygotes_max = zygotes_max
        self._idle_s = idle_s
        self._zygote_idle_s = zygote_idle_s
        self._load_deadline_s = load_deadline_s
        self._zygotes: dict[str, Slot[Zygote]] = {}
        self._retired: list[Slot[Zygote]] = []
        self._templates: dict[TemplateKey, Slot[Template]] = {}
        self._unsafe: dict[TemplateKey, str] = {}

    def why_unsafe(self, key: TemplateKey) -> str | None:
        """Why runners of this definition must be fresh processes, if that is known."""
        return self._unsafe.get(key)

    def zygote(self, interpreter: str) -> Slot[Zygote]:
        """The interpreter's zygote, which is started now if there is none that can be used."""
        slot = self._zygotes.get(interpreter)
        if slot is not None and (slot.has_failed or (slot.value is not None and not slot.value.is_usable)):
            self._retire(interpreter)
            slot = None
        if slot is None:
            slot = self._zygotes[interpreter] = Slot()
            self._nursery.start_soon(slot.fill, lambda: self._start_zygote(interpreter))
            self._bound_zygotes()
        slot.touch()
        return slot

    def template(self, key: TemplateKey, load_bundle: LoadBundle) -> Slot[Template]:
        """The definition's template, which is made now if there is none that can be used."""
        slot = self._templates.get(key)
        if slot is not None and (slot.has_failed or (slot.value is not None and not slot.value.is_usable)):
            self.drop_template(key)
            slot = None
        if slot is None:
            slot = self._templates[key] = Slot()
            self._nursery.start_soon(slot.fill, lambda: self._make_template(key, load_bundle))
            self._bound_templates()
        slot.touch()
        return slot

    def waiting_runner(self, key: TemplateKey) -> tuple[Slot[Template], Template, RunnerProcess] | None:
        """Take a runner of this definition that waits for a run, if there is one that lives. No use of it by itself."""
        slot = self._templates.get(key)
        if slot is None or slot.value is None or not slot.value.is_usable:
            return None
        while slot.value.waiting:
            process = slot.value.waiting.popleft()
            if not process.has_exited:
                return slot, slot.value, process
            process.close()
        return None

    def drop_template(self, key: TemplateKey) -> None:
        """End the template; its runners go on."""
        slot = self._templates.pop(key, None)
        if slot is not None and slot.value is not None:
            slot.value.close()

    @contextmanager
    def using(self, slot: Slot[Any]) -> Iterator[None]:
        """Within this block the process is asked for something, so that it is not ended as idle."""
        slot.live += 1
        try:
            yield
        finally:
            slot.live -= 1
            slot.touch()
            self._close_retired()

    def runner_started(self, zygote: Origin, template: Slot[Template] | None) -> Callable[..., None]:
        """Count a runner as alive; the answer is what to call when it has ended, or was not `used` after all."""
        slots: list[Slot[Zygote] | Slot[Template]] = [s for s in self._all_zygotes() if s.value is zygote]
        slots += [template] if template is not None else []
        for slot in slots:
            slot.live += 1

        def ended(*, used: bool = True) -> None:
            for slot in slots:
                slot.live -= 1
                if used:
                    slot.touch()
            self._close_retired()

        return ended

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
            template.value.end_unwanted()
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
        self._close_retired()

    def close_all(self) -> None:
        """End everything: the zygotes end what is below them."""
        for key in list(self._templates):
            self.drop_template(key)
        for slot in self._all_zygotes():
            if slot.value is not None:
                slot.value.close()

    async def _start_zygote(self, interpreter: str) -> Zygote:
        zygote = Zygote(interpreter, self._exits)
        await zygote.start(self._nursery)
        return zygote

    async def _make_template(self, key: TemplateKey, load_bundle: LoadBundle) -> Template:
        interpreter, _, environment = key
        slot = self.zygote(interpreter)
        with self.using(slot):
            bundle = await load_bundle()
            zygote = await slot.get()
            template = await zygote.make_template(bundle, dict(environment), self._load_deadline_s)
        if template.unsafe is not None:
            self._unsafe[key] = template.unsafe
            while len(self._unsafe) > UNSAFE_MAX:
                del self._unsafe[next(iter(self._unsafe))]
            self.drop_template(key)
            template.close()
        return template

    def _retire(self, interpreter: str) -> None:
        slot = self._zygotes.pop(interpreter)
        if slot.value is not None:
            self._retired.append(slot)
            self._close_retired()

    def _close_retired(self) -> None:
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

    def _all_zygotes(self) -> list[Slot[Zygote]]:
        return [*self._zygotes.values(), *self._retired]
