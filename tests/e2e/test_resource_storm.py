"""A reconcile storm with real processes: each is killed somewhere, and every resource comes to what is wanted of it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from pwf.protocol.resources import ResourceRef, ResourceView, ResourceWaitPayload
from tests.e2e.home import Home, wait_for
from tests.e2e.world import PATIENCE_S, World, lines

# Each takes a lock that the kernel gives back with the process, tells its pid, and reports the change that it found.
WATCHMAN = """
import fcntl, os, time
from pathlib import Path
import msgspec
from pwf import ResourceManager

class Spec(msgspec.Struct):
    folder: str
    n: int = 0

class Status(msgspec.Struct):
    n: int = -1
    seen: int = 0

manager = ResourceManager("watchman", spec=Spec, status=Status)

def append(path, text):
    with open(path, "a") as file:
        file.write(text + "\\n")

@manager.reconcile
def reconcile(ctx, resource):
    folder = Path(resource.spec.folder)
    with open(folder / f"{resource.key}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            append(folder / "overlaps", resource.key)
        append(folder / "pids", str(os.getpid()))
        changes = folder / f"{resource.key}.changes"
        seen = len(changes.read_text()) if changes.exists() else 0
        time.sleep(0.05)
        return ctx.settled(Status(n=resource.spec.n, seen=seen))
"""

RESOURCES = 100
TOUCHES = 10
KILLS_SHARE = 0.3  # of touches, after which the process that was begun last is killed
DAEMON_KILLS = 2


def _apply(world: World, folder: Path, number: int, n: int) -> str:
    return world.apply("watchman", f"r{number}", {"folder": str(folder), "n": n})


@pytest.mark.rest
def test_in_a_storm_of_kills_every_resource_converges_and_no_two_processes_reconcile_one(home: Home) -> None:
    home.config("max_runners = 8\n")
    home.manager("watchman", WATCHMAN)
    world = World(home)
    chance = random.Random(5)
    outside = world.folder("storm")
    wanted: dict[int, int] = dict.fromkeys(range(RESOURCES), 0)
    changes: dict[int, int] = dict.fromkeys(range(RESOURCES), 0)
    uids = {number: _apply(world, outside, number, 0) for number in wanted}
    touches = [number for number in wanted for _ in range(TOUCHES)]
    chance.shuffle(touches)
    daemons = {len(touches) * (number + 1) // (DAEMON_KILLS + 1) for number in range(DAEMON_KILLS)}
    killed = 0
    for place, number in enumerate(touches):
        if place in daemons:
            world.kill_daemon()
        if chance.random() < 0.5:
            wanted[number] = chance.randrange(1_000)
            _apply(world, outside, number, wanted[number])
        else:
            changes[number] += 1
            with open(outside / f"r{number}.changes", "a") as file:
                file.write("x")
            world.client.call("resource.reconcile", ResourceRef(uid=uids[number]), timeout_s=PATIENCE_S)
        if chance.random() < KILLS_SHARE:
            killed += _kill_the_last(world, outside / "pids")

    for number, uid in uids.items():
        found = _at_rest(world, uid)
        status: Any = msgspec.json.decode(found.status.json or b"{}")
        assert (status["n"], status["seen"]) == (wanted[number], changes[number]), number
        assert found.summary.observed_generation == found.summary.generation
    assert not (outside / "overlaps").exists()
    assert killed > RESOURCES / 4
    home.run("state", "verify")
    world.hang_up()


def _kill_the_last(world: World, pids: Path) -> bool:
    """The one that was begun last, if it is still there."""
    begun = int((lines(pids) or ["0"])[-1])
    with suppress(psutil.Error):
        for process in world.daemon.children(recursive=True):
            if process.pid == begun:
                process.kill()
                return True
    return False


def _at_rest(world: World, uid: str) -> ResourceView:
    """Nothing is due any more: a failure is tried again after a while."""
    wait = ResourceWaitPayload(uid=uid, timeout_ms=int(PATIENCE_S * 1000))
    assert world.client.call("resource.wait", wait, timeout_s=PATIENCE_S).done
    found: list[ResourceView] = []

    def rests() -> bool:
        found[:] = [world.client.call("resource.get", ResourceRef(uid=uid))]
        return found[0].summary.state == "settled"

    wait_for(rests, PATIENCE_S)
    return found[0]
