"""Recovery of an effect whose outcome is unknown, by a person's word. Nothing else ever settles one."""

from __future__ import annotations

import msgspec

from pwf.errors import Conflict, Rejected
from pwf.protocol.operations import RunChanged
from pwf.protocol.runner import effect_key
from pwf.store import moves, place
from pwf.store.change import changing
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.state import RunState, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)


class RecoverEffect(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict`: applied (with canonical `output`), retry, or observe.

    `effect_key`: the effect that the person was shown; a late word never settles another one. None: the run's only one.
    `expected_revision`: of the run as the person saw it. A word about an earlier attempt of the effect, given late,
    must not settle a later one.
    """

    run_id: str
    verdict: str
    effect_key: str | None = None
    output: bytes = b"null"
    expected_revision: int | None = None
    actor: str = "client"
    receipt: ReceiptKey | None = None


def recover_effect(tx: Tx, command: RecoverEffect) -> Done[RunChanged]:
    """Settle the ambiguous effect of a run."""
    return once(tx, command.receipt, RunChanged, lambda: (_recover(tx, command), False))


def _recover(tx: Tx, command: RecoverEffect) -> RunChanged:
    run = load_run(tx, command.run_id)
    node, visit, part = _meant(tx, run, command.effect_key)
    facts: dict[str, object] = {
        "verdict": command.verdict,
        "effect": effect_key(run.run_id, node, visit, part),
    }
    with changing(tx, run, expected_revision=command.expected_revision):
        run.crashes = 0  # somebody has looked, as at a resume
        if run.ended:
            if command.verdict == "observe":
                raise Rejected(f"run {run.run_id} has ended; say applied, or retry for: it did not happen")
            status = "applied" if command.verdict == "applied" else "rejected"
            which = {"entity_no": run.run_no, "node": node, "visit": visit, "part": part}
            tx.run(Q.settle, {**which, "status": status, "now": tx.now.wall_ms})
        elif command.verdict == "applied":
            facts = moves.after_facts(facts, run, _applied(tx, run, command))
        else:
            _again(tx, run, observe=command.verdict == "observe")
        moves.note(tx, run, "effect_recovered", command.actor, facts)
    return RunChanged(run_id=run.run_id, status=run.shown_status, revision=run.revision)  # type: ignore[arg-type]


def _meant(tx: Tx, run: RunState, key: str | None) -> tuple[str, int, str]:
    """Node, visit and part of the ambiguous effect that the word is about."""
    rows = tx.all(Q.unsettled_of_run, {"run_no": run.run_no})
    open_ = {effect_key(run.run_id, *row[:3]): row for row in rows if row[3] == "ambiguous"}
    lists = "pwf effects --status ambiguous lists them"
    if not open_:
        raise Rejected(f"run {run.run_id} has no ambiguous effect", hint=lists)
    if key is None and len(open_) > 1:
        raise Rejected(
            f"run {run.run_id} has {len(open_)} ambiguous effects: {', '.join(open_)}",
            hint=f"say which: pwf recover {run.run_id} … --effect KEY",
        )
    if key is not None and key not in open_:
        raise Conflict(
            f"effect {key} is not ambiguous any more; of run {run.run_id} {', '.join(open_)} is", hint=lists
        )
    node, visit, part, _ = open_[key] if key is not None else next(iter(open_.values()))
    return node, visit, part


def _applied(tx: Tx, run: RunState, command: RecoverEffect) -> moves.Follow:
    graph = graph_of(tx, run.definition_id)
    node = graph.node(run.node)
    value = moves.stored(tx, command.output)
    row = tx.one(Q.unknown_attempt, {"run_no": run.run_no, "node": run.node, "visit": run.visit})
    assert row is not None
    tx.run(
        Q.accept_attempt,
        {
            "run_no": run.run_no,
            "attempt": row[0],
            "output": value.inline,
            "output_crc32": value.crc32,
            "output_digest": value.digest,
        },
    )
    moves.settle_effect(tx, run, "applied")
    run.observe = None
    then, error = moves.follow_output(run, node, command.output)
    moves.take(tx, run, graph, then, "completed", value, error, go=False)
    return then


def _again(tx: Tx, run: RunState, *, observe: bool) -> None:
    node = graph_of(tx, run.definition_id).node(run.node)
    if observe and (node.effect is None or not node.effect.observable):
        raise Rejected(f"node {run.node!r} has no observe function", hint="say applied or retry")
    moves.settle_effect(tx, run, "applying" if observe else "rejected")
    run.observe = (run.observe or "run") if observe else None
    place.queue(tx, run)
