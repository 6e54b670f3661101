"""One effect with all that is known of it: its attempts, what became of it, and what each word of a person would do."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import NotFound
from pwf.protocol.effects import EffectDetail, Word, read_effect_key
from pwf.protocol.graph import NodeSpec
from pwf.protocol.runner import Value, effect_key
from pwf.protocol.views import ENDED, EffectView, RunSummary, StepView
from pwf.store.custody_rows import has_runner
from pwf.store.effect_rows import one_effect
from pwf.store.explain import Load
from pwf.store.queries import load_queries
from pwf.store.read_runs import RunQuery, run_summary, step_view
from pwf.store.state import graph_of, load_run
from pwf.store.tx import Tx
from pwf.store.values import value_of

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
    which = {"entity_no": run.run_no, "node": node_id, "visit": visit, "part": part}
    kept = kept_of(tx, which)
    about = _About(
        effect,
        summary,
        node,
        is_part=bool(part),
        observable=kept.observable if part else node.effect is not None and node.effect.observable,
        is_last=tx.one(Q.others_ambiguous, which) is None,
    )
    return EffectDetail(
        effect=effect,
        run=summary,
        observable=about.observable,
        request=kept.request if part else None,
        output=kept.output,
        made_at=f"{node.file}:{node.line}",
        steps=steps,
        known=_known(effect, summary, steps, has_runner(tx, run.run_no)),
        words=_words(about) if effect.status == "ambiguous" else (),
    )


class Kept(NamedTuple):
    """What the ledger keeps of an effect, besides how it stands."""

    request: Value
    output: Value | None
    observable: bool


def kept_of(tx: Tx, which: dict[str, object]) -> Kept:
    """Of the effect with these columns of its key, which is there."""
    request, request_digest, request_size, output, output_digest, output_size, observable = (
        tx.one(Q.values_of, which) or (None,) * 7
    )
    gave = output is not None or output_digest is not None
    return Kept(
        request=value_of(request, request_digest, request_size),
        output=value_of(output, output_digest, output_size) if gave else None,
        observable=bool(observable),
    )


def _known(effect: EffectView, run: RunSummary, steps: tuple[StepView, ...], may_live: bool) -> str:
    known = KNOWN[effect.status]
    if effect.settled_by is not None:
        return f"{known}: so {effect.settled_by} said"
    if effect.status != "ambiguous":
        return known
    if may_live:
        known += "; it may still happen, since its processes are not proved dead yet"
    errors = [error.message for error in (*(step.error for step in steps), effect.error) if error is not None]
    if errors:
        known += f"; its last attempt said: {errors[-1]}"
    if run.status in ENDED:
        return f"{known}; its run ended while it was being applied ({run.status})"
    return f"{known}; {run.reason}" if run.reason else known


class _About(NamedTuple):
    """What the words depend on. `is_last`: no other effect of the visit is ambiguous."""

    effect: EffectView
    run: RunSummary
    node: NodeSpec
    is_part: bool
    observable: bool
    is_last: bool


def _words(about: _About) -> tuple[Word, ...]:
    effect, run = about.effect, about.run
    ended = run.status in ENDED
    observe = None
    if not ended and about.observable:
        observe = "the node's observe function is asked once more"
        if about.is_part:
            observe = f"its observe function is asked once more{_when_all(about)}, as node {about.node.id!r} runs again"
    return words_of(
        effect.effect_key,
        run.revision,
        happened=_then(about, "happened"),
        not_happened=_then(about, "not_happened"),
        observe=observe,
        give_up=_then(about, "give_up"),
        takes_output=not ended,
    )


def words_of(
    key: str,
    revision: int,
    *,
    happened: str,
    not_happened: str,
    observe: str | None,
    give_up: str,
    takes_output: bool = True,
) -> tuple[Word, ...]:
    """What a person may say, and type, of an effect that is ambiguous: by what follows from each word.

    `observe` None: nobody can observe it. `takes_output`: somebody gets what is given as its output.
    """
    says, seen = f"pwf effects resolve {key}", f" --revision {revision}"
    words = [
        Word(
            verdict="happened",
            does=f"it counts as applied, and {happened}",
            command=f"{says} happened" + (" --output JSON" if takes_output else "") + seen,
        ),
        Word(
            verdict="not_happened",
            does=f"it counts as rejected, and {not_happened}",
            command=f"{says} not-happened{seen}",
        ),
        Word(
            verdict="give_up",
            does=f"it counts as abandoned, and {give_up}",
            command=f"{says} give-up --note TEXT{seen}",
        ),
    ]
    if observe is not None:
        words.insert(2, Word(verdict="observe", does=observe, command=f"{says} observe{seen}"))
    return tuple(words)


def _then(about: _About, verdict: str) -> str:
    """What becomes of the run."""
    if about.run.status in ENDED:
        return f"the run stays {about.run.status}"
    if verdict == "give_up":
        way = about.node.way("failed")
        failed = (
            f"the run goes on at {way.target!r}, the way of failed" if way is not None else "the run fails"
        )
        return f"its attempt as failed, without retry{_when_all(about)}: {failed}"
    if not about.is_part:
        again = f"node {about.node.id!r} runs again"
        return again if verdict == "not_happened" else "the run goes on with the output that you give"
    gives = (
        "which applies it again"
        if verdict == "not_happened"
        else "to which it gives the output that you give"
    )
    return f"node {about.node.id!r} runs again{_when_all(about)}, {gives}"


def _when_all(about: _About) -> str:
    return "" if about.is_last else " when the others are settled, too"
