"""Changes of settings: what is long is worked on beside the loop, also where the settings are short."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from pwf.actors.base.apart import SMALL_BYTES
from pwf.actors.runs.settings_changes import SettingsChanges, Wanted
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
