"""The moves of a run, each a few lines: enter a node, begin and end an attempt, settle its effect, end the run.

Every caller is within a `Change`. What follows an outcome is decided here and nowhere else: retry, the declared way
out, or the end of the run. Where a run stands meanwhile is `place`.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec

from pwf.protocol import mounts
from pwf.protocol.graph import NodeSpec, RoutingFailed, route
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import Finish, Sequenced, StepError
from pwf.protocol.survivors import SURVIVORS_MAX, Survivor
from pwf.store import session_messages
from pwf.store.decision_rows import closed_with_run
from pwf.store.place import place, queue, release
from pwf.store.queries import load_queries
from pwf.store.state import Graph, RunState, encode
from pwf.store.tx import Tx
from pwf.store.values import store_value
from pwf.values import shortened

Q = load_queries(__file__)

REASON_MAX = 1_000  # characters, of why a run ended: lists show it


class Stored(NamedTuple):
    """A value as its columns hold it."""

    inline: bytes | None = None
    digest: str | None = None

    @property
    def crc32(self) -> int | None:
        """Of what stands inline: the other has its digest."""
        return None if self.inline is None else zlib.crc32(self.inline)


NOTHING = Stored()

DEATHS_MAX = 3  # of a step that takes its process with it and has no `retry`
DEATH_BACKOFF_MS = (0, 1_000)


def stored(tx: Tx, data: bytes | None) -> Stored:
    """Put canonical bytes where they belong: inline, or content-addressed."""
    return NOTHING if data is None else Stored(*store_value(tx, data))


def end(
    tx: Tx,
    run: RunState,
    status: str,
    *,
    output: Stored = NOTHING,
    error: StepError | None = None,
    reason: str | None = None,
) -> None:
    """End the run: everything that was open for it is closed in the same transaction."""
    active = tx.one(Q.active_attempt, {"run_no": run.run_no})
    if active is not None:
        end_attempt(tx, run, "cancelled" if status == "cancelled" else "interrupted", attempt=active[0])
    closed = {"run_id": run.run_id, "now": tx.now.wall_ms}
    if tx.run(Q.close_request, closed):
        closed_with_run(tx, run.run_id)
        if tx.run(Q.end_submissions, closed):
            tx.changed("submissions")
    tx.run(Q.close_effects, {"entity_no": run.run_no, "now": tx.now.wall_ms})
    tx.run(
        Q.save_end,
        {
            "run_no": run.run_no,
            "status": status,
            "reason": reason,
            "now": tx.now.wall_ms,
            "output": output.inline,
            "output_crc32": output.crc32,
            "output_digest": output.digest,
            "error": None if error is None else encode(error),
            "started_wall_ms": run.started_wall_ms,
        },
    )
    release(tx, run)
    run.pause_requested = 0
    place(tx, run, status)
    tx.changed("requests")


# --- nodes and attempts ---------------------------------------------------------------------------------------


def enter(tx: Tx, run: RunState, graph: Graph, node_id: str) -> bool:
    """Move the position to a node's next visit. False: `max_steps` is used up and the run has ended with that."""
    spent = run.spent(graph, node_id)
    if spent is not None:
        message = f"{spent}, and would enter {node_id!r} next"
        end(
            tx,
            run,
            "failed",
            error=StepError(code="max_steps", message=message, node=run.node),
            reason=message,
        )
        return False
    run.steps += 1
    run.node = node_id
    run.visit = run.visits[node_id] = run.visits.get(node_id, 0) + 1
    if graph.node(node_id).mount is not None:
        mounts.enter(run.entries, run.visits, node_id)
    run.tries = run.failures = 0
    run.observe = None
    return True


def begin_attempt(tx: Tx, run: RunState, node: NodeSpec, generation: int) -> None:
    """Start a try at the position, with its effect reserved.

    Its row may wait for its end, which mostly comes in the same command: `write_attempt` is owed then.
    """
    run.attempts += 1
    run.tries += 1
    run.unwritten = {
        "run_no": run.run_no,
        "attempt": run.attempts,
        "node": run.node,
        "visit": run.visit,
        "tries": run.tries,
        "generation": generation,
        "started": tx.now.wall_ms,
        "observing": run.observe is not None,
        "counted_from": None,
    }
    if node.mount is not None and (before := run.entries.get(node.id)):
        run.unwritten["counted_from"] = encode(before)
    if node.effect is not None and node.effect.mode != "parts":
        write_attempt(tx, run)
        tx.run(
            Q.reserve_effect,
            {
                "entity_no": run.run_no,
                "node": run.node,
                "visit": run.visit,
                "type": node.effect.type,
                "mode": node.effect.mode,
                "generation": generation,
                "now": tx.now.wall_ms,
            },
        )


def write_attempt(tx: Tx, run: RunState) -> None:
    """Write the row of an attempt that has begun and goes on."""
    if run.unwritten is not None:
        tx.run(Q.begin_attempt, run.unwritten)
        run.unwritten = None


def end_attempt(
    tx: Tx,
    run: RunState,
    status: str,
    *,
    attempt: int | None = None,
    output: Stored = NOTHING,
    error: bytes | None = None,
    active_ms: int = 0,
    message: Sequenced | None = None,
    verdict: str | None = None,
) -> bool:
    """Close the active attempt. False: it had ended already, and nothing was written.

    `message`: the runner's, which ended it, and got this `verdict`.
    """
    begun, run.unwritten = run.unwritten, None
    return bool(
        tx.run(
            Q.end_attempt if begun is None else Q.whole_attempt,
            {
                "run_no": run.run_no,
                "attempt": run.attempts if attempt is None else attempt,
                "status": status,
                "now": tx.now.wall_ms,
                "active_ms": active_ms,
                "output": output.inline,
                "output_crc32": output.crc32,
                "output_digest": output.digest,
                "error": error,
                "seq": message and message.seq,
                "verdict": verdict,
                "said": None if message is None else said(message),
                "observed": message.observed if isinstance(message, Finish) else None,
                **(begun or {}),
            },
        )
    )


def end_unknown(
    tx: Tx, run: RunState, message: Finish | None, error: StepError | None, facts: dict[str, object]
) -> None:
    """Close an attempt of which nobody knows what it did outside: by the runner's word, or since that is gone."""
    end_attempt(
        tx,
        run,
        "unknown",
        error=None if error is None else encode(error),
        active_ms=message.active_ms if message is not None else 0,
        message=message,
        verdict="park",
    )
    note(tx, run, "effect_unknown", "runner" if message else "daemon", facts)


def progressed(tx: Tx, run: RunState) -> None:
    """An attempt has ended, or somebody resumes the run: nothing that happened before counts against it."""
    run.crashes = 0
    if run.daemon_deaths:
        run.daemon_deaths = 0
        tx.run(Q.clear_deaths, {"run_no": run.run_no})


def said(message: Sequenced) -> int:
    """What tells a repeat of a message from another one under its number."""
    return zlib.crc32(encode(message))


def note_said(tx: Tx, run: RunState, message: Sequenced) -> None:
    """Keep the message that parks the run, and whose attempt goes on."""
    write_attempt(tx, run)
    tx.run(
        Q.note_said,
        {"run_no": run.run_no, "attempt": run.attempts, "seq": message.seq, "said": said(message)},
    )


def note_traces(
    tx: Tx, run: RunState, attempt: int, printed: int, survivors: tuple[Survivor, ...] = ()
) -> None:
    """Keep what an attempt leaves besides its outcome. Most leave nothing, and cost nothing here."""
    if printed or survivors:
        write_attempt(tx, run)
        found = encode(survivors[:SURVIVORS_MAX]) if survivors else None
        tx.run(
            Q.note_traces,
            {"run_no": run.run_no, "attempt": attempt, "printed": printed, "survivors": found},
        )


def settle_effect(tx: Tx, run: RunState, status: str, ref: str | None = None) -> None:
    """Close (or reopen, as ambiguous) the ledger's row of the present visit."""
    open_ = status in ("applying", "ambiguous")
    tx.run(
        Q.settle_effect,
        {
            "entity_no": run.run_no,
            "node": run.node,
            "visit": run.visit,
            "status": status,
            "ref": ref,
            "settled": None if open_ else tx.now.wall_ms,
        },
    )


# --- what follows an outcome ----------------------------------------------------------------------------------


class Follow(NamedTuple):
    """`next`: the node to enter. `retry_ms`: try the visit again after that time. Neither: the run ends."""

    next: str | None = None
    retry_ms: int | None = None


def follow(
    run: RunState, node: NodeSpec, outcome: str, proposed: str | None, *, died: bool = False
) -> Follow:
    """What an outcome leads to. `proposed` is the checked target after `completed`.

    `died`: it failed by taking its process with it, which may be no fault of its own (the machine ran out of memory).
    So it is tried again without a declared `retry`, too.
    """
    if outcome == "completed":
        return Follow(next=proposed)
    if outcome in ("failed", "timed_out"):
        run.failures += 1
        delay_ms = retry_ms(node, outcome, run.failures, died=died)
        if delay_ms is not None:
            return Follow(retry_ms=delay_ms)
    way = node.way(outcome)
    return Follow(next=None if way is None else way.target)


def retry_ms(node: NodeSpec, outcome: str, failures: int, *, died: bool = False) -> int | None:
    """After how long the visit is tried again when this outcome was its nth failure; None: it is not. See `follow`."""
    if outcome not in ("failed", "timed_out"):
        return None
    if node.retry is not None:
        return node.retry.delay_ms(failures) if failures <= node.retry.times else None
    return DEATH_BACKOFF_MS[failures - 1] if died and failures < DEATHS_MAX else None


def follow_output(run: RunState, node: NodeSpec, output: bytes) -> tuple[Follow, StepError | None]:
    """What an output leads to that no runner has routed; with the error where no case takes it, which ends the run."""
    try:
        return follow(run, node, "completed", route(node, "completed", msgspec.json.decode(output))), None
    except RoutingFailed as failure:
        return Follow(), StepError(code="routing_failed", message=str(failure), node=run.node)


def verdict(run: RunState, graph: Graph, then: Follow, *, go: bool) -> str:
    """The answer to the runner whose step leads there; `go`: a further node may begin in this runner."""
    if then.next is not None:
        if run.spent(graph, then.next) is not None:
            return "end"  # `enter` will end the run
        return "go" if go else "park"
    return "end" if then.retry_ms is None else "park"


def take(
    tx: Tx,
    run: RunState,
    graph: Graph,
    then: Follow,
    outcome: str,
    output: Stored,
    error: StepError | None,
    *,
    go: bool,
) -> None:
    """Take what follows: begin the next attempt (`go`), queue the run, or end it."""
    if then.retry_ms is not None:
        queue(tx, run, delay_ms=then.retry_ms)
    elif then.next is None:
        if outcome in ("failed", "timed_out") and KINDS[graph.node(run.node).kind].notifies:
            outcome, output, error = "completed", Stored(inline=b"null"), None
        end_after(tx, run, outcome, output, error)
    elif enter(tx, run, graph, then.next):
        if go:
            begin_attempt(tx, run, graph.node(run.node), run.generation)
        else:
            queue(tx, run)


def after_facts(facts: dict[str, object], run: RunState, then: Follow) -> dict[str, object]:
    """An event's payload with what followed."""
    if then.retry_ms is not None:
        facts["retry_ms"] = then.retry_ms
    elif run.ended:
        facts["run"] = run.status
    else:
        facts["next"] = run.node
    return facts


def end_after(
    tx: Tx, run: RunState, outcome: str, output: Stored, error: StepError | None, reason: str | None = None
) -> None:
    """End a run whose last node had this outcome and no way out."""
    if outcome == "completed" and error is None:
        end(tx, run, "completed", output=output)
        return
    status = "failed" if outcome == "completed" else outcome
    message = reason or (error.message if error is not None else f"node {run.node!r} {outcome}")
    end(tx, run, status, error=error, reason=shortened(f"{run.node}: {message}", REASON_MAX))


def note(tx: Tx, run: RunState, kind: str, actor: str, payload: dict[str, object]) -> None:
    """Write the event of the run's present revision and tell subscribers."""
    run.noted = run.revision
    if run.session_no is not None:
        session_messages.changed_by(tx, run)
    tx.event(run.run_no, run.revision, kind, actor, run.generation, encode(payload))
    tx.changed("run:" + run.run_id)


def took_too_long(node: NodeSpec) -> StepError:
    """The error of an attempt that was ended with its runner when its time was over."""
    text = f"node {node.id!r} took longer than its {node.timeout_ms or 0:,} ms"
    return StepError(code="runner_timed_out", message=text, node=node.id)


def decode_error(data: bytes | None) -> StepError | None:
    """The error of a row."""
    return None if data is None else msgspec.json.decode(data, type=StepError)
