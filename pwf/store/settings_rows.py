"""Reading the settings of a run: for its launch, for the answers to its runner, and for who looks at them."""

from __future__ import annotations

import msgspec

from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.kinds import KINDS
from pwf.protocol.runner import Finish, Sequenced
from pwf.protocol.settings import SettingsCopy
from pwf.store.queries import load_queries
from pwf.store.state import graph_of
from pwf.store.tx import Tx

Q = load_queries(__file__)


def current_settings(tx: Tx, run_no: int, graph: WorkflowGraph) -> SettingsCopy | None:
    """As they are now; None: the workflow declares none."""
    if graph.settings is None:
        return None
    row = tx.one(Q.settings, {"run_no": run_no})
    change, value = (0, graph.settings.initial.encode()) if row is None else row
    return SettingsCopy(change=change, value=msgspec.Raw(value))


def newer_settings(tx: Tx, run_no: int, graph: WorkflowGraph, message: Sequenced) -> SettingsCopy | None:
    """Those that the runner of this message does not know yet."""
    now = current_settings(tx, run_no, graph)
    return None if now is None or now.change <= getattr(message, "settings", 0) else now


def is_overtaken(tx: Tx, run_no: int, graph: WorkflowGraph, node: str, message: Finish) -> bool:
    """Whether the node has decided, or failed to, by settings that were changed since: which may be what mends it."""
    if (
        graph.settings is None
        or message.outcome not in ("completed", "failed")
        or not KINDS[graph.node(node).kind].routes_by_settings
    ):
        return False
    now = current_settings(tx, run_no, graph)
    return now is not None and now.change > message.settings


def inherit_settings(tx: Tx, run_no: int, graph: WorkflowGraph, from_run_id: str) -> None:
    """A run that goes on from another one takes its settings along, where both workflows declare the same."""
    if graph.settings is None:
        return
    row = tx.one(Q.definition, {"run_id": from_run_id})
    if row is not None and graph_of(tx, row[0]).graph.settings == graph.settings:
        tx.run(Q.inherit, {"run_no": run_no, "run_id": from_run_id, "now": tx.now.wall_ms})
