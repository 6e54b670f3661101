"""The rules for one node: everything that can be judged when its decorator runs, before the graph is known."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from pwf.errors import GraphError, InvalidArgument, InvalidValue
from pwf.ids import ID_LENGTH_MAX, is_node_id
from pwf.protocol.graph import DEFAULT_TIMEOUT_MS, NodeKind, RetrySpec
from pwf.workflow.effects import Effect
from pwf.workflow.nodes import Node
from pwf.workflow.schema import ANNOTATION_ERRORS, annotation_of
from pwf.workflow.shell import ShellOptions, check_text
from pwf.workflow.source import Place, author_frame
from pwf.workflow.suggest import nearest
from pwf.workflow.timing import Retry, to_ms

if TYPE_CHECKING:
    from pwf.workflow.workflow import Workflow

DEFAULT_TIMEOUT = timedelta(milliseconds=DEFAULT_TIMEOUT_MS)
WITH_EFFECTS = frozenset({"action", "shell"})
PARKING = frozenset({"wait", "checkpoint"})
MAX_OUTPUT_LIMIT = 64 * 1024 * 1024  # what one value may hold


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What an author gave to a decorator, as it is."""

    id: str | None = None
    returns: Any = None
    timeout: Any = DEFAULT_TIMEOUT
    retry: Any = None
    effect: Any = None
    shell: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Fault:
    """Says where and of which node, for every error below."""

    place: Place
    kind: str
    id: str

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        raise GraphError(f"{self.place}: {self.kind} node {self.id!r} {what}", hint=hint)


def make_node(
    flow: Workflow[Any], kind: NodeKind, fn: Any, options: NodeOptions, decorated: Place
) -> Node[Any]:
    """Make a node and add it to the workflow, or raise `GraphError`."""
    if isinstance(fn, Node):
        raise GraphError(
            f"{decorated}: {fn.id!r} is a {fn.kind} node already",
            hint="a function takes one node decorator: remove one",
        )
    if not callable(fn):
        raise GraphError(
            f"{decorated}: @flow.{kind} was given {fn!r:.80}, which is not a function",
            hint=f"write @flow.{kind} or @flow.{kind}(option=…) above a def",
        )
    place = Place.of_function(fn, decorated)
    node_id = options.id if options.id is not None else getattr(fn, "__name__", type(fn).__name__)
    fault = _Fault(place, kind, node_id)
    _check_id(flow, fault, options)
    takes(fn, ("ctx",), fault.refuse)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        fault.refuse("yields, and a node has one result", "return the whole result, for example as a list")
    node: Node[Any] = Node(
        flow,
        kind,
        fn,
        id=node_id,
        place=place,
        timeout_ms=_timeout(options.timeout, fault),
        retry=_retry(options.retry, kind, fault),
        effect=_effect(options, kind, fault),
        returns=options.returns,
        shell=_shell(options.shell, fault) if options.shell is not None else None,
    )
    if kind in ("compute", "action") and options.returns is None:
        node.returns = _annotation_now(fn)
    flow._written.append(node)
    return node


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def takes(
    fn: Callable[..., Any], names: Sequence[str], refuse: Callable[[str, str | None], NoReturn]
) -> None:
    """Refuse a function that can't be called with exactly these positional arguments."""
    try:
        inspect.signature(fn).bind(*names)
    except TypeError as error:
        listed = ", ".join(names)
        refuse(f"has a function that can not be called as f({listed}): {error}", f"let it take ({listed})")
    except ValueError:
        return  # a builtin that shows no signature


def _check_id(flow: Workflow[Any], fault: _Fault, options: NodeOptions) -> None:
    node_id = fault.id
    if not isinstance(node_id, str) or not is_node_id(node_id) or len(node_id) > ID_LENGTH_MAX:
        fault.refuse(
            "has an id that is not allowed",
            f"ids are letters A to Z, digits and '_', not beginning with a digit, at most {ID_LENGTH_MAX}; "
            + (
                f'rename the function, or give id="…": @flow.{fault.kind}(id="…")'
                if options.id is None
                else "change id="
            ),
        )
    same = next((node for node in flow._written if node.id == node_id), None)
    if same is not None:
        fault.refuse(
            f"has the name of another node, at {same.place}", "rename one of the two functions, or give id="
        )
    if flow._ways is not None:
        fault.refuse(
            "comes after flow.graph(…), which has checked the whole",
            "move the call of flow.graph to the file's end",
        )


def _timeout(timeout: Any, fault: _Fault) -> int | None:
    if fault.kind in PARKING and timeout is not DEFAULT_TIMEOUT:
        fault.refuse(
            "has a timeout, and waits without holding anything",
            "leave it out: a wait ends when its time has come, a checkpoint when it is answered",
        )
    if timeout is None:
        return None
    try:
        return to_ms(timeout, "timeout")
    except InvalidArgument as error:
        fault.refuse(f"is wrong: {error.message}", error.hint)


def _retry(retry: Any, kind: NodeKind, fault: _Fault) -> RetrySpec | None:
    if retry is None:
        return None
    if kind in PARKING:
        fault.refuse("has retry, and nothing in it to try again", "leave retry out")
    if not isinstance(retry, Retry):
        fault.refuse(f"has retry={retry!r:.40}", "write retry=Retry(3), or Retry(3, backoff=seconds(5))")
    try:
        return retry.spec()
    except InvalidArgument as error:
        fault.refuse(f"is wrong: {error.message}", error.hint)


def _effect(options: NodeOptions, kind: NodeKind, fault: _Fault) -> Effect | None:
    effect = options.effect
    if kind not in WITH_EFFECTS:
        if effect is not None:
            fault.refuse(
                "declares an effect, and may have none",
                f"make it an action: @flow.action(effect={kind_of(effect)})",
            )
        return None
    if effect is None:
        fault.refuse(
            "must say what effect it has",
            f'write @flow.{kind}(effect=idempotent("{fault.id}")) if it is safe to run again after a crash, '
            f'else effect=manual("{fault.id}", observe=…)',
        )
    if not isinstance(effect, Effect):
        fault.refuse(
            f"has effect={effect!r:.60}",
            f'write effect=idempotent("{fault.id}") or manual("{fault.id}", observe=…)',
        )
    if (
        not isinstance(effect.type, str)
        or not 1 <= len(effect.type) <= ID_LENGTH_MAX
        or not effect.type.isprintable()
    ):
        fault.refuse(
            f"has an effect with the type {effect.type!r:.60}",
            f'its type is a short text for people, like {effect.mode}("upload"), at most {ID_LENGTH_MAX} characters',
        )
    if effect.observe is not None:
        observe = effect.observe
        if not callable(observe):
            fault.refuse(
                f"has observe={observe!r:.60}, which is not a function", "give a function: def look(ctx): …"
            )
        takes(
            observe, ("ctx",), lambda what, hint: fault.refuse(what.replace("has a", "has an observe="), hint)
        )
    elif effect.mode == "manual" and options.retry is not None:
        fault.refuse(
            "has retry and a manual effect, and nothing that can tell whether a failed try happened",
            "add observe= to manual(…), or remove retry",
        )
    return effect


def kind_of(effect: Any) -> str:
    """The effect as the author wrote it, roughly."""
    return f'{effect.mode}("{effect.type}")' if isinstance(effect, Effect) else "…"


def _shell(given: Mapping[str, Any], fault: _Fault) -> ShellOptions:
    shell = given["shell"]
    if isinstance(shell, str):
        shell = (shell, "-c")
    elif shell is not None:
        shell = tuple(shell)
    if shell is not None and (not shell or not all(isinstance(word, str) and word for word in shell)):
        fault.refuse(
            f"has shell={given['shell']!r:.60}", 'write shell="/bin/sh", or shell=["/bin/bash", "-euc"]'
        )
    codes = given["ok_exit_codes"]
    codes = tuple(codes) if isinstance(codes, Sequence | set | frozenset | range) else (codes,)
    if not codes or not all(type(code) is int and 0 <= code <= 255 for code in codes):
        fault.refuse(
            f"has ok_exit_codes={given['ok_exit_codes']!r:.60}",
            "give numbers from 0 to 255: ok_exit_codes=(0, 1)",
        )
    max_output = given["max_output"]
    if type(max_output) is not int or not 1 <= max_output <= MAX_OUTPUT_LIMIT:
        fault.refuse(
            f"has max_output={max_output!r:.60}", f"give a number of bytes from 1 to {MAX_OUTPUT_LIMIT:,}"
        )
    _check_shell_functions(given, fault)
    return ShellOptions(node=fault.id, **{**given, "shell": shell, "ok_exit_codes": codes})


def _check_shell_functions(given: Mapping[str, Any], fault: _Fault) -> None:
    plain: dict[str, tuple[type, ...]] = {"cwd": (str, PathLike), "env": (Mapping,), "stdin": (str, bytes)}
    for name, arguments in {
        "cwd": ("ctx",),
        "env": ("ctx",),
        "stdin": ("ctx",),
        "parse": ("result",),
        "on_line": ("ctx", "line", "stream"),
    }.items():
        value = given[name]
        if (
            value is None
            or isinstance(value, plain.get(name, ()))
            or (name == "parse" and value in ("json", "lines"))
        ):
            continue
        if name == "parse" and isinstance(value, str):
            fault.refuse(f"has parse={value!r:.40}", nearest(value, ("json", "lines")))
        if not callable(value):
            fault.refuse(
                f"has {name}={value!r:.60}", f"give {_wanted(name)}a function of ({', '.join(arguments)})"
            )
        if is_async(value):
            fault.refuse(f"has an async function as {name}=", "make it a plain function")
        takes(
            value,
            arguments,
            lambda what, hint, name=name: fault.refuse(what.replace("has a", f"has a {name}="), hint),
        )  # type: ignore[misc]
    if isinstance(given["env"], Mapping):
        for name, value in given["env"].items():
            try:
                check_text(name, f"env name {name!r:.40}")
                check_text(value, f"env[{name!r:.40}]")
            except InvalidValue as error:
                fault.refuse(f"is wrong: {error.message}", "variables are text: env={'COUNT': str(3)}")


def _wanted(name: str) -> str:
    return {
        "cwd": "a path or ",
        "env": "a dict of texts or ",
        "stdin": "text, bytes or ",
        "parse": '"json", "lines" or ',
    }.get(name, "")


def _annotation_now(fn: Callable[..., Any]) -> Any:
    """The annotated type where it can be had already: names of an enclosing function are gone later."""
    try:
        return annotation_of(fn, dict(author_frame().f_locals))
    except ANNOTATION_ERRORS:
        return None  # `check` tries again, when the whole module has been read, and reports
