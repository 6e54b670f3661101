"""The decorators that turn functions into nodes, each with its types.

How to add a kind of node: `pwf/protocol/kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from pwf.protocol.agents import ToolKind
from pwf.protocol.kinds import NodeKind
from pwf.protocol.notices import NoticeKind
from pwf.workflow.context import Context
from pwf.workflow.deadline import NONE_GIVEN
from pwf.workflow.decisions import Choice, Chosen, Presentation
from pwf.workflow.effects import Effect
from pwf.workflow.included import included
from pwf.workflow.mounts import Mount
from pwf.workflow.nodes import Node, Waited
from pwf.workflow.register import DEFAULT_TIMEOUT, NodeOptions, make_mount, make_node, one_of
from pwf.workflow.replies import AssistantMessage
from pwf.workflow.shell import MAX_OUTPUT_DEFAULT, Folder, LineParser, Parse, ShellResult, Stdin, Variables
from pwf.workflow.source import Place
from pwf.workflow.timing import Retry
from pwf.workflow.written import Written

InputT = TypeVar("InputT")
InputT_co = TypeVar("InputT_co", covariant=True)
T = TypeVar("T")

Command = str | Sequence[str | PathLike[str]]
Function = Callable[[Context[InputT]], T]
AsyncFunction = Callable[[Context[InputT]], Coroutine[Any, Any, T]]
EitherFunction = AsyncFunction[InputT, T] | Function[InputT, T]
Validate = Callable[[Context[InputT], T], str | Coroutine[Any, Any, str | None] | None]
ShellDecorator = Callable[[EitherFunction[InputT, Command]], Node[ShellResult]]


class Make(Protocol[InputT_co]):
    """A decorator that takes the node's type from its function."""

    @overload
    def __call__(self, fn: AsyncFunction[InputT_co, T], /) -> Node[T]: ...
    @overload
    def __call__(self, fn: Function[InputT_co, T], /) -> Node[T]: ...


class Decorators(Generic[InputT]):
    """The decorators of a workflow. All take `id=`: the node's id where it is not the function's name."""

    _written: Written

    def _decorate(self, kind: NodeKind, fn: Any, options: NodeOptions) -> Any:
        """Make the node now (`@flow.compute`), or when the function comes (`@flow.compute(…)`)."""
        place = Place.of_caller()
        if fn is not None:
            return make_node(self._written, kind, fn, options, place)
        return lambda function: make_node(self._written, kind, function, options, place)

    @overload
    def compute(self, fn: AsyncFunction[InputT, T], /) -> Node[T]: ...
    @overload
    def compute(self, fn: Function[InputT, T], /) -> Node[T]: ...
    @overload
    def compute(
        self,
        fn: None = None,
        /,
        *,
        returns: type[T],
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, Any]], Node[T]]: ...
    @overload
    def compute(
        self,
        fn: None = None,
        /,
        *,
        returns: dict[str, Any] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Make[InputT]: ...
    def compute(
        self,
        fn: Any = None,
        /,
        *,
        returns: Any = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
        effect: None = None,
    ) -> Any:
        """A step without effects: it may run again after a crash, and its result must depend on ctx alone."""
        options = NodeOptions(id=id, returns=returns, timeout=timeout, retry=retry, effect=effect)
        return self._decorate("compute", fn, options)

    @overload
    def settings_route(self, fn: EitherFunction[InputT, T], /) -> Node[T]: ...
    @overload
    def settings_route(
        self,
        fn: None = None,
        /,
        *,
        returns: Any = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Make[InputT]: ...
    def settings_route(
        self,
        fn: Any = None,
        /,
        *,
        returns: Any = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
        effect: None = None,
    ) -> Any:
        """A pure step that decides by `ctx.settings`: it runs again where they were changed before it was committed."""
        options = NodeOptions(id=id, returns=returns, timeout=timeout, retry=retry, effect=effect)
        return self._decorate("settings_route", fn, options)

    @overload
    def action(
        self,
        fn: None = None,
        /,
        *,
        effect: Effect,
        returns: type[T],
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, Any]], Node[T]]: ...
    @overload
    def action(
        self,
        fn: None = None,
        /,
        *,
        effect: Effect,
        returns: dict[str, Any] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Make[InputT]: ...
    def action(
        self,
        fn: Any = None,
        /,
        *,
        effect: Effect | None = None,
        returns: Any = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Any:
        """A step that changes something outside. `effect` says what a crash in the middle means."""
        options = NodeOptions(id=id, returns=returns, timeout=timeout, retry=retry, effect=effect)
        return self._decorate("action", fn, options)

    def shell(
        self,
        fn: None = None,
        /,
        *,
        effect: Effect | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        cwd: Folder | None = None,
        env: Variables | None = None,
        stdin: Stdin | None = None,
        shell: str | Sequence[str] | None = None,
        ok_exit_codes: Sequence[int] = (0,),
        parse: Parse | None = None,
        on_line: LineParser | None = None,
        max_output: int = MAX_OUTPUT_DEFAULT,
        id: str | None = None,
    ) -> ShellDecorator[InputT]:
        """A command. The function returns its words, or a string for the given `shell`.

        `cwd` is relative to the project root, `env` adds variables, `stdin` is empty unless given (each may
        be a function of ctx). An exit code outside `ok_exit_codes` fails the attempt. `max_output` bytes of
        stdout and of stderr are kept. `parse`: "json", "lines" or a function of the result gives
        `ctx[node].parsed`. `on_line(ctx, line, stream)` may return a dict to publish as an update; a
        regular expression in its place makes progress of its groups.
        """
        shell_options = {
            "cwd": cwd,
            "env": env,
            "stdin": stdin,
            "shell": shell,
            "ok_exit_codes": ok_exit_codes,
            "parse": parse,
            "on_line": on_line,
            "max_output": max_output,
        }
        options = NodeOptions(id=id, timeout=timeout, retry=retry, effect=effect, shell=shell_options)
        return cast(ShellDecorator[InputT], self._decorate("shell", fn, options))

    @overload
    def wait(self, fn: EitherFunction[InputT, timedelta | datetime], /) -> Node[Waited]: ...
    @overload
    def wait(
        self, fn: None = None, /, *, id: str | None = None
    ) -> Callable[[EitherFunction[InputT, timedelta | datetime]], Node[Waited]]: ...
    def wait(
        self,
        fn: Any = None,
        /,
        *,
        id: str | None = None,
        retry: None = None,
        effect: None = None,
        timeout: Any = DEFAULT_TIMEOUT,
    ) -> Any:
        """A durable timer, holding no process: the function returns how long, or an aware datetime until
        when.
        """
        return self._decorate("wait", fn, NodeOptions(id=id, timeout=timeout, retry=retry, effect=effect))

    @overload
    def checkpoint(self, fn: EitherFunction[InputT, Any], /) -> Node[Any]: ...
    @overload
    def checkpoint(
        self,
        fn: None = None,
        /,
        *,
        returns: type[T],
        timeout: timedelta | None = None,
        default: T = ...,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, Any]], Node[T]]: ...
    @overload
    def checkpoint(
        self,
        fn: None = None,
        /,
        *,
        returns: dict[str, Any] | None = None,
        timeout: timedelta | None = None,
        default: Any = ...,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, Any]], Node[Any]]: ...
    def checkpoint(
        self,
        fn: Any = None,
        /,
        *,
        returns: Any = None,
        timeout: timedelta | None = None,
        default: Any = NONE_GIVEN,
        id: str | None = None,
        retry: None = None,
        effect: None = None,
    ) -> Any:
        """A question, holding no process: the function returns the prompt (any JSON), the answer is the
        output.

        With `returns` only an answer of that type is taken. With `timeout` it is open for that time, a pause not
        counted; then `default` is the answer, or, where there is none, the way out `timed_out` is taken.
        """
        options = NodeOptions(
            id=id, returns=returns, timeout=timeout, default=default, retry=retry, effect=effect
        )
        return self._decorate("checkpoint", fn, options)

    def decision(
        self,
        fn: None = None,
        /,
        *,
        audience: str = NONE_GIVEN,  # needed, as `choices` is
        choices: Sequence[Choice] = NONE_GIVEN,
        timeout: timedelta | None = NONE_GIVEN,
        default: str = NONE_GIVEN,
        id: str | None = None,
        retry: None = None,
        effect: None = None,
    ) -> Callable[[EitherFunction[InputT, Presentation | str]], Node[Chosen]]:
        """A question that only a person answers, holding no process: the function returns `ctx.present(…)`, the
        choice is the output.

        `timeout` says how long it is open; then the choice `default` is made, or the way out `timed_out` is taken.
        `timeout=None`: it waits for ever.
        """
        options = NodeOptions(
            id=id,
            timeout=timeout,
            default=default,
            retry=retry,
            effect=effect,
            audience=audience,
            choices=choices,
        )
        made = self._decorate("decision", fn, options)
        return cast(Callable[[EitherFunction[InputT, Presentation | str]], Node[Chosen]], made)

    @overload
    def agent(
        self,
        fn: None = None,
        /,
        *,
        returns: type[T],
        validate: Validate[InputT, T] | None = None,
        tools: tuple[ToolKind, ...] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, str]], Node[T]]: ...
    @overload
    def agent(
        self,
        fn: None = None,
        /,
        *,
        returns: dict[str, Any],
        validate: Validate[InputT, Any] | None = None,
        tools: tuple[ToolKind, ...] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, str]], Node[Any]]: ...
    @overload
    def agent(
        self,
        fn: None = None,
        /,
        *,
        returns: AssistantMessage,
        validate: Validate[InputT, str] | None = None,
        tools: tuple[ToolKind, ...] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, str]], Node[str]]: ...
    def agent(
        self,
        fn: Any = None,
        /,
        *,
        returns: Any = None,
        validate: Any = None,
        tools: tuple[ToolKind, ...] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
        effect: None = None,
    ) -> Any:
        """A task for an agent, holding no process: the function returns the prompt (a text), what the agent
        submits is the output.

        Only a submission of the type `returns` (or that fits this JSON Schema) is accepted; with
        `returns=assistant_message()` what the agent says is the output, a text. `validate(ctx, value)` may say more:
        it returns None, or a text that tells the agent what to correct. `tools` are the kinds of tools that it may use,
        for example `("read", "search")`; None leaves that to the agent. `timeout` and `retry` are of a run's own
        agent: what waits for a submission waits for ever.
        """
        replies = isinstance(returns, AssistantMessage)
        options = NodeOptions(
            id=id,
            returns=returns.type if replies else returns,
            timeout=timeout,
            retry=retry,
            effect=effect,
            validate=validate,
            tools=tools,
        )
        return self._decorate("assistant" if replies else "agent", fn, options)

    @overload
    def notify(self, fn: EitherFunction[InputT, str], /) -> Node[str]: ...
    @overload
    def notify(
        self,
        fn: None = None,
        /,
        *,
        kind: NoticeKind = "progress",
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, str]], Node[str]]: ...
    def notify(
        self,
        fn: Any = None,
        /,
        *,
        kind: NoticeKind = "progress",
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        id: str | None = None,
        retry: None = None,
        effect: None = None,
    ) -> Any:
        """A text for people: the function returns it, and `pwf inbox` shows it. At most 16 KiB; more is cut.

        It never fails the run: whatever becomes of the function, the run goes on by the one way out.
        """
        options = NodeOptions(id=id, returns=str, timeout=timeout, retry=retry, effect=effect, notice=kind)
        return self._decorate("notify", fn, options)

    def choose(
        self,
        *choices: str,
        validate: Validate[InputT, str] | None = None,
        tools: tuple[ToolKind, ...] | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        id: str | None = None,
    ) -> Callable[[EitherFunction[InputT, str]], Node[str]]:
        """A task for an agent that picks one of these texts; a switch on it must have a case for each.

        Everything else is as for `agent`.
        """
        options = NodeOptions(
            id=id,
            returns=one_of(choices, Place.of_caller()),
            timeout=timeout,
            retry=retry,
            validate=validate,
            tools=tools,
        )
        return cast(
            Callable[[EitherFunction[InputT, str]], Node[str]], self._decorate("agent", None, options)
        )

    def include(self, child: Any, *, input: Any = NONE_GIVEN, id: str | None = None) -> Mount:
        """Run another workflow as a part of this one: the workflow itself, its name, or the path of its file.

        A name means what it means on the command line; a path is relative to the file that includes it.
        `input`: a function of ctx that makes its input, or the input itself; its defaults where none is given. `id`:
        what its steps are known by (`review.lint`), the child's name unless it is given. It is left by its exits, and
        `ctx[mount]` is the output that it was left with. It has no retry or timeout of its own: its nodes have.
        """
        place = Place.of_caller()
        if isinstance(child, str):
            child = included(child, place, type(self))
        return make_mount(self._written, "include", child, (input, id), place)
