"""The workflows that are measured: as small as they can be, so that what is measured is pwf."""

from __future__ import annotations

from collections.abc import Sequence

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

#: The output is the time at which the step after the decision was executed.
DECIDING = """
import time
from pwf import Choice, Workflow, days
flow = Workflow("deciding")

@flow.decision(
    audience="operator", choices=[Choice("go", "Go on"), Choice("stop", "Stop")], timeout=days(7), default="stop"
)
def decide(ctx):
    return ctx.present("Go on?")

@flow.compute
def done(ctx):
    return time.time()

flow.graph(decide >> done)
"""

#: A manager that has nothing to do. Its file is `.pwf/resources/idle.py`.
IDLE_MANAGER = """
from pwf import ResourceManager
manager = ResourceManager("idle", spec={"type": "object"})

@manager.reconcile
def reconcile(ctx, resource):
    return ctx.settled()
"""


#: What each action of a measured run does, here and in the peers' scripts: a byte is appended to a file.
WORK = """
import os
def work(i):
    file = os.open("work", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, b"x")
    os.close(file)
    return i
"""
PROMPT = "A number."
#: For each kind of step: how it is declared, and what it does. `{i}` is the step's number.
KINDS = {
    "pure": ("compute", "return {i}"),
    "action": ('action(effect=idempotent("work"))', "return work({i})"),
    "shell": ('shell(effect=idempotent("work"))', 'return ["true"]'),
}


def chain(nodes: int, body: str = "", *, kind: str = "pure", kept: bool = False) -> str:
    """A workflow of so many steps of one kind in a row. `kept`: its process may be given the next run.

    `body` stands in place of what the kind does; `{i}` in it is the step's number.
    """
    declared, does = KINDS[kind]
    names = [f"n{i}" for i in range(nodes)]
    parts = [
        f"\n@flow.{declared}\ndef {name}(ctx):\n    {(body or does).format(i=i)}\n"
        for i, name in enumerate(names)
    ]
    graph = f"\nflow.graph({' >> '.join(names)})\n" if nodes > 1 else ""
    isolate = ', isolate="keep"' if kept else ""
    needs = "" if kind == "pure" else f"from pwf import idempotent\n{WORK}"
    head = f'from pwf import Workflow\n{needs}flow = Workflow("chain"{isolate})\n'
    return head + "".join(parts) + graph


def agent_steps(nodes: int) -> str:
    """A workflow of so many steps of an agent in a row, each of which wants a number."""
    return _row(nodes, "agent(returns=int)", f"return {PROMPT!r}")


def shell_steps(nodes: int, program: Sequence[str]) -> str:
    """The same with this program in an agent's place: it gets the same prompt, and gives the same number."""
    options = f'effect=idempotent("work"), parse="json", stdin={PROMPT!r}'
    return _row(nodes, f"shell({options})", f"return {list(program)!r}")


def _row(nodes: int, declared: str, does: str) -> str:
    names = [f"n{i}" for i in range(nodes)]
    parts = [f"\n@flow.{declared}\ndef {name}(ctx):\n    {does}\n" for name in names]
    graph = f"\nflow.graph({' >> '.join(names)})\n" if nodes > 1 else ""
    return 'from pwf import Workflow, idempotent\nflow = Workflow("row")\n' + "".join(parts) + graph


def within(text: str) -> str:
    """The same workflow, included in one that does nothing else."""
    return f'{text}\nchild = flow\nflow = Workflow("whole")\nflow.graph(flow.include(child))\n'
