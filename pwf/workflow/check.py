"""The whole graph, checked at once: every fault is found and named with its place and its fix.

`checked` reads what the author wrote and gives the graph as data, with the nodes that a runner executes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, get_args

from pwf.budgets import Budget
from pwf.errors import InvalidArgument
from pwf.ids import check_id
from pwf.protocol.graph import MAX_STEPS_LIMIT, EffectSpec, Isolate, NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS
from pwf.protocol.settings import SettingsSpec
from pwf.workflow.callables import is_async, misfit
from pwf.workflow.deadline import default_fault, unsettled
from pwf.workflow.decisions import Chosen, answer_schema
from pwf.workflow.faults import Faults
from pwf.workflow.include import Checked, exits_of, flattened
from pwf.workflow.mounts import Mount
from pwf.workflow.nodes import Node, NodeDef, Waited
from pwf.workflow.schema import ANNOTATION_ERRORS, annotation_of, closed, decoder_of, schema_of
from pwf.workflow.settings import settings_spec
from pwf.workflow.shell import ShellResult
from pwf.workflow.source import first_line
from pwf.workflow.suggest import nearest
from pwf.workflow.switches import check_switch
from pwf.workflow.ways import Drawn, draw
from pwf.workflow.written import Written

STRICTEST_FIRST: tuple[Isolate, ...] = ("spawn", "fork", "keep")
FILES_MAX = 100
NAMES_MAX = 100
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def checked(flow: Written) -> Checked:
    """The whole workflow; one `GraphError` that names every fault when there are any."""
    faults = Faults(flow.name)
    input_schema = _check_workflow(flow, faults)
    settings = _check_settings(flow, faults)
    if not flow.nodes:
        faults.add(
            flow.place,
            "has no nodes",
            "write a function under @flow.compute, @flow.shell(effect=…) or the like",
        )
        faults.raise_any()
    drawn = draw(flow, faults)
    types = {node.id: _types_of(node, faults) for node in flow.nodes}
    for node in flow.nodes:
        for switch in drawn.switches_of(node):
            check_switch(switch, types[node.id], faults)
        _check_ways(node, drawn, faults)
        _check_deadline(node, drawn, types[node.id], faults)
    _check_reached(flow, drawn, faults)
    exits = exits_of(flow, drawn, faults)
    faults.raise_any()
    own = {node.id: _definition(node, drawn, types[node.id]) for node in flow.nodes}
    whole = flattened(flow, drawn, own, types)
    for switch, types_of_exit in whole.switches:
        check_switch(switch, types_of_exit, faults)
    faults.raise_any()
    assert drawn.start is not None  # or `draw` has found a fault
    children = [node.child.checked.graph for node in flow.nodes if isinstance(node, Mount)]
    graph = WorkflowGraph(
        name=flow.name,
        start=drawn.start.id,
        nodes=tuple(node.spec for node in whole.nodes.values()),
        file=flow.place.file,
        doc=flow.doc,
        max_steps=flow.max_steps,
        input_schema=input_schema,
        titled=flow.title is not None,
        isolate=_strictest(flow.isolate, *(child.isolate for child in children)),
        source="verify" if any(child.source == "verify" for child in children) else flow.source,
        files=_joined(flow.files, *(child.files for child in children)),
        environment=_joined(flow.environment, *(child.environment for child in children)),
        budget=_nearest(flow.budget, *(child.budget for child in children)),
        secrets=_joined(flow.secrets, *(child.secrets for child in children)),
        settings=settings,
    )
    return Checked(graph, whole.nodes, whole.types, exits, whole.scopes)


def _strictest(*ways: Isolate) -> Isolate:
    """One process executes the whole: as that part of it needs which asks for most."""
    return next(way for way in STRICTEST_FIRST if way in ways)


def _nearest(*budgets: Budget | None) -> Budget | None:
    """One run uses up the whole: no more than any part of it says, of each of what is bounded."""
    said = [budget for budget in budgets if budget is not None]
    return functools.reduce(Budget.within, said) if said else None


def _joined(*names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _check_workflow(flow: Written, faults: Faults) -> dict[str, Any] | None:
    """The workflow's own options. Gives the schema of the input."""
    add = functools.partial(faults.add, flow.place)
    try:
        check_id(flow.name, "the name")
    except InvalidArgument as error:
        add(error.message, error.hint)
    if type(flow.max_steps) is not int or not 1 <= flow.max_steps <= MAX_STEPS_LIMIT:
        add(f"has max_steps={flow.max_steps!r:.40}", f"give a whole number from 1 to {MAX_STEPS_LIMIT:,}")
    sources = ("pinned", "verify")
    if flow.source not in sources:
        add(f"has source={flow.source!r:.40}", nearest(str(flow.source), sources))
    check_code_options(flow.isolate, get_args(Isolate), flow.files, add)
    if flow.isolate == "keep" and flow.source == "verify":
        add(
            "has isolate='keep' and source='verify', which looks at the files before each run",
            "leave one of them out",
        )
    check_declared_names(flow.environment, flow.secrets, add)
    if flow.title is not None:
        _check_title(flow.title, add)
    if flow.input is None:
        return None
    try:
        return closed(flow.input, schema_of(flow.input))
    except InvalidArgument as error:
        add(f"has an input that can not be used: {error.message}", error.hint)
        return None


def check_declared_names(
    environment: tuple[Any, ...], secrets: tuple[Any, ...], add: Callable[[str, str | None], None]
) -> None:
    """Variables and secrets that a workflow or a manager declares."""
    _check_names("environment", environment, VARIABLE, add)
    _check_names("secrets", secrets, SECRET, add)


def _check_settings(flow: Written, faults: Faults) -> SettingsSpec | None:
    if flow.settings is not None:
        return settings_spec(flow.settings, functools.partial(faults.add, flow.settings.place))
    for node in flow.nodes:
        if KINDS[node.kind].routes_by_settings:
            faults.node(
                node, "routes by settings, and the workflow has none", "declare them: flow.settings(…)"
            )
    return None


def _check_names(
    option: str, names: tuple[Any, ...], shape: re.Pattern[str], add: Callable[[str, str | None], None]
) -> None:
    """Names that the workflow declares: few, and each whole."""
    if len(names) > NAMES_MAX:
        add(f"has {len(names)} entries in {option}=", f"give at most {NAMES_MAX} names")
    for name in names:
        if not isinstance(name, str) or not shape.fullmatch(name):
            add(f"has {name!r:.60} in {option}=", f'give names: {option}=["GITHUB_TOKEN"]')


def check_code_options(
    isolate: Any, ways: tuple[str, ...], files: tuple[Any, ...], add: Callable[[str, str | None], None]
) -> None:
    """What a workflow and a manager both say about their code: `isolate` (one of these ways) and `files`."""
    if isolate not in ways:
        add(f"has isolate={isolate!r:.40}", nearest(str(isolate), ways))
    if len(files) > FILES_MAX:
        add(f"has {len(files)} entries in files=", f"give at most {FILES_MAX} globs")
    for pattern in files:
        if (
            not isinstance(pattern, str)
            or not pattern
            or pattern.startswith("/")
            or ".." in PurePosixPath(pattern).parts
        ):
            add(f"has {pattern!r:.60} in files=", 'give globs below the project root: files=["prompts/*.md"]')


def _check_title(title: Any, add: Callable[[str, str | None], None]) -> None:
    if isinstance(title, Node) or not callable(title):
        add(
            f"has title={title!r:.60}, which is not a function",
            'write title=lambda ctx: f"release {ctx.input.version}"',
        )
        return

    if is_async(title):
        add("has an async title=", "make it a plain function")
    elif wrong := misfit(title, ("ctx",)):
        add(f"has a title= that {wrong}", "let it take one argument, ctx")


def _types_of(node: Node[Any], faults: Faults) -> tuple[Any, dict[str, Any] | None]:
    """What `ctx[node]` decodes to (None for any JSON), and its schema."""
    if isinstance(node, Mount):
        schema = node.child.checked.graph.input_schema  # what a start of it is held to
        return schema, schema
    facts = KINDS[node.kind]
    if facts.sets_timer:
        return Waited, schema_of(Waited)
    if node.decision is not None:
        return Chosen, answer_schema(node.decision)
    if node.shell is not None:
        _check_command_type(node, faults)
        schema = schema_of(ShellResult)
        codes = {"enum": sorted(node.shell.ok_exit_codes)}
        schema["$defs"]["ShellResult"]["properties"]["exit_code"] = codes
        return ShellResult, schema
    returns = node.returns
    try:
        if returns is None and facts.returns_output:
            returns = annotation_of(node.fn)
        if returns is None:
            return None, None
        schema = schema_of(returns, written=facts.returns_output)
        if facts.asks:
            schema = closed(returns, schema)
    except InvalidArgument as error:
        faults.node(node, f"has a result that can not be kept: {error.message}", error.hint)
        return None, None
    except ANNOTATION_ERRORS as error:
        faults.node(
            node,
            f"has a return annotation that can not be resolved: {error}",
            "import the type for real (not under TYPE_CHECKING), or give returns=",
        )
        return None, None
    return returns, schema


def _check_command_type(node: Node[Any], faults: Faults) -> None:
    try:
        annotation = annotation_of(node.fn)
    except ANNOTATION_ERRORS:
        return  # only used to find a mistake early
    if annotation is str and node.shell is not None and node.shell.shell is None:
        faults.node(
            node,
            "returns a string, and names no shell to read it",
            'return the words as a list, like ["git", "log"], or say @flow.shell(shell="/bin/sh", …)',
        )


def _check_ways(node: Node[Any], drawn: Drawn, faults: Faults) -> None:
    """Ways out that can never be taken."""
    for outcome, place in drawn.outcomes_of(node):
        facts = KINDS[node.kind]
        if outcome not in facts.outcomes:
            faults.add(
                place,
                f"leads on when {node.kind} node {node.id!r} {_verb(outcome)}, which never happens",
                f"a {node.kind} only ends {facts.ends}",
            )
        elif outcome == "timed_out" and facts.has_deadline and node.deadline is None:
            faults.add(
                place,
                f"leads on when nobody answers node {node.id!r} in time, which waits for ever",
                f"give {node.id!r} a timeout, or remove this way",
            )
        elif outcome == "timed_out" and node.timeout_ms is None:
            faults.add(
                place,
                f"leads on when node {node.id!r} times out, which has timeout=None",
                f"give {node.id!r} a timeout, or remove this way",
            )
        elif (
            outcome == "timed_out"
            and node.effect
            and node.effect.mode == "manual"
            and not node.effect.observe
        ):
            faults.add(
                place,
                f"leads on when node {node.id!r} times out, when nobody knows if its effect happened",
                "add observe= to manual(…): this way is taken once it answers not_applied()",
            )


def _check_deadline(
    node: Node[Any], drawn: Drawn, types: tuple[Any, dict[str, Any] | None], faults: Faults
) -> None:
    """What follows when a question is not answered in time, where it has a deadline."""
    if node.deadline is None:
        return
    wrong = unsettled(node.deadline, node.id, {outcome for outcome, _ in drawn.outcomes_of(node)})
    if wrong is not None and not drawn.broken:
        faults.node(node, *wrong)
    if node.deadline.default is not None:
        found = default_fault(node.deadline.default, *types, _definition(node, drawn, types).spec)
        if found is not None:
            faults.node(node, f"has a default that {found}", "give what an answer could be")


def _verb(outcome: str) -> str:
    return "fails" if outcome == "failed" else "times out"


def _check_reached(flow: Written, drawn: Drawn, faults: Faults) -> None:
    if drawn.start is None or drawn.broken:
        return  # a way that could not be read would make these wrong
    reached = {drawn.start.id}
    waiting = [drawn.start]
    while waiting:
        for target in drawn.targets_of(waiting.pop()):
            if target.id not in reached:
                reached.add(target.id)
                waiting.append(target)
    for node in flow.nodes:
        if node.id not in reached:
            faults.node(
                node,
                f"can not be reached from the start, {drawn.start.id!r}",
                f"add a way to it in flow.graph(…), like {drawn.start.id} >> {node.id}, or remove it",
            )


def _definition(node: Node[Any], drawn: Drawn, types: tuple[Any, dict[str, Any] | None]) -> NodeDef:
    returns, schema = types
    facts = KINDS[node.kind]
    observe = node.effect.observe if node.effect is not None else None
    spec = NodeSpec(
        id=node.id,
        kind=node.kind,
        file=node.place.file,
        line=node.place.line,
        doc=first_line(node.__doc__),
        is_async=is_async(node.fn),
        timeout_ms=node.timeout_ms,
        retry=node.retry,
        effect=None
        if node.effect is None
        else EffectSpec(mode=node.effect.mode, type=node.effect.type, observable=observe is not None),
        returns=schema if facts.returns_output or facts.asks else None,  # else the kind says it
        open_ms=None if node.deadline is None else node.deadline.open_ms,
        default=None if node.deadline is None else node.deadline.default,
        validates=node.validate is not None,
        tools=node.tools,
        decision=node.decision,
        notice=node.notice,
        ways=drawn.ways_of(node),
    )
    return NodeDef(
        id=node.id,
        kind=node.kind,
        fn=node.fn,
        is_async=spec.is_async,
        spec=spec,
        decode=decoder_of(None if isinstance(returns, dict) else returns).decode,
        returns=None if isinstance(returns, dict) else returns,
        observe=observe,
        observe_is_async=observe is not None and is_async(observe),
        shell=node.shell,
        validate=node.validate,
        validate_is_async=node.validate is not None and is_async(node.validate),
    )
