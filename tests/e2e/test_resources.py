"""Managed resources with a real daemon and real processes: killed at any point, they come to what their spec says."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.protocol.origin import Origin
from pwf.protocol.resources import (
    Applied,
    ApplyPayload,
    DeletePayload,
    ResourceRef,
    ResourceView,
    ResourceWaitPayload,
)
from pwf.values import canonical
from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, lines

# Counts in a file. At its point around the effect it stays until it is killed, once.
SINK = """
import os, signal, time
from pathlib import Path
import msgspec
from pwf import ResourceManager, applied, not_applied

class Spec(msgspec.Struct):
    folder: str
    point: str = ""
    text: str = "one"

class Status(msgspec.Struct):
    wrote: str = ""

manager = ResourceManager("sink", spec=Spec, status=Status)

@manager.reconcile
def reconcile(ctx, resource):
    folder = Path(resource.spec.folder)
    if resource.deleting:
        (folder / "cleaned").touch()
        return ctx.settled(finalizers=())

    def reach(point):
        if point == resource.spec.point and not (folder / "reached").exists():
            (folder / "reached").write_text(str(os.getpid()))
            time.sleep(600)

    def apply(request, key):
        reach("begun")
        with open(folder / "sink", "a") as file:
            file.write(request + "\\n")
        reach("done")
        return request

    def look(request, key):
        happened = (folder / "sink").exists() and request in (folder / "sink").read_text().split()
        return applied(request) if happened else not_applied()

    reach("before")
    wrote = ctx.effects.ensure(f"write-{resource.generation}", "append", resource.spec.text, look, apply)
    reach("after")
    return ctx.settled({"wrote": wrote}, finalizers=("sink",))
"""

POINTS = ("before", "begun", "done", "after")


def _apply(world: World, key: str, **spec: Any) -> str:
    origin = Origin(cwd=str(world.home.project), python=sys.executable)
    payload = ApplyPayload(manager="sink", key=key, spec=msgspec.Raw(canonical(spec)), origin=origin)
    applied: Applied = world.client.call("resource.apply", payload)
    return applied.uid


def _settled(world: World, uid: str) -> ResourceView:
    wait = ResourceWaitPayload(uid=uid, timeout_ms=int(PATIENCE_S * 1000))
    assert world.client.call("resource.wait", wait, timeout_s=PATIENCE_S).done
    view: ResourceView = world.client.call("resource.get", ResourceRef(uid=uid))
    assert view.summary.state == "settled", view
    return view


def _managers(world: World) -> Path:
    folder = world.home.project / ".pwf" / "resources"
    folder.mkdir(exist_ok=True)
    (folder / "sink.py").write_text(SINK)
    return folder


@pytest.mark.parametrize("victim", ["process", pytest.param("daemon", marks=pytest.mark.rest)])
def test_an_observed_effect_happens_once_wherever_around_it_a_reconcile_is_killed(
    world: World, victim: str
) -> None:
    _managers(world)
    folders = {point: world.folder(f"resource_{victim}_{point}") for point in POINTS}
    uids = {
        point: _apply(world, f"{victim}-{point}", folder=str(f), point=point) for point, f in folders.items()
    }
    wait_for(lambda: all((folder / "reached").exists() for folder in folders.values()), PATIENCE_S)
    if victim == "daemon":
        world.kill_daemon()
    else:
        for folder in folders.values():
            os.kill(int((folder / "reached").read_text()), signal.SIGKILL)
    for point, uid in uids.items():
        view = _settled(world, uid)
        assert lines(folders[point] / "sink") == ["one"], point
        assert bytes(view.status.json or b"") == b'{"wrote":"one"}'
        assert view.summary.ready == "True"
    for point, uid in uids.items():
        world.client.call("resource.delete", DeletePayload(uid=uid))
        wait = ResourceWaitPayload(uid=uid, until="gone", timeout_ms=int(PATIENCE_S * 1000))
        assert world.client.call("resource.wait", wait, timeout_s=PATIENCE_S).done
        assert (folders[point] / "cleaned").exists()
