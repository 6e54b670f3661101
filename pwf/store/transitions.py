"""What a runner proposes, decided: the end of an attempt and the start of the next, a question, a timer.

Messages are applied in the order of their `seq` under generation and token; a repeat gets the answer that it got
before; a stale writer gets `claim_lost` and nothing is written.
"""

from __future__ import annotations

import msgspec

from pwf.errors import InvalidValue, RunnerCrashed
from pwf.protocol.agents import AgentCommand
from pwf.protocol.decision_spec import PRESENTATION_BYTES_MAX, SUBJECT_BYTES_MAX, output_of, shown_of
from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import KINDS
from pwf.protocol.notices import NOTICE_BYTES_MAX
from pwf.protocol.runner import Ask, Finish, Sequenced, StepError, StepReply, Value, WaitUntil
from pwf.protocol.survivors import SURVIVORS_MAX
from pwf.store import moves, place
from pwf.store.agent_limits import end_limited, is_endless, is_limited, lift
from pwf.store.agent_work import agent_of, begin_work
from pwf.store.budgets import add_today, why_spent
from pwf.store.change import Change
from pwf.store.custody_rows import runner_is_gone
from pwf.store.decision_rows import NewDecision, add_decision
from pwf.store.notices import note_notice
from pwf.store.queries import load_queries
from pwf.store.runners import Current, Fence, current_of, leave_unknown, part, unknown_error
from pwf.store.settings_rows import is_overtaken, newer_settings
from pwf.store.state import Graph, RunState, encode, graph_of, load_run
from pwf.store.step_parts import Left, end_of_try, leave_parts, makes_parts, what_is_left
from pwf.store.tx import Tx
from pwf.store.values import claim_value, load_value
from pwf.values import canonical

Q = load_queries(__file__)

LENGTHY_MESSAGES = 64  # some milliseconds
TEXT_BYTES_MAX = 6 * NOTICE_BYTES_MAX + 2  # of a notice as JSON, which may write six bytes for one
WAIT_MS_MAX = 2**53  # what a JSON number holds exactly, and SQLite with room to spare


class RunnerMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What has arrived from one runner, in order. `drain`: the daemon is stopping, so nothing new begins.

    `stays`: with the last of these its process has left the run, and may have another one.
    """

    fence: Fence
    messages: tuple[Sequenced, ...]
    drain: bool = False
    stays: bool = False
    agents: dict[str, AgentCommand] = {}


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """One reply per message. `current` is set while the runner goes on. `gone`: its process is the run's no more."""

    replies: tuple[StepReply, ...]
    current: Current | None = None
    gone: bool = False


def apply_messages(tx: Tx, command: RunnerMessages) -> Applied:
    """Apply a runner's messages. Once one is answered with anything but `go`, the rest get that answer too."""
    if len(command.messages) > LENGTHY_MESSAGES:
        tx.lengthy()
    fence = command.fence
    run = load_run(tx, fence.run_id)
    graph = graph_of(tx, run.definition_id)
    agent = agent_of(run, command.agents)
    replies: list[StepReply] = []
    verdict, fault = "go", None
    with Change(tx, run, generation=fence.generation, token=fence.token) as change:
        for message in command.messages:
            if verdict == "go":
                if run.generation != fence.generation:
                    verdict = "claim_lost"
                elif message.seq <= run.seq:
                    reply = _replay(tx, run, message)
                    replies.append(reply)
                    if reply.verdict == "refused":
                        verdict, fault = "refused", reply.error
                    continue
                elif run.lease_token != fence.token or run.status != "running":
                    verdict = "claim_lost"
                elif (fault := _fault(tx, run, graph, message)) is not None:
                    verdict = "refused"
                else:
                    change.write()
                    verdict = _apply(tx, run, graph, message, may_go=not command.drain, agent=agent)
            replies.append(StepReply(seq=message.seq, verdict=verdict, error=fault))  # type: ignore[arg-type]
    current = None
    if verdict == "go" and replies and graph.settings:
        newer = newer_settings(tx, run.run_no, graph, command.messages[-1])
        replies[-1] = msgspec.structs.replace(replies[-1], settings=newer)
    if verdict == "go" and run.status == "running":
        current = current_of(run, graph.node(run.node))
    gone = command.stays and verdict in ("park", "end")
    if gone:
        runner_is_gone(tx, run.run_no, fence.generation)
        if not run.ended:
            tx.changed("queue")  # where it was not to be admitted while it had a process
    return Applied(replies=tuple(replies), current=current, gone=gone)


def _replay(tx: Tx, run: RunState, message: Sequenced) -> StepReply:
    """The answer to a message that was applied before."""
    row = tx.one(Q.reply_of, {"run_no": run.run_no, "generation": run.generation, "seq": message.seq})
    if row is None:
        return StepReply(
            seq=message.seq, verdict="park"
        )  # of a request or a timer that has been settled since
    verdict, said = row
    if said != moves.said(message):
        fault = f"message {message.seq} came before, with other content"
        return StepReply(seq=message.seq, verdict="refused", error=fault)
    return StepReply(seq=message.seq, verdict=verdict)


def _fault(tx: Tx, run: RunState, graph: Graph, message: Sequenced) -> str | None:
    """What is wrong with a message of the rightful owner; None when nothing is."""
    if message.seq != run.seq + 1:
        return f"message {message.seq} came after {run.seq}"
    if message.attempt != run.attempts:
        return f"message names attempt {message.attempt}; the run is in attempt {run.attempts}"
    node = graph.node(run.node)
    if isinstance(message, Finish):
        return _finish_fault(run, graph, node, message) or _missing(tx, run, message.output)
    if isinstance(message, WaitUntil):
        times = [time for time in (message.delay_ms, message.wall_ms) if time is not None]
        if not KINDS[node.kind].sets_timer or len(times) != 1:
            return f"a timer needs a node that sets one, not a {node.kind} node, and exactly one time"
        return None if abs(times[0]) <= WAIT_MS_MAX else f"a timer can not be {times[0]} ms away"
    if KINDS[node.kind].asks != message.kind:
        return f"a {node.kind} node asks no {message.kind} request"
    if message.timeout_ms is not None and not 0 <= message.timeout_ms <= WAIT_MS_MAX:
        return f"a request can not be open for {message.timeout_ms} ms"
    return (
        _missing(tx, run, message.prompt)
        or _default_fault(node, message)
        or _decision_fault(tx, node, message)
    )


def _default_fault(node: NodeSpec, message: Ask) -> str | None:
    """The default is the node's; only a decision may have said another of its choices."""
    if message.default == node.default:
        return None
    if node.decision is None:
        return f"the default of a {node.kind} node is the one that its graph has"
    free = [choice.id for choice in node.decision.choices if node.decision.fault(choice.id, None) is None]
    said = [None, *(canonical(output_of(choice, None)).decode() for choice in free)]
    return None if message.default in said else "a default must be a choice that needs no text"


def _decision_fault(tx: Tx, node: NodeSpec, message: Ask) -> str | None:
    subject = message.subject
    if node.decision is None:
        return None if subject is None else f"a {node.kind} node has no subject"
    if subject is not None and (subject.json is None or len(subject.json) > SUBJECT_BYTES_MAX):
        return f"a subject must come inline, with at most {SUBJECT_BYTES_MAX} bytes"
    prompt = message.prompt
    if prompt.size > PRESENTATION_BYTES_MAX:
        return f"a presentation has at most {PRESENTATION_BYTES_MAX} bytes"
    try:
        shown_of(load_value(tx, None if prompt.json is None else bytes(prompt.json), prompt.digest))
    except msgspec.MsgspecError as error:
        return f"a decision needs a presentation: {error}"
    return None


def _finish_fault(run: RunState, graph: Graph, node: NodeSpec, message: Finish) -> str | None:
    settled, outcome = message.settled, message.outcome
    if message.limited is not None and not (
        outcome == "failed" and KINDS[node.kind].headless and run.agent is not None
    ):
        return f"a {node.kind} node that {outcome} has met no usage limit"
    if outcome == "completed":
        facts = KINDS[node.kind]
        if facts.parks and not (facts.headless and run.agent is not None):
            return f"a {node.kind} node is not completed by its runner"
        if message.output is None:
            return "completed without an output"
        if facts.notifies and message.output.size > TEXT_BYTES_MAX:
            return f"a notice has at most {NOTICE_BYTES_MAX} bytes"
        if settled not in (None, "applied"):
            return f"completed, with an effect that is {settled}"
        if message.route_error is None and not graph.may_lead(node.id, "completed", message.next):
            return f"the graph has no way from {node.id!r} to {message.next!r} after completed"
    manual = node.effect is not None and node.effect.mode == "manual"
    if (
        settled is not None
        and not manual
        and not (makes_parts(node) and settled == "unknown" and message.observed)
    ):
        return f"node {node.id!r} declares no manual effect"
    if manual and outcome == "cancelled":
        return "a runner can not cancel a manual effect"
    return None


def _missing(tx: Tx, run: RunState, value: Value | None) -> str | None:
    if value is None:
        return None
    if value.digest is None:
        return "a value without content" if value.json is None else None
    try:
        claim_value(tx, value.digest, run.run_no, run.generation)
    except InvalidValue as error:
        return error.message
    return None


def _apply(
    tx: Tx, run: RunState, graph: Graph, message: Sequenced, *, may_go: bool, agent: AgentCommand | None
) -> str:
    run.seq = message.seq
    moves.progressed(tx, run)
    if isinstance(message, Finish) and is_overtaken(tx, run.run_no, graph, run.node, message):
        verdict = _run_again(tx, run, message)
        moves.note_traces(tx, run, message.attempt, message.printed, message.survivors)
        return verdict
    if isinstance(message, Finish):
        verdict = _finish(tx, run, graph, message, may_go=may_go, agent=agent)
        moves.note_traces(tx, run, message.attempt, message.printed, message.survivors)
        return verdict
    moves.note_said(tx, run, message)
    moves.note_traces(tx, run, message.attempt, message.printed, message.survivors)
    if isinstance(message, Ask):
        _ask(tx, run, graph.node(run.node), message)
    else:
        _wait(tx, run, message)
    part(tx, run)
    return "park"


def _is_agents(graph: Graph, node: str | None, agent: AgentCommand | None) -> bool:
    return agent is not None and node is not None and KINDS[graph.node(node).kind].headless


def _is_kept_back(
    tx: Tx, run: RunState, graph: Graph, then: moves.Follow, agent: AgentCommand | None, active_ms: int
) -> bool:
    """Whether the next step is an agent's that may not simply begin: then the next launch decides."""
    if agent is None or not _is_agents(graph, then.next, agent):
        return False
    spent = why_spent(tx, run, graph, agent, ended_ms=active_ms)
    return spent is not None or is_limited(tx, agent.account_name)


def _finish(
    tx: Tx, run: RunState, graph: Graph, message: Finish, *, may_go: bool, agent: AgentCommand | None
) -> str:
    if message.limited is not None and not is_endless(tx, message):
        verdict = end_limited(tx, run, message)
        part(tx, run)
        return verdict
    node = graph.node(run.node)
    output, error = _stored(message.output), message.error
    if makes_parts(node):
        end_of_try(tx, run, error)
        left = what_is_left(
            tx, run, node, message.outcome, could_not_tell=message.observed, died=_reports_death(error)
        )
        if left is not Left.NOTHING:
            if leave_parts(tx, run, left, message, error):
                place.queue(tx, run)
            part(tx, run)
            return "park"
    settled = _settled(node, message)
    if settled == "unknown":
        if leave_unknown(tx, run, node, message, message.outcome, error, observed=message.observed):
            place.queue(tx, run)
        part(tx, run)
        return "park"
    if error is None and message.outcome != "completed" and message.observed:
        error = unknown_error(tx, run, node)
    if settled is not None:
        moves.settle_effect(tx, run, settled, message.effect_ref)
    run.observe = None
    facts: dict[str, object] = {"node": run.node, "attempt": run.attempts, "outcome": message.outcome}
    if message.survivors:
        facts["survivors"] = message.survivors[:SURVIVORS_MAX]
    # An effect that happened while its step failed (a bad value, say) must not be tried or routed as if it had not.
    spent = message.settled == "applied" and message.outcome != "completed"
    died = (message.observed or makes_parts(node)) and _reports_death(error)
    then = moves.follow(run, node, message.outcome, message.next, died=died)
    if message.route_error is not None or spent:
        then = moves.Follow()
    if agent is not None and _is_agents(graph, node.id, agent):
        add_today(tx, agent.name, active_ms=message.active_ms)
        if message.outcome == "completed":
            lift(tx, agent.account_name)
    go = (
        may_go
        and not run.pause_requested
        and not _is_kept_back(tx, run, graph, then, agent, message.active_ms)
    )
    verdict = moves.verdict(run, graph, then, go=go)
    moves.end_attempt(
        tx,
        run,
        message.outcome,
        output=output,
        error=None if error is None else encode(error),
        active_ms=message.active_ms,
        message=message,
        verdict=verdict,
    )
    if node.notice is not None and message.outcome == "completed":
        note_notice(tx, run, node.notice, output)
    moves.take(tx, run, graph, then, message.outcome, output, message.route_error or error, go=go)
    if verdict == "go" and _is_agents(graph, run.node, agent):
        begin_work(tx, run)
    moves.note(tx, run, "step_finished", "runner", moves.after_facts(facts, run, then))
    if verdict != "go":
        part(tx, run)
    return verdict


def _run_again(tx: Tx, run: RunState, message: Finish) -> str:
    """The step decided by settings that were changed since: it runs again, in a runner that knows them."""
    moves.end_attempt(tx, run, "interrupted", active_ms=message.active_ms, message=message, verdict="park")
    moves.note(tx, run, "settings_overtook", "daemon", {"node": run.node, "attempt": run.attempts})
    place.queue(tx, run)
    part(tx, run)
    return "park"


def _settled(node: NodeSpec, message: Finish) -> str | None:
    """How the effect ended; None: the node has none. Only a runner's word makes a manual effect rejected."""
    if makes_parts(node):
        return None  # each was settled by itself
    if node.effect is None or message.settled is not None:
        return message.settled
    if message.outcome == "completed":
        return "applied"
    return "failed" if node.effect.mode == "idempotent" else "unknown"


def _reports_death(error: StepError | None) -> bool:
    """Whether a step that goes on after an earlier attempt reports how that one ended: it took its process with it."""
    return error is not None and error.code == RunnerCrashed.code


def _stored(value: Value | None) -> moves.Stored:
    """A runner's value: inline bytes as they stand, or the digest that it has uploaded."""
    if value is None:
        return moves.NOTHING
    if value.digest is not None:
        return moves.Stored(digest=value.digest)
    assert value.json is not None
    return moves.Stored(inline=bytes(value.json))


def _ask(tx: Tx, run: RunState, node: NodeSpec, message: Ask) -> None:
    prompt = _stored(message.prompt)
    default = moves.NOTHING if message.default is None else moves.Stored(inline=message.default.encode())
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
            "prompt_crc32": prompt.crc32,
            "prompt_digest": prompt.digest,
            "schema": None if message.schema is None else encode(message.schema),
            "default_answer": default.inline,
            "default_answer_crc32": default.crc32,
            "left_ms": message.timeout_ms,
            "now": tx.now.wall_ms,
        },
    )
    if node.decision is not None:
        add_decision(
            tx,
            NewDecision(
                request_id=request_id,
                run_id=run.run_id,
                node=run.node,
                visit=run.visit,
                attempt=run.attempts,
                decision=node.decision,
                presentation=load_value(tx, prompt.inline, prompt.digest),
                subject=None if message.subject is None else bytes(message.subject.json or b"null"),
                open_ms=message.timeout_ms,
                default=message.default,
            ),
        )
    moves.note(
        tx, run, "request_opened", "runner", {"request": request_id, "kind": message.kind, "node": run.node}
    )
    place.wait(tx, run)
    tx.changed("requests")


def _wait(tx: Tx, run: RunState, message: WaitUntil) -> None:
    delay_ms = max(0, message.delay_ms) if message.delay_ms is not None else 0
    place.queue(tx, run, delay_ms=delay_ms, wall_ms=message.wall_ms, timer=True)
    moves.note(tx, run, "timer_set", "runner", {"node": run.node, "due_ms": run.due_wall_ms})
