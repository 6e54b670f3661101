"""The end of the pool's task: whoever waits for it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from pwf.errors import Unavailable
from tests.actors.pool_world import Project, running_pool

pytestmark = [pytest.mark.trio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


async def test_who_waits_for_a_runner_or_a_resolver_when_the_pool_ends_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    async with trio.open_nursery() as askers:

        async def ask(work: Any) -> None:
            try:
                await work()
            except Unavailable as error:
                told.append(error.message)

        async with running_pool() as pool:
            project = Project(tmp_path, pool)
            await project.write("return 1")

            async def never() -> Any:
                await trio.sleep_forever()

            project.load_bundle = never  # type: ignore[method-assign]
            slow = tmp_path / "slow.py"
            slow.write_text("import time; time.sleep(30)")
            arguments = (project.interpreter, str(slow), str(tmp_path), project.environment)
            for work in (
                project.acquire,
                project.acquire,
                lambda: project.acquire(isolate="spawn"),
                lambda: pool.resolve(*arguments),
            ):
                askers.start_soon(ask, work)
            await trio.sleep(0.3)
            assert told == []
    assert len(told) == 4
    with pytest.raises(Unavailable, match="the runner pool has stopped"):
        await project.acquire()
