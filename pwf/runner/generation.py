"""One run generation from its `Launch` to its `Leaving`: what the process becomes before the engine, and how it leaves.

Promises: nothing of the workflow runs before the process bears the run's marker; a runner whose daemon is gone ends
itself with all its descendants.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from pwf.protocol.crashlab import LAB_VARIABLE
from pwf.protocol.runner import EXIT_UNFIT, Launch, Leaving
from pwf.runner.base import descendants, forking, limits
from pwf.runner.base.printed import Printed
from pwf.runner.base.signals import watch_signals
from pwf.runner.base.survivors import Survivors
from pwf.runner.base.wire import DaemonGone, ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.runner.hangup import HangUpWatcher, end_process
from pwf.workflow.workflow import Workflow


def run_runner(
    messages: socket.socket,
    values: socket.socket,
    ends: tuple[int, int],
    workflow: Workflow[Any],
    become: Callable[[str], None],
) -> None:
    """Execute one generation: from its `Launch` to `Leaving`. Called once, in a process of its own.

    `ends`: where its stdout and its stderr are read.
    `become` makes this process bear the run's marker; nothing of the workflow has run before.

    Returns when the run is parked or has ended, when this runner is stale, or when the daemon is gone before
    the launch; once launched, the loss of the daemon kills this process and all its descendants.
    """
    wire = Wire(messages)
    try:
        launch = wire.receive_launch()
    except DaemonGone:
        return
    if launch.marker:
        become(launch.marker)
    wire.will_tick()
    printed = Printed(ends, launch.output_folder, launch.output_bytes_max)
    printed.begin(launch.attempt)
    watcher = HangUpWatcher(messages, end_process, wire.tick, printed)
    try:
        _enter(launch)
        watch_signals(messages, launch.output_folder)
        if launch.generation > 1:
            printed.forget_from(launch.attempt)
        _engine(wire, ValueReader(values), workflow, launch, printed).run()
        wire.send(Leaving(childless=descendants.end_all()))
    except DaemonGone:
        end_process()
    finally:
        watcher.stop()


def _engine(
    wire: Wire, values: ValueReader, workflow: Workflow[Any], launch: Launch, printed: Printed
) -> Engine:
    if LAB_VARIABLE in os.environ:
        from pwf.runner.lab.lab import engine_of  # `pwf crashlab` only

        return engine_of(wire, values, workflow, launch, printed)
    return Engine(wire, values, workflow, launch, printed, Survivors())


def _enter(launch: Launch) -> None:
    """Make this process the run's: its folder and its memory limit."""
    forking.default_termination()
    if launch.root:
        try:
            os.chdir(launch.root)
        except OSError as error:
            sys.stderr.write(f"the project's folder {launch.root!r} can not be entered: {error}\n")
            raise SystemExit(EXIT_UNFIT) from error
    limits.limit_memory(launch.memory_bytes_max)
