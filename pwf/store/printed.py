"""Which attempts of a run have printed something. What they printed stands in files of the home, not here."""

from __future__ import annotations

import msgspec

from pwf.errors import NotFound
from pwf.protocol.operations import LIST_PAGE_MAX
from pwf.protocol.printed import Printed, PrintedStep
from pwf.store.queries import load_queries
from pwf.store.state import graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)


class PrintedQuery(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    node: str | None = None
    attempt: int | None = None


def printed(tx: Tx, query: PrintedQuery) -> Printed:
    """Attempts in order. Raises `NotFound` for a node or attempt that the run doesn't have."""
    run = load_run(tx, query.run_id)
    if query.node is not None:
        nodes = [node.id for node in graph_of(tx, run.definition_id).graph.nodes]
        if query.node not in nodes:
            raise NotFound(
                f"run {run.run_id} has no node {query.node!r}", hint=f"its nodes are: {', '.join(nodes)}"
            )
    if query.attempt is not None and not 1 <= query.attempt <= run.attempts:
        raise NotFound(
            f"run {run.run_id} has no attempt {query.attempt}: it has made {run.attempts}",
            hint=f"pwf show {run.run_id} lists them",
        )
    facts = {"run_no": run.run_no, "node": query.node, "attempt": query.attempt, "limit": LIST_PAGE_MAX}
    steps = [
        PrintedStep(attempt=attempt, node=node, visit=visit, tries=tries, status=status, printed_bytes=size)
        for attempt, node, visit, tries, status, size in tx.all(Q.printed, facts)
    ]
    return Printed(run_id=run.run_id, ended=run.ended, steps=tuple(reversed(steps)))
