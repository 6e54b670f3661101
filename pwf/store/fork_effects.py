"""Which outside effects a fork would make once more, since another run of its tree has made them or will.

A tree is a first run with its restarts and forks. Promises: an effect counts where the fork may come to its node, in a
visit that is not among what the fork takes over. Runs that the fork comes from don't count, but for the one that is
forked: who made one of the others from them has said that effects may be repeated, or begun anew.
"""

from __future__ import annotations

from pwf.protocol.runner import effect_key
from pwf.store.queries import load_queries
from pwf.store.state import Graph, graph_of
from pwf.store.tx import Tx

Q = load_queries(__file__)


def made_elsewhere(tx: Tx, run_id: str, graph: Graph, node: str, had: dict[str, int]) -> list[str]:
    """Keys of effects that other runs have made, and a fork of the run at `node` would make again.

    `had`: how often each node had been entered before that.
    """
    ahead = graph.effects_from(node)
    return [
        effect_key(other, of, visit, part)
        for other, of, visit, part in tx.all(Q.made, {"run_id": run_id})
        if of in ahead and visit > had.get(of, 0)
    ]


def made_soon(tx: Tx, run_id: str, graph: Graph, node: str) -> tuple[str, list[str]] | None:
    """The first run that goes on and will make effects that a fork at `node` would make, too; at which nodes."""
    ahead = graph.effects_from(node)
    for other, definition_id, at in tx.all(Q.going_on, {"run_id": run_id}):
        both = ahead & graph_of(tx, definition_id).effects_from(at)
        if both:
            return other, sorted(both)
    return None
