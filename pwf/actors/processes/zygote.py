"""A zygote, as the daemon holds it: forks templates and resolvers, starts fresh runners.

Owns the zygote's process and control sockets, and the deadlines of loading and resolving. Promises: a helper that
is late is killed by its exact identity; when `close` is called, or the daemon dies, all of them end. Errors:
`EnvironmentMissing` (the interpreter is of no use), `LoadFailed` (the workflow), `RunnerCrashed` (a fork).
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
import trio

import pwf
from pwf import host
from pwf.actors.processes.link import Exits, LinkClosed, SpawnLink
from pwf.actors.processes.runner_process import RunnerProcess
from pwf.actors.processes.said import Said
from pwf.actors.processes.template import FORK_TIMEOUT_S, Template, describe_status, socket_pair
from pwf.errors import EnvironmentMissing, GraphError, LoadFailed, PwfError, RunnerCrashed
from pwf.host import Identity
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.spawn import (
    Fork,
    Forked,
    Load,
    Loaded,
    Resolve,
    Resolved,
    SourceBundle,
    StartFresh,
)
from pwf.watch import Watched

START_TIMEOUT_S = 30.0  # a cold disk, and an interpreter that imports pwf for the first time
EXIT_STATUS_WAIT_S = 1.0
END_TIMEOUT_S = 4.0  # a zygote gives what is below it 3 s
MARKER_BYTES_MAX = 512  # room in the zygote's start environment, where each forked runner writes its marker


class Zygote:
    """One interpreter's zygote. `run` is its task."""

    used_at = 0.0  # it is used by its templates and by what it is asked for

    def __init__(self, interpreter: str, exits: Exits) -> None:
        self.interpreter = interpreter
        self._exits = exits
        self._said = Said()
        self._link = SpawnLink(exits, *socket_pair())
        self.runners: set[RunnerProcess] = set()  # all that live and come from it
        self.stamp = interpreter_stamp(interpreter)
        self.identity: Identity | None = None
        self._stuck = False

    @property
    def is_current(self) -> bool:
        """Whether the interpreter is still the file that this zygote was started from."""
        return self.stamp == interpreter_stamp(self.interpreter)

    @property
    def is_usable(self) -> bool:
        """Whether new processes may come from it. Closing one that is not would end the runners that it has."""
        return not (self._stuck or self._link.closed.is_set()) and self.is_current

    async def run(self, tell: Callable[[PwfError | None], None]) -> None:
        """The task: start the process and reap it at its end. Tells once that it can be asked, or why it can not:
        `EnvironmentMissing` or `RunnerCrashed`.
        """
        try:
            process = await self._open()
        except PwfError as error:
            tell(error)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._link.run)
            nursery.start_soon(self._said.listen)
            nursery.start_soon(self._reap, process)
            try:
                await self._greet()
                tell(None)
            except PwfError as error:
                self.close()
                tell(error)

    async def _open(self) -> trio.Process:
        if self.stamp is None:
            self.close()
            raise EnvironmentMissing(
                f"the interpreter {self.interpreter} is gone",
                hint="restore it, or restart the run to take the present one",
            )
        try:
            return await trio.lowlevel.open_process(
                [self.interpreter, "-P", "-m", "pwf.runner.spawn.zygote", str(self._link.theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._said.theirs,
                stderr=self._said.theirs,
                pass_fds=[self._link.theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is the daemon's alone
                cwd="/",
                env=_zygote_environment(),
            )
        except OSError as error:
            self.close()
            text = f"the interpreter {self.interpreter} can not be started: {error}"
            passing = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
            raise (RunnerCrashed(text) if passing else EnvironmentMissing(text)) from error
        except BaseException:
            self.close()
            raise

    async def _greet(self) -> None:
        """Wait for its hello."""
        self._link.theirs.close()
        self._said.close_theirs()
        hello = None
        with trio.move_on_after(START_TIMEOUT_S):
            with contextlib.suppress(LinkClosed):
                hello = await self._link.hello()
        if hello is None:
            self.close()
            raise await self._no_hello()
        if hello.pwf != pwf.__version__:
            raise EnvironmentMissing(
                f"the interpreter {self.interpreter} has pwf {hello.pwf}, and the daemon is pwf {pwf.__version__}",
                hint=f"install pwf-workflows=={pwf.__version__} there, or run the daemon of the other version",
            )
        self.identity = hello.identity

    def close(self) -> None:
        """Close its socket: the zygote ends everything below it, then itself."""
        self._link.close()

    async def live_template(
        self,
        bundle: SourceBundle,
        environment: dict[str, str],
        deadline_s: float,
        live: Callable[[Template], Awaitable[None]],
    ) -> None:
        """Fork a template, have it load the bundle, and `live` with it until that returns; then it is closed.

        Raises `LoadFailed` when it does not load, before `live` begins.
        """
        said = Said()
        try:
            link, identity = await self._fork("template", said)
            template = Template(self, link, identity, self._exits)

            async def load_and_live() -> None:
                loaded = await self._load(link, said, identity, bundle, environment, deadline_s)
                template.unsafe, template.files = loaded.unsafe, Watched(loaded.files)
                await live(template)

            try:
                await link.serve(load_and_live, said.listen)
            finally:
                template.close()
        finally:
            said.close()

    async def start_fresh(
        self,
        bundle: SourceBundle,
        environment: dict[str, str],
        marker: str,
        descriptors: Sequence[int],
        deadline_s: float,
    ) -> Identity:
        """Start a runner by exec and have it load the bundle. `descriptors`: those of a runner."""
        said = Said()
        try:
            link = SpawnLink(self._exits, *socket_pair())
            request = StartFresh(call=self._link.next_call(), environment=environment, marker=marker)
            identity = await self._spawn(request, link, said, descriptors)
            load = partial(self._load, link, said, identity, bundle, environment, deadline_s)
            await link.serve(load, said.listen)
        finally:
            said.close()
        return identity

    async def resolve(self, path: str, root: str, environment: dict[str, str], deadline_s: float) -> Resolved:
        """Have a forked resolver load the file. What kills or stalls the resolver is an answer, too."""
        said = Said()
        try:
            link, identity = await self._fork("resolver", said)
            call = link.next_call()
            request = Resolve(call=call, path=path, root=root, environment=environment)

            async def asked() -> Resolved:
                try:
                    with trio.fail_after(deadline_s):
                        return await link.call(request, Resolved)
                except trio.TooSlowError:
                    fault = f"loading {path} did not end within {deadline_s:g} s"
                except LinkClosed:
                    fault = f"loading {path} ended the process: {await self._how_it_ended(identity)}"
                finally:
                    self._end(link, identity)
                return Resolved(call=call, error_code="load_failed", error=fault)

            answer = await link.serve(asked, said.listen)
            if answer.error is None:
                return answer
            return msgspec.structs.replace(answer, error=said.after(answer.error))
        finally:
            said.close()

    async def _load(
        self,
        link: SpawnLink,
        said: Said,
        identity: Identity,
        bundle: SourceBundle,
        environment: dict[str, str],
        deadline_s: float,
    ) -> Loaded:
        """Have the process load, and say what came of it. On failure the process is ended."""
        loaded = False
        try:
            with trio.fail_after(deadline_s):
                request = Load(call=link.next_call(), bundle=bundle, environment=environment)
                answer = await link.call(request, Loaded)
            if answer.error is not None:
                kind = GraphError if answer.error_code == GraphError.code else LoadFailed
                raise kind(said.after(answer.error), hint=answer.hint)
            loaded = True
            return answer
        except trio.TooSlowError:
            raise LoadFailed(said.after(f"loading did not end within {deadline_s:g} s")) from None
        except LinkClosed:
            how = await self._how_it_ended(identity)
            raise LoadFailed(said.after(f"loading ended the process: {how}")) from None
        finally:
            if not loaded:
                self._end(link, identity)

    async def _fork(self, role: Literal["template", "resolver"], said: Said) -> tuple[SpawnLink, Identity]:
        link = SpawnLink(self._exits, *socket_pair())
        return link, await self._spawn(Fork(call=self._link.next_call(), role=role), link, said)

    async def _spawn(
        self, request: Fork | StartFresh, link: SpawnLink, said: Said, descriptors: Sequence[int] = ()
    ) -> Identity:
        """Have the zygote start a process that holds the other end of `link`, and prints to `said` while it loads."""
        answer = None
        own = (link.theirs.fileno(), said.theirs)
        try:
            with trio.fail_after(FORK_TIMEOUT_S):
                answer = await self._link.call(request, Forked, (*own, *descriptors))
        except (trio.TooSlowError, LinkClosed) as error:
            self._stuck = True
            dead = f"the zygote of {self.interpreter} does not answer"
            raise RunnerCrashed(self._said.after(dead)) from error
        finally:
            link.theirs.close()
            said.close_theirs()
            if answer is None or not answer.identities:
                link.close()
        if not answer.identities:
            raise RunnerCrashed(f"no process could be forked: {answer.error}")
        return answer.identities[0]

    def _end(self, link: SpawnLink, identity: Identity) -> None:
        """Be done with a helper, whatever it does."""
        link.close()
        with contextlib.suppress(OSError):  # no descriptors just now: most end with their link
            host.kill_identity(identity)
        self._exits.forget(identity)

    async def _how_it_ended(self, identity: Identity) -> str:
        report = self._exits.expect(identity)
        with trio.move_on_after(EXIT_STATUS_WAIT_S):
            await report.arrived.wait()
        return describe_status(report.status)

    async def _reap(self, process: trio.Process) -> None:
        """Once its socket is closed, the zygote has a bounded time to end; then it is killed. Reaped in any case."""
        try:
            await self._link.closed.wait()
        finally:
            self.close()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(END_TIMEOUT_S):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            self._said.close()

    async def _no_hello(self) -> EnvironmentMissing | RunnerCrashed:
        """Say why the zygote did not come up, by asking the interpreter for the import alone.

        One that can do it was ended from outside: that passes, and says nothing against the interpreter.
        """
        argv = [self.interpreter, "-P", "-c", "import pwf.runner.spawn.zygote"]
        reason = "it ended without a word"
        with trio.move_on_after(START_TIMEOUT_S):
            try:
                tried = await trio.run_process(
                    argv,
                    capture_stderr=True,
                    capture_stdout=True,
                    check=False,
                    env=_zygote_environment(),
                    cwd="/",
                )
            except OSError as error:
                reason = str(error)
            else:
                if tried.returncode == 0:
                    return RunnerCrashed(f"the zygote of {self.interpreter} ended before it was ready")
                lines = tried.stderr.decode(errors="replace").strip().splitlines()
                reason = lines[-1] if lines else reason
        return EnvironmentMissing(
            f"the interpreter {self.interpreter} can not serve the run: {reason}",
            hint=f"install pwf in it: {self.interpreter} -m pip install pwf-workflows=={pwf.__version__}",
        )


def interpreter_stamp(interpreter: str) -> tuple[int, int, int] | None:
    """What tells this interpreter from another at the same path; None when it is gone or can not be executed."""
    try:
        state = os.stat(interpreter)
    except OSError:
        return None
    return (state.st_dev, state.st_ino, state.st_mtime_ns) if os.access(interpreter, os.X_OK) else None


def _zygote_environment() -> dict[str, str]:
    """Nothing of the daemon's own but the way to the user's packages; runs bring their own environment."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", MARKER_VARIABLE: "." * MARKER_BYTES_MAX}
