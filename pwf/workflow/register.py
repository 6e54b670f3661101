"""The rules for one node: all that can be judged when its decorator runs, before the graph is known."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pwf.errors import GraphError, InvalidArgument
from pwf.ids import ID_LENGTH_MAX, is_node_id
from pwf.protocol.agents import TOOL_KINDS, ToolKind
from pwf.protocol.decision_spec import DecisionSpec
from pwf.protocol.graph import DEFAULT_TIMEOUT_MS, RetrySpec
from pwf.protocol.kinds import KINDS, NodeKind
from pwf.protocol.notices import NOTICE_KINDS, NoticeKind
from pwf.workflow.callables import misfit
from pwf.workflow.deadline import NONE_GIVEN, Deadline, deadline
from pwf.workflow.decisions import decision_spec, default_output
from pwf.workflow.effects import Effect
from pwf.workflow.faults import Fault
from pwf.workflow.mounts import Mount
from pwf.workflow.nodes import Node
from pwf.workflow.schema import ANNOTATION_ERRORS, annotation_of
from pwf.workflow.shell_options import shell_options
from pwf.workflow.source import Place, author_frame
from pwf.workflow.timing import Retry, to_ms
from pwf.workflow.written import Written

DEFAULT_TIMEOUT = timedelta(milliseconds=DEFAULT_TIMEOUT_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What an author gave to a decorator, as it is."""

    id: str | None = None
    returns: Any = None
    timeout: Any = DEFAULT_TIMEOUT
    retry: Any = None
    effect: Any = None
    shell: Mapping[str, Any] | None = None
    default: Any = NONE_GIVEN  # of a question that is open for a time only
    validate: Any = None
    tools: Any = None  # of a node for an agent
    audience: Any = None  # of a decision
    choices: Any = None
    notice: Any = None  # of a node that notifies


def make_node(flow: Written, kind: NodeKind, fn: Any, options: NodeOptions, decorated: Place) -> Node[Any]:
    """Make a node and add it to the workflow, or raise `GraphError`."""
    _check_function(kind, fn, decorated)
    place = Place.of_function(fn, decorated)
    node_id = options.id if options.id is not None else getattr(fn, "__name__", type(fn).__name__)
    fault = Fault(place, kind, node_id)
    _check_id(flow, fault, options)
    if wrong := misfit(fn, ("ctx",)):
        fault.refuse(f"has a function that {wrong}", "let it take one argument, ctx")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        fault.refuse("yields, and a node has one result", "return the whole result, for example as a list")
    returns = options.returns
    if returns is None and KINDS[kind].returns_output:
        returns = _annotation_now(fn)
    if returns is None and KINDS[kind].prompts:
        fault.refuse(
            "does not say what the agent shall give",
            f"write @flow.{kind}(returns=TYPE), with a msgspec Struct, another type, or a JSON Schema",
        )
    decision = decision_spec(options.audience, options.choices, fault) if KINDS[kind].chooses else None
    node: Node[Any] = Node(
        flow,
        kind,
        fn,
        id=node_id,
        place=place,
        timeout_ms=_timeout(options.timeout, fault),
        retry=_retry(options.retry, fault),
        effect=_effect(options, fault),
        returns=returns,
        shell=shell_options(options.shell, fault) if options.shell is not None else None,
        validate=_validate(options.validate, fault),
        deadline=_deadline(options, decision, fault),
        tools=_tools(options.tools, fault),
        decision=decision,
        notice=_notice(options.notice, fault) if KINDS[kind].notifies else None,
    )
    flow.nodes.append(node)
    return node


def _notice(kind: Any, fault: Fault) -> NoticeKind:
    if kind not in NOTICE_KINDS:
        fault.refuse(f"has the kind {kind!r:.80}", f"write kind={' or kind='.join(map(repr, NOTICE_KINDS))}")
    found: NoticeKind = kind
    return found


def make_mount(
    flow: Written, kind: NodeKind, child: Any, options: tuple[Any, str | None], place: Place
) -> Mount:
    """Include a workflow, or raise `GraphError`. `options`: its input, or a function that makes it; its id."""
    given, id = options
    if not hasattr(child, "to_graph"):
        raise GraphError(
            f"{place}: flow.include was given {child!r:.80}, which is not a workflow",
            hint='import it: from review import flow as review; or give its name: flow.include("review")',
        )
    node_id = id if id is not None else child.name.replace("-", "_")
    fault = Fault(place, kind, node_id)
    _check_id(flow, fault, NodeOptions(id=node_id))
    if isinstance(given, Node):
        fault.refuse(f"has input={given.id!r}, which is a node", f"write input=lambda ctx: ctx[{given.id}]")
    if callable(given) and (wrong := misfit(given, ("ctx",))):
        fault.refuse(f"has an input= that {wrong}", "let it take one argument, ctx")
    mount = Mount(flow, kind, child, _maker(child, given), id=node_id, place=place)
    flow.nodes.append(mount)
    return mount


def _maker(child: Any, given: Any) -> Callable[..., Any]:
    if callable(given):
        return given  # type: ignore[no-any-return]  # a function, which is called with ctx
    if given is NONE_GIVEN:
        return lambda ctx: None if child.input_type is None else {}  # as a start without an input
    return lambda ctx: given


def _check_function(kind: NodeKind, fn: Any, decorated: Place) -> None:
    if isinstance(fn, Node):
        raise GraphError(
            f"{decorated}: {fn.id!r} is a {fn.kind} node already",
            hint="a function takes one node decorator: remove one",
        )
    if not callable(fn):
        raise GraphError(
            f"{decorated}: @flow.{KINDS[kind].decorator or kind} was given {fn!r:.80}, which is not a function",
            hint=f"write @flow.{kind} or @flow.{kind}(option=…) above a def",
        )


def _check_id(flow: Written, fault: Fault, options: NodeOptions) -> None:
    node_id = fault.id
    if not isinstance(node_id, str) or not is_node_id(node_id) or len(node_id) > ID_LENGTH_MAX:
        rename = (
            "change id="
            if options.id is not None
            else f'rename the function, or give @flow.{KINDS[fault.kind].decorator or fault.kind}(id="…")'
        )
        fault.refuse(
            "has an id that is not allowed",
            f"{rename}: letters A to Z, digits and '_', not beginning with a digit, at most {ID_LENGTH_MAX}",
        )
    same = next((node for node in flow.nodes if node.id == node_id), None)
    if same is not None:
        fault.refuse(
            f"has the name of another node, at {same.place}", "rename one of the two functions, or give id="
        )
    if flow.ways is not None:
        fault.refuse(
            "comes after flow.graph(…), which has checked the whole",
            "move the call of flow.graph to the file's end",
        )


def _timeout(timeout: Any, fault: Fault) -> int | None:
    facts = KINDS[fault.kind]
    if facts.has_deadline:  # there it is how long the question is open
        return DEFAULT_TIMEOUT_MS
    if not facts.has_active_timeout and timeout is not DEFAULT_TIMEOUT:
        fault.refuse(
            "has a timeout, and waits without holding anything",
            f"leave it out: a {fault.kind} ends {facts.ends}",
        )
    if timeout is None:
        return None
    try:
        return to_ms(timeout, "timeout")
    except InvalidArgument as error:
        fault.refuse(f"is wrong: {error.message}", error.hint)


def _deadline(options: NodeOptions, decision: DecisionSpec | None, fault: Fault) -> Deadline | None:
    if not KINDS[fault.kind].has_deadline:
        return None
    if decision is not None:
        if options.timeout is NONE_GIVEN:
            fault.refuse(
                "does not say how long it is open",
                "write timeout=hours(1), with default=… or a way out for timed_out; or timeout=None, for ever",
            )
        return deadline(options.timeout, default_output(options.default, decision, fault), fault)
    return deadline(options.timeout, options.default, fault)


def _retry(retry: Any, fault: Fault) -> RetrySpec | None:
    if retry is None:
        return None
    if "failed" not in KINDS[fault.kind].outcomes:
        fault.refuse("has retry, and nothing in it to try again", "leave retry out")
    if not isinstance(retry, Retry):
        fault.refuse(f"has retry={retry!r:.40}", "write retry=Retry(3), or Retry(3, backoff=seconds(5))")
    try:
        return retry.spec()
    except InvalidArgument as error:
        fault.refuse(f"is wrong: {error.message}", error.hint)


def _validate(validate: Any, fault: Fault) -> Any:
    if validate is None:
        return None
    if isinstance(validate, Node) or not callable(validate):
        fault.refuse(
            f"has validate={validate!r:.60}, which is not a plain function",
            "give a function that is not a node: def check(ctx, value): …",
        )
    if wrong := misfit(validate, ("ctx", "value")):
        fault.refuse(f"has a validate= that {wrong}", "let it take two arguments, ctx and what was submitted")
    return validate


def _tools(tools: Any, fault: Fault) -> tuple[ToolKind, ...] | None:
    if tools is None:
        return None
    is_list = isinstance(tools, tuple | list)
    wrong = [one for one in tools if one not in TOOL_KINDS] if is_list else [tools]
    if wrong:
        shown = f"the tool {wrong[0]!r:.60}" if is_list else f"tools={tools!r:.60}"
        fault.refuse(f"has {shown}", f"write a tuple of: {', '.join(TOOL_KINDS)}")
    return tuple(dict.fromkeys(tools))


def _effect(options: NodeOptions, fault: Fault) -> Effect | None:
    effect = options.effect
    if not KINDS[fault.kind].has_effect:
        if effect is not None:
            fault.refuse("declares an effect, and may have none", "make it an action: @flow.action(effect=…)")
        return None
    if effect is None:
        fault.refuse(
            "must say what effect it has",
            f'write @flow.{fault.kind}(effect=idempotent("{fault.id}")) if it is safe to run again after a '
            f'crash, else effect=manual("{fault.id}", observe=…); effect=parts() if it makes several',
        )
    if not isinstance(effect, Effect):
        fault.refuse(
            f"has effect={effect!r:.60}",
            f'write effect=idempotent("{fault.id}"), manual("{fault.id}", observe=…) or parts()',
        )
    _check_effect(effect, fault)
    if effect.observe is None and effect.mode == "manual" and options.retry is not None:
        fault.refuse(
            "has retry and a manual effect, and nothing that can tell whether a failed try happened",
            "add observe= to manual(…), or remove retry",
        )
    return effect


def _check_effect(effect: Effect, fault: Fault) -> None:
    name = effect.type
    if not isinstance(name, str) or not 1 <= len(name) <= ID_LENGTH_MAX or not name.isprintable():
        fault.refuse(
            f"has an effect with the type {name!r:.60}",
            f'write a short text for people, like {effect.mode}("upload"), at most {ID_LENGTH_MAX} characters',
        )
    if effect.observe is None:
        return
    if isinstance(effect.observe, Node) or not callable(effect.observe):
        fault.refuse(
            f"has observe={effect.observe!r:.60}, which is not a plain function",
            "give a function that is not a node: def look(ctx): …",
        )
    if wrong := misfit(effect.observe, ("ctx",)):
        fault.refuse(f"has an observe= that {wrong}", "let it take one argument, ctx")


def _annotation_now(fn: Callable[..., Any]) -> Any:
    """The annotated type where it can be had already: names of an enclosing function are gone later."""
    try:
        return annotation_of(fn, dict(author_frame().f_locals))
    except ANNOTATION_ERRORS:
        return None  # `check` tries again, when the whole module has been read, and reports


def one_of(choices: tuple[Any, ...], place: Place) -> dict[str, Any]:
    """The JSON Schema of one of these texts."""
    hint = 'write @flow.choose("ship", "fix")'
    if len(choices) < 2 or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise GraphError(f"{place}: @flow.choose has {choices!r:.80}, and needs two texts or more", hint=hint)
    twice = next((choice for number, choice in enumerate(choices) if choice in choices[:number]), None)
    if twice is not None:
        raise GraphError(f"{place}: @flow.choose has {twice!r} twice", hint="each choice stands there once")
    return {"enum": list(choices)}
