"""Shell nodes: the function gives the command; its exit code decides the outcome.

A manual effect is applied when the exit code is one of `ok_exit_codes`, rejected when the command never
started (or the function raised `NotApplied`), and unknown after anything else, an exit code that nobody knows included.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pwf.errors import InvalidValue, PwfError
from pwf.protocol.kinds import NodeKind
from pwf.runner.base.failure import bounded, plain_error
from pwf.runner.base.output import refuse_unrun
from pwf.runner.base.steps import (
    Ended,
    Settled,
    Step,
    StepRaised,
    StepTimedOut,
    call,
    encode,
    failed,
    timed_out,
)
from pwf.runner.base.wire import DaemonGone
from pwf.runner.kinds import action
from pwf.runner.kinds.capture import Capture, kept
from pwf.workflow.shell import Captured, ShellOptions

if TYPE_CHECKING:
    from pwf.runner.kinds.command import Command, CommandEnd

COMMAND_LENGTH_MAX = 200  # of a command as messages show it

KIND: NodeKind = "shell"


def run(step: Step) -> Ended:
    """Ask the function for the command, run it, and read what it said."""
    # imports what runs without commands do without
    from pwf.runner.kinds.command import NotStarted, run_command

    try:
        command = command_of(step, call(step, step.node.fn, step.node.is_async))
    except StepRaised as raised:
        return failed(step, raised.error, settled=action.settled_by(step, raised.error))
    except StepTimedOut as late:
        return timed_out(step, late, settled=_if_manual(step, "unknown"))
    try:
        end = run_command(command)
    except NotStarted as failure:
        report = plain_error("command_not_started", _not_started(command, failure.error), step.node.id)
        return Ended(outcome="failed", error=report, settled=_if_manual(step, "rejected"))
    except OSError as error:
        message = f"{_shown(command.argv)} was killed, for it could be watched no longer: {error}"
        report = plain_error("command_failed", message, step.node.id)
        return Ended(outcome="failed", error=report, settled=_if_manual(step, "unknown"))
    step.survivors = end.leftovers
    if end.timed_out:
        return timed_out(step, StepTimedOut(), settled=_if_manual(step, "unknown"))
    if end.exit_code is None or end.exit_code not in _options(step).ok_exit_codes:
        report = plain_error("command_failed", _failure(command, end), step.node.id)
        return Ended(outcome="failed", error=report, settled=_if_manual(step, "unknown"))
    return _completed(step, command, end, end.exit_code)


def command_of(step: Step, value: object) -> Command:
    """What the node's function and options say is to be run. Raises `StepRaised`."""
    from pwf.runner.kinds.command import Command

    options = _options(step)
    try:
        refuse_unrun(value, f"the command of node {step.node.id!r}")
        cap = min(options.max_output, step.launch.output_bytes_max)
        root = step.launch.root or os.getcwd()
        return Command(
            argv=options.argv(value),
            cwd=os.path.join(root, options.folder(step.ctx) or ""),
            environment={**os.environ, **options.variables(step.ctx)},
            stdin=options.input_bytes(step.ctx),
            stdout=Capture(cap, _line_updates(step, "stdout"), kept(step, "out")),
            stderr=Capture(cap, _line_updates(step, "stderr"), kept(step, "err")),
            timeout_s=step.remaining_s,
            grace_s=step.launch.stop_grace_ms / 1000,
        )
    except DaemonGone:
        raise
    except BaseException as error:  # noqa: BLE001 - user code: options may be functions of ctx, and call sys.exit
        raise StepRaised(error) from None


def _completed(step: Step, command: Command, end: CommandEnd, exit_code: int) -> Ended:
    applied = _if_manual(step, "applied")
    out, err = command.stdout, command.stderr
    try:
        result = _options(step).result(
            exit_code,
            Captured.of(bytes(out.kept), out.dropped),
            Captured.of(bytes(err.kept), err.dropped),
            leftovers=len(end.leftovers),
        )
        return Ended(outcome="completed", output=encode(step, result), settled=applied)
    except StepRaised as raised:
        return failed(step, raised.error, settled=applied)
    except BaseException as error:  # noqa: BLE001 - user code: `parse`
        return failed(step, error, settled=applied)


def _line_updates(step: Step, stream: str) -> Callable[[str], None] | None:
    """Publishes what `on_line` makes of each line. A fault in it is published once, and decides nothing."""
    options = _options(step)
    if options.on_line is None:
        return None
    broken = False

    def on_line(line: str) -> None:
        nonlocal broken
        if broken:
            return
        try:
            update = options.update(step.ctx, line, stream)
            if update is not None:
                step.ctx.publish(update.type, update.key, update.data)
        except DaemonGone:
            raise
        except BaseException as error:  # noqa: BLE001 - user code: on_line
            broken = True
            message = bounded(
                f"on_line failed, and is not called again: {type(error).__name__}: {error}", 2_000
            )
            try:
                step.ctx.publish("warning", step.node.id, {"message": message, "stream": stream})
            except PwfError:  # there are too many items already, which may be what broke it
                print(f"pwf: {message}", file=sys.stderr)

    return on_line


def _failure(command: Command, end: CommandEnd) -> str:
    parts = [f"{_shown(command.argv)} {_how(end.exit_code)}"]
    if end.leftovers:
        parts[0] += f"; {len(end.leftovers)} process(es) that it left behind were killed"
    for name, capture in (("stderr", command.stderr), ("stdout", command.stdout)):
        if text := capture.tail():
            parts.append(f"the end of its {name}:\n{text}")
    return "\n".join(parts)


def _how(exit_code: int | None) -> str:
    if exit_code is None:
        return "has ended, and nobody knows how: its exit code was taken by others (does this process ignore SIGCHLD?)"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = "a signal"
    return f"was ended by {name} (signal {-exit_code})"


def _not_started(command: Command, error: OSError | ValueError) -> str:
    shown = _shown(command.argv)
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"{shown} could not be started: its working folder {command.cwd!r} does not exist"
    if isinstance(error, FileNotFoundError):
        path = command.environment.get("PATH", "")
        return f"{shown} could not be started: there is no command {command.argv[0]!r} (PATH is {path!r})"
    if isinstance(error, PermissionError):
        return f"{shown} could not be started: {command.argv[0]!r} may not be executed"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{shown} could not be started: {reason}"


def _shown(argv: list[str]) -> str:
    text = shlex.join(argv)
    if len(text) > COMMAND_LENGTH_MAX:
        text = text[:COMMAND_LENGTH_MAX] + " …"
    return f"`{text}`"


def _if_manual(step: Step, settled: Settled) -> Settled | None:
    return settled if step.manual else None


def _options(step: Step) -> ShellOptions:
    options = step.node.shell
    if options is None:
        raise InvalidValue(f"shell node {step.node.id!r} has no options")
    return options
