"""What both clients ask for by the same names: the payloads, and what is made of the answers.

Holds no connection: a client does each question, and the functions here make the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from pwf.errors import NotFound
from pwf.protocol.forks import ForkPayload
from pwf.protocol.graph import MountSpec
from pwf.protocol.operations import (
    LIST_PAGE_MAX,
    EventPage,
    EventsPayload,
    RunList,
    RunListPayload,
    StepsPayload,
)
from pwf.protocol.runner import Value
from pwf.protocol.views import EventView, RunSummary, RunView, Status, StepView
from pwf.values import canonical

T = TypeVar("T")
Question = tuple[str, msgspec.Struct, str | None]  # operation, payload, run
Asking = Generator[Question, Any, T]  # gives questions, takes their results, returns what was asked for


class ForkOptions(TypedDict, total=False):
    """As `ForkPayload`; `input` is any JSON value or struct."""

    visit: int
    input: object
    code: Literal["current", "stored"]
    max_steps: int
    repeat_effects: bool
    keep_answers: bool
    agent: str
    session: str


def fork_payload(node: str | None, options: ForkOptions) -> ForkPayload:
    """What is asked for."""
    given: dict[str, Any] = dict(options)
    if "input" in given:
        given["input"] = msgspec.Raw(canonical(given["input"], what="input"))
    return ForkPayload(node=node, **given)


def listed(
    statuses: Sequence[Status], workflow: str | None, since_ms: int | None, title: str | None, limit: int
) -> Asking[tuple[RunSummary, ...]]:
    """Runs, newest first, from page to page."""
    found: list[RunSummary] = []
    cursor: int | None = None
    while len(found) < limit:
        page: RunList = yield (
            "run.list",
            RunListPayload(
                statuses=tuple(statuses),
                workflow=workflow,
                since_ms=since_ms,
                title=title,
                limit=min(limit - len(found), LIST_PAGE_MAX),
                cursor=cursor,
            ),
            None,
        )
        found += page.runs
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(found)


def history(run_id: str, after_revision: int) -> Asking[tuple[EventView, ...]]:
    """All events after a revision."""
    found: list[EventView] = []
    after: int | None = after_revision
    while after is not None:
        page: EventPage = yield "run.events", EventsPayload(after_revision=after, limit=LIST_PAGE_MAX), run_id
        found += page.events
        after = page.next_after
    return tuple(found)


def output_value(run_id: str, node: str | None) -> Asking[tuple[str, Value]]:
    """The run, and its output or that of a node's newest visit that completed. `NotFound` says why there is none."""
    if node is None:
        whole: RunView = yield "run.view", StepsPayload(), run_id
        return whole.summary.run_id, run_output(whole)
    view = yield from steps_of(run_id, node)
    run_id = view.summary.run_id
    mount = view.graph.node(node).mount
    if mount is not None:
        node = yield from _left_by(view, mount)
        view = yield from steps_of(run_id, node)
    page = view.steps
    while page:
        for step in reversed(page):
            if step.status != "completed":
                continue
            if step.output is not None:
                return run_id, step.output
            one = yield from steps_of(run_id, node, before=step.attempt + 1)  # it was left out of a full page
            return run_id, _whole(one, step)
        page = (yield from steps_of(run_id, node, before=page[0].attempt)).steps
    how = view.steps[-1].status if view.steps else "not reached"
    raise NotFound(
        f"node {node!r} of run {run_id} has no output: it is {how}", hint=f"pwf show {run_id} {node}"
    )


def _left_by(view: RunView, mount: MountSpec) -> Asking[str]:
    """The node by which an included workflow was left after it was entered last. `NotFound` where it was not."""
    run_id, entered = view.summary.run_id, max((step.attempt for step in view.steps), default=0)
    last, found = entered, ""
    for leaf in (leaf for leaves in mount.exits.values() for leaf in leaves):
        steps = (yield from steps_of(run_id, leaf)).steps
        completed = max((step.attempt for step in steps if step.status == "completed"), default=0)
        if completed > last:
            last, found = completed, leaf
    if not found:
        how = "has not left it" if entered else "has not come to it"
        raise NotFound(
            f"{mount.workflow!r} has no output in run {run_id}, which {how}", hint=f"pwf show {run_id}"
        )
    return found


def run_output(view: RunView) -> Value:
    """The run's output; `NotFound` says why there is none."""
    if view.output is None:
        run_id = view.summary.run_id
        raise NotFound(
            f"run {run_id} has no output: it is {view.summary.status}", hint=f"pwf explain {run_id}"
        )
    return view.output


def steps_of(run_id: str, node: str, before: int | None = None) -> Asking[RunView]:
    """The run with a page of steps of one node, the newest. `NotFound` where its graph has no such node."""
    view: RunView = yield (
        "run.view",
        StepsPayload(node=node, before_attempt=before, limit=LIST_PAGE_MAX),
        run_id,
    )
    nodes = [one.id for one in view.graph.nodes]
    if node not in nodes:
        import difflib  # only for a mistake

        near = difflib.get_close_matches(node, nodes, n=1)
        hint = f"did you mean {near[0]}?" if near else f"its nodes are: {', '.join(nodes)}"
        raise NotFound(f"run {view.summary.run_id} has no node {node!r}", hint=hint)
    return view


def _whole(view: RunView, wanted: StepView) -> Value:
    step = view.steps[-1]
    assert step.attempt == wanted.attempt, "the page ends with it"
    assert step.output is not None, "the newest of a page is whole"
    return step.output


def decoded(data: bytes, type: Any) -> Any:
    """A value as this type. `msgspec.ValidationError` says what does not fit."""
    return msgspec.json.decode(data, type=type)


def ask_all(asking: Asking[T], call: Callable[[str, msgspec.Struct, str | None], Any]) -> T:
    """Do every question, one after the other."""
    try:
        question = next(asking)
        while True:
            question = asking.send(call(*question))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the generator returns
