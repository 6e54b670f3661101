"""The workflows that are measured: as small as they can be, so that what is measured is pwf."""

from __future__ import annotations

ONE = """
from pwf import Workflow
flow = Workflow("one")

@flow.compute
def only(ctx):
    return 1
"""

ASKING = """
from pwf import Workflow
flow = Workflow("ask")

@flow.checkpoint
def ask(ctx):
    return "Go on?"
"""


def chain(nodes: int, body: str = "return {i}") -> str:
    """A workflow of so many compute nodes in a row. `{i}` in the body is the node's number."""
    names = [f"n{i}" for i in range(nodes)]
    parts = [f"\n@flow.compute\ndef {name}(ctx):\n    {body.format(i=i)}\n" for i, name in enumerate(names)]
    graph = f"\nflow.graph({' >> '.join(names)})\n" if nodes > 1 else ""
    return 'from pwf import Workflow\nflow = Workflow("chain")\n' + "".join(parts) + graph
