"""The zygote: `python -P -m pwf.runner.spawn.zygote FD`, one per interpreter. Imports pwf once, then forks and reaps.

Owns no workflow and no state of a run. Promises: small, single-threaded, never loads trio or apsw. When the daemon's
end of the socket closes, everything below it is ended. If it dies: the pool starts another; templates that it made are
given up, runners go on.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence

import pwf
from pwf import host
from pwf.errors import FrameTooLarge
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.spawn import (
    RUNNER_DESCRIPTORS,
    Fork,
    Forked,
    Resolve,
    Resolved,
    StartFresh,
    ToSpawner,
    ZygoteHello,
)
from pwf.runner.base import forking
from pwf.runner.spawn import hazards
from pwf.runner.spawn.channel import SpawnSocket
from pwf.runner.spawn.reaping import Children, kill_descendants
from pwf.runner.spawn.rehearsal import rehearse
from pwf.runner.spawn.spawner_loop import serve

#: Imported before the first fork. Not trio: every page of the zygote is copied in the page tables of every runner, and
#: only a template with async or shell nodes needs it, and imports it then (`pwf.runner.spawn.template`).
PRELOADED = (
    "pwf.workflow",
    "pwf.runner.load.resolve",
    "pwf.runner.spawn.template",
    "pwf.runner.spawn.fresh",
)
RESERVED_BYTES = 512  # for the marker: home, run (at most 128 characters) and generation
END_ROUNDS = 300  # 3 s for runners to end after the daemon is gone: they end themselves, first


def main(arguments: list[str]) -> int:
    """Serve the daemon on the inherited descriptor until it closes its end."""
    (descriptor,) = forking.keep_descriptors((int(arguments[0]),))
    gc.disable()
    host.set_subreaper()
    host.set_process_name("pwf-zygote")
    forking.restore_signals()
    forking.write_lines_at_once()
    for name in PRELOADED:
        importlib.import_module(name)
    rehearse()
    hazards.prepare()
    version = _version()
    zygote = _Zygote(SpawnSocket(descriptor), host.ReservedVariable(MARKER_VARIABLE))
    gc.collect()
    gc.freeze()
    zygote.run(version)
    return 0


def _version() -> str:
    """pwf's version, read by a child: what it takes to read it, every fork of the zygote would have to map."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, pwf.__version__.encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        version = answer.read().decode()
    os.waitpid(pid, 0)
    return version


class _Zygote:
    def __init__(self, control: SpawnSocket, reserved: host.ReservedVariable) -> None:
        self._control = control
        self._reserved = reserved
        self._children = Children(self._spares)
        self._fresh_markers: dict[int, str] = {}

    def run(self, version: str) -> None:
        identity = host.process_identity(os.getpid())
        if identity is None:
            raise SystemExit(forking.EXIT_CRASHED)
        self._control.send(ZygoteHello(pwf=version, identity=identity))
        try:
            serve(self._control, self._children, self._handle)
        finally:
            self._children.kill_all(END_ROUNDS)

    def _handle(self, request: ToSpawner, descriptors: list[int]) -> None:
        try:
            match request, descriptors:
                case Fork(role="template"), [descriptor, says]:
                    pid = forking.fork(lambda: self._template(descriptor, says))
                case Fork(role="resolver"), [descriptor, says]:
                    pid = forking.fork(lambda: self._resolver(descriptor, says))
                case StartFresh(), [control, says, *own] if len(own) == RUNNER_DESCRIPTORS:
                    pid = forking.fork(lambda: self._fresh(request, (control, *own), says))
                    self._forget_ended_markers()
                    self._fresh_markers[pid] = request.marker
                case _:
                    raise SystemExit(forking.EXIT_CRASHED)
            answer = Forked(call=request.call, identities=self._children.add(pid))
        except OSError as error:  # no memory, or too many processes
            answer = Forked(call=request.call, error=str(error))
        for descriptor in descriptors:
            os.close(descriptor)
        self._control.send(answer)

    def _template(self, descriptor: int, says: int) -> int:
        from pwf.runner.spawn.template import run_template

        forking.print_to(says, says)
        return run_template(descriptor, self._reserved)

    def _resolver(self, descriptor: int, says: int) -> int:
        forking.print_to(says, says)
        (descriptor,) = forking.detach((descriptor,), "pwf-resolver")
        self._reserved.write("resolver")
        control = SpawnSocket(descriptor)
        received = control.receive()
        if received is None:
            return 0
        if not isinstance(received[0], Resolve):
            return forking.EXIT_CRASHED
        answer = _resolve(received[0])
        forking.flush()
        kill_descendants()
        try:
            control.send(answer)
        except FrameTooLarge as error:
            control.send(Resolved(call=answer.call, error_code="load_failed", error=error.message))
        return 0

    def _fresh(self, request: StartFresh, descriptors: Sequence[int], says: int) -> int:
        """Become `python -P -m pwf.runner.spawn.fresh`, with the run's environment as its start environment."""
        forking.print_to(says, says)
        forking.detach(descriptors, "pwf-fresh")
        forking.keep_descriptors(range(3, 3 + len(descriptors)), inheritable=True)
        environment = {**request.environment, MARKER_VARIABLE: request.marker}
        os.execve(sys.executable, [sys.executable, "-P", "-m", "pwf.runner.spawn.fresh"], environment)

    def _spares(self, pid: int) -> bool:
        """Whether an adopted child is left alone: a runner whose template is gone, which has a run's marker."""
        marker = host.read_variable(pid, MARKER_VARIABLE)
        return marker is not None and ":" in marker and marker not in self._fresh_markers.values()

    def _forget_ended_markers(self) -> None:
        self._fresh_markers = {
            pid: marker for pid, marker in self._fresh_markers.items() if self._children.knows(pid)
        }


def _resolve(request: Resolve) -> Resolved:
    import msgspec

    from pwf.runner.load.resolve import resolve

    forking.set_environment(request.environment, "resolver")
    forking.bound_loading()
    gc.enable()
    return msgspec.structs.replace(resolve(request.path, request.root), call=request.call)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
