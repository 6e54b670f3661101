"""What happens between a run and its runner: custody, launch, messages, the runner's end.

The runner proposes, this decides. Messages are applied in the order of their `seq` under generation and token; a
repeat gets the answer that it got before; a stale writer gets `ClaimLost` and nothing is written.
"""

from __future__ import annotations

import msgspec

from pwf.errors import ClaimLost, InvalidValue
from pwf.protocol.graph import NodeSpec
from pwf.protocol.runner import (
    Ask,
    Finish,
    Launch,
    PastStep,
    Publish,
    Reply,
    Sequenced,
    StepError,
    Value,
    WaitUntil,
)
from pwf.protocol.spawn import Identity
from pwf.store import moves
from pwf.store.queries import load_queries
from pwf.store.state import Graph, RunState, encode, graph_of, load_run, save_position
from pwf.store.tx import Tx
from pwf.store.values import claim_value, value_of

Q = load_queries(__file__)

CRASHES_MAX = 3  # runner ends in a row without progress, then the hold no_progress (design, section 7)
CRASH_BACKOFF_MS = (0, 500, 1_000)
UPDATES_MAX = 64  # current items a run (design, section 11)


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor shows with each write."""

    run_id: str
    generation: int
    token: str


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that the runner is in; the supervisor enforces its deadline."""

    attempt: int
    node: str
    timeout_ms: int | None
    applying: bool  # a manual effect is being applied


# --- launch ---------------------------------------------------------------------------------------------------


class RunnerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A process stands ready. `limits` fills the launch's limits (`Launch` field names)."""

    fence: Fence
    identity: Identity
    limits: dict[str, int | None] = {}


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    launch: Launch
    current: Current


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A pause came before the launch: the runner is not needed."""


def runner_started(tx: Tx, command: RunnerStarted) -> Launched | Parked:
    """Record custody, begin the attempt at the position, and say everything that the runner needs."""
    run = _owned(tx, command.fence)
    if run.pause_requested:
        moves.hold(tx, run, "paused", None)
        _part(tx, run)
        save_position(tx, run)
        moves.note(tx, run, "held", "daemon", {"hold": "paused"})
        return Parked()
    graph = graph_of(tx, run.definition_id)
    node = graph.node(run.node)
    identity = command.identity
    tx.run(
        Q.runner_started,
        {
            "run_id": run.run_id,
            "generation": run.generation,
            "pid": identity.pid,
            "start_tick": identity.start_tick,
            "boot_id": identity.boot_id,
            "session": identity.session,
        },
    )
    past = _past(tx, run) if run.attempts else ()
    moves.begin_attempt(tx, run, node, run.generation)
    run.seq = 0
    if run.started_wall_ms is None:
        run.started_wall_ms, run.placed = tx.now.wall_ms, True
    save_position(tx, run)
    moves.note(
        tx,
        run,
        "launched",
        "daemon",
        {"node": run.node, "attempt": run.attempts, "visit": run.visit, "pid": identity.pid},
    )
    row = tx.one(Q.input, {"run_id": run.run_id})
    assert row is not None
    launch = Launch(
        run_id=run.run_id,
        generation=run.generation,
        graph=graph.graph,
        input=value_of(row[0], row[1], row[2]),
        node=run.node,
        visit=run.visit,
        attempt=run.attempts,
        tries=run.tries,
        observe=run.observe is not None,
        observe_then=run.observe if run.observe in ("failed", "timed_out") else None,  # type: ignore[arg-type]
        effect_key=run.effect_key if node.effect is not None else None,
        attempt_started_wall_ms=tx.now.wall_ms,
        past=past,
        visits=run.visits,
        steps_taken=run.steps - 1,
        root=row[3],
        files=_data_files(tx, run) if graph.graph.files else {},
        **command.limits,  # type: ignore[arg-type]
    )
    return Launched(launch=launch, current=_current(run, node))


def _past(tx: Tx, run: RunState) -> tuple[PastStep, ...]:
    latest: dict[tuple[str, bool], PastStep] = {}
    for node, visit, status, output, output_digest, size, error in tx.all(Q.past, {"run_id": run.run_id}):
        done = status == "completed"
        step = PastStep(
            node=node,
            visit=visit,
            outcome=status,
            output=value_of(output, output_digest, size) if done else None,
            error=moves.decode_error(error),
        )
        if done:
            latest.pop((node, False), None)  # an older failure says nothing any more
        latest.pop((node, done), None)
        latest[node, done] = step
    return tuple(latest.values())


def _data_files(tx: Tx, run: RunState) -> dict[str, Value]:
    rows = tx.all(Q.data_files, {"definition_id": run.definition_id})
    return {path: Value(digest=digest, size=size) for path, digest, size in rows}


def _current(run: RunState, node: NodeSpec) -> Current:
    manual = node.effect is not None and node.effect.mode == "manual"
    return Current(attempt=run.attempts, node=run.node, timeout_ms=node.timeout_ms, applying=manual)


def _owned(tx: Tx, fence: Fence, *, expected_status: str = "running") -> RunState:
    """Load a run and pass its fence."""
    run = load_run(tx, fence.run_id)
    if run.generation != fence.generation or run.lease_token != fence.token or run.status != expected_status:
        raise ClaimLost(f"run {run.run_id} is {run.shown_status} in generation {run.generation} by now")
    run.revision = tx.fence(run.entity_id, generation=fence.generation, token=fence.token)
    return run


# --- messages -------------------------------------------------------------------------------------------------


class RunnerMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What has arrived from one runner, in order. `drain`: the daemon is stopping, so nothing new begins."""

    fence: Fence
    messages: tuple[Sequenced, ...]
    drain: bool = False


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """One reply per message. `current` is set while the runner goes on."""

    replies: tuple[Reply, ...]
    current: Current | None = None


def apply_messages(tx: Tx, command: RunnerMessages) -> Applied:
    """Apply a runner's messages. Once one is answered with anything but `go`, the rest get that answer too."""
    fence = command.fence
    run = load_run(tx, fence.run_id)
    graph = graph_of(tx, run.definition_id)
    replies: list[Reply] = []
    verdict, fault = "go", None
    for message in command.messages:
        if verdict == "go":
            if run.generation != fence.generation:
                verdict = "claim_lost"
            elif message.seq <= run.seq:
                replies.append(_replay(tx, run, message.seq))
                continue
            elif run.lease_token != fence.token or run.status != "running":
                verdict = "claim_lost"
            elif (fault := _fault(tx, run, graph, message)) is not None:
                verdict = "refused"
            else:
                run.revision = tx.fence(run.entity_id, generation=fence.generation, token=fence.token)
                verdict = _apply(tx, run, graph, message, may_go=not command.drain)
        replies.append(Reply(seq=message.seq, verdict=verdict, error=fault))  # type: ignore[arg-type]
    if verdict not in ("claim_lost", "refused"):
        save_position(tx, run)
    current = None
    if verdict == "go" and run.status == "running":
        current = _current(run, graph.node(run.node))
    return Applied(replies=tuple(replies), current=current)


def _replay(tx: Tx, run: RunState, seq: int) -> Reply:
    row = tx.one(Q.reply_of, {"run_id": run.run_id, "generation": run.generation, "seq": seq})
    if row is None or row[0] is None:
        return Reply(seq=seq, verdict="park")  # a request or a timer: its answer was always to park
    return Reply(seq=seq, verdict=row[0])


def _fault(tx: Tx, run: RunState, graph: Graph, message: Sequenced) -> str | None:
    """What is wrong with a message of the rightful owner; None when nothing is."""
    if message.seq != run.seq + 1:
        return f"message {message.seq} came after {run.seq}"
    if message.attempt != run.attempts:
        return f"message names attempt {message.attempt}; the run is in attempt {run.attempts}"
    node = graph.node(run.node)
    if isinstance(message, Finish):
        if message.outcome == "completed" and message.route_error is None:
            if not graph.may_lead(run.node, "completed", message.next):
                return f"the graph has no way from {run.node!r} to {message.next!r} after completed"
            if message.output is None:
                return "completed without an output"
        if message.settled is not None and node.effect is None:
            return f"node {run.node!r} declares no effect"
        if message.settled == "unknown" and message.outcome not in ("failed", "timed_out"):
            return f"an effect of unknown outcome can not be {message.outcome}"
        return _missing(tx, run, message.output)
    if isinstance(message, WaitUntil):
        if node.kind != "wait" or (message.delay_ms is None) == (message.wall_ms is None):
            return "a timer needs a wait node and exactly one time"
    elif node.kind == "wait":
        return "a wait node asks nothing"
    else:
        return _missing(tx, run, message.prompt)
    return None


def _missing(tx: Tx, run: RunState, value: Value | None) -> str | None:
    if value is None or value.digest is None:
        return None
    try:
        claim_value(tx, value.digest, run.run_id, run.generation)
    except InvalidValue as error:
        return error.message
    return None


def _apply(tx: Tx, run: RunState, graph: Graph, message: Sequenced, *, may_go: bool) -> str:
    run.seq = message.seq
    run.crashes = 0
    if message.title is not None:
        run.title = message.title[:200]
    if isinstance(message, Finish):
        return _finish(tx, run, graph, message, may_go=may_go)
    if isinstance(message, Ask):
        _ask(tx, run, message)
    else:
        _wait(tx, run, message)
    _part(tx, run)
    return "park"


def _finish(tx: Tx, run: RunState, graph: Graph, message: Finish, *, may_go: bool) -> str:
    node = graph.node(run.node)
    output, error = _named(message.output), message.error
    if message.settled == "unknown":
        return _unknown(tx, run, node, message, message.outcome)
    if error is None and message.outcome != "completed" and message.observed:
        row = tx.one(Q.previous_error, {"run_id": run.run_id})
        error = None if row is None else moves.decode_error(row[0])
    if node.effect is not None:
        moves.settle_effect(tx, run, _settled(node, message), message.effect_ref)
    run.observe = None
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": message.outcome}
    then = moves.Follow() if message.route_error else moves.follow(run, node, message.outcome, message.next)
    go = may_go and not run.pause_requested and run.steps < graph.graph.max_steps
    verdict = moves.verdict(then, go=go)
    moves.end_attempt(
        tx,
        run,
        message.outcome,
        output=output,
        error=None if error is None else encode(error),
        active_ms=message.active_ms,
        seq=message.seq,
        verdict=verdict,
    )
    moves.take(tx, run, graph, then, message.outcome, output, message.route_error or error, go=go)
    moves.note(tx, run, "step_finished", "runner", moves.after_facts(facts, run, then))
    if verdict != "go":
        _part(tx, run)
    return "end" if run.ended else verdict


def _settled(node: NodeSpec, message: Finish) -> str:
    if message.settled is not None:
        return message.settled
    assert node.effect is not None
    if message.outcome == "completed":
        return "applied"
    return "failed" if node.effect.mode == "idempotent" else "rejected"


def _named(value: Value | None) -> moves.Stored:
    """A runner's value: inline bytes as they stand, or the digest that it has uploaded."""
    if value is None:
        return moves.NOTHING
    if value.digest is not None:
        return moves.Stored(digest=value.digest)
    assert value.json is not None
    return moves.Stored(inline=bytes(value.json))


def _part(tx: Tx, run: RunState) -> None:
    """The run is parked: the runner has nothing more to do for it."""
    moves.release(tx, run)
    tx.run(Q.runner_ending, {"run_id": run.run_id, "generation": run.generation})


def _unknown(tx: Tx, run: RunState, node: NodeSpec, message: Finish | None, outcome: str) -> str:
    """A manual effect that may or may not have happened: observe it, or hold the run for a person."""
    assert node.effect is not None
    observed = message is not None and message.observed
    error = message.error if message is not None else None
    if message is None:
        if run.observe in (None, "run"):  # an outcome that is still to be reported stays
            run.observe = "run" if outcome == "interrupted" else outcome
    elif not observed:
        run.observe = outcome
    moves.end_attempt(
        tx,
        run,
        "unknown",
        error=None if error is None else encode(error),
        active_ms=message.active_ms if message is not None else 0,
        seq=message.seq if message is not None else None,
        verdict="park",
    )
    moves.note(
        tx,
        run,
        "effect_unknown",
        "runner" if message else "daemon",
        {"effect": run.effect_key, "observed": observed},
    )
    if node.effect.observable and not observed:
        moves.settle_effect(tx, run, "applying")
        moves.queue(tx, run)
    else:
        moves.settle_effect(tx, run, "ambiguous")
        what = "observe() could not tell" if observed else "the node has no observe function"
        moves.hold(tx, run, "effect_ambiguous", f"the outcome of effect {run.effect_key} is unknown: {what}")
    _part(tx, run)
    return "park"


def _ask(tx: Tx, run: RunState, message: Ask) -> None:
    prompt = _named(message.prompt)
    request_id = tx.ids.new()
    tx.run(
        Q.add_request,
        {
            "request_id": request_id,
            "run_id": run.run_id,
            "node": run.node,
            "visit": run.visit,
            "attempt": run.attempts,
            "kind": message.kind,
            "prompt": prompt.inline,
            "prompt_digest": prompt.digest,
            "schema": None if message.schema is None else encode(message.schema),
            "now": tx.now.wall_ms,
        },
    )
    moves.note(
        tx, run, "request_opened", "runner", {"request": request_id, "kind": message.kind, "node": run.node}
    )
    run.status, run.placed = "waiting", True
    if run.pause_requested:
        moves.hold(tx, run, "paused", None, waiting=True)
    else:
        tx.run(moves.Q.dequeue, {"run_id": run.run_id})
    tx.changed("requests")


def _wait(tx: Tx, run: RunState, message: WaitUntil) -> None:
    delay_ms = max(0, message.delay_ms) if message.delay_ms is not None else 0
    moves.queue(tx, run, delay_ms=delay_ms, wall_ms=message.wall_ms)
    moves.note(tx, run, "timer_set", "runner", {"node": run.node, "due_ms": run.due_wall_ms})


# --- updates --------------------------------------------------------------------------------------------------


class PublishUpdates(msgspec.Struct, frozen=True, kw_only=True):
    fence: Fence
    updates: tuple[Publish, ...]


def publish_updates(tx: Tx, command: PublishUpdates) -> int:
    """Keep the newest record per kind and key, at most `UPDATES_MAX` a run; returns how many were dropped.

    Updates count no revision: they are no step of the run, and views read them from their rows.
    """
    fence = command.fence
    owner = {"entity_id": f"run:{fence.run_id}", "generation": fence.generation, "token": fence.token}
    if tx.one(Q.lease_holder, owner) is None:
        raise ClaimLost(f"run {fence.run_id} has another owner by now")
    dropped = 0
    for update in command.updates:
        params = {"run_id": fence.run_id, "kind": update.kind, "key": update.key}
        count = tx.one(Q.count_updates, {"run_id": fence.run_id})
        known = tx.one(Q.update_known, params)
        if known is None and count is not None and count[0] >= UPDATES_MAX:
            dropped += 1
            continue
        tx.run(Q.put_update, {**params, "data": bytes(update.data), "now": tx.now.wall_ms})
    tx.changed("run:" + fence.run_id)
    return dropped


# --- the runner's end -----------------------------------------------------------------------------------------


class RunnerGone(msgspec.Struct, frozen=True, kw_only=True):
    """A runner's process has ended. `proved`: it and all that it started are dead.

    `timed_out`: we ended it because the attempt's time was over. `stopped`: it was ended with or by the daemon or
    the machine, which counts against nobody. `error` is kept with an interrupted attempt.
    """

    run_id: str
    generation: int
    proved: bool
    timed_out: int | None = None  # the attempt
    stopped: bool = False
    error: StepError | None = None


def runner_gone(tx: Tx, command: RunnerGone) -> None:
    """Settle what the runner left open, from the last committed boundary. Safe to repeat."""
    run = load_run(tx, command.run_id)
    if run.generation == command.generation and run.status == "running":
        run.revision = tx.fence(run.entity_id, generation=command.generation)
        _settle_interrupted(tx, run, command)
        save_position(tx, run)
    elif run.generation == command.generation and not command.proved and not run.ended and run.hold is None:
        run.revision = tx.fence(run.entity_id, generation=command.generation)
        detail = "processes of its last runner could not be shown dead"
        moves.hold(tx, run, "process_unreaped", detail, waiting=run.status == "waiting")
        save_position(tx, run)
        moves.note(tx, run, "held", "daemon", {"hold": "process_unreaped"})
    if command.proved:
        tx.run(Q.delete_runner, {"run_id": command.run_id, "generation": command.generation})
        tx.run(Q.drop_holds, {"run_id": command.run_id, "generation": command.generation})
    else:
        tx.run(Q.runner_ending, {"run_id": command.run_id, "generation": command.generation})
    tx.changed("queue")
    tx.changed("run:" + command.run_id)


def _settle_interrupted(tx: Tx, run: RunState, command: RunnerGone) -> None:
    graph = graph_of(tx, run.definition_id)
    active = tx.one(moves.Q.active_attempt, {"run_id": run.run_id})
    timed_out = active is not None and command.timed_out == active[0]
    node = graph.node(run.node)
    if active is not None and node.effect is not None and node.effect.mode == "manual":
        _unknown(tx, run, node, None, "timed_out" if timed_out else "interrupted")
    elif timed_out:
        _timed_out(tx, run, graph, node)
    else:
        if active is not None:
            error = None if command.error is None else encode(command.error)
            moves.end_attempt(tx, run, "interrupted", attempt=active[0], error=error)
        _go_on(tx, run, command)
    if not command.proved and not run.ended:
        detail = "processes of its last runner could not be shown dead"
        moves.hold(tx, run, "process_unreaped", detail, waiting=run.status == "waiting")


def _timed_out(tx: Tx, run: RunState, graph: Graph, node: NodeSpec) -> None:
    timeout_ms = node.timeout_ms or 0
    text = f"node {run.node!r} took longer than its {timeout_ms:,} ms"
    error = StepError(code="runner_timed_out", message=text, node=run.node)
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": "timed_out"}
    then = moves.follow(run, node, "timed_out", None)
    moves.end_attempt(tx, run, "timed_out", error=encode(error), active_ms=timeout_ms)
    if node.effect is not None:
        moves.settle_effect(tx, run, "failed")
    run.crashes = 0
    moves.take(tx, run, graph, then, "timed_out", moves.NOTHING, error, go=False)
    moves.note(tx, run, "step_finished", "daemon", moves.after_facts(facts, run, then))
    moves.release(tx, run)


def _go_on(tx: Tx, run: RunState, command: RunnerGone) -> None:
    run.crashes += 0 if command.stopped else 1
    facts: dict[str, object] = {"node": run.node, "crashes": run.crashes, "stopped": command.stopped}
    moves.note(tx, run, "runner_gone", "daemon", facts)
    if run.crashes >= CRASHES_MAX:
        detail = f"its runner ended {run.crashes} times in a row at node {run.node!r} without progress"
        moves.hold(tx, run, "no_progress", detail)
    else:
        moves.queue(tx, run, delay_ms=CRASH_BACKOFF_MS[run.crashes] if run.crashes > 1 else 0)
    moves.release(tx, run)
