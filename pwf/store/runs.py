"""Runs: started, adopted, and found by what people type."""

from __future__ import annotations

import msgspec

from pwf.budgets import Budget
from pwf.errors import Ambiguous, Conflict, DiskFull, InvalidArgument, NotFound, Rejected
from pwf.ids import check_id
from pwf.protocol.agents import PERSON
from pwf.protocol.mounts import exceeds, mounts_of
from pwf.protocol.operations import RunStarted
from pwf.store import moves, place, session_messages
from pwf.store.adoption import Begins, Fork, adopt, begin_at
from pwf.store.budgets import said_at_start
from pwf.store.definitions import SaveDefinition, save_definition
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.settings_rows import inherit_settings
from pwf.store.space import refuse_over_budget
from pwf.store.state import Graph, encode, graph_of, shown_status
from pwf.store.tx import Row, Tx
from pwf.store.values import load_value
from pwf.values import digest

Q = load_queries(__file__)

AT_MS_MAX = 253_402_300_800_000  # the end of the year 9999
PRIORITY_MAX = 1_000_000


class RunEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a run executes in, recorded when it starts."""

    root: str
    interpreter: str
    python: str
    pwf: str
    variables: dict[str, str] = {}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Which managed resource wants the run, under which key of its manager, with the fingerprint of what was asked."""

    resource_no: int
    key: str
    fingerprint: str


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """Start a run. `code` is saved with it, unless it is stored. `input` is canonical and has been checked.

    `at_ms`: wall time. `fork`: what it takes over of another run. `max_steps`: in place of the workflow's.
    `state_bytes_max`: the budget of the database (`max_state_size`); from there on nothing is started.
    """

    code: SaveDefinition
    environment: RunEnvironment
    input: bytes
    run_id: str | None = None
    at_ms: int | None = None
    priority: int = 0
    restarted_from: str | None = None
    restart_root: str | None = None
    restart_no: int = 0
    fork: Fork | None = None
    call: Call | None = None
    max_steps: int | None = None
    budget: Budget | None = None  # of its agents, as a person said it
    agent: str | None = None  # of a restart or a fork: the earlier run's
    session_id: str | None = None  # whose model does the steps of agents; of a restart or a fork as before
    says_who: bool = False  # agent and session_id hold for a restart or a fork, too
    receipt: ReceiptKey | None = None
    actor: str = "client"
    state_bytes_max: int | None = None

    @property
    def parent(self) -> str | None:
        """The run that this one starts anew or goes on from."""
        return self.restarted_from if self.fork is None else self.fork.run_id

    @property
    def definition_id(self) -> str:
        return self.code.definition.definition_id

    @property
    def workflow(self) -> str:
        return self.code.definition.graph.name


def start_run(tx: Tx, command: StartRun) -> Done[RunStarted]:
    """Start a run, or adopt the one that exists with equal facts.

    `Conflict` names the first fact that differs.
    """
    done = once(tx, command.receipt, RunStarted, lambda: _start(tx, command))
    if isinstance(done.refusal, Conflict) and command.receipt is not None:
        return _name_conflict(tx, command, command.receipt.scope_key, done)
    return done


def _start(tx: Tx, command: StartRun) -> tuple[RunStarted, bool]:
    if command.run_id is not None:
        check_id(command.run_id, "run id")
        row = tx.one(Q.facts, {"run_id": command.run_id})
        if row is not None:
            return _adopt(tx, command, row), True
    _refuse(tx, command)
    session_no = _session(tx, command)
    environment_id, is_next = _surroundings(tx, command)
    run_id = command.run_id or tx.ids.new()
    graph = graph_of(tx, command.definition_id)
    begins = begin_at(tx, command.fork, graph.graph.start)
    _refuse_spent_child(graph, begins)
    at_once = command.at_ms is None
    due: dict[str, object] = {
        "due_wall_ms": tx.now.wall_ms if command.at_ms is None else command.at_ms,
        "due_elapsed_ms": tx.now.elapsed_ms if at_once else None,
        "due_boot_id": tx.now.boot_id if at_once else None,
    }
    run_no = _insert(tx, command, run_id, environment_id, begins, due, session_no)
    said_at_start(tx, run_no, command.budget, command.parent)
    adopted = () if command.fork is None else adopt(tx, run_no, command.fork)
    warnings: tuple[str, ...] = ()
    if command.fork is not None:
        warnings = inherit_settings(tx, run_no, graph, command.fork.run_id, begins)
    revision = 1
    later = command.at_ms is not None and command.at_ms > tx.now.wall_ms
    tx.run(
        place.Q.enqueue,
        {
            "run_no": run_no,
            "state": "later" if later else "ready",
            "priority": command.priority,
            "is_new": True,
            **due,
        },
    )
    said: dict[str, object] = {"workflow": command.workflow, "definition": command.definition_id}
    if command.fork is not None:
        said |= {"forked_from": command.fork.run_id, "node": begins.node, "adopted": len(adopted)}
    tx.event(run_no, revision, "started", command.actor, 0, encode(said))
    if is_next or not later:  # else whoever waits for the nearest time goes on waiting for it
        tx.changed("queue")
    tx.changed("run:" + run_id)
    started = RunStarted(  # as it was accepted, whatever the same transaction makes of it next (an admission, mostly)
        run_id=run_id,
        status="queued",
        revision=revision,
        restarted_from=command.restarted_from,
        restart_root=command.restart_root,
        restart_no=command.restart_no,
        forked_from=None if command.fork is None else command.fork.run_id,
        node=None if command.fork is None else begins.node,
        took_over=adopted,
        warnings=warnings,
    )
    return started, False


def _refuse_spent_child(graph: Graph, begins: Begins) -> None:
    """The steps of an included workflow that a fork takes over count for its limit, too."""
    steps = sum(begins.visits.values())
    for mount in mounts_of(begins.node):
        spec = graph.node(mount).mount
        if spec and exceeds(begins.entries, begins.visits, mount, spec.max_steps, steps):
            raise Rejected(
                f"{spec.workflow!r}, included as {mount!r}, took {spec.max_steps:,} steps up to there, its limit",
                hint=f"say a higher one in {spec.file or 'its file'}: Workflow({spec.workflow!r}, "
                f"max_steps={2 * spec.max_steps}), and repeat the command",
            )


def _insert(
    tx: Tx,
    command: StartRun,
    run_id: str,
    environment_id: str,
    begins: Begins,
    due: dict[str, object],
    session_no: int | None,
) -> int:
    """The run's row, with its entity; its number."""
    value = moves.stored(tx, command.input)
    run_no = tx.create_entity("run", run_id)
    tx.run(
        Q.insert_run,
        {
            "run_no": run_no,
            "run_id": run_id,
            "workflow": command.workflow,
            "definition_id": command.definition_id,
            "environment_id": environment_id,
            "title": begins.title,
            "node": begins.node,
            "visit": begins.visits[begins.node],
            "visits": encode(begins.visits),
            "entries": encode(begins.entries),
            "steps": sum(begins.visits.values()),
            "priority": command.priority,
            "input": value.inline,
            "input_crc32": value.crc32,
            "input_digest": value.digest,
            **due,
            "restarted_from": command.restarted_from,
            "restart_root": command.restart_root,
            "restart_no": command.restart_no,
            **_lineage(tx, command),
            **_called(tx, command),
            "session_no": session_no,
            "max_steps": command.max_steps,
            # A chosen id may be chosen again, in another home or after a prune; what it did before is not this run's.
            "outside_name": None if command.run_id is None else f"{run_id}.{tx.ids.new()}",
            "now": tx.now.wall_ms,
        },
    )
    return run_no


def _called(tx: Tx, command: StartRun) -> dict[str, object]:
    """Whose child it is. A restart is that of who wanted the first run, and still wants anything."""
    names = ("called_by", "call_key", "call_fingerprint")
    call = command.call
    if call is not None:
        return dict(zip(names, (call.resource_no, call.key, call.fingerprint), strict=True))
    row = None
    if command.restarted_from is not None:
        row = tx.one(Q.called, {"run_id": command.restarted_from})
    return dict(zip(names, row or (None, None, None), strict=True))


def _session(tx: Tx, command: StartRun) -> int | None:
    """The session that owns the run; it has one that goes on at a time."""
    if command.parent is not None and not command.says_who:
        row = tx.one(Q.session_of_run, {"run_id": command.parent})
    elif command.session_id is not None:
        row = tx.one(Q.session, {"session_id": command.session_id})
        if row is None:
            raise NotFound(
                f"there is no session {command.session_id!r}",
                hint="pwf sessions lists those that were attached",
            )
    else:
        return None
    if row is None or row[0] is None:
        return None
    session_no, session_id = row
    open_run = tx.one(Q.open_run, {"session_no": session_no})
    if open_run is not None:
        raise Conflict(
            f"session {session_id!r} has a run that goes on: {open_run[0]}",
            hint=f"let it end, or end it: pwf cancel {open_run[0]}",
        )
    session_messages.changed(tx, session_no)
    return int(session_no)


def _lineage(tx: Tx, command: StartRun) -> dict[str, object]:
    """The columns that say from which run this one comes, other than those of restarts."""
    fork, parent = command.fork, command.parent
    root = None if parent is None else tx.one(Q.tree_root, {"run_id": parent})
    return {
        "forked_from": None if fork is None else fork.run_id,
        "fork_node": None if fork is None else fork.node,
        "fork_visit": None if fork is None else fork.visit,
        "tree_root": parent if root is None else root[0],
        "agent_name": command.agent if root is None or command.says_who else root[1],
    }


def _refuse(tx: Tx, command: StartRun) -> None:
    """Raise why no run is started now, whatever is stored."""
    if command.at_ms is not None and not 0 <= command.at_ms <= AT_MS_MAX:
        raise InvalidArgument(f"the time {command.at_ms} ms is not between 1970 and the year 9999")
    if abs(command.priority) > PRIORITY_MAX:
        raise InvalidArgument(f"the priority {command.priority} is not within ±{PRIORITY_MAX}")
    if tx.disk_full:
        raise DiskFull("the disk is full: no run is started until there is space", hint="pwf state status")
    refuse_over_budget(tx, command.state_bytes_max)


def _surroundings(tx: Tx, command: StartRun) -> tuple[str, bool]:
    """Store what is new of code and environment. The environment's id, and whether no other run is due before this."""
    body, environment_id = _encoded(command.environment)
    facts = {"environment_id": environment_id, "definition_id": command.definition_id, "at_ms": command.at_ms}
    known = tx.one(Q.known, facts)
    assert known is not None
    has_definition, has_environment, another_is_next = known
    if not has_definition:
        save_definition(tx, command.code)
    if not has_environment:
        _add(tx, command.environment, environment_id, body)
    return environment_id, not another_is_next


def environment_id_of(environment: RunEnvironment) -> str:
    """What an environment is known by."""
    return _encoded(environment)[1]


def save_environment(tx: Tx, environment: RunEnvironment) -> str:
    """Keep an environment, unless it is known; its id."""
    body, environment_id = _encoded(environment)
    if tx.one(Q.environment, {"environment_id": environment_id}) is None:
        _add(tx, environment, environment_id, body)
    return environment_id


def _add(tx: Tx, environment: RunEnvironment, environment_id: str, body: bytes) -> None:
    tx.run(Q.add_environment, {"environment_id": environment_id, "root": environment.root, "body": body})


_last_encoded: tuple[RunEnvironment, bytes, str] | None = (
    None  # most runs are started in the environment of the last
)


def _encoded(environment: RunEnvironment) -> tuple[bytes, str]:
    """The stored form of an environment, and its id."""
    global _last_encoded
    if _last_encoded is None or _last_encoded[0] is not environment:
        body = encode(environment)
        _last_encoded = environment, body, digest(body)
    return _last_encoded[1:]


def _differs(tx: Tx, command: StartRun, row: Row) -> str | None:
    """The first fact by which the run of `row` is not the one that `command` would start."""
    workflow, inline, input_digest, restarted_from = row[1], row[2], row[3], row[7]
    if workflow != command.workflow:
        return f"its workflow is {workflow!r}, not {command.workflow!r}"
    root = environment_of(tx, row[8]).root
    if root != command.environment.root:  # a workflow of that name in another project is another workflow
        return f"its project is {root!r}, not {command.environment.root!r}"
    if load_value(tx, inline, input_digest) != command.input:
        return "its input is another"
    if row[9] is not None:
        return f"it is a fork of {row[9]}"
    if restarted_from != command.restarted_from:
        return f"it is a restart of {restarted_from}" if restarted_from else "it is no restart"
    if row[11] != command.agent and restarted_from is None:
        return f"its agent is {row[11] or PERSON}, not {command.agent or PERSON}"
    if row[-1] != command.session_id and restarted_from is None:
        return f"its session is {row[-1] or 'none'}, not {command.session_id or 'none'}"
    if row[12] != command.max_steps and restarted_from is None:
        return f"its max_steps is {row[12] or 'as written'}, not {command.max_steps or 'as written'}"
    return None


def _name_conflict(tx: Tx, command: StartRun, scope_key: str, done: Done[RunStarted]) -> Done[RunStarted]:
    """A key that has started another run: say which, and what is different about it."""
    first = tx.one(Q.started_by, {"scope_key": scope_key})
    row = None if first is None else tx.one(Q.facts, {"run_id": first[0]})
    if row is None:
        return done
    differs = _differs(tx, command, row)
    if differs is None and command.run_id not in (None, row[0]):
        differs = f"its id is not {command.run_id!r}"
    if differs is None:
        return done
    message = f"the idempotency key has started run {row[0]!r} before, but {differs}"
    return Done(refusal=Conflict(message, hint="use another key"))


def _adopt(tx: Tx, command: StartRun, row: Row) -> RunStarted:
    (
        run_id,
        _workflow,
        _inline,
        _digest,
        definition_id,
        status,
        hold,
        _restarted_from,
        _environment,
        _forked_from,
        revision,
        _agent,
        _max_steps,
        _session,
    ) = row
    differs = _differs(tx, command, row)
    if differs is not None:
        raise Conflict(
            f"run {run_id!r} exists, but {differs}",
            hint=f"take another --id, or look at it with: pwf show {run_id}",
        )
    return RunStarted(
        run_id=run_id,
        status=shown_status(status, hold),  # type: ignore[arg-type]
        revision=revision,
        code_is_older=definition_id != command.definition_id,
    )


# --- finding --------------------------------------------------------------------------------------------------


def resolve_ref(tx: Tx, ref: str) -> str:
    """The run id that a person means: an id, a unique prefix, `@last` or `@last-failed`; of a project, `@last:ROOT`.

    Raises `NotFound`, or `Ambiguous` with the first matches.
    """
    if ref.startswith("@"):
        return _special(tx, ref)
    if tx.one(Q.exact, {"run_id": ref}) is not None:
        return ref
    if not ref or not ref.isascii():
        raise NotFound(f"there is no run {ref!r}", hint="pwf ls lists the runs")
    rows = tx.all(Q.by_prefix, {"low": ref, "high": ref + "\x7f"})
    if not rows:
        raise NotFound(f"there is no run whose id begins with {ref!r}", hint="pwf ls lists the runs")
    if len(rows) > 1:
        shown = ", ".join(row[0] for row in rows[:3]) + (", …" if len(rows) > 3 else "")
        raise Ambiguous(f"{ref!r} is the beginning of several runs: {shown}", hint="type more of the id")
    return str(rows[0][0])


def _special(tx: Tx, ref: str) -> str:
    name, _, root = ref.partition(":")
    if name not in ("@last", "@last-failed"):
        raise NotFound(f"{ref!r} means nothing", hint="use a run id, a prefix of one, @last or @last-failed")
    row = _newest(tx, name, root or None)
    if row is not None:
        return str(row[0])
    elsewhere = _newest(tx, name, None) if root else None
    where = f" in the project {root}" if root else ""
    also = "" if elsewhere is None else f"; the newest of all projects is {elsewhere[0]}"
    raise NotFound(f"there is no run for {name}{where}", hint=f"pwf ls lists the runs{also}")


def _newest(tx: Tx, name: str, root: str | None) -> Row | None:
    if name == "@last":
        return tx.one(Q.last) if root is None else tx.one(Q.last_of_project, {"root": root})
    found = [
        tx.one(Q.last_of_status, {"status": status})
        if root is None
        else tx.one(Q.last_of_status_of_project, {"status": status, "root": root})
        for status in ("failed", "timed_out")
    ]
    return max((row for row in found if row is not None), key=lambda row: int(row[1]), default=None)


def environment_of(tx: Tx, environment_id: str) -> RunEnvironment:
    """The recorded environment."""
    row = tx.one(Q.environment, {"environment_id": environment_id})
    if row is None:
        raise NotFound(f"there is no environment {environment_id}")
    return msgspec.json.decode(row[0], type=RunEnvironment)
