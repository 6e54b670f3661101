"""Keeps a process of yours running: in the version you want, healthy, and started again with growing pauses.

Copy this file to .pwf/resources/service.py and ../workflows/service_process.py to .pwf/workflows, and then:

    pwf resource apply service web --spec '{"command": ["python3", "server.py"], "version": "1.4"}' --wait

The process is a child run, so nothing of it is ever lost or left behind: `pwf resource get service web` names the run,
and `pwf logs RUN` has what it prints. The process ends with the daemon and comes back with it. Each service takes one
of `max_runners` in the configuration. A change of the spec drains the old process, and starts the new one when the old
one is gone.
"""

from __future__ import annotations

import os
import subprocess
import time

import msgspec

from pwf import Child, Condition, ReconcileContext, Resource, ResourceManager, seconds

FINALIZER = "process"
PAUSE_S_MAX = 60.0  # between two starts
STEADY_S = 30.0  # a process that ran so long counts as one that came up well
UNHEALTHY_MAX = 3  # looks in a row; then it is replaced


class Spec(msgspec.Struct, forbid_unknown_fields=True):
    command: list[str]
    version: str = ""  # the process has it as SERVICE_VERSION, and so has the health command
    cwd: str = ""
    env: dict[str, str] = {}
    health: list[str] = []  # a command that exits with 0 when all is well; without one, running is healthy
    health_s: float = 5  # how long it may take
    drain: list[str] = []  # a command that tells the old process to finish its work
    drain_s: float = 5  # how long the old process may then take


class Status(msgspec.Struct):
    started: int = 0  # how many processes there were
    generation: int = 0  # of the spec that the newest of them was started for
    since_s: float = 0  # when that was
    failures: int = 0  # that ended soon after their start, in a row
    next_s: float = 0  # no start before
    unhealthy: int = 0  # looks in a row
    draining_s: float = 0  # since when it drains
    spec: Spec | None = None  # by which the newest was started: it is drained by that one


manager = ResourceManager("service", spec=Spec, status=Status, every=seconds(10), deadline=seconds(60))


@manager.reconcile
def reconcile(ctx: ReconcileContext, resource: Resource[Spec, Status]):
    if FINALIZER not in resource.finalizers and not resource.deleting:
        return ctx.requeue(finalizers=[FINALIZER])
    status, now = newest(resource), time.time()
    process = resource.children.get(key_of(status))
    running = process is not None and not process.ended
    if resource.deleting:
        return drain(ctx, status, process, now) if running else ctx.settled(finalizers=[])
    if not running:
        return start(ctx, resource, status, process, now)
    if status.generation != resource.generation:
        return drain(ctx, status, process, now)
    return look(ctx, status, resource.spec, process, now)


def key_of(status: Status) -> str:
    """The child's key says for which spec it was started, so that this is known though a result was lost."""
    return f"process-{status.started}.{status.generation}"


def newest(resource: Resource[Spec, Status]) -> Status:
    """The status, with the newest process in it: a reconcile that is ended after it has started one has told nobody."""
    found = resource.status
    for key in resource.children:
        number, generation = map(int, key.removeprefix("process-").split("."))
        if number > found.started:
            found = Status(
                started=number, generation=generation, since_s=time.time(), failures=found.failures
            )
    return found


def start(ctx, resource, status: Status, ended: Child | None, now: float):
    """The next process, unless it is too soon after one that did not last."""
    is_new = status.generation != resource.generation
    if ended is not None and not is_new and not status.next_s:
        return pause(ctx, status, ended, now)
    if not is_new and now < status.next_s:
        return ctx.requeue(status, after=seconds(max(0.1, status.next_s - now)))
    spec = resource.spec
    new = Status(
        started=status.started + 1,
        generation=resource.generation,
        since_s=now,
        spec=spec,
        failures=0 if is_new else status.failures,
    )
    environment = {**spec.env, "SERVICE_VERSION": spec.version}
    words = {"command": spec.command, "cwd": spec.cwd, "env": environment}
    child = ctx.workflows.ensure(key_of(new), "service_process", words)
    ctx.event("Started", f"process {new.started}, version {spec.version or '(none)'}", run_id=child.run_id)
    return ctx.requeue(new, after=seconds(1), conditions=[unready("Starting", f"run {child.run_id}")])


def pause(ctx, status: Status, ended: Child, now: float):
    """The process has ended by itself: how long to wait before the next."""
    failures = 1 if now - status.since_s > STEADY_S else status.failures + 1
    pause_s = min(PAUSE_S_MAX, 2.0 ** (failures - 1))
    why = ended.reason or ended.status
    ctx.event("Ended", f"process {status.started}: {why}", failures=failures)
    word = unready("BackOff", f"it ended ({why}); the next start is in {pause_s:g} s")
    new = msgspec.structs.replace(status, failures=failures, next_s=now + pause_s)
    return ctx.requeue(new, after=seconds(pause_s), conditions=[word])


def look(ctx, status: Status, spec: Spec, process: Child, now: float):
    """It runs; is it well?"""
    if process.status != "running":
        word = Condition("Ready", False, "Waiting", f"run {process.run_id} is {process.status}")
        return ctx.settled(status, conditions=[word])
    fault = run(spec, spec.health, spec.health_s) if spec.health else ""
    if fault:
        new = msgspec.structs.replace(status, unhealthy=status.unhealthy + 1)
        if new.unhealthy >= UNHEALTHY_MAX:
            ctx.event("Unhealthy", fault)
            ctx.workflows.cancel(process.request_key)
        return ctx.requeue(new, after=seconds(1), conditions=[unready("Unhealthy", fault)])
    failures = 0 if now - status.since_s > STEADY_S else status.failures
    new = msgspec.structs.replace(status, unhealthy=0, failures=failures)
    word = Condition("Ready", True, "Running", f"run {process.run_id}, version {spec.version or '(none)'}")
    return ctx.settled(new, conditions=[word])


def drain(ctx, status: Status, process: Child, now: float):
    """Let the old process finish; then end it. The next start waits until it is gone."""
    spec = status.spec
    word = unready("Draining", f"run {process.run_id}")
    if spec is not None and spec.drain:
        if not status.draining_s:
            ctx.event("Draining", run(spec, spec.drain, 10) or f"process {status.started}")
            new = msgspec.structs.replace(status, draining_s=now)
            return ctx.requeue(new, after=seconds(0.2), conditions=[word])
        if now < status.draining_s + spec.drain_s:
            return ctx.requeue(after=seconds(0.5), conditions=[word])
    ctx.workflows.cancel(process.request_key)
    return ctx.requeue(status, after=seconds(1), conditions=[word])


def run(spec: Spec, command: list[str], limit_s: float) -> str:
    """Run a command of the spec; what went wrong, in words, or nothing."""
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=spec.cwd or None,
            env={**os.environ, **spec.env, "SERVICE_VERSION": spec.version},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took longer than {limit_s:g} s"
    except OSError as error:
        return f"{command[0]} can not be run: {error}"
    said = (done.stderr or done.stdout).strip()[-500:] or f"{command[0]} ended with {done.returncode}"
    return said if done.returncode else ""


def unready(reason: str, message: str) -> Condition:
    return Condition("Ready", False, reason, message)
