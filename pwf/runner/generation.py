"""One run generation from its `Launch` to its `Leaving`: what the process becomes before the engine, and how it leaves.

Promises: nothing of the workflow runs before the process bears the run's marker; a process that stays for a further run
is as it was, and bears no run's marker; a runner whose daemon is gone ends itself with all its descendants.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from pwf.protocol.crashlab import LAB_VARIABLE
from pwf.protocol.runner import WAITING_MARKER, Launch, Leaving
from pwf.runner.base import descendants
from pwf.runner.base.entering import enter
from pwf.runner.base.forking import reseed_all
from pwf.runner.base.printed import Printed
from pwf.runner.base.signals import Heard, watch_signals
from pwf.runner.base.survivors import Survivors
from pwf.runner.base.wire import DaemonGone, ValueReader, Wire
from pwf.runner.engine import Engine
from pwf.runner.hangup import HangUpWatcher, end_process
from pwf.runner.sameness.keeping import Keeping
from pwf.workflow.workflow import Workflow


def run_runner(
    messages: socket.socket,
    values: socket.socket,
    ends: tuple[int, int],
    workflow: Workflow[Any],
    become: Callable[[str], None],
    keeping: Keeping | None = None,
) -> None:
    """Execute one generation: from its `Launch` to `Leaving`; with `keeping` further ones. Called once in a process.

    `ends`: where its stdout and its stderr are read.
    `become` makes this process bear a run's marker; nothing of the workflow has run before.

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
    printed = Printed(ends)
    watcher = HangUpWatcher(messages, end_process, wire.tick, printed, wakes=keeping is not None)
    runner = _Runner(messages, wire, ValueReader(values), workflow, printed, become, keeping)
    try:
        while runner.serve(launch):
            launch = wire.next_launch()
            become(launch.marker)
            reseed_all()
            if not wire.will_tick():
                watcher.wake()
    except DaemonGone:
        end_process()
    finally:
        watcher.stop()


class _Runner:
    """What serves the runs of one process, one after the other."""

    def __init__(
        self,
        messages: socket.socket,
        wire: Wire,
        values: ValueReader,
        workflow: Workflow[Any],
        printed: Printed,
        become: Callable[[str], None],
        keeping: Keeping | None,
    ) -> None:
        self._messages = messages
        self._heard: Heard | None = None
        self._wire = wire
        self._values = values
        self._workflow = workflow
        self._printed = printed
        self._become = become
        self._keeping = keeping

    def serve(self, launch: Launch) -> bool:
        """One run, to its last word. Whether this process stays for a further one."""
        keeping = self._keeping
        self._printed.enter(launch.output_folder, launch.output_bytes_max)
        self._printed.begin(launch.attempt)
        enter(launch.root, launch.memory_bytes_max)
        self._watch(launch.output_folder)
        if launch.generation > 1:
            self._printed.forget_from(launch.attempt)
        if keeping is not None:
            keeping.begin()
        engine = _engine(self._wire, self._values, self._workflow, launch, self._printed)
        if launch.judge is not None:
            self._wire.send(engine.judge(launch.judge))
            self._wire.send(Leaving(childless=descendants.end_all()))
            return False
        engine.run()
        if keeping is None or not keeping.has_further(launch.runs_per_process):
            self._wire.send(Leaving(childless=descendants.end_all()))
            return False
        return self._stay(keeping, engine)

    def _watch(self, output_folder: str) -> None:
        if self._heard is None:
            self._heard = Heard()
            if output_folder or self._keeping is not None:
                watch_signals(self._messages, self._heard)
            if self._keeping is not None:
                self._heard.hook_added = self._keeping.heard_audit_hook
        self._heard.output_folder = output_folder

    def _stay(self, keeping: Keeping, engine: Engine) -> bool:
        """Say the last word, and whether this process stays."""
        unanswered = "" if self._values.is_answered else "an answer to a read of a value was still on its way"
        why_not = engine.stained or unanswered or keeping.why_not(self._printed.leave)
        # The last look: what the run has left may start a process until it has ended.
        alone = descendants.reap()
        childless = descendants.end_all()
        why_not = why_not or ("" if alone else "it left a child process")
        if why_not or not childless or LAB_VARIABLE in os.environ:
            self._wire.send(Leaving(childless=childless, not_kept=why_not))
            return False
        self._become(WAITING_MARKER)  # before it says so: whoever takes it next finds no trace of this run
        self._wire.send(Leaving(childless=True, stays=True))
        return True


def _engine(
    wire: Wire, values: ValueReader, workflow: Workflow[Any], launch: Launch, printed: Printed
) -> Engine:
    if LAB_VARIABLE in os.environ:
        from pwf.runner.lab.lab import engine_of  # `pwf crashlab` only

        return engine_of(wire, values, workflow, launch, printed)
    return Engine(wire, values, workflow, launch, printed, Survivors())
