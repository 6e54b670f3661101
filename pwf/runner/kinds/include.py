"""Include nodes: a pure function makes the input of an included workflow, whose steps follow."""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.kinds import compute

KIND: NodeKind = "include"
run = compute.run
