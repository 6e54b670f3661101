"""Managed resources with a real daemon and real processes: killed at any point, they come to what their spec says."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest

from pwf.errors import NotFound
from pwf.protocol.resources import (
    DeletePayload,
    ResourceRef,
    ResourceView,
    ResourceWaitPayload,
)
from tests.e2e.home import wait_for
from tests.e2e.world import PATIENCE_S, World, lines
from tests.secret_files import keep_secret

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

VERSIONS = """
from pwf import ResourceManager
from typing import TypedDict

class Nothing(TypedDict, total=False):
    version: str

manager = ResourceManager("versions", spec=Nothing, status=Nothing)

@manager.reconcile
def reconcile(ctx, resource):
    return ctx.settled({"version": VERSION})
"""

POINTS = ("before", "begun", "done", "after")


def _settled(world: World, uid: str) -> ResourceView:
    wait = ResourceWaitPayload(uid=uid, timeout_ms=int(PATIENCE_S * 1000))
    assert world.client.call("resource.wait", wait, timeout_s=PATIENCE_S).done
    view: ResourceView = world.client.call("resource.get", ResourceRef(uid=uid))
    assert view.summary.state == "settled", view
    return view


@pytest.mark.parametrize("victim", ["process", pytest.param("daemon", marks=pytest.mark.rest)])
def test_an_observed_effect_happens_once_wherever_around_it_a_reconcile_is_killed(
    world: World, victim: str
) -> None:
    world.home.manager("sink", SINK)
    folders = {point: world.folder(f"resource_{victim}_{point}") for point in POINTS}
    uids = {
        point: world.apply("sink", f"{victim}-{point}", {"folder": str(folder), "point": point})
        for point, folder in folders.items()
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


CHATTY = """
import os
from pwf import ResourceManager

manager = ResourceManager("chatty", spec=dict, status=dict)

@manager.reconcile
def reconcile(ctx, resource):
    print("generation", resource.generation, flush=True)
    if resource.spec.get("dies"):
        os._exit(3)
    return ctx.settled()
"""


def test_a_large_spec_is_read_whole_and_what_a_reconcile_prints_is_kept_also_of_one_that_died(
    world: World,
) -> None:
    world.home.manager("chatty", CHATTY)
    spec = {"text": "x" * 9_000}
    uid = world.apply("chatty", "one", spec)
    large = _settled(world, uid).spec
    assert large.digest is not None
    assert world.home.json("resource", "get", uid, "--spec") == spec
    assert "see it with:  pwf resource get chatty/one --spec" in world.home.run("resource", "get", uid).stdout
    stranger = world.apply("chatty", "two", {})
    with pytest.raises(NotFound, match=f"resource {stranger} refers to no value"):
        world.client.read_value(stranger, large)
    world.apply("chatty", "one", {"dies": True})
    wait_for(lambda: "died" in world.home.run("resource", "get", "chatty", "one").stdout.lower(), PATIENCE_S)
    shown = world.home.run("resource", "logs", "chatty/one", "--all").stdout
    assert shown.index("generation 1\n") < shown.index("generation 2\n")
    assert world.home.run("resource", "logs", uid, "--out", "--raw").stdout == "generation 2\n"
    assert "what it printed: pwf resource logs chatty/one" in world.home.run("resource", "get", uid).stdout
    for one in (uid, stranger):
        world.client.call("resource.delete", DeletePayload(uid=one, abandon=True))


HOLDER = """
import os
from pwf import Condition, ResourceManager, unknown

manager = ResourceManager("holder", spec=dict, status=dict, secrets=["HELD"], environment=["STAGE"])

@manager.reconcile
def reconcile(ctx, resource):
    token = ctx.secret("HELD")
    print("printed", token, flush=True)
    ctx.event("Said", token, data=[token])
    made = ctx.effects.ensure("one", "send", {"token": token}, lambda *_: unknown(), lambda *_: {"sent": token})
    status = {"token": token, "made": made, "stage": os.environ.get("STAGE"), "length": len(token)}
    return ctx.settled(status, conditions=[Condition("Ready", True, "Held", "it is " + token)])
"""
HELD = "c4n4ry-0f-managers"


def test_a_manager_gets_declared_variables_and_secrets_and_no_secret_is_kept(world: World) -> None:
    home = world.home
    home.manager("holder", HOLDER)
    secret = home.home / "secrets" / "HELD"
    keep_secret(secret, HELD + "\n")
    said = home.run("resource", "apply", "holder", "one", "--wait").stderr
    assert "the manager declares STAGE, which is not set: export it, and apply again" in said
    home.environment["STAGE"] = "test"
    try:
        home.run("resource", "apply", "holder", "one", "--wait")
    finally:
        del home.environment["STAGE"]
    shown = [
        home.run("resource", *words, "holder/one").stdout
        for words in (("get", "--json"), ("events",), ("logs",))
    ]
    view = msgspec.json.decode(shown[0])
    status = {"token": "***", "made": {"sent": "***"}, "stage": "test", "length": len(HELD)}
    assert view["status"]["json"] == status
    assert "it is ***" in shown[0]
    assert "***" in shown[1]
    assert "printed ***" in shown[2]
    assert [
        path for path in home.home.rglob("*") if path.is_file() and HELD.encode() in path.read_bytes()
    ] == [secret]
    home.run("resource", "delete", "holder/one", "--abandon")


def test_a_resource_says_that_its_manager_has_newer_code_and_the_next_apply_takes_it(world: World) -> None:
    world.home.manager("versions", 'VERSION = "old"\n' + VERSIONS)
    uid = world.apply("versions", "one", {})
    assert not _settled(world, uid).newer_code

    world.home.manager("versions", 'VERSION = "new"\n' + VERSIONS)
    world.kill_daemon()
    shown = world.home.run("resource", "get", "versions", "one").stdout
    world.client.call("resource.reconcile", ResourceRef(uid=uid))
    view = _settled(world, uid)
    assert (view.newer_code, bytes(view.status.json or b"")) == (True, b'{"version":"old"}')
    assert "newer code, which the next apply takes" in shown

    world.apply("versions", "one", {})
    view = _settled(world, uid)
    assert (view.newer_code, bytes(view.status.json or b"")) == (False, b'{"version":"new"}')


KEEPER = """
from pwf import ResourceManager
from pwf.errors import Rejected

manager = ResourceManager("keeper", spec=dict, status=dict)

@manager.reconcile
def reconcile(ctx, resource):
    workers = resource.spec["workers"]
    child = ctx.workflows.ensure("work", "kept_work")
    said = {}
    for name, act in {
        "change": lambda: ctx.workflows.change_settings(
            "work", [{"op": "replace", "path": "/workers", "value": workers}], key=f"workers-{workers}"
        ),
        "note": lambda: ctx.workflows.change_settings(
            "work", [{"op": "replace", "path": "/note", "value": "x"}], key="note"
        ),
        "follow_up": lambda: ctx.workflows.queue_follow_up("work", "Go on.", key="on"),
    }.items():
        try:
            said[name] = act()
        except Rejected as error:
            said[name] = error.message
    return ctx.settled({"run": child.run_id, **said})
"""
KEPT_WORK = """
flow = Workflow("kept_work")
flow.settings(
    dict, {"workers": 1, "note": ""}, paths={"/workers": {"manager": ["replace"]}},
    check=lambda value: "too many" if value["workers"] > 9 else None,
)

@flow.checkpoint
def ask(ctx):
    return "go on?"

@flow.compute
def workers(ctx):
    return ctx.settings["workers"]

flow.graph(ask >> workers)
"""


@pytest.mark.rest
def test_a_manager_changes_settings_of_its_child_once_as_its_workflow_lets_it(world: World) -> None:
    world.home.manager("keeper", KEEPER)
    world.home.workflow("kept_work", KEPT_WORK)

    def status(workers: int) -> dict[str, object]:
        uid = world.apply("keeper", "one", {"workers": workers})
        world.client.call("resource.reconcile", ResourceRef(uid=uid))
        return dict(msgspec.json.decode(bytes(_settled(world, uid).status.json or b"")))

    first = status(4)
    assert first["change"] == 1
    assert first["note"] == "a manager may not replace '/note' of the settings"
    assert "has no session: nobody would get a follow-up" in str(first["follow_up"])
    assert status(5)["change"] == 2
    assert status(4)["change"] == 1, "a repeat gets the first number"
    assert "too many" in str(status(10)["change"])
    run_id = str(first["run"])
    world.parked(run_id, "waiting")
    world.answer(run_id, "yes")
    assert world.output(run_id) == 5
