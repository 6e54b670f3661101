"""One effect with all that is known of it: its attempts, what became of it, and what each word of a person would do."""

from __future__ import annotations

import msgspec

from pwf.errors import NotFound
from pwf.protocol.effects import EffectDetail, Word, read_effect_key
from pwf.protocol.graph import NodeSpec
from pwf.protocol.runner import effect_key
from pwf.protocol.views import ENDED, EffectView, RunSummary, StepView
from pwf.store.custody_rows import has_runner
from pwf.store.effect_rows import one_effect
from pwf.store.explain import Load
from pwf.store.queries import load_queries
from pwf.store.read_runs import RunQuery, run_summary, step_view
from pwf.store.state import graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

KNOWN = {
    "applying": "it is being applied, or waits to be observed",
    "applied": "it happened",
    "rejected": "it did not happen",
    "failed": "it may have happened, and does no harm when it is run again",
    "ambiguous": "nobody knows whether it happened",
    "cancelled": "it never began",
    "abandoned": "it may have happened, and was given up",
}


class EffectQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`effect_key`: with any reference to the run in it. `run_id`: the run that this reference means."""

    run_id: str
    effect_key: str
    load: Load = Load()


def effect_detail(tx: Tx, query: EffectQuery) -> EffectDetail:
    """Everything that a person needs to decide. Raises `NotFound`."""
    _, node_id, visit, part = read_effect_key(query.effect_key)
    key = effect_key(query.run_id, node_id, visit, part)
    run = load_run(tx, query.run_id)
    effect = one_effect(tx, run.run_no, node_id, visit, part)
    if effect is None:
        raise NotFound(f"there is no effect {key}", hint=f"pwf show {query.run_id} lists those of its run")
    graph = graph_of(tx, run.definition_id)
    node = graph.node(node_id)
    summary = run_summary(tx, RunQuery(run_id=query.run_id, load=query.load)).summary
    kinds = {one.id: one.kind for one in graph.graph.nodes}
    rows = tx.all(Q.steps, {"run_no": run.run_no, "node": node_id, "visit": visit})
    steps = tuple(step_view(row, kinds, whole=False) for row in reversed(rows))
    return EffectDetail(
        effect=effect,
        run=summary,
        observable=node.effect is not None and node.effect.observable,
        made_at=f"{node.file}:{node.line}",
        steps=steps,
        known=_known(effect, summary, steps, has_runner(tx, run.run_no)),
        words=_words(effect, summary, node) if effect.status == "ambiguous" else (),
    )


def _known(effect: EffectView, run: RunSummary, steps: tuple[StepView, ...], may_live: bool) -> str:
    known = KNOWN[effect.status]
    if effect.settled_by is not None:
        return f"{known}: so {effect.settled_by} said"
    if effect.status != "ambiguous":
        return known
    if may_live:
        known += "; it may still happen, since its processes are not proved dead yet"
    errors = [step.error.message for step in steps if step.error is not None]
    if errors:
        known += f"; its last attempt said: {errors[-1]}"
    if run.status in ENDED:
        return f"{known}; its run ended while it was being applied ({run.status})"
    return f"{known}; {run.reason}" if run.reason else known


def _words(effect: EffectView, run: RunSummary, node: NodeSpec) -> tuple[Word, ...]:
    ended = run.status in ENDED
    way = node.way("failed")
    failed = f"the run goes on at {way.target!r}, the way of failed" if way is not None else "the run fails"
    stays = f"the run stays {run.status}"
    says, seen = f"pwf effects resolve {effect.effect_key}", f" --revision {run.revision}"
    words = [
        Word(
            verdict="happened",
            does=f"it counts as applied, and {stays if ended else 'the run goes on with the output that you give'}",
            command=f"{says} happened" + ("" if ended else " --output JSON") + seen,
        ),
        Word(
            verdict="not_happened",
            does=f"it counts as rejected, and {stays if ended else f'node {node.id!r} runs again'}",
            command=f"{says} not-happened{seen}",
        ),
        Word(
            verdict="give_up",
            does=f"it counts as abandoned, and {stays if ended else f'its attempt as failed, without retry: {failed}'}",
            command=f"{says} give-up --note TEXT{seen}",
        ),
    ]
    if not ended and node.effect is not None and node.effect.observable:
        does = "the node's observe function is asked once more"
        words.insert(2, Word(verdict="observe", does=does, command=f"{says} observe{seen}"))
    return tuple(words)
