"""Reading the settings of a run: for its launch, for the answers to its runner, and for who looks at them."""

from __future__ import annotations

import msgspec

from pwf.protocol.kinds import KINDS
from pwf.protocol.mounts import mount_of, mounts_of
from pwf.protocol.runner import Finish, Sequenced
from pwf.protocol.settings import ScopedCopy, SettingsCopy
from pwf.store.adoption import Begins
from pwf.store.queries import load_queries
from pwf.store.state import Graph, RunState, graph_of
from pwf.store.tx import Tx

Q = load_queries(__file__)


def current_settings(tx: Tx, run_no: int, graph: Graph) -> SettingsCopy | None:
    """As they are now; None: the workflow declares none, nor does one that it includes."""
    if not graph.settings:
        return None
    value = graph.settings[""].initial.encode() if "" in graph.settings else b"null"
    newest, scopes = 0, {}
    for scope, entry, change, changed in tx.all(Q.settings, {"run_no": run_no}):
        newest = max(newest, change)
        if scope:
            scopes[scope] = ScopedCopy(entry=entry, value=msgspec.Raw(changed))
        else:
            value = changed
    return SettingsCopy(change=newest, value=msgspec.Raw(value), scopes=scopes)


def visit_settings(tx: Tx, run: RunState, graph: Graph) -> SettingsCopy | None:
    """What the present visit sees: the newest, unless it has made effects by earlier ones (`let_go_settings`)."""
    now = current_settings(tx, run.run_no, graph)
    scope = mount_of(run.node)
    place = {"run_no": run.run_no, "scope": scope, "node": run.node, "visit": run.visit}
    row = None if now is None else tx.one(Q.kept, place)
    if now is None or row is None:
        return now
    entry, change, value = row
    if not scope:
        return SettingsCopy(change=change, value=msgspec.Raw(value), scopes=now.scopes)
    kept = {scope: ScopedCopy(entry=entry, value=msgspec.Raw(value))}
    return SettingsCopy(change=change, value=now.value, scopes=now.scopes | kept)


def let_go_settings(tx: Tx, run: RunState, graph: Graph) -> None:
    """Before a try: what an earlier one saw binds it only where that has begun an effect, whose key is the visit's."""
    if not graph.settings or run.tries == 0:
        return
    if tx.one(Q.has_begun, {"run_no": run.run_no, "node": run.node, "visit": run.visit}) is None:
        tx.run(Q.let_go, {"run_no": run.run_no})


def newer_settings(tx: Tx, run_no: int, graph: Graph, message: Sequenced) -> SettingsCopy | None:
    """Those that the runner of this message does not know yet."""
    now = current_settings(tx, run_no, graph)
    return None if now is None or now.change <= getattr(message, "settings", 0) else now


def is_overtaken(tx: Tx, run_no: int, graph: Graph, node: str, message: Finish) -> bool:
    """Whether the node has decided, or failed to, by settings that were changed since: which may be what mends it.

    They are those of the workflow that it stands in.
    """
    scope = mount_of(node)
    if (
        scope not in graph.settings
        or message.outcome not in ("completed", "failed")
        or not KINDS[graph.node(node).kind].routes_by_settings
    ):
        return False
    row = tx.one(Q.newest, {"run_no": run_no, "scope": scope})
    return row is not None and row[0] > message.settings


def inherit_settings(tx: Tx, run_no: int, graph: Graph, from_run_id: str, begins: Begins) -> tuple[str, ...]:
    """A run that goes on from another one takes its settings along, where both workflows declare the same.

    Of included workflows those that it begins in, while they are still of that entry. What had been changed, and is
    declared otherwise by now, is as declared: the answer says so.
    """
    row = tx.one(Q.source, {"run_id": from_run_id})
    if row is None:
        return ()
    old_no, definition_id = row
    declared = graph_of(tx, definition_id).settings
    changed = {(scope, entry) for scope, entry, _, _ in tx.all(Q.settings, {"run_no": old_no})}
    lost = []
    for scope in ("", *mounts_of(begins.node)):
        entry = begins.visits[scope] if scope else 0
        if (scope, entry) not in changed:
            continue
        if scope in graph.settings and declared.get(scope) == graph.settings[scope]:
            facts = {
                "run_no": run_no,
                "old_no": old_no,
                "scope": scope,
                "entry": entry,
                "now": tx.now.wall_ms,
            }
            tx.run(Q.inherit, facts)
        else:
            lost.append(scope)
    return tuple(_lost(scope, from_run_id, has_any=scope in graph.settings) for scope in lost)


def _lost(scope: str, run_id: str, *, has_any: bool) -> str:
    whose = f"the settings of {scope!r}" if scope else "its settings"
    now = "are as declared" if has_any else "are gone"
    return (
        f"{whose} {now}: the code declares them otherwise than that of run {run_id}, where they were changed"
    )
