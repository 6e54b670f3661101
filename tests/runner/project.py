"""A project in a temporary folder, resolved and loaded in processes of their own, as pwf does."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pwf.protocol.graph import SourceFile, WorkflowDefinition
from pwf.protocol.spawn import PinnedSource, Resolved, SourceBundle
from pwf.runner.load.pinned import load_bundle
from pwf.runner.load.resolve import resolve
from tests.runner.forked import forked

T = TypeVar("T")

CHECKOUT = os.path.realpath(Path(__file__).parents[2])

ONE_NODE = """
from pwf import Workflow

flow = Workflow("flow")


@flow.compute
def step(ctx):
"""


class Project:
    """`root`, with its workflow at `.pwf/workflows/flow.py` unless said otherwise."""

    def __init__(self, root: Path, flow: str = ".pwf/workflows/flow.py") -> None:
        self.root = root
        self.flow = root / flow

    def write(self, name: str, text: str | bytes) -> Path:
        """A file of the project, with times old enough to be trusted."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        age(path)
        return path

    def workflow(self, head: str = "", body: str = "return 1") -> Path:
        """The workflow's file, of one node: `head` at the top, `body` inside the node's function."""
        text = (
            textwrap.dedent(head) + ONE_NODE + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
        )
        return self.write(str(self.flow.relative_to(self.root)), text)

    def resolve(self) -> Resolved:
        """What a resolver answers now."""
        return forked(resolve_installed, str(self.flow), str(self.root))

    def definition(self) -> WorkflowDefinition:
        """The definition; the file must be sound."""
        return sound(self.resolve())

    def bundle(self) -> SourceBundle:
        """What a run that starts now would execute."""
        return bundle_of(self.resolve())


def age(path: Path, seconds: float = 10.0) -> None:
    """Make a file look settled, as one that nobody has just written."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def resolve_installed(path: str, root: str) -> Resolved:
    """As where pwf is installed: here it stands in a checkout that is on the search path, so its folder is watched.

    Whatever is written there meanwhile, a cache of another test's say, would end an answer's validity.
    """
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != CHECKOUT]
    return resolve(path, root)


def sound(answer: Resolved) -> WorkflowDefinition:
    """The answer's definition, or the error as a failed test."""
    assert answer.definition is not None, f"{answer.error_code}: {answer.error}"
    return answer.definition


def bundle_of(answer: Resolved) -> SourceBundle:
    """The bundle, as the store would give it back."""
    definition = sound(answer)
    sources = [
        PinnedSource(path=one.path, kind=one.kind, module=one.module, text=answer.texts[one.digest])
        for one in definition.sources
        if one.kind != "data"
    ]
    return SourceBundle(definition_id=definition.definition_id, root=definition.root, sources=tuple(sources))


def run_pinned(bundle: SourceBundle, node: str = "step") -> Any:
    """Load the bundle in a process of its own and call a node's function with no context."""
    return with_pinned(bundle, lambda workflow: workflow.nodes[node].fn(None))


def with_pinned(bundle: SourceBundle, use: Callable[[Any], T]) -> T:
    """Load the bundle in a process of its own and use the workflow there."""
    return forked(lambda: use(load_bundle(bundle)))


def sources(definition: WorkflowDefinition) -> dict[str, SourceFile]:
    """Recorded modules and the root file by file name."""
    return {os.path.basename(one.path): one for one in definition.sources}


def modules(definition: WorkflowDefinition) -> set[str]:
    """The names of the recorded modules."""
    return {one.module for one in definition.sources if one.kind == "module"}


def on_path(folder: Path, use: Callable[[], T]) -> Callable[[], T]:
    """`use` in a process that has `folder` among its installed packages."""

    def inside() -> T:
        sys.path.append(str(folder))
        return use()

    return inside
