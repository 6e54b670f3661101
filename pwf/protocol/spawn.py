"""Messages between the daemon's RunnerPool and the zygote, templates, resolvers and fresh runners.

Framing: a stream socket; each frame is a 4-byte big-endian length and that many bytes of msgpack. File
descriptors travel as SCM_RIGHTS with the frame's first byte. Only the daemon asks; the other side answers under
the same `call`, and sends `Exited` on its own account.

The zygote forks and reaps, and never sees a workflow: what a helper is to do (`Load`, `Resolve`) goes over the
helper's own socket, whose far end the daemon gave the zygote with the request. The daemon holds the deadlines,
since it knows each helper's identity from `Forked`. When its socket closes, each of these processes ends.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.host.identity import Identity
from pwf.protocol.graph import WorkflowDefinition, WorkflowGraph
from pwf.protocol.survivors import Survivor

RUNNER_DESCRIPTORS = 6  # messages and values; where stdout and stderr are read; where they are written
FORKED_MAX = 16  # runners that are forked for one request
SPAWN_FRAME_BYTES_MAX = 96 * 1024 * 1024  # 64 MiB of pinned data files, the sources, and room


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class PinnedSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded module with its bytes. `module`: as in `SourceFile`."""

    path: str
    kind: Literal["root", "included", "module"]
    module: str
    text: bytes


class SourceBundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a template executes: exactly these bytes, whatever stands in the files meanwhile."""

    definition_id: str
    root: str
    sources: tuple[PinnedSource, ...]


class ZygoteHello(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="zygote_hello"):
    """The zygote's first frame."""

    pwf: str
    identity: Identity


class Fork(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fork"):
    """To the zygote: fork a helper. Answered by `Forked`.

    Two descriptors: its socket, and where it prints while it loads.
    """

    call: int
    role: Literal["template", "resolver"]


class StartFresh(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="start_fresh"):
    """To the zygote: start a runner by exec, for a workflow that is not safe to fork. Answered by `Forked`.

    Its descriptors: control socket (it takes one `Load` and answers `Loaded`), where it prints while it loads, and
    those of a runner.
    """

    call: int
    environment: dict[str, str]
    marker: str


class Resolve(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolve"):
    """To a resolver: load `path` afresh in `root` and answer `Resolved`, then end."""

    call: int
    path: str
    root: str
    environment: dict[str, str]


class Resolved(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolved"):
    """A definition with the texts of its sources (digest -> bytes), or what is wrong with the file. `python`: version.

    `watch` maps each path whose state the answer depends on to (mtime_ns, ctime_ns, size, inode), or None where
    the path must stay absent: while all agree, the answer may be used again.
    """

    call: int
    python: str = ""
    definition: WorkflowDefinition | None = None
    texts: dict[str, bytes] = {}
    watch: dict[str, tuple[int, int, int, int] | None] = {}
    error_code: str | None = None  # load_failed, graph_error
    error: str | None = None
    hint: str | None = None


class Load(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="load"):
    """To a template or a fresh runner: load the bundle under this environment. Answered by `Loaded`."""

    call: int
    bundle: SourceBundle
    environment: dict[str, str]


class Loaded(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="loaded"):
    """`error`: loading failed, with what is known. `unsafe`: why runners must be fresh (None: may fork).

    `files`: what outside the project was loaded from, with its marks (see `Resolved.watch`). Once one of them has
    changed, no runner may be forked any more.

    After either, the template ends what loading started, and then itself.
    """

    call: int
    unsafe: str | None = None
    files: dict[str, tuple[int, int, int, int]] = {}
    error: str | None = None
    error_code: str | None = None
    hint: str | None = None


class ForkRunners(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fork_runners"):
    """To a template: fork a runner for each `RUNNER_DESCRIPTORS` that travel with the frame.

    They have the environment that the template was loaded in, and no run before their `Launch`. `marker`: what they
    bear until then. Answered by `Forked`.
    """

    call: int
    marker: str


class Forked(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="forked"):
    """The new processes: a helper that waits for its request, a fresh runner, or runners in the order of their sockets.

    With an `error` there are fewer than were asked for.
    """

    call: int
    identities: tuple[Identity, ...] = ()
    error: str | None = None


class Exited(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exited"):
    """A process was reaped. `status` as `os.waitstatus_to_exitcode`: negative is a signal.

    `clean`: by the kernel's word no descendant of it is left. The spawner is the subreaper of all that it
    forked, and had no child besides those that it knows. `survivors`: what it left behind, and was ended.
    """

    pid: int
    start_tick: int
    status: int
    clean: bool = False
    survivors: tuple[Survivor, ...] = ()


ToSpawner = Fork | StartFresh | Resolve | Load | ForkRunners
FromSpawner = ZygoteHello | Forked | Loaded | Resolved | Exited

encoder = msgspec.msgpack.Encoder()
to_spawner = msgspec.msgpack.Decoder(ToSpawner)
from_spawner = msgspec.msgpack.Decoder(FromSpawner)

__all__ = [
    "Exited",
    "Fork",
    "ForkRunners",
    "Forked",
    "FromSpawner",
    "Identity",
    "Load",
    "Loaded",
    "PinnedSource",
    "Resolve",
    "Resolved",
    "SourceBundle",
    "StartFresh",
    "ToSpawner",
    "WorkflowGraph",
    "ZygoteHello",
    "encoder",
    "from_spawner",
    "to_spawner",
]
