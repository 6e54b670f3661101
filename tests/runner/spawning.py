"""The daemon's side of zygotes, templates and runners, with plain blocking sockets: one question, one answer."""

from __future__ import annotations

import array
import os
import select
import socket
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pwf import host
from pwf.host import Identity
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.runner import (
    MARKER_VARIABLE,
    Finish,
    FromRunner,
    Launch,
    Leaving,
    Value,
    encode_line,
)
from pwf.protocol.runner import from_runner as from_runner_decoder
from pwf.protocol.spawn import (
    Exited,
    Fork,
    Forked,
    ForkRunners,
    FromSpawner,
    Load,
    Loaded,
    PinnedSource,
    Resolve,
    SourceBundle,
    StartFresh,
    ToSpawner,
    ZygoteHello,
    encoder,
    from_spawner,
)
from pwf.runner.load.pinned import load_bundle
from tests.runner.forked import forked

WAIT_S = 20.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}


class Gone(Exception):
    """The other end has closed its socket."""


class Link:
    """Our end of a control socket; `theirs` goes to the process."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(WAIT_S)
        self.exited: list[Exited] = []
        self._last_call = 0

    def call(self) -> int:
        self._last_call += 1
        return self._last_call

    def send(self, message: ToSpawner, descriptors: Sequence[int] = ()) -> None:
        data = encoder.encode(message)
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        frame = len(data).to_bytes(4, "big") + data
        sent = self.ours.sendmsg([frame], rights)
        if sent < len(frame):  # an empty send would fail where the other end has answered and gone already
            self.ours.sendall(frame[sent:])

    def receive(self) -> FromSpawner:
        return from_spawner.decode(self._exactly(int.from_bytes(self._exactly(4), "big")))

    def answer(self, kind: type[Any]) -> Any:
        """The next message of this kind; exits that come before it are kept."""
        while True:
            message = self.receive()
            if isinstance(message, kind):
                return message
            assert isinstance(message, Exited), message
            self.exited.append(message)

    def exit_of(self, identity: Identity) -> Exited:
        while True:
            for exited in self.exited:
                if (exited.pid, exited.start_tick) == (identity.pid, identity.start_tick):
                    return exited
            message = self.receive()
            assert isinstance(message, Exited), message
            self.exited.append(message)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.ours.recv(size - len(data))
            if not piece:
                raise Gone
            data += piece
        return data


WAITING_MARKER = "pwf:waiting:0"
#: Of this worker alone: a test that ends what bears a marker must not meet another worker's runners.
MARKER = f"home{os.getpid()}:run:1"


class ZygotePeer(Link):
    """A real zygote of this interpreter."""

    def __init__(self) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pwf.runner.spawn.zygote", str(self.theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[self.theirs.fileno()],
            start_new_session=True,
            cwd="/",
            env={
                **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
                MARKER_VARIABLE: "." * 512,
            },
        )
        self.theirs.close()
        self.hello: ZygoteHello = self.answer(ZygoteHello)
        self.links: list[Link] = []
        self.runners: list[RunnerPeer] = []

    def fork(self, role: Any) -> tuple[Link, Identity]:
        link = Link()
        self.links.append(link)
        self.send(Fork(call=self.call(), role=role), [link.theirs.fileno(), 2])
        answer = self.answer(Forked)
        link.theirs.close()
        assert answer.identities, answer.error
        return link, answer.identities[0]

    def resolver(self, path: Path, root: Path) -> tuple[Link, Identity]:
        link, identity = self.fork("resolver")
        link.send(Resolve(call=link.call(), path=str(path), root=str(root), environment=ENVIRONMENT))
        return link, identity

    def template(
        self, bundle: SourceBundle, environment: dict[str, str] | None = None
    ) -> tuple[TemplatePeer, Loaded]:
        link, identity = self.fork("template")
        link.send(Load(call=link.call(), bundle=bundle, environment=environment or ENVIRONMENT))
        return TemplatePeer(link, identity, self.runners), link.answer(Loaded)

    def fresh(self, bundle: SourceBundle, marker: str = MARKER) -> tuple[RunnerPeer, Loaded]:
        link = Link()
        self.links.append(link)
        runner = RunnerPeer()
        self.runners.append(runner)
        self.send(
            StartFresh(call=self.call(), environment=ENVIRONMENT, marker=marker),
            [link.theirs.fileno(), 2, *runner.descriptors],
        )
        answer = self.answer(Forked)
        link.theirs.close()
        runner.started(answer)
        link.send(Load(call=link.call(), bundle=bundle, environment=ENVIRONMENT))
        return runner, link.answer(Loaded)

    def stop(self) -> int:
        self.close()
        for end in (*self.links, *self.runners):
            end.close()
        return self.process.wait(WAIT_S)


class TemplatePeer:
    def __init__(self, link: Link, identity: Identity, runners: list[RunnerPeer]) -> None:
        self.link = link
        self.runners = runners
        self.identity = identity

    def fork(self, marker: str = MARKER) -> RunnerPeer:
        (runner,) = self.fork_some(marker)
        return runner

    def fork_some(self, *markers: str) -> list[RunnerPeer]:
        runners = [RunnerPeer(marker) for marker in markers]
        self.runners += runners
        request = ForkRunners(call=self.link.call(), marker=WAITING_MARKER)
        self.link.send(request, [descriptor for runner in runners for descriptor in runner.descriptors])
        answer = self.link.answer(Forked)
        assert len(answer.identities) == len(runners), answer.error
        for runner, identity in zip(runners, answer.identities, strict=True):
            runner.is_held_by(identity)
        return runners


class RunnerPeer:
    """Our ends of a runner's sockets. `identity` once it is there."""

    identity: Identity

    def __init__(self, marker: str = "") -> None:
        self.marker = marker  # that its launch gives it
        self.messages, self._messages = socket.socketpair()
        self.values, self._values = socket.socketpair()
        self.messages.settimeout(WAIT_S)
        self._prints = [os.pipe() for _ in range(2)]
        ends = [end for pipe in zip(*self._prints, strict=True) for end in pipe]
        for end in ends[:2]:
            os.set_blocking(end, False)
        self.descriptors = (self._messages.fileno(), self._values.fileno(), *ends)
        self._file = self.messages.makefile("rb")

    def started(self, answer: Forked) -> None:
        assert answer.identities, answer.error
        self.is_held_by(answer.identities[0])

    def is_held_by(self, identity: Identity) -> None:
        """This process has the other ends."""
        self._messages.close()
        self._values.close()
        for end in self.descriptors[2:]:
            os.close(end)
        self.identity = identity

    def launch(self, graph: WorkflowGraph, root: str = "/", *, given: object = None, **more: Any) -> None:
        data = msgspec.json.encode(given)
        launch = Launch(
            run_id="run",
            generation=1,
            graph=graph,
            input=Value(json=msgspec.Raw(data), size=len(data)),
            node=graph.start,
            visit=1,
            attempt=1,
            root=root,
            marker=self.marker,
            **more,
        )
        self.messages.sendall(encode_line([launch]))

    def receive(self) -> FromRunner:
        line = self._file.readline()
        if not line:
            raise Gone
        return from_runner_decoder.decode(line)

    def run(self, graph: WorkflowGraph) -> Any:
        """Launch a workflow of one node and let it end. Its output."""
        self.launch(graph)
        finish = self.receive()
        assert isinstance(finish, Finish), finish
        assert finish.error is None, finish.error
        assert isinstance(self.receive(), Leaving)
        assert finish.output is not None
        assert finish.output.json is not None
        return msgspec.json.decode(finish.output.json)

    def close(self) -> None:
        self._file.close()
        self.messages.close()
        self.values.close()

    @property
    def is_alive(self) -> bool:
        return host.is_alive(self.identity)

    def ends(self) -> bool:
        """Whether it ends by itself, and soon."""
        descriptor = host.open_exit(self.identity)
        return descriptor is None or bool(select.select([descriptor], [], [], WAIT_S)[0])


def bundle_of_text(root: Path, text: str, **modules: str) -> SourceBundle:
    """A bundle with this root file and modules beside it; nothing is written to disk."""
    sources = [PinnedSource(path=str(root / "flow.py"), kind="root", module="", text=_bytes(text))]
    for name, module in modules.items():
        sources.append(
            PinnedSource(path=str(root / f"{name}.py"), kind="module", module=name, text=_bytes(module))
        )
    return SourceBundle(definition_id="definition", root=str(root), sources=tuple(sources))


def one_node(root: Path, body: str = "return None", head: str = "") -> SourceBundle:
    """A workflow of one compute node: `head` at the top of the module, `body` in the function."""
    text = (
        textwrap.dedent(head)
        + "\nfrom pwf import Workflow\n\nflow = Workflow('flow')\n\n@flow.compute\ndef step(ctx):\n"
    )
    return bundle_of_text(root, text + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n")


def graph_of(bundle: SourceBundle) -> WorkflowGraph:
    """The graph, loaded in a process of its own."""
    return msgspec.convert(forked(_graph, bundle), WorkflowGraph)


def _graph(bundle: SourceBundle) -> Any:
    return msgspec.to_builtins(load_bundle(bundle).to_graph())


def _bytes(text: str) -> bytes:
    return textwrap.dedent(text).encode()
