"""Changes of settings: long ones are worked on beside the loop, and a slow check holds up its own run alone."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
import trio

from pwf.actors.base.apart import SMALL_BYTES
from pwf.actors.runs.settings_changes import SettingsChanges, Wanted
from pwf.actors.runs.settings_checks import AT_ONCE, SettingsChecks
from pwf.errors import Unavailable
from pwf.protocol.settings import PathRule, SettingsChanged, SettingsSpec
from pwf.store.once import Done
from pwf.store.settings import ChangeSettings, SettingsFacts
from pwf.values import canonical

pytestmark = pytest.mark.trio

SPEC = SettingsSpec(initial="{}", paths=(PathRule(path="", may={"human": ("read", "add", "replace")}),))
FACTS = SettingsFacts("k3", "", 0, "d", "e", SPEC, 0, b'{"a":0,"b":0}')


class World:
    """A store with short settings, and schemas that note in which thread they were asked. `store`: itself."""

    def __init__(self) -> None:
        self.store = self
        self.threads: list[int] = []

    async def read(self, *_: Any) -> SettingsFacts:
        return FACTS

    def check_settings(self, _run_id: str, _schema: object, made: bytes) -> bytes:
        self.threads.append(threading.get_ident())
        return made


async def commit(command: ChangeSettings) -> Done[SettingsChanged]:
    return Done(result=SettingsChanged(run_id=command.run_id, change=1, revision=1))


@pytest.mark.parametrize(
    ("patch", "in_loop"),
    [
        ([{"op": "add", "path": "/a", "value": 1}], True),
        ([{"op": "add", "path": "/a", "value": "x" * SMALL_BYTES}], False),
        ([{"op": "copy", "from": "/a", "path": "/b"}], False),
    ],
    ids=["short", "long", "copies"],
)
async def test_a_long_patch_and_one_that_copies_are_worked_on_beside_the_loop(
    patch: list[dict[str, Any]], in_loop: bool
) -> None:
    world = cast(Any, World())
    wanted = Wanted(run_id="k3", patch=canonical(patch), kind="human", who="user:1")
    await SettingsChanges(world, 1).make(world, wanted, commit)
    assert [thread == threading.get_ident() for thread in world.threads] == [in_loop]


class Slow:
    """A store that takes a minute for the first question of each check, and then has no answer. `store`: itself.

    `asked`: (when, the environment asked for).
    """

    def __init__(self) -> None:
        self.store = self
        self.asked: list[tuple[float, str]] = []

    async def read(self, _handler: Any, environment_id: str) -> Any:
        self.asked.append((trio.current_time(), environment_id))
        await trio.sleep(60)
        raise Unavailable("no answer")


async def test_a_slow_check_is_waited_for_by_changes_of_its_own_run_and_few_run_at_once(
    autojump_clock: object,
) -> None:
    world, checks = Slow(), SettingsChecks(1)
    began = trio.current_time()

    async def change(run_id: str) -> None:
        with pytest.raises(Unavailable):
            await checks.check(cast(Any, world), FACTS._replace(run_id=run_id, environment_id=run_id), b"{}")

    async with trio.open_nursery() as nursery:
        for run_id in ["same"] * 3 + [f"r{number}" for number in range(AT_ONCE)]:
            nursery.start_soon(change, run_id)
    rounds = [[run_id for at, run_id in world.asked if at - began == 60.0 * n] for n in range(4)]
    assert sum(map(len, rounds)) == 3 + AT_ONCE  # whoever came first
    assert len(rounds[0]) == AT_ONCE
    assert max(one.count("same") for one in rounds) == 1
