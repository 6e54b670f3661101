"""Launch: custody of a runner's process, the attempt that it begins, and everything that it must be told.

A process that stood by is launched in the command that admits its run (`queue.admit`). A run that was admitted
without one is launched when its process stands ready (`runner_started`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.errors import GraphError, Rejected
from pwf.protocol.agents import AgentCommand
from pwf.protocol.kinds import KINDS, PUBLISHING_KINDS
from pwf.protocol.mounts import is_within
from pwf.protocol.runner import Launch, PastStep, Value, run_marker
from pwf.protocol.spawn import Identity
from pwf.store import moves, place
from pwf.store.agent_limits import blocked, turn_away
from pwf.store.agent_work import agent_of, begin_work, conversation_of
from pwf.store.broken import break_run
from pwf.store.budgets import hold_spent, why_spent
from pwf.store.change import changing
from pwf.store.custody_rows import add_runner, holds_lease, runner_is_live
from pwf.store.queries import load_queries
from pwf.store.runners import Current, Fence, current_of, owned, part, unknown_error
from pwf.store.settings_rows import let_go_settings, visit_settings
from pwf.store.state import Graph, RunState, graph_of, load_run
from pwf.store.tx import Tx
from pwf.store.values import value_of

Q = load_queries(__file__)

LENGTHY_ATTEMPTS = 64  # whose outputs are read for a launch


class LaunchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What of each launch the daemon alone knows. `limits`: fields of `Launch`. `output`: the folder of all runs."""

    home_id: str = ""
    output: str = ""
    limits: dict[str, int | None] = {}
    agents: dict[str, AgentCommand] = {}  # as they are configured now

    def output_of(self, run_id: str) -> str:
        """Where its runner keeps what its steps print."""
        return f"{self.output}/{run_id}" if self.output else ""

    def marker_of(self, run_id: str, generation: int) -> str:
        """What every process of this runner bears in its environment."""
        return run_marker(self.home_id, run_id, generation)


class RunnerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A process stands ready for a run that was admitted without one."""

    fence: Fence
    identity: Identity
    terms: LaunchTerms = LaunchTerms()


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    launch: Launch
    current: Current


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A pause came before the launch, or the run can't be launched: the runner is not needed."""


def runner_started(tx: Tx, command: RunnerStarted) -> Launched | Parked:
    """Record custody, begin the attempt at the position, and say everything that the runner needs.

    A run whose rows can't be read is parked as `broken`, instead of being launched again and again.
    """
    try:
        with tx.savepoint():
            run = owned(tx, command.fence)
            with changing(tx, run, generation=run.generation, token=command.fence.token):
                runner_is_live(tx, run.run_no, run.generation, command.identity)
                return _begin(tx, run, command.identity, command.terms)
    except (GraphError, Rejected, msgspec.MsgspecError) as error:
        fence = command.fence
        if not holds_lease(tx, fence.entity_no, fence.generation, fence.token):
            raise
        break_run(tx, command.fence.run_id, str(error))
        return Parked()


def launch_admitted(
    tx: Tx, run_id: str, identity: Identity, terms: LaunchTerms, epoch: int
) -> Launched | Parked:
    """The same for a run whose lease this command has taken. Raises what `break_run` is for."""
    run = load_run(tx, run_id)
    with changing(tx, run):
        place.place(tx, run, "running")
        run.seq = 0  # the runner numbers its messages from 1
        run.due_wall_ms = run.due_elapsed_ms = run.due_boot_id = None
        add_runner(tx, run.run_no, run.generation, epoch, identity)
        return _begin(tx, run, identity, terms)


def _begin(tx: Tx, run: RunState, identity: Identity, terms: LaunchTerms) -> Launched | Parked:
    """The fence is passed, and custody is recorded."""
    if run.pause_requested:
        place.hold(tx, run, "paused")
        part(tx, run)
        moves.note(tx, run, "held", "daemon", {"hold": "paused"})
        return Parked()
    graph = graph_of(tx, run.definition_id)
    node = graph.node(run.node)
    agent = agent_of(run, terms.agents) if KINDS[node.kind].headless else None
    if agent is not None:
        limit = blocked(tx, run, agent.account_name)
        if limit is not None:
            turn_away(tx, run, agent, limit)
            part(tx, run)
            return Parked()
        why = why_spent(tx, run, graph, agent)
        if why is not None:
            hold_spent(tx, run, why)
            part(tx, run)
            moves.note(tx, run, "held", "daemon", {"hold": "budget"})
            return Parked()
    past = past_of(tx, run, graph) if run.attempts else ()
    let_go_settings(tx, run, graph)
    moves.begin_attempt(tx, run, node, run.generation)
    if agent is not None:
        begin_work(tx, run)
    if run.started_wall_ms is None:
        run.started_wall_ms, run.placed = tx.now.wall_ms, True
    facts = {"node": run.node, "attempt": run.attempts, "visit": run.visit, "pid": identity.pid}
    moves.note(tx, run, "launched", "daemon", facts)
    reports = run.observe in ("failed", "timed_out")
    launch = launch_of(
        tx,
        run,
        graph,
        terms,
        past=past,
        observe=run.observe is not None,
        observe_then=run.observe if reports else None,
        observe_error=unknown_error(tx, run, node) if reports else None,
        updates=_updates(tx, run, graph) if run.attempts > 1 else (),
        output_folder=terms.output_of(run.run_id),
        marker=terms.marker_of(run.run_id, run.generation),
    )
    return Launched(launch=launch, current=current_of(run, node))


def launch_of(
    tx: Tx, run: RunState, graph: Graph, terms: LaunchTerms, *, past: tuple[PastStep, ...], **more: Any
) -> Launch:
    """Everything about a run at its position that one of its processes must know. `more`: fields of `Launch`."""
    row = tx.one(Q.input, {"run_no": run.run_no})
    assert row is not None
    conversation, micros = conversation_of(tx, run)
    return Launch(
        run_id=run.run_id,
        generation=run.generation,
        graph=graph.limited(run.max_steps).graph,
        input=value_of(row[0], row[1], row[2]),
        node=run.node,
        visit=run.visit,
        attempt=run.attempts,
        tries=run.tries,
        outside_name=row[4],
        agent=agent_of(run, terms.agents),
        conversation=conversation,
        conversation_micros=micros,
        attempt_started_wall_ms=tx.now.wall_ms,
        past=past,
        visits=run.visits,
        entries=run.entries,
        steps_taken=run.steps - 1,
        wants_title=run.title is None,
        root=row[3],
        files=_data_files(tx, run) if graph.graph.files else {},
        settings=visit_settings(tx, run, graph),
        **terms.limits,  # type: ignore[arg-type]
        **more,
    )


def past_of(tx: Tx, run: RunState, graph: Graph) -> tuple[PastStep, ...]:
    if run.attempts > LENGTHY_ATTEMPTS:
        tx.lengthy()
    latest: dict[tuple[str, bool], PastStep] = {}
    for node, visit, status, output, output_digest, size, error in tx.all(Q.past, {"run_no": run.run_no}):
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
        spec = graph.nodes.get(node)  # a fork may have results of nodes that are there no more
        if done and spec is not None and spec.mount is not None:  # its child begins with nothing
            latest = {key: one for key, one in latest.items() if not is_within(key[0], node)}
    return tuple(latest.values())


def _updates(tx: Tx, run: RunState, graph: Graph) -> tuple[tuple[str, str], ...]:
    if not any(node.kind in PUBLISHING_KINDS for node in graph.graph.nodes):
        return ()
    return tuple((kind, key) for kind, key in tx.all(Q.updates, {"run_id": run.run_id}))


def _data_files(tx: Tx, run: RunState) -> dict[str, Value]:
    rows = tx.all(Q.data_files, {"definition_id": run.definition_id})
    return {path: Value(digest=digest, size=size) for path, digest, size in rows}
