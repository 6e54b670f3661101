"""Messages between the daemon's RunnerPool and the zygote and templates, and the resolver's answer.

Framing: a stream socket; each frame is a 4-byte big-endian length and that many bytes of msgpack. File descriptors
travel as SCM_RIGHTS with the frame's first byte. Only the daemon asks; the other side answers under the same
`call`, and sends `Exited` on its own account.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.protocol.graph import WorkflowDefinition, WorkflowGraph

SPAWN_FRAME_BYTES_MAX = 64 * 1024 * 1024


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class PinnedSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded module with its bytes."""

    path: str
    kind: Literal["root", "module"]
    module: str
    text: bytes


class SourceBundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a template executes: exactly these bytes, whatever stands in the files meanwhile."""

    definition_id: str
    root: str
    sources: tuple[PinnedSource, ...]


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process, so that no other is ever taken for it: pid, the kernel's start tick, boot id, session id."""

    pid: int
    start_tick: int
    boot_id: str
    session: int


class ZygoteHello(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="zygote_hello"):
    """The zygote's first frame."""

    python: str
    pwf: str
    identity: Identity


class Resolve(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolve"):
    """Fork a resolver that loads `path` afresh in `root` and answers `Resolved` (with this call) on the zygote's socket."""

    call: int
    path: str
    root: str
    environment: dict[str, str]
    deadline_ms: int = 30_000


class Resolved(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolved"):
    """A definition with the texts of its sources (digest -> bytes), or what is wrong with the file.

    `watch` maps each path whose state the answer depends on to (mtime_ns, ctime_ns, size, inode), or None where the
    path must stay absent: while all agree, the answer may be used again.
    """

    call: int
    definition: WorkflowDefinition | None = None
    texts: dict[str, bytes] = {}
    watch: dict[str, tuple[int, int, int, int] | None] = {}
    error_code: str | None = None  # load_failed, graph_error
    error: str | None = None
    hint: str | None = None


class MakeTemplate(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="make_template"):
    """Fork a template that loads the bundle; its control socket travels as the frame's descriptor.

    Answered by `TemplateReady` on the template's own socket.
    """

    call: int
    bundle: SourceBundle
    environment: dict[str, str]
    load_deadline_ms: int = 30_000
    preload: bool = True  # False: load in each runner instead (unsafe to fork)


class TemplateReady(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="template_ready"):
    """`unsafe` says why runners must be fresh processes (None: forking is safe). `error`: loading failed."""

    call: int
    identity: Identity | None = None
    unsafe: str | None = None
    error: str | None = None


class ForkRunner(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fork_runner"):
    """Fork a runner. Its two sockets (messages, values) travel as the frame's descriptors."""

    call: int
    environment: dict[str, str]
    marker: str


class RunnerForked(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="runner_forked"):
    """The new runner, which does nothing before its `Launch`."""

    call: int
    identity: Identity | None = None
    error: str | None = None


class Exited(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exited"):
    """A child (template or runner) was reaped. `status` as `os.waitstatus_to_exitcode`: negative is a signal."""

    pid: int
    status: int


ToSpawner = Resolve | MakeTemplate | ForkRunner
FromSpawner = ZygoteHello | Resolved | TemplateReady | RunnerForked | Exited

encoder = msgspec.msgpack.Encoder()
to_spawner = msgspec.msgpack.Decoder(ToSpawner)
from_spawner = msgspec.msgpack.Decoder(FromSpawner)

__all__ = [
    "Exited",
    "ForkRunner",
    "FromSpawner",
    "Identity",
    "MakeTemplate",
    "PinnedSource",
    "Resolve",
    "Resolved",
    "RunnerForked",
    "SourceBundle",
    "TemplateReady",
    "ToSpawner",
    "WorkflowGraph",
    "ZygoteHello",
    "encoder",
    "from_spawner",
    "to_spawner",
]
