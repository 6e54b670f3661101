"""The settings of a run: as the workflow declares them, until somebody changes them.

Promises: changes are numbered 1, 2, 3 …; one commits only on the settings that it was made for, and never on those of a
run that has ended. Who may change what, and whether the value fits, the caller has checked (`settings_facts`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import Rejected
from pwf.protocol.mounts import is_within, mount_of
from pwf.protocol.runner import Launch, Value
from pwf.protocol.settings import SettingsChanged, SettingsCopy, SettingsSpec
from pwf.protocol.views import ENDED
from pwf.store import moves
from pwf.store.change import changing
from pwf.store.launch import LaunchTerms, launch_of
from pwf.store.once import Done, once
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey, find_receipt
from pwf.store.settings_rows import current_settings
from pwf.store.state import Graph, RunState, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

PATHS_NAMED_MAX = 20


class SettingsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`scope`: the mount of an included workflow, for that one's; empty: the run's own; None: the only ones it has."""

    run_id: str
    scope: str | None = ""


class SettingsFacts(NamedTuple):
    """What a change is checked by. `change`: the number of the run's newest one. `entry`: of the mount; else 0."""

    run_id: str
    scope: str
    entry: int
    definition_id: str
    environment_id: str
    spec: SettingsSpec
    change: int
    value: bytes


def settings_facts(tx: Tx, query: SettingsQuery) -> SettingsFacts:
    """Raises `Rejected` for a run that has none in this scope, or is not in it. Of one that has ended they stay."""
    run = load_run(tx, query.run_id)
    graph, scope = graph_of(tx, run.definition_id), query.scope
    now = current_settings(tx, run.run_no, graph)
    if scope is None:
        scope = _only_scope(run.run_id, graph)
    if now is None or scope not in graph.settings:
        raise _none_there(run.run_id, scope, graph)
    spec = graph.settings[scope]
    entry = _entry(run, scope)
    if entry is None:
        raise Rejected(
            f"run {run.run_id} is not in {scope!r} now, and its settings are of each entry, which begins with the "
            "initial ones",
            hint=f"pwf show {run.run_id} says where it is",
        )
    value = _value(now, spec, scope, entry)
    return SettingsFacts(
        run.run_id, scope, entry, run.definition_id, run.environment_id, spec, now.change, value
    )


def _only_scope(run_id: str, graph: Graph) -> str:
    if len(graph.settings) > 1:
        known = ", ".join(repr(name) for name in graph.settings)
        raise Rejected(
            f"run {run_id} has several settings: say which are meant",
            hint=f"scope=, one of {known}; '' is the run's own",
        )
    return next(iter(graph.settings), "")


def _none_there(run_id: str, scope: str, graph: Graph) -> Rejected:
    if not graph.settings:
        return Rejected(
            f"the workflow of run {run_id} has no settings", hint="a workflow declares them: flow.settings(…)"
        )
    of = f"what run {run_id} includes as {scope!r}" if scope else f"the workflow of run {run_id} itself"
    known = ", ".join(f"--scope {name}" if name else "its own, without --scope" for name in graph.settings)
    return Rejected(f"{of} has no settings", hint=f"the run has: {known}")


def _entry(run: RunState, scope: str) -> int | None:
    """The entry of an included workflow that the run is in; None: it is not. 0: the run itself."""
    if not scope:
        return 0
    return run.visits.get(scope) if is_within(run.node, scope) else None


def _value(now: SettingsCopy, spec: SettingsSpec, scope: str, entry: int) -> bytes:
    if not scope:
        return bytes(now.value)
    changed = now.scopes.get(scope)
    is_its_own = changed is not None and changed.entry == entry
    return bytes(changed.value) if changed is not None and is_its_own else spec.initial.encode()


class ChangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`change`: of the settings that `value` was made from. `paths`: what it touches, for the history."""

    run_id: str
    scope: str = ""
    entry: int = 0
    change: int
    value: bytes
    paths: tuple[str, ...]
    actor: str
    receipt: ReceiptKey | None = None


def change_settings(tx: Tx, command: ChangeSettings) -> Done[SettingsChanged] | None:
    """Put them in place. None where they were changed since: it is to be made anew, and is no refusal to be kept."""
    run = load_run(tx, command.run_id)
    graph = graph_of(tx, run.definition_id)
    now = current_settings(tx, run.run_no, graph)
    assert now is not None, "the caller has read its facts"
    is_first = command.receipt is None or find_receipt(tx, command.receipt) is None
    has_moved = now.change != command.change or _entry(run, command.scope) != command.entry
    if is_first and has_moved and run.status not in ENDED:
        return None
    value = _value(now, graph.settings[command.scope], command.scope, command.entry)
    return once(
        tx, command.receipt, SettingsChanged, lambda: _change(tx, run, graph, now.change, value, command)
    )


def _change(
    tx: Tx, run: RunState, graph: Graph, newest: int, value: bytes, command: ChangeSettings
) -> tuple[SettingsChanged, bool]:
    """What leaves them as they are counts no change."""
    if run.status in ENDED:
        raise Rejected(
            f"run {run.run_id} has ended ({run.status}): its settings change no more",
            hint=f"pwf show {run.run_id}",
        )
    if value == command.value:
        return SettingsChanged(run_id=run.run_id, change=newest, revision=run.revision), True
    change = newest + 1
    with changing(tx, run):
        facts = {"run_no": run.run_no, "scope": command.scope, "entry": command.entry, "change": change}
        tx.run(Q.put_settings, facts | {"value": command.value, "now": tx.now.wall_ms})
        if run.tries and mount_of(run.node) == command.scope and graph.node(run.node).effect is not None:
            seen = {"node": run.node, "visit": run.visit, "change": newest, "value": value}
            tx.run(Q.keep, {"run_no": run.run_no, "scope": command.scope, **seen})
        said: dict[str, object] = {"change": change, "paths": command.paths[:PATHS_NAMED_MAX]}
        if command.scope:
            said["scope"] = command.scope
        moves.note(tx, run, "settings_changed", command.actor, said)
    return SettingsChanged(run_id=run.run_id, change=change, revision=run.revision), False


class CheckQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a process must know that judges a change. `marker`: what it bears."""

    run_id: str
    scope: str = ""
    value: bytes
    terms: LaunchTerms
    marker: str


def settings_launch(tx: Tx, query: CheckQuery) -> Launch:
    """The errand of one process: what `check=` says to a value."""
    run = load_run(tx, query.run_id)
    graph = graph_of(tx, run.definition_id)
    judged = Value(json=msgspec.Raw(query.value), size=len(query.value))
    more = {"marker": query.marker, "judge": judged, "judges_settings": True, "judges_scope": query.scope}
    return launch_of(tx, run, graph, query.terms, past=(), **more)
