"""The template: a process that has loaded one workflow, and from which its runners are forked.

Owns the loaded workflow and the runners' reaping. Promises: it forks only if loading left nothing that a fork would
break; a runner does nothing before its `Launch`; runners outlive it. Must never run a workflow's steps itself. If it
dies: its runners go on, the zygote adopts them, and the pool makes another template.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pwf import host
from pwf.errors import PwfError
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import MARKER_VARIABLE, WAITING_MARKER
from pwf.protocol.spawn import RUNNER_DESCRIPTORS, Forked, ForkRunners, Load, Loaded, ToSpawner
from pwf.runner.base import forking
from pwf.runner.base.failure import bounded, user_traceback
from pwf.runner.generation import run_runner
from pwf.runner.load.children import load_with_children
from pwf.runner.load.loaded import loaded_files
from pwf.runner.load.loading import project_modules
from pwf.runner.load.pinned import tree_of
from pwf.runner.sameness.keeping import Keeping
from pwf.runner.sameness.modules import ProjectState
from pwf.runner.spawn import hazards
from pwf.runner.spawn.channel import SpawnSocket, stream_socket
from pwf.runner.spawn.reaping import Children, kill_descendants
from pwf.runner.spawn.spawner_loop import serve
from pwf.workflow.load import Defined
from pwf.workflow.workflow import Workflow

RUNNER_NAME = "pwf-runner"
WAITING_NAME = "pwf-waiting"  # until its launch
ROLE = "template"  # what stands in the marker of a process that loads, and of all that loading starts
ERROR_BYTES_MAX = 64 * 1024


def run_template(descriptor: int, reserved: host.ReservedVariable) -> int:
    """The body of the forked template: load, answer, and fork runners until the daemon closes the socket."""
    (descriptor,) = forking.detach((descriptor,), "pwf-template")
    reserved.write(ROLE)
    control = SpawnSocket(descriptor)
    received = control.receive()
    if received is None:
        return 0
    request, _ = received
    if not isinstance(request, Load):
        return forking.EXIT_CRASHED
    before = hazards.look()
    forking.bound_loading()
    workflow, answer = load(request, ROLE)
    forking.unbound_loading()
    if workflow is not None:
        hazards.settle(before)
        unsafe = hazards.hazards(before, hazards.look(), host.has_children())
        answer = msgspec.structs.replace(answer, unsafe=unsafe)
    forking.print_nowhere()
    if workflow is None or answer.unsafe is not None:
        kill_descendants()
        control.send(answer)
        return 0
    preload(workflow)
    project = project_to_keep(workflow)
    gc.collect()
    gc.freeze()  # what is loaded lives as long as the process: never walk it again, so that its pages stay shared
    gc.disable()
    template = _Template(control, workflow, reserved, project)
    control.send(answer)
    serve(control, template.children, template.handle)
    return 0


def preload(workflow: Defined) -> None:
    """Import what the nodes' kinds need, once for all runners: an async node would pay 100 ms for trio in each."""
    nodes = workflow.nodes.values() if isinstance(workflow, Workflow) else ()
    loops = any(node.is_async or node.observe_is_async for node in nodes) or (
        not isinstance(workflow, Workflow) and workflow.is_async
    )
    publishes = any(KINDS[node.kind].publishes for node in nodes)
    commands = any(KINDS[node.kind].runs_command for node in nodes)
    headless = any(KINDS[node.kind].headless for node in nodes)
    for name in (
        *(("pwf.runner.base.updates",) if publishes else ()),
        *(("pwf.runner.kinds.command",) if commands else ()),
        *(("pwf.runner.kinds.headless", "jsonschema_rs") if headless else ()),
        *(("trio", "concurrent.futures.thread", "subprocess") if loops else ()),
        *(() if isinstance(workflow, Workflow) else ("pwf.runner.reconcile",)),
    ):
        importlib.import_module(name)


def project_to_keep(workflow: Defined) -> ProjectState | None:
    """What its runners are compared with after a run, if they may have further ones."""
    keeps = host.SAFE_TO_KEEP and workflow.to_graph().isolate == "keep"
    return ProjectState(project_modules) if keeps else None


def load(request: Load, marker: str) -> tuple[Defined | None, Loaded]:
    """Load the bundle under its environment. The answer says what went wrong when there is no workflow."""
    forking.set_environment(request.environment, marker)
    gc.enable()
    before, since_ns = set(sys.modules), time.time_ns()
    try:
        workflow = load_with_children(request.bundle)
        files = loaded_files(before, tree_of(request.bundle), since_ns)
        return workflow, Loaded(call=request.call, files=files)
    except PwfError as error:
        text, code, hint = error.message, error.code, error.hint
    except BaseException as error:  # noqa: BLE001 - user code: whatever loading raises is the answer
        text, code, hint = f"{type(error).__name__}: {error}\n{user_traceback(error)}", "load_failed", None
    return None, Loaded(call=request.call, error=bounded(text, ERROR_BYTES_MAX), error_code=code, hint=hint)


class _Template:
    def __init__(
        self,
        control: SpawnSocket,
        workflow: Defined,
        reserved: host.ReservedVariable,
        project: ProjectState | None,
    ) -> None:
        self.children = Children()
        self._control = control
        self._workflow = workflow
        self._reserved = reserved
        self._project = project

    def handle(self, request: ToSpawner, descriptors: list[int]) -> None:
        """Fork a runner for each set of descriptors that came along.

        One right after the other: after a fork, what is written to is copied first, here too, and that but once then.
        """
        if not isinstance(request, ForkRunners) or not descriptors or len(descriptors) % RUNNER_DESCRIPTORS:
            raise SystemExit(forking.EXIT_CRASHED)
        pids: list[int] = []
        error = None
        # Written before the fork: without a template, whoever does not bear it would be ended as nobody's.
        self._reserved.write(request.marker)
        try:
            for start in range(0, len(descriptors), RUNNER_DESCRIPTORS):
                pids.append(
                    forking.fork(partial(self._be_runner, descriptors[start : start + RUNNER_DESCRIPTORS]))
                )
        except OSError as failed:  # no memory, or too many processes
            error = str(failed)
        finally:
            self._reserved.write(ROLE)
        for descriptor in descriptors:
            os.close(descriptor)
        self._control.send(Forked(call=request.call, identities=self.children.add(*pids), error=error))

    def _be_runner(self, descriptors: list[int]) -> int:
        *own, out, err = descriptors
        forking.print_to(out, err)
        numbers = forking.detach(own, WAITING_NAME)
        forking.reseed()
        gc.enable()
        keeping = Keeping(self._project) if self._project is not None else None
        return run(numbers, self._workflow, self._become, keeping)

    def _become(self, marker: str) -> None:
        """Bear the run's marker, in the environment as loading the workflow has left it; between two, that of none."""
        if not self._reserved.write(marker) and self._reserved.room >= 0:
            raise OSError(f"the marker has more than {self._reserved.room} bytes")
        bear(marker)
        host.set_process_name(WAITING_NAME if marker == WAITING_MARKER else RUNNER_NAME)


def bear(marker: str) -> None:
    """Pass the marker on to whatever is started from here."""
    os.environ[MARKER_VARIABLE] = marker


def run(
    numbers: Sequence[int],
    workflow: Defined,
    become: Callable[[str], None] = bear,
    keeping: Keeping | None = None,
) -> int:
    """Be the runner: from its `Launch`, or its `Reconcile`, to its end.

    `numbers`: messages, values, reading ends of stdout and stderr.
    """
    messages, values, out, err = numbers
    with stream_socket(messages) as messages_socket, stream_socket(values) as values_socket:
        if isinstance(workflow, Workflow):
            run_runner(messages_socket, values_socket, (out, err), workflow, become, keeping)
        else:
            from pwf.runner.reconcile import (
                run_reconcile,  # which no workflow needs; a template has it loaded
            )

            run_reconcile(messages_socket, values_socket, (out, err), workflow, become)
    return 0
