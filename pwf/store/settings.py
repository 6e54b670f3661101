"""The settings of a run: as the workflow declares them, until somebody changes them.

Promises: changes are numbered 1, 2, 3 …; one commits only on the settings that it was made for, and never on those of a
run that has ended. Who may change what, and whether the value fits, the caller has checked (`settings_facts`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pwf.errors import NotFound, Rejected
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
from pwf.store.state import RunState, graph_of, load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

PATHS_NAMED_MAX = 20


class SettingsFacts(NamedTuple):
    """What a change is checked by. `change`: the number of the newest one."""

    run_id: str
    definition_id: str
    environment_id: str
    spec: SettingsSpec
    change: int
    value: bytes


def settings_facts(tx: Tx, run_id: str) -> SettingsFacts:
    """Raises `Rejected` for a run that has none, also where it has ended."""
    row = tx.one(Q.facts, {"run_id": run_id})
    if row is None:
        raise NotFound(f"there is no run {run_id!r}", hint="pwf ls lists the runs")
    run_no, definition_id, environment_id, _status = row
    graph = graph_of(tx, definition_id).graph
    now = current_settings(tx, run_no, graph)
    if now is None or graph.settings is None:
        raise Rejected(
            f"the workflow of run {run_id} has no settings", hint="a workflow declares them: flow.settings(…)"
        )
    return SettingsFacts(run_id, definition_id, environment_id, graph.settings, now.change, bytes(now.value))


class ChangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`change`: of the settings that `value` was made from. `paths`: what it touches, for the history."""

    run_id: str
    change: int
    value: bytes
    paths: tuple[str, ...]
    actor: str
    receipt: ReceiptKey | None = None


def change_settings(tx: Tx, command: ChangeSettings) -> Done[SettingsChanged] | None:
    """Put them in place. None where they were changed since: it is to be made anew, and is no refusal to be kept."""
    run = load_run(tx, command.run_id)
    now = current_settings(tx, run.run_no, graph_of(tx, run.definition_id).graph)
    assert now is not None, "the caller has read its facts"
    is_first = command.receipt is None or find_receipt(tx, command.receipt) is None
    if is_first and now.change != command.change and run.status not in ENDED:
        return None
    return once(tx, command.receipt, SettingsChanged, lambda: _change(tx, run, now, command))


def _change(
    tx: Tx, run: RunState, now: SettingsCopy, command: ChangeSettings
) -> tuple[SettingsChanged, bool]:
    """What leaves them as they are counts no change."""
    if run.status in ENDED:
        raise Rejected(
            f"run {run.run_id} has ended ({run.status}): its settings change no more",
            hint=f"pwf show {run.run_id}",
        )
    if bytes(now.value) == command.value:
        return SettingsChanged(run_id=run.run_id, change=now.change, revision=run.revision), True
    change = now.change + 1
    with changing(tx, run):
        facts = {"run_no": run.run_no, "change": change, "value": command.value, "now": tx.now.wall_ms}
        tx.run(Q.put_settings, facts)
        said: dict[str, object] = {"change": change, "paths": command.paths[:PATHS_NAMED_MAX]}
        moves.note(tx, run, "settings_changed", command.actor, said)
    return SettingsChanged(run_id=run.run_id, change=change, revision=run.revision), False


class CheckQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a process must know that judges a change. `marker`: what it bears."""

    run_id: str
    value: bytes
    terms: LaunchTerms
    marker: str


def settings_launch(tx: Tx, query: CheckQuery) -> Launch:
    """The errand of one process: what `check=` says to a value."""
    run = load_run(tx, query.run_id)
    graph = graph_of(tx, run.definition_id)
    judged = Value(json=msgspec.Raw(query.value), size=len(query.value))
    more = {"marker": query.marker, "judge": judged, "judges_settings": True}
    return launch_of(tx, run, graph, query.terms, past=(), **more)
