"""`Workflow`: the object that an author's file makes, and that resolver and runner read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from pwf.errors import GraphError, InvalidArgument
from pwf.ids import check_id
from pwf.protocol.graph import DEFAULT_MAX_STEPS, NodeKind, WorkflowGraph
from pwf.workflow.check import checked
from pwf.workflow.context import Context
from pwf.workflow.decorators import Decorators
from pwf.workflow.nodes import Node, NodeDef
from pwf.workflow.routes import Chain, Switch, Way
from pwf.workflow.schema import schema_of
from pwf.workflow.source import Place
from pwf.workflow.suggest import nearest

TITLE_LENGTH_MAX = 200

InputT = TypeVar("InputT")


class Workflow(Decorators[InputT], Generic[InputT]):
    """A graph of named nodes.

    `input`: the type of the input (or a JSON Schema); any JSON where none is given. `title(ctx)` names a run for
    people. `max_steps` bounds loops. `isolate="spawn"`: each run gets a fresh process, for modules that are not safe
    to fork. `source="verify"`: hold runs whose files changed, in place of finishing on the recorded text. `files`:
    globs, relative to the project root, of data files that are recorded with the code and read by `ctx.file`.
    """

    @overload
    def __init__(
        self: Workflow[Any],
        name: str,
        *,
        input: dict[str, Any] | None = None,
        title: Callable[[Context[Any]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Literal["fork", "spawn"] = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        input: type[InputT],
        title: Callable[[Context[InputT]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Literal["fork", "spawn"] = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        input: Any = None,
        title: Callable[[Context[Any]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Literal["fork", "spawn"] = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
    ) -> None:
        self.place = Place.of_caller()
        self.name = name
        self.title = title
        self.max_steps = max_steps
        self.isolate = isolate
        self.source = source
        self.files = tuple(files)
        #: What `ctx.input` decodes to; None for any JSON.
        self.input_type: Any = None if isinstance(input, dict) else input
        self.input_schema: dict[str, Any] | None = None
        self._written: list[Node[Any]] = []
        self._ways: tuple[Way, ...] | None = None
        self._start: Node[Any] | None = None
        self._checked: tuple[WorkflowGraph, dict[str, NodeDef]] | None = None

    def graph(self, *ways: Chain | Switch | Node[Any], start: Node[Any] | None = None) -> None:
        """Say how the nodes follow each other, and check the whole. The first way's node is the start.

        Call it once, after the last node. A workflow of one node needs no call. `GraphError` names every fault.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check the whole graph. `GraphError` names every fault; a second call costs nothing."""
        raise NotImplementedError

    @property
    def nodes(self) -> dict[str, NodeDef]:
        """The checked nodes by id."""
        raise NotImplementedError

    def to_graph(self) -> WorkflowGraph:
        """The whole workflow as data."""
        raise NotImplementedError

    def title_of(self, ctx: Context[InputT]) -> str | None:
        """The run's title, one line of at most 200 characters; None where the workflow gives none."""
        raise NotImplementedError
