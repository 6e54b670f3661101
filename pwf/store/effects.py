"""A person's word on an effect whose outcome is unknown. Nothing else ever settles one."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.errors import Conflict, Rejected
from pwf.protocol.effects import read_effect_key
from pwf.protocol.graph import NodeSpec
from pwf.protocol.kinds import KINDS
from pwf.protocol.operations import RunChanged
from pwf.protocol.runner import StepError, effect_key
from pwf.store import moves, place
from pwf.store.change import changing
from pwf.store.custody_rows import has_runner
from pwf.store.effect_parts import (
    Word,
    abandoned_parts,
    leave_ambiguous,
    observe_again,
    settle_by_word,
    unknown_parts,
)
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import resolve_ref
from pwf.store.state import Graph, RunState, encode, graph_of, load_run
from pwf.store.step_parts import hold_for_parts, occasion_of
from pwf.store.tx import Tx

Q = load_queries(__file__)


class ResolveEffect(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict`: happened (with canonical `output`, and `ref`), not_happened, observe, or give_up.

    `effect_key`: the effect that the person was shown; a late word never settles another one. None: the run's only one.
    `expected_revision`: of the run as the person saw it. A word about an earlier attempt of the effect, given late,
    must not settle a later one. `checked_for`: the node whose type `output` was found to have; None: of any.
    """

    run_id: str
    verdict: str
    effect_key: str | None = None
    output: bytes = b"null"
    checked_for: str | None = None
    ref: str | None = None
    note: str | None = None
    expected_revision: int | None = None
    actor: str = "client"
    receipt: ReceiptKey | None = None


class OutputQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The run and the effect that a person says has happened, as in `ResolveEffect`."""

    run_id: str
    effect_key: str | None = None


class OutputType(msgspec.Struct, frozen=True, kw_only=True):
    """Of what type the output is that a person gives. No node: it is not kept, or the word will be refused."""

    run_id: str
    node: str = ""
    schema: dict[str, Any] | None = None


def output_type(tx: Tx, query: OutputQuery) -> OutputType:
    """That of the node whose effect the word is about, where the run goes on with it."""
    run = load_run(tx, query.run_id)
    open_ = _ambiguous(tx, run)
    which = open_[:1] if query.effect_key is None else [_named(tx, run, query.effect_key)]
    if run.ended or not which or which[0] not in open_ or which[0][2]:  # a part's output is any JSON
        return OutputType(run_id=run.run_id)
    node = graph_of(tx, run.definition_id).node(which[0][0])
    return OutputType(run_id=run.run_id, node=node.id, schema=node.returns)


def resolve_effect(tx: Tx, command: ResolveEffect) -> Done[RunChanged]:
    """Settle the ambiguous effect of a run, or have it observed again."""
    return once(tx, command.receipt, RunChanged, lambda: (_resolve(tx, command), False))


def _resolve(tx: Tx, command: ResolveEffect) -> RunChanged:
    run = load_run(tx, command.run_id)
    which = _meant(tx, run, command.effect_key)
    key = effect_key(run.run_id, *which)
    if command.verdict == "not_happened" and has_runner(tx, run.run_no):
        raise Rejected(
            f"processes of run {run.run_id} are not proved dead yet, and effect {key} may still happen",
            hint=f"pwf effects show {key} says when they are; then look, and say it again",
        )
    facts: dict[str, object] = {"verdict": command.verdict, "effect": key}
    facts |= {name: said for name in ("ref", "note") if (said := getattr(command, name)) is not None}
    with changing(tx, run, expected_revision=command.expected_revision):
        run.crashes = 0  # somebody has looked, as at a resume
        if command.verdict == "observe":
            _observe(tx, run, which)
        else:
            _settle(tx, run, which, command)
            if run.ended:
                facts["run"] = run.status
            else:
                facts = moves.after_facts(facts, run, _go_on(tx, run, which, command))
        moves.note(tx, run, "effect_resolved", command.actor, facts)
    return RunChanged(run_id=run.run_id, status=run.shown_status, revision=run.revision)  # type: ignore[arg-type]


def _meant(tx: Tx, run: RunState, key: str | None) -> tuple[str, int, str]:
    """Node, visit and part of the ambiguous effect that the word is about."""
    which = None if key is None else _named(tx, run, key)
    open_ = _ambiguous(tx, run)
    keys = [effect_key(run.run_id, *one) for one in open_]
    lists = "pwf effects --ambiguous lists them"
    if not open_:
        raise Rejected(f"run {run.run_id} has no ambiguous effect", hint=lists)
    if which is None and len(open_) > 1:
        raise Rejected(
            f"run {run.run_id} has {len(open_)} ambiguous effects: {', '.join(keys)}",
            hint=f"say which: pwf effects resolve {keys[0]} …",
        )
    which = which or open_[0]
    if which not in open_:
        key = effect_key(run.run_id, *which)
        raise Conflict(
            f"effect {key} is not ambiguous any more; of run {run.run_id} {', '.join(keys)} is", hint=lists
        )
    return which


def _named(tx: Tx, run: RunState, key: str) -> tuple[str, int, str]:
    """Node, visit and part in a key, whose run may have been typed as any reference to this one."""
    name, node, visit, part = read_effect_key(key)
    if resolve_ref(tx, name) != run.run_id:
        raise Conflict(f"effect {key} is not one of run {run.run_id}", hint=f"pwf effects show {key}")
    return node, visit, part


def _ambiguous(tx: Tx, run: RunState) -> list[tuple[str, int, str]]:
    rows = tx.all(Q.ambiguous_of_run, {"run_no": run.run_no})
    return [(node, visit, part) for node, visit, part in rows]


def _settle(tx: Tx, run: RunState, which: tuple[str, int, str], command: ResolveEffect) -> None:
    place = dict(zip(("entity_no", "node", "visit", "part"), (run.run_no, *which), strict=True))
    word = Word(
        verdict=command.verdict,  # type: ignore[arg-type]  # not observe
        output=command.output,
        ref=command.ref,
        said_by=command.actor,
        note=command.note,
    )
    settle_by_word(tx, place, word)


def _observe(tx: Tx, run: RunState, which: tuple[str, int, str]) -> None:
    if run.ended:
        raise Rejected(
            f"run {run.run_id} has ended, and no process of it observes any more",
            hint="look yourself, then say happened, not-happened or give-up",
        )
    if which[2]:
        _observe_part(tx, run, which)
        return
    node = graph_of(tx, run.definition_id).node(run.node)
    if node.effect is None or not node.effect.observable:
        raise Rejected(
            f"node {run.node!r} has no observe function", hint="say happened, not-happened or give-up"
        )
    moves.settle_effect(tx, run, "applying")
    run.observe = run.observe or "run"
    place.queue(tx, run)


def _observe_part(tx: Tx, run: RunState, which: tuple[str, int, str]) -> None:
    """The part is observed where the code reaches it, once nobody is asked about another one."""
    occasion = occasion_of(run)
    if abandoned_parts(tx, occasion):
        raise Rejected(
            "an effect of the same step was given up, so the step does not run again",
            hint="look yourself, then say happened, not-happened or give-up",
        )
    if not observe_again(tx, {**occasion.place, "part": which[2]}):
        raise Rejected(
            f"effect {effect_key(run.run_id, *which)} has no observe function",
            hint="say happened, not-happened or give-up",
        )
    _parts_go_on(tx, run)


def _parts_go_on(tx: Tx, run: RunState) -> moves.Follow:
    """The step runs again when a person is asked about no effect of it any more; where one was given up, it fails."""
    occasion = occasion_of(run)
    given_up = abandoned_parts(tx, occasion)
    if given_up:
        leave_ambiguous(tx, occasion)  # what was to be observed, which no code does any more
    if any(one.status == "ambiguous" for one in unknown_parts(tx, occasion)):
        hold_for_parts(tx, run)
        return moves.Follow(next=run.node)
    if given_up:
        part, note = given_up[0]
        return _give_up(tx, run, effect_key(run.run_id, run.node, run.visit, part), note)
    place.queue(tx, run)
    return moves.Follow(next=run.node)


def _go_on(tx: Tx, run: RunState, which: tuple[str, int, str], command: ResolveEffect) -> moves.Follow:
    """What the word means for the run, whose position the effect is."""
    if which[2]:
        return _parts_go_on(tx, run)
    graph = graph_of(tx, run.definition_id)
    run.observe = None
    if command.verdict == "happened":
        return _happened(tx, run, graph, command)
    if command.verdict == "give_up":
        return _give_up(tx, run, effect_key(run.run_id, *which), command.note)
    place.queue(tx, run)
    return moves.Follow(next=run.node)


def _happened(tx: Tx, run: RunState, graph: Graph, command: ResolveEffect) -> moves.Follow:
    node = graph.node(run.node)
    if command.checked_for not in (None, node.id):
        raise Conflict(
            f"the effect of node {node.id!r} has become ambiguous only now", hint=f"pwf show {run.run_id}"
        )
    output = output_of(node, command.output)
    value = moves.stored(tx, output)
    _end_attempt(tx, run, "completed", value, None)
    then, error = moves.follow_output(run, node, output)
    moves.take(tx, run, graph, then, "completed", value, error, go=False)
    return then


def _give_up(tx: Tx, run: RunState, key: str, why: str | None) -> moves.Follow:
    """The attempt has failed; since it may have happened, it is not tried again."""
    graph = graph_of(tx, run.definition_id)
    note = f": {why}" if why else ""
    error = StepError(
        code="effect_abandoned",
        message=f"effect {key} was given up, and may have happened{note}",
        node=run.node,
    )
    way = graph.node(run.node).way("failed")
    then = moves.Follow(next=None if way is None else way.target)
    _end_attempt(tx, run, "failed", moves.NOTHING, error)
    moves.take(tx, run, graph, then, "failed", moves.NOTHING, error, go=False)
    return then


def _end_attempt(tx: Tx, run: RunState, status: str, output: moves.Stored, error: StepError | None) -> None:
    """The attempt that left it unknown has ended like this."""
    row = tx.one(Q.unknown_attempt, {"run_no": run.run_no, "node": run.node, "visit": run.visit})
    assert row is not None
    tx.run(
        Q.end_attempt,
        {
            "run_no": run.run_no,
            "attempt": row[0],
            "status": status,
            "output": output.inline,
            "output_crc32": output.crc32,
            "output_digest": output.digest,
            "error": None if error is None else encode(error),
        },
    )


def output_of(node: NodeSpec, said: bytes) -> bytes:
    """The node's output as a person gives it: of a command it is what was parsed of what it printed."""
    return b'{"exit_code":0,"parsed":' + said + b"}" if KINDS[node.kind].runs_command else said
