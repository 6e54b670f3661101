"""`Workflow`: the object that an author's file makes, and that resolver and runner read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from pwf.budgets import Budget
from pwf.errors import GraphError, InvalidValue
from pwf.protocol.graph import DEFAULT_MAX_STEPS, Isolate, WorkflowGraph
from pwf.workflow.check import checked
from pwf.workflow.context import Context
from pwf.workflow.decorators import Decorators
from pwf.workflow.include import Checked, Exits
from pwf.workflow.mounts import Child, Exit, Mount
from pwf.workflow.nodes import Node, NodeDef
from pwf.workflow.routes import Chain, Outcomes, Switch, Way, loop
from pwf.workflow.scopes import Scope
from pwf.workflow.settings import Check, Paths, Settings, refuse_second
from pwf.workflow.source import Place, author_frame, first_line
from pwf.workflow.written import Written, names

TITLE_LENGTH_MAX = 200

InputT = TypeVar("InputT")


class Workflow(Decorators[InputT], Generic[InputT]):
    """A graph of named nodes.

    `input`: the type of the input (or a JSON Schema); any JSON where none is given. `title(ctx)` names a run
    for people. `max_steps` bounds loops. `isolate="spawn"`: each run gets a fresh process, for modules that
    are not safe to fork. `isolate="keep"`: a run may get the process of the run before, where that is found as it
    was. `source="verify"`: hold runs whose files changed, in place of finishing on the recorded text. `files`:
    globs, relative to the project root, of data files that are recorded with the code and read by `ctx.file`.
    `environment`: names of variables that its steps need; a start takes them along, and says which ones are not set.
    `secrets`: names of what `ctx.secret` may give its steps. `budget`: what its agents may use in a run.
    """

    @overload
    def __init__(
        self: Workflow[Any],
        name: str,
        *,
        input: dict[str, Any] | None = None,
        title: Callable[[Context[Any]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Isolate = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
        budget: Budget | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        input: type[InputT],
        title: Callable[[Context[InputT]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Isolate = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
        budget: Budget | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        input: Any = None,
        title: Callable[[Context[Any]], str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        isolate: Isolate = "fork",
        source: Literal["pinned", "verify"] = "pinned",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
        budget: Budget | None = None,
    ) -> None:
        frame = author_frame()
        self._written = Written(
            name=name,
            place=Place(frame.f_code.co_filename, frame.f_lineno),
            doc=first_line(frame.f_globals.get("__doc__")),
            input=input,
            title=title,
            max_steps=max_steps,
            isolate=isolate,
            source=source,
            ways_place=Place(frame.f_code.co_filename, frame.f_lineno),
            files=names(files),
            environment=names(environment),
            secrets=names(secrets),
            budget=budget,
        )
        self._checked: Checked | None = None
        self._nodes_checked = 0

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} at {self.place}>"

    @property
    def name(self) -> str:
        """The workflow's own name, for people; its file's stem is what commands take."""
        return self._written.name

    @property
    def place(self) -> Place:
        """Where the author made it."""
        return self._written.place

    @property
    def input_type(self) -> Any:
        """What `ctx.input` decodes to; None for any JSON."""
        return None if isinstance(self._written.input, dict) else self._written.input

    def exit(self, name: str, *nodes: Node[Any] | Exit) -> None:
        """Name a way to leave this workflow where it is included: one of these nodes completes, and it ends.

        Without any, each node that ends the workflow is an exit, under its own id.
        """
        self._written.exits.append((name, nodes, Place.of_caller()))
        self._checked = None

    def loop(
        self,
        decide: Node[Any],
        return_to: Node[Any],
        routes: Mapping[Any, Node[Any] | Chain],
        *,
        leave: Mapping[Any, Node[Any] | Chain],
        on: str | None = None,
    ) -> Chain:
        """The ways of a loop, for `flow.graph(…)`: `decide` says what is done next, until it leaves.

        Its output (or the field `on` of it) is one of `routes`, whose node or chain is followed by `return_to`, or one
        of `leave`. `max_steps` bounds it.
        """
        both = [value for value in routes if value in leave]
        if both:
            place = Place.of_caller()
            raise GraphError(
                f"{place}: flow.loop(…) has {both[0]!r:.60} in routes and in leave", hint="remove one"
            )
        return loop(decide, return_to, routes, leave, on)

    def settings(
        self, type: Any, initial: Any, *, paths: Paths | None = None, check: Check | None = None
    ) -> None:
        """Declare a value that may be changed while a run goes on; each step sees it as `ctx.settings`.

        `type` as for `input`, None for any JSON. `paths` says who may do what: for each JSON Pointer, and what is below
        it, the actors `human`, `session` (agents) and `manager`, with some of `read`, `add`, `remove` and `replace`.
        What is not said is refused, and the longest path decides. `check(value)` returns None, or why not.
        """
        place = Place.of_caller()
        refuse_second(self._written.settings, self.name, place)
        self._written.settings = Settings(
            type=type, initial=initial, paths={} if paths is None else paths, check=check, place=place
        )

    @property
    def declared_settings(self) -> Settings | None:
        """What `settings` was given."""
        return self._written.settings

    def graph(self, *ways: Chain | Switch | Node[Any], start: Node[Any] | None = None) -> None:
        """Say how the nodes follow each other, and check the whole. The first way's node is the start.

        Call it once, after the last node. A workflow of one node needs no call. `GraphError` names every
        fault.
        """
        place, written = Place.of_caller(), self._written
        if written.ways is not None:
            raise GraphError(
                f"{place}: workflow {self.name!r} has a graph already, at {written.ways_place}",
                hint="put all ways into one call of flow.graph(…)",
            )
        found: list[Way] = []
        for way in ways:
            if isinstance(way, Chain):
                found.extend(way.ways)
            elif isinstance(way, Switch):
                found.append(way)
            elif isinstance(way, Node):
                start = way if start is None and way is ways[0] else start
            else:
                raise GraphError(f"{place}: flow.graph(…) was given {_not_a_way(way)}", hint=_WAYS_HINT)
        written.ways, written.ways_place, written.start = tuple(found), place, start
        self.check()

    def check(self) -> None:
        """Check the whole graph. `GraphError` names every fault; a second call costs nothing."""
        _ = self.checked

    @property
    def nodes(self) -> dict[str, NodeDef]:
        """The checked nodes by id, those of included workflows among them (`review.lint`)."""
        return self.checked.nodes

    @property
    def included(self) -> list[Child]:
        """The workflows that it includes itself."""
        return [node.child for node in self._written.nodes if isinstance(node, Mount)]

    @property
    def scopes(self) -> dict[str, Scope]:
        """What its code, and that of each included workflow, sees of a run; by mount."""
        return self.checked.scopes

    @property
    def exits(self) -> Exits:
        """How it can be left where it is included: the nodes that end it, by the name of the exit."""
        return self.checked.exits

    def to_graph(self) -> WorkflowGraph:
        """The whole workflow as data."""
        return self.checked.graph

    def title_of(self, ctx: Context[InputT]) -> str | None:
        """The run's title, one line, cut at 200 characters; None where the workflow gives none.

        `InvalidValue` when its function returns no text; what the function raises comes as it is.
        """
        if self._written.title is None:
            return None
        title = self._written.title(ctx)
        if not isinstance(title, str):
            raise InvalidValue(
                f"title= of workflow {self.name!r} returned {title!r:.60}, which is not text",
                hint="return a string",
            )
        line = " ".join("".join(char if char.isprintable() else " " for char in title).split())
        return (line if len(line) <= TITLE_LENGTH_MAX else line[: TITLE_LENGTH_MAX - 1] + "…") or None

    @property
    def checked(self) -> Checked:
        """The whole, checked. `GraphError` names every fault, and the whole chain where it includes itself."""
        count = len(self._written.nodes)
        if self._checked is None or self._nodes_checked != count:
            if self in _being_checked:
                chain = [*_being_checked[_being_checked.index(self) :], self]
                raise GraphError(
                    f"{self.place}: workflow {self.name!r} includes itself: "
                    + " includes ".join(repr(flow.name) for flow in chain),
                    hint="to run something again, lead a way back to it in the graph",
                )
            _being_checked.append(self)
            try:
                self._checked, self._nodes_checked = checked(self._written), count
            finally:
                _being_checked.pop()
        return self._checked


_being_checked: list[Workflow[Any]] = []

_WAYS_HINT = 'its entries look like  a >> b,  a.on("failed") >> c,  a.switch(yes=b, no=c)'


def _not_a_way(thing: object) -> str:
    if isinstance(thing, Outcomes):
        return f"{thing.source.id}.on(…) without >> and a node"
    return f"{thing!r:.60}, which is not a way out of a node"
