"""Fork: go on from a node of a run, in a new run that takes over what came before; a look, then one transaction.

Promises: nothing is forked while an effect of the old run is unsettled; an effect that happened, and would happen
again, is named, and repeated only where the caller says so, whichever run of the tree has made it or will; a run is
retried once, and then its retry is; a person's answer is taken over only where a person says so, and a decision never.
The old run is not changed, and may go on. The look gives what is to be checked against the code that the fork will
execute; the transaction looks again. A refusal is kept, so that a repeat gets it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.graph import MAX_STEPS_LIMIT
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.protocol.operations import RunStarted
from pwf.protocol.runner import StepError, Value, effect_key
from pwf.protocol.views import ENDED
from pwf.store.adoption import LENGTHY_ATTEMPTS, Fork, visit_name, visits_before
from pwf.store.deadlines import TIMEOUT
from pwf.store.fork_effects import made_elsewhere, made_soon
from pwf.store.once import REFUSALS, Done, known_answer, once, refused
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import RunEnvironment, StartRun, start_run
from pwf.store.state import Graph, graph_of, shown_status
from pwf.store.tx import Tx
from pwf.store.values import load_value, value_of

Q = load_queries(__file__)

NODES_NAMED = 20
MAY_HAVE = "failed"  # of an effect that is safe to run again: it may have happened


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says. `node` None: where the run failed. `visit` None: the node's newest."""

    run_id: str
    node: str | None = None
    visit: int | None = None
    repeat_effects: bool = False
    keep_answers: bool = False
    expected_revision: int | None = None

    @property
    def typed(self) -> str:
        """What was typed, but for the words that the caller may add."""
        if self.node is None:
            return f"pwf retry {self.run_id}"
        visit = "" if self.visit is None else f"#{self.visit}"
        return f"pwf fork {self.run_id} --from {self.node}{visit}"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The last step of a run that failed after it: the fork goes on with what follows, by the code that it executes."""

    node: str
    outcome: str
    output: bytes | None


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is taken over. `output` is set where it completed."""

    node: str
    visit: int
    output: Value | None = None


class Twin(msgspec.Struct, array_like=True, frozen=True):
    """The fork of a run that goes on from where it failed."""

    run_id: str
    status: str
    hold: str | None
    reason: str | None
    definition_id: str
    input: bytes | None
    input_digest: str | None
    max_steps: int | None
    node: str
    visit: int
    revision: int


class ForkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork takes from the old run. `after`: the node is still to be found by the way out of this step.

    `warnings`: effects that may have happened, and are safe to run again. `twin`: the retry that goes on already.
    """

    fork: Fork
    after: Ended | None
    workflow: str
    definition_id: str
    path: str
    root: str
    input: bytes
    environment: RunEnvironment
    priority: int
    max_steps: int | None
    results: tuple[Adopted, ...]
    warnings: tuple[str, ...]
    twin: Twin | None


class LookFork(msgspec.Struct, frozen=True, kw_only=True):
    """May a run be forked on these terms? `receipt` is the fork's."""

    terms: Terms
    receipt: ReceiptKey | None = None


@dataclass(frozen=True)
class Looked:
    """`done`: the fork has its answer already. Otherwise `facts` is what the new run takes."""

    facts: ForkFacts | None = None
    done: Done[RunStarted] | None = None


def look_fork(tx: Tx, command: LookFork) -> Looked:
    """Look, and keep the answer if there is one already."""
    done = known_answer(tx, command.receipt, RunStarted)
    if done is not None:
        return Looked(done=done)
    try:
        return Looked(facts=_facts(tx, command.terms))
    except REFUSALS as refusal:
        return Looked(done=refused(tx, command.receipt, refusal))


class ForkRun(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is the new run, with its `fork` and the fork's receipt, which was checked against its code."""

    start: StartRun
    terms: Terms


def fork_run(tx: Tx, command: ForkRun) -> Done[RunStarted]:
    """Start the new run. A retry is the same run while an equal one goes on."""

    def act() -> tuple[RunStarted, bool]:
        fork = command.start.fork
        assert fork is not None
        found = _check(tx, command.terms)
        if found.fork.before != fork.before:
            raise Conflict(f"run {fork.run_id} has gone on meanwhile", hint="repeat the command")
        if found.twin is not None:
            return _going_on(tx, command.start, found.twin), True
        done = start_run(tx, msgspec.structs.replace(command.start, receipt=None))
        begun = done.unwrap()
        return msgspec.structs.replace(begun, warnings=(*begun.warnings, *found.warnings)), False

    return once(tx, command.start.receipt, RunStarted, act)


def retry_words(tx: Tx, run_id: str) -> str | None:
    """What to type so that a run which has ended goes on; None where a retry would be refused whatever is said."""
    terms = Terms(run_id=run_id)
    try:
        found = _check_but_answers(tx, terms)
    except REFUSALS:
        return None
    for keep in (False, True):
        try:
            _refuse_answers(tx, found, msgspec.structs.replace(terms, keep_answers=keep))
        except REFUSALS:
            continue
        return terms.typed + _higher_limit(tx, found.old) + (" --keep-answers" if keep else "")
    return None


def _higher_limit(tx: Tx, old: _Old) -> str:
    """A run that took as many steps as it may is gone on with only under a higher limit."""
    if old.error is None or msgspec.json.decode(old.error, type=StepError).code != "max_steps":
        return ""
    limit = graph_of(tx, old.definition_id).graph.max_steps if old.max_steps is None else old.max_steps
    if old.steps < limit:
        return ""  # an included workflow has met its own, which its file says
    return f" --max-steps {min(2 * limit, MAX_STEPS_LIMIT)}"


class _Old(msgspec.Struct, array_like=True):
    """The run that is forked."""

    run_no: int
    workflow: str
    definition_id: str
    path: str
    root: str
    input: bytes | None
    input_digest: str | None
    environment: bytes
    priority: int
    max_steps: int | None
    steps: int
    status: str
    node: str
    visit: int
    attempts: int
    error: bytes | None
    forked_from: str | None
    revision: int


class _Checked(NamedTuple):
    """What may be forked, and how."""

    old: _Old
    fork: Fork
    after: Ended | None
    results: tuple[Adopted, ...]
    warnings: tuple[str, ...]
    twin: Twin | None


def _facts(tx: Tx, terms: Terms) -> ForkFacts:
    """The facts, or why the run is not forked on these terms."""
    old, fork, after, results, warnings, twin = _check(tx, terms)
    return ForkFacts(
        fork=fork,
        after=after,
        workflow=old.workflow,
        definition_id=old.definition_id,
        path=old.path,
        root=old.root,
        input=load_value(tx, old.input, old.input_digest),
        environment=msgspec.json.decode(old.environment, type=RunEnvironment),
        priority=old.priority,
        max_steps=old.max_steps,
        results=results,
        warnings=warnings,
        twin=twin,
    )


def _check(tx: Tx, terms: Terms) -> _Checked:
    """Raise why the run is not forked on these terms."""
    found = _check_but_answers(tx, terms)
    _refuse_answers(tx, found, terms)
    return found


def _check_but_answers(tx: Tx, terms: Terms) -> _Checked:
    """Raise why the run is not forked, whatever is said of its answers."""
    row = tx.one(Q.facts, {"run_id": terms.run_id})
    if row is None:
        raise NotFound(f"there is no run {terms.run_id!r}")
    old = _Old(*row)
    if terms.expected_revision not in (None, old.revision):
        raise Conflict(
            f"run {terms.run_id} has revision {old.revision} by now; you expected {terms.expected_revision}",
            hint=f"pwf show {terms.run_id}",
        )
    if old.attempts > LENGTHY_ATTEMPTS:
        tx.lengthy()
    graph = graph_of(tx, old.definition_id)
    after = twin = None
    if terms.node is None:
        fork, after = _where_it_failed(tx, old, terms.run_id)
        twin = _retried(tx, old, fork)
    else:
        fork = _at_visit(tx, old, graph, terms)
    _refuse_unsettled(tx, old, terms.run_id)
    results = tuple(
        Adopted(node=node, visit=visit, output=value_of(data, name, size) if status == "completed" else None)
        for node, visit, status, data, name, size in tx.all(
            Q.results, {"run_no": old.run_no, "before": fork.before}
        )
    )
    # A retry that goes on makes nothing anew.
    warnings = _repeated(tx, old, graph, fork, terms) if twin is None else ()
    return _Checked(old, fork, after, results, warnings, twin)


# --- where it goes on -----------------------------------------------------------------------------------------


def _where_it_failed(tx: Tx, old: _Old, run_id: str) -> tuple[Fork, Ended | None]:
    """The node that a run failed at; or what it failed after, where its last step had ended as it should."""
    if old.status not in ENDED:
        raise Rejected(
            f"run {run_id} has not ended: there is nothing to retry",
            hint=f"pwf explain {run_id}; to go on from an earlier step: pwf fork {run_id} --from NODE",
        )
    if old.status == "completed":
        raise Rejected(
            f"run {run_id} completed: there is nothing to retry",
            hint=f"to go on from one of its steps: pwf fork {run_id} --from NODE",
        )
    code = None if old.error is None else msgspec.json.decode(old.error, type=StepError).code
    row = tx.one(Q.last, {"run_no": old.run_no, "attempt": old.attempts})
    if row is not None and code in ("max_steps", "routing_failed"):
        node, visit, outcome, output, digest = row
        value = load_value(tx, output, digest) if outcome == "completed" else None
        fork = Fork(run_id=run_id, node=node, visit=visit, before=old.attempts + 1)
        return fork, Ended(node=node, outcome=outcome, output=value)
    began = tx.one(Q.visit, {"run_no": old.run_no, "node": old.node, "visit": old.visit})
    first = old.attempts + 1 if began is None or began[0] is None else began[0]
    return Fork(run_id=run_id, node=old.node, visit=old.visit, before=first), None


def _at_visit(tx: Tx, old: _Old, graph: Graph, terms: Terms) -> Fork:
    """The visit that the caller names."""
    node, run_id = terms.node, terms.run_id
    assert node is not None
    if node not in graph.nodes:
        raise NotFound(f"run {run_id} has no node {node!r}", hint=f"its nodes are: {', '.join(graph.nodes)}")
    newest = tx.one(Q.newest_visit, {"run_no": old.run_no, "node": node})
    newest_visit = max(newest[0] or 0 if newest else 0, old.visit if old.node == node else 0)
    visit = newest_visit if terms.visit is None else terms.visit
    if not 1 <= visit <= newest_visit:
        entered = [row[0] for row in tx.all(Q.entered, {"run_no": old.run_no})]
        been = f"it has entered {node!r} {newest_visit} times" if newest_visit else "it has not entered it"
        raise NotFound(
            f"run {run_id} has no visit {visit_name(node, max(visit, 1))}: {been}",
            hint=f"it has been through: {', '.join(entered[:NODES_NAMED]) or 'no node'}",
        )
    began = tx.one(Q.visit, {"run_no": old.run_no, "node": node, "visit": visit})
    first, adopted = (None, None) if began is None else began
    if adopted is not None or (first is None and (node, visit) != (old.node, old.visit)):
        name = visit_name(node, visit)
        raise Rejected(
            f"run {run_id} has taken over {name} from run {old.forked_from}",
            hint=f"fork that one: pwf fork {old.forked_from} --from {name}",
        )
    before = old.attempts + 1 if first is None else first
    return Fork(run_id=run_id, node=node, visit=visit, before=before)


def _retried(tx: Tx, old: _Old, fork: Fork) -> Twin | None:
    """The retry that goes on already. `Rejected` where it has ended: then that is the run to go on from."""
    row = tx.one(Q.gone_on_with, {"run_id": fork.run_id, "run_no": old.run_no, "before": fork.before})
    if row is None:
        return None
    twin = Twin(*row)
    if twin.status not in ENDED:
        return twin
    how = f": {twin.reason}" if twin.reason else ""
    anew = f"pwf fork {twin.run_id} --from {visit_name(twin.node, twin.visit)}"
    raise Rejected(
        f"run {fork.run_id} was retried as {twin.run_id}, which has ended ({twin.status}{how})",
        hint=f"to run the same steps once more: {anew}"
        if twin.status == "completed"
        else f"pwf retry {twin.run_id}",
    )


def _going_on(tx: Tx, start: StartRun, twin: Twin) -> RunStarted:
    """The retry that goes on; `Conflict` where it is another than is asked for."""
    assert start.fork is not None
    old = start.fork.run_id
    asked = (start.definition_id, start.max_steps, start.fork.node, start.input)
    its_input = load_value(tx, twin.input, twin.input_digest)
    if start.says_who or (twin.definition_id, twin.max_steps, twin.node, its_input) != asked:
        raise Conflict(
            f"run {old} is retried as {twin.run_id}, which goes on, with other code, input, agent or --max-steps",
            hint=f"pwf watch {twin.run_id}; or cancel it, and go on from it: pwf cancel {twin.run_id}, "
            f"then pwf retry {twin.run_id}",
        )
    return RunStarted(
        run_id=twin.run_id,
        status=shown_status(twin.status, twin.hold),  # type: ignore[arg-type]
        revision=twin.revision,
        forked_from=old,
        node=twin.node,
    )


# --- what forbids it ------------------------------------------------------------------------------------------


def _refuse_unsettled(tx: Tx, old: _Old, run_id: str) -> None:
    rows = tx.all(Q.unsettled, {"run_no": old.run_no})
    if not rows:
        return
    keys = [effect_key(run_id, *row[:3]) for row in rows]
    if any(row[3] == "applying" for row in rows):
        raise Rejected(
            f"these effects of run {run_id} are being applied: {', '.join(keys)}",
            hint=f"wait for them, or stop it: pwf pause {run_id} --now",
        )
    raise Rejected(
        f"nobody knows whether these effects of run {run_id} happened: {', '.join(keys)}",
        hint=f"find out, then: pwf effects resolve {keys[0]} happened|not-happened|give-up",
    )


def _repeated(tx: Tx, old: _Old, graph: Graph, fork: Fork, terms: Terms) -> tuple[str, ...]:
    """Refuse to repeat effects unasked. What is told of those that are safe to run again."""
    run_id = fork.run_id
    rows = tx.all(Q.repeated, {"run_no": old.run_no, "before": fork.before})
    if not terms.repeat_effects:
        happened = [effect_key(run_id, *row[:3]) for row in rows if row[3] != MAY_HAVE]
        had = visits_before(tx, old.run_no, fork.before)
        happened += made_elsewhere(tx, run_id, graph, fork.node, had)
        if happened:
            raise Rejected(
                f"these effects happened or were given up, and would be made again: {', '.join(happened)}",
                hint=f"if they may: {terms.typed} --repeat-effects; else go on from a later step",
            )
        soon = made_soon(tx, run_id, graph, fork.node)
        if soon is not None:
            other, nodes = soon
            raise Rejected(
                f"run {other} goes on, and makes effects that the new run would make, too: {', '.join(nodes)}",
                hint=f"pwf cancel {other}; if they may happen twice: {terms.typed} --repeat-effects",
            )
    perhaps = [effect_key(run_id, *row[:3]) for row in rows if row[3] == MAY_HAVE]
    return tuple(
        f"effect {key} may have happened; its step runs again, under a key of its own" for key in perhaps
    )


def _refuse_answers(tx: Tx, found: _Checked, terms: Terms) -> None:
    """A person's word was given to one run; another run has it only if a person says so, and an approval never."""
    if found.twin is not None:  # which has them already
        return
    graph = graph_of(tx, found.old.definition_id)
    answered: dict[str, list[Adopted]] = {}  # by the run that it was answered for
    approved = False
    for one in found.results:
        asks = None if one.output is None else _asks(graph, one.node)
        if asks is None or (asks != "person" and terms.keep_answers):
            continue
        place = {"run_id": terms.run_id, "node": one.node, "visit": one.visit}
        run_id, by = tx.one(Q.answered, place) or (terms.run_id, None)
        if by == TIMEOUT and asks != "person":
            continue  # nobody has answered: the workflow's own default stood in
        approved = approved or asks == "person"
        answered.setdefault(run_id, []).append(one)
    if not answered:
        return
    words = [
        f"{', '.join(visit_name(one.node, one.visit) for one in stay)} was answered for run {run_id}"
        for run_id, stay in answered.items()
    ]
    (asked_of, (first, *_)) = next(iter(answered.items()))
    hint = f"ask again: pwf fork {asked_of} --from {visit_name(first.node, first.visit)}"
    if not approved:
        hint = f"if the answer holds: {terms.typed} --keep-answers; else {hint}"
    raise Rejected(f"{'; '.join(words)}, and for no other run", hint=hint)


def _asks(graph: Graph, node: str) -> str | None:
    """Who answers at this node, where that is a person's word."""
    kind = KINDS[graph.node(node).kind].asks
    by = None if kind is None else REQUESTS[kind].answered_by
    return None if by == "session" else by
