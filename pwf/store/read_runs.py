"""What clients see of runs: lists, the single-run view, history, requests. Computed from rows, never kept."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pwf.errors import NotFound
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import REQUESTS, NodeKind, RequestKind
from pwf.protocol.operations import (
    EventPage,
    Explained,
    RequestList,
    RequestListPayload,
    RunList,
    RunListPayload,
)
from pwf.protocol.runner import StepError, Value, effect_key
from pwf.protocol.survivors import Survivor
from pwf.protocol.views import ENDED, RequestView, RunSummary, RunView, StepView, SubmissionView
from pwf.store import request_clock
from pwf.store.agent_work import usage_of, with_work
from pwf.store.channel_troubles import troubles
from pwf.store.effect_rows import effects_of_entity
from pwf.store.events import events_after
from pwf.store.explain import NAMED_MAX, Load, OpenRequest, RunFacts, explain
from pwf.store.follow_ups import follow_ups_of
from pwf.store.fork import retry_words
from pwf.store.queries import load_queries
from pwf.store.requests import resolve_request
from pwf.store.runs import RunEnvironment
from pwf.store.session_standing import session_standing
from pwf.store.settings_rows import current_settings
from pwf.store.state import RunState, graph_of, load_run, shown_status
from pwf.store.tx import Row, Tx
from pwf.store.updates import current_updates
from pwf.store.values import value_of
from pwf.values import shortened

Q = load_queries(__file__)

PAGE_MAX = 1_000
SCAN_PAGES_MAX = 50  # of a list with two filters: then the page ends early, with a cursor to go on from
TITLES_PAGE = 200  # runs that are looked at in a page while a title is looked for
STEPS_WARNED = 0.8  # of max_steps
SUMMARY_CHARS = 200
DEFAULT_CHARS = 100
ERROR_CHARS = 1_000  # of a message, on a page that holds no more
PAGE_BYTES = 400 * 1024  # of a frame's 1 MiB
NO_CURSOR = 2**62

T = TypeVar("T")

_encode = msgspec.json.encode
_environment = msgspec.json.Decoder(RunEnvironment)
_error = msgspec.json.Decoder(StepError)
_survivors = msgspec.json.Decoder(tuple[Survivor, ...])


# --- lists ----------------------------------------------------------------------------------------------------


def list_runs(tx: Tx, query: RunListPayload) -> RunList:
    """A page of runs, newest first."""
    limit = max(1, min(query.limit, PAGE_MAX))
    before = NO_CURSOR if query.cursor is None else query.cursor
    found: list[Row] = []
    page = limit if query.title is None else max(limit, TITLES_PAGE)
    for _ in range(SCAN_PAGES_MAX):
        rows = _page(tx, query, before, page)
        found += [row for row in rows if _wanted(row, query)]
        if len(rows) < page or _is_older(rows, query):
            before = 0
            break
        before = rows[-1][0]
        if len(found) >= limit:
            break
    runs = _fitting([_summary(row) for row in found[:limit]])
    if len(runs) < len(found):
        before = found[len(runs) - 1][0]
    return RunList(runs=runs, next_cursor=before or None)


def _fitting(items: list[T]) -> tuple[T, ...]:
    """The first items of a page, at least one, that fit into a frame; the cursor goes on from there."""
    left = PAGE_BYTES
    for count, item in enumerate(items):
        left -= len(_encode(item))
        if left < 0 and count:
            return tuple(items[:count])
    return tuple(items)


def _is_older(rows: list[Row], query: RunListPayload) -> bool:
    """Whether a whole page was made before the time that is asked for: so were the pages after it."""
    since = query.since_ms
    return since is not None and all(row[8] < since for row in rows)


def _page(tx: Tx, query: RunListPayload, before: int, limit: int) -> list[Row]:
    params: dict[str, object] = {"before": before, "limit": limit}
    if query.statuses:
        rows: dict[int, Row] = {}
        for sql, more in _sources(query.statuses):
            rows.update({row[0]: row for row in tx.all(sql, {**params, **more})})
        return [rows[number] for number in sorted(rows, reverse=True)[:limit]]
    if query.workflow is not None:
        return tx.all(Q.page_of_workflow, {**params, "workflow": query.workflow})
    return tx.all(Q.page, params)


def _sources(statuses: tuple[str, ...]) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    for status in statuses:
        if status == "paused":
            found.append((Q.page_of_hold, {"hold": "paused"}))
        elif status == "ambiguous":
            found.append((Q.page_of_hold, {"hold": "effect_ambiguous"}))
        else:
            found.append((Q.page_of_status, {"status": status}))
        if status == "held":  # a run that waits may be held as well
            found += [(Q.page_of_hold, {"hold": hold}) for hold in ("process_unreaped", "restored")]
    return found


def _wanted(row: Row, query: RunListPayload) -> bool:
    if query.workflow is not None and row[2] != query.workflow:
        return False
    if query.since_ms is not None and row[8] < query.since_ms:
        return False
    if query.title is not None and query.title.casefold() not in (row[3] or "").casefold():
        return False
    return not query.statuses or shown_status(row[4], row[5]) in query.statuses


def _summary(row: Row) -> RunSummary:
    (_no, run_id, workflow, title, status, hold, detail, node, created, started, ended, due, reason, steps,
     restarted_from, restart_root, restart_no, forked_from, revision, generation, request_id,
     gone_on_as) = row  # fmt: skip
    return RunSummary(
        run_id=run_id,
        workflow=workflow,
        title=title,
        status=shown_status(status, hold),  # type: ignore[arg-type]
        revision=revision,
        generation=generation,
        node=node,
        created_ms=created,
        started_ms=started,
        ended_ms=ended,
        due_ms=due,
        hold=hold,
        reason=detail if hold is not None else reason,
        request_id=request_id,
        steps=steps,
        restarted_from=restarted_from,
        restart_root=restart_root,
        restart_no=restart_no,
        forked_from=forked_from,
        gone_on_as=gone_on_as,
    )


# --- one run --------------------------------------------------------------------------------------------------


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`load`: what the scheduler knows at this moment. The page of steps ends before an attempt (None: newest)."""

    run_id: str
    load: Load = Load()
    before_attempt: int | None = None
    limit: int = 100
    node: str | None = None


def summary_of(tx: Tx, run_id: str) -> RunSummary:
    """A run's line."""
    return _summary(_row(tx, run_id))


def output_of(tx: Tx, run_id: str) -> Value | None:
    """A run's output, if it has one."""
    row = tx.one(Q.output, {"run_id": run_id})
    if row is None or (row[0] is None and row[1] is None):
        return None
    return value_of(*row)


def run_summary(tx: Tx, query: RunQuery) -> Explained:
    """A run's line and its reason."""
    summary = summary_of(tx, query.run_id)
    return Explained(summary=summary, explanation=explain(_standing(tx, query.run_id), query.load, tx.now))


def _row(tx: Tx, run_id: str) -> Row:
    row = tx.one(Q.one, {"run_id": run_id})
    if row is None:
        raise NotFound(f"there is no run {run_id!r}", hint="pwf ls lists the runs")
    return row


def _standing(tx: Tx, run_id: str) -> RunFacts:
    run = load_run(tx, run_id)
    queue = tx.one(Q.queue_state, {"run_id": run_id})
    runner = tx.one(Q.runner_state, {"run_id": run_id})
    active = tx.one(Q.active_since, {"run_id": run_id})
    request = tx.one(Q.open_request, {"run_id": run_id})
    gone_on = tx.one(Q.gone_on_as, {"run_id": run_id}) if run.ended else None
    may_retry = run.ended and run.status != "completed" and gone_on is None
    due_in_ms = None
    if queue is not None and queue[0] == "later":
        due_in_ms = request_clock.left_ms(tx, *queue[1:])
    return RunFacts(
        run_id=run_id,
        status=run.status,
        hold=run.hold,
        hold_detail=run.hold_detail,
        node=run.node,
        reason=run.reason,
        request=None if request is None else _open_request(tx, request),
        session=session_standing(tx, run.session_no, run.run_no),
        tries=run.tries,
        failures=run.failures,
        daemon_deaths=run.daemon_deaths,
        pause_requested=bool(run.pause_requested),
        queue_state=None if queue is None else queue[0],
        due_wall_ms=None if queue is None else queue[1],
        due_in_ms=due_in_ms,
        runner_state=None if runner is None else runner[0],
        active_since_ms=None if active is None else active[2],
        timeout_ms=_timeout_ms(tx, run) if run.status == "running" else None,
        unknown_effects=_unknown_effects(tx, run),
        retry=retry_words(tx, run_id) if may_retry else None,
        gone_on_as=None if gone_on is None else (gone_on[0], gone_on[1]),
    )


def _open_request(tx: Tx, row: Row) -> OpenRequest:
    request_id, kind, *deadline, left_ms, default = row
    return OpenRequest(
        request_id=request_id,
        kind=kind,
        deadline_wall_ms=_deadline_ms(tx, *deadline),
        left_ms=left_ms,
        default=None if default is None else _default_words(kind, default),
        submission=_submission(tx, request_id) if REQUESTS[kind].submitted else None,
        troubles=troubles(tx, request_id),
    )


def _default_words(kind: RequestKind, default: bytes) -> str:
    words = default.decode("utf-8", "replace")
    if REQUESTS[kind].decided:
        words = str(msgspec.json.decode(default)["choice"])
    return shortened(words, DEFAULT_CHARS)


def _deadline_ms(
    tx: Tx, wall_ms: int | None, elapsed_ms: int | None, boot_id: str | None, settled_ms: int | None = None
) -> int | None:
    """What the wall clock is expected to show at a deadline."""
    left_ms = request_clock.left_ms(tx, wall_ms, elapsed_ms, boot_id)
    return wall_ms if left_ms is None or settled_ms is not None else tx.now.wall_ms + left_ms


def _unknown_effects(tx: Tx, run: RunState) -> tuple[str, ...]:
    if not run.ended and run.hold != "effect_ambiguous":
        return ()
    rows = tx.all(Q.unknown_effects, {"run_no": run.run_no, "limit": NAMED_MAX})
    return tuple(effect_key(run.run_id, *row) for row in rows)


def _timeout_ms(tx: Tx, run: RunState) -> int | None:
    return graph_of(tx, run.definition_id).node(run.node).timeout_ms


def run_view(tx: Tx, query: RunQuery) -> RunView:
    """The whole view of one run, bounded."""
    row = tx.one(Q.body, {"run_id": query.run_id})
    explained = run_summary(tx, query)
    assert row is not None
    (run_no, definition_id, input_, input_digest, input_size, output, output_digest, output_size, error, root, _path,
     body, max_steps, fork_node, fork_visit, agent, session) = row  # fmt: skip
    graph = graph_of(tx, definition_id).limited(max_steps)
    environment = _environment.decode(body)
    total = tx.one(Q.steps_total, {"run_id": query.run_id})
    has_output = output is not None or output_digest is not None
    settings = current_settings(tx, run_no, graph)
    newest = tx.one(Q.newest_request, {"run_id": query.run_id})
    request = None if newest is None else _request(tx, newest)
    return RunView(
        summary=explained.summary,
        agent=agent,
        usage=None if agent is None else usage_of(tx, run_no),
        session=session,
        follow_ups=() if session is None else follow_ups_of(tx, run_no),
        explanation=explained.explanation,
        graph=graph.graph,
        root=root,
        input=value_of(input_, input_digest, input_size),
        output=value_of(output, output_digest, output_size) if has_output else None,
        error=None if error is None else _error.decode(error),
        steps=with_work(tx, run_no, _steps(tx, query, {node.id: node.kind for node in graph.graph.nodes})),
        steps_total=total[0] if total else 0,
        updates=current_updates(
            tx, query.run_id, total[0] if total and explained.summary.status == "running" else 0
        ),
        settings_change=None if settings is None else settings.change,
        request=request,
        effects=effects_of_entity(tx, run_no),
        restarts=tuple(r[0] for r in tx.all(Q.restarts, {"run_id": query.run_id})),
        forks=tuple(r[0] for r in tx.all(Q.forks, {"run_id": query.run_id})),
        fork_node=fork_node,
        fork_visit=fork_visit or 0,
        controls=_controls(explained.summary, request),
        warnings=_warnings(explained.summary, graph.graph),
        definition_id=definition_id,
        interpreter=environment.interpreter,
        python=environment.python,
        pwf=environment.pwf,
    )


def _warnings(summary: RunSummary, graph: WorkflowGraph) -> tuple[str, ...]:
    if summary.status in ENDED or summary.steps < graph.max_steps * STEPS_WARNED:
        return ()
    more = graph.max_steps - summary.steps
    return (
        f"it is in step {summary.steps:,} of at most {graph.max_steps:,} (max_steps): "
        + (f"with more than {more:,} more it fails" if more else "it fails if this is not the last"),
    )


def _controls(summary: RunSummary, request: RequestView | None) -> tuple[str, ...]:
    if summary.status in ENDED:
        return ("restart", "fork") if summary.status == "completed" else ("restart", "retry", "fork")
    if summary.hold == "effect_ambiguous":
        return ("recover", "pause", "cancel")
    found = ["resume" if summary.hold is not None else "pause", "cancel"]
    if request is not None and request.status == "pending":
        facts = REQUESTS[request.kind]
        found += ["answer"] * facts.plain + ["submit"] * facts.submitted
    return tuple(found)


def _steps(tx: Tx, query: RunQuery, kinds: dict[str, NodeKind]) -> tuple[StepView, ...]:
    before = NO_CURSOR if query.before_attempt is None else query.before_attempt
    limit = max(1, min(query.limit, PAGE_MAX))
    left = PAGE_BYTES  # outputs and tracebacks travel, newest first, while the page still fits a frame
    steps: list[StepView] = []
    for row in tx.all(
        Q.steps, {"run_id": query.run_id, "before": before, "node": query.node, "limit": limit}
    ):
        left -= len(row[10] or b"") + len(row[11] or b"") + len(row[14] or b"")
        steps.append(step_view(row, kinds, whole=left > 0))
    return tuple(reversed(steps))


def step_view(row: Row, kinds: dict[str, NodeKind], *, whole: bool) -> StepView:
    (
        attempt,
        node,
        visit,
        tries,
        status,
        generation,
        started,
        ended,
        active_ms,
        printed,
        survivors,
        output,
        digest,
        size,
        error,
        observed,
        adopted,
        notice,
    ) = row
    failure = None if error is None else _error.decode(error)
    summary = ""
    if failure is not None:
        summary = failure.message
        if not whole:
            left_out = f"(left out here: {len(failure.traceback):,} characters)" if failure.traceback else ""
            failure = msgspec.structs.replace(
                failure, message=shortened(summary, ERROR_CHARS), traceback=left_out
            )
    elif output is not None:
        summary = output.decode("utf-8", "replace")
    elif digest is not None:
        summary = f"{size:,} bytes"
    shown = status == "completed" and (whole or digest is not None)
    return StepView(
        attempt=attempt,
        node=node,
        visit=visit,
        tries=tries,
        kind=kinds[node],
        status=status,
        generation=generation,
        started_ms=started,
        ended_ms=ended,
        active_ms=active_ms,
        printed_bytes=printed,
        survivors=() if survivors is None else _survivors.decode(survivors),
        observed=bool(observed),
        adopted=adopted,
        notice=notice,
        summary=shortened(summary, SUMMARY_CHARS),
        output=value_of(output, digest, size) if shown else None,
        error=failure,
    )


# --- history, requests, content -------------------------------------------------------------------------------


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    after_revision: int = 0
    limit: int = 100


def run_events(tx: Tx, query: EventsQuery) -> EventPage:
    """A page of a run's history."""
    limit = max(1, min(query.limit, PAGE_MAX))
    found = events_after(tx, query.run_id, query.after_revision, limit)
    events = _fitting(list(found))
    full = len(found) == limit or len(events) < len(found)
    return EventPage(run_id=query.run_id, events=events, next_after=events[-1].revision if full else None)


def request_list(tx: Tx, query: RequestListPayload) -> RequestList:
    """Requests, oldest first; or the one that is named."""
    if query.request is not None:
        return RequestList(requests=(request_view(tx, resolve_request(tx, query.request, query.kinds)),))
    limit = max(1, min(query.limit, PAGE_MAX))
    rows = [
        row
        for status in query.statuses
        for row in tx.all(Q.requests_of_status, {"status": status, "limit": limit})
    ]
    rows.sort(key=lambda row: (row[10], row[0]))
    return RequestList(requests=tuple(_request(tx, row) for row in rows[:limit]))


def request_view(tx: Tx, request_id: str) -> RequestView:
    """One request, by its exact id."""
    row = tx.one(Q.one_request, {"request_id": request_id})
    assert row is not None, "whoever asks has found it"
    return _request(tx, row)


def _request(tx: Tx, row: Row) -> RequestView:
    (request_id, run_id, workflow, node, kind, status, prompt, prompt_digest, prompt_size, schema, created, settled,
     answer, answer_digest, answer_size, answered_by, revision, wall_ms, elapsed_ms, boot_id, left_ms,
     default) = row  # fmt: skip
    answered = answer is not None or answer_digest is not None
    return RequestView(
        request_id=request_id,
        run_id=run_id,
        workflow=workflow,
        node=node,
        kind=kind,
        status=status,
        revision=revision,
        prompt=value_of(prompt, prompt_digest, prompt_size),
        schema=None if schema is None else msgspec.json.decode(schema),
        created_ms=created,
        settled_ms=settled,
        answer=value_of(answer, answer_digest, answer_size) if answered else None,
        answered_by=answered_by,
        deadline_ms=_deadline_ms(tx, wall_ms, elapsed_ms, boot_id, settled),
        left_ms=left_ms if status == "pending" else None,
        default=None if default is None else value_of(default, None, None),
        submission=_submission(tx, request_id) if REQUESTS[kind].submitted else None,
    )


def _submission(tx: Tx, request_id: str) -> SubmissionView | None:
    row = tx.one(Q.newest_submission, {"request_id": request_id})
    if row is None:
        return None
    status, reason, submitted_by, at = row
    return SubmissionView(status=status, reason=reason, submitted_by=submitted_by, submitted_ms=at)


class Refers(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    digest: str


def refers(tx: Tx, query: Refers) -> bool:
    """Whether a run refers to a value; a digest alone opens nothing."""
    return tx.one(Q.refers, {"run_id": query.run_id, "digest": query.digest}) is not None
