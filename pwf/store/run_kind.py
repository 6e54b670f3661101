"""Runs, as one kind of entity: what recovery, restore, retention and verify do with them."""

from __future__ import annotations

from functools import partial

from pwf.store import moves, place
from pwf.store.broken import isolated
from pwf.store.change import changing
from pwf.store.entity_kinds import EntityKind, Retention
from pwf.store.queries import load_queries
from pwf.store.run_rules import RUN_RULES
from pwf.store.runner_end import settle_run
from pwf.store.state import load_run
from pwf.store.tx import Tx

Q = load_queries(__file__)

COPIED = "its database was copied or restored, and what it did after that is unknown"


def _hold_copied(tx: Tx) -> None:
    """Hold every run that would go on: what happened after the copy was made is unknown."""
    for (run_id,) in tx.all(Q.not_ended):
        isolated(tx, run_id, partial(_hold, tx, run_id))


def _hold(tx: Tx, run_id: str) -> None:
    run = load_run(tx, run_id)
    detail = COPIED if run.hold is None else f"{COPIED} (before, it was held as {run.hold})"
    with changing(tx, run):
        place.hold(tx, run, "restored", detail, waiting=run.status == "waiting")
        run.pause_requested = 0  # whoever resumes it has looked
        moves.note(tx, run, "held", "daemon", {"hold": "restored"})


def _daemon_ended(tx: Tx, died: bool, rebooted: bool) -> int:
    if rebooted:
        tx.run(Q.suspect_nobody)
    return tx.run(Q.suspect_running) if died and not rebooted else 0


def _needed(tx: Tx, run_no: int, run_id: str) -> str | None:
    if tx.one(Q.errand_unproved, {"run_id": run_id}) is not None:
        return "a process is not proved dead"
    unsettled = tx.one(Q.effect_unsettled, {"run_no": run_no})
    return None if unsettled is None else "an effect is unsettled"


def _remove(tx: Tx, run_no: int, run_id: str) -> None:
    which = {"run_no": run_no}
    submitted = [number for (number,) in tx.all(Q.submissions, {"run_id": run_id})]
    tx.run(Q.drop_submissions, {"run_id": run_id})
    for number in submitted:
        for sql in (Q.drop_submission_events, Q.drop_submission_entity):
            tx.run(sql, {"submission_no": number})
    for sql in (Q.drop_sends, Q.drop_messages, Q.drop_happenings):
        tx.run(sql, {"run_id": run_id})
    for sql in (Q.drop_turns, Q.drop_told, Q.drop_entries, Q.drop_segments):
        tx.run(sql, which)
    for sql in (Q.drop_updates, Q.drop_answers, Q.drop_links, Q.drop_decisions, Q.drop_requests):
        tx.run(sql, {"run_id": run_id})
    for sql in (
        Q.keep_child,
        Q.drop_settings,
        Q.drop_effects,
        Q.drop_budget,
        Q.drop_probe,
        Q.drop_agent_work,
        Q.drop_attempts,
        Q.drop_queue,
    ):
        tx.run(sql, which)
    removed = tx.run(Q.drop_run, which)
    assert removed == 1, f"run {run_id} is not an ended run"


RUN = EntityKind(
    name="run",
    table="runs",
    key="run_no",
    settle=settle_run,
    unattended=Q.unattended,
    hold_copied=_hold_copied,
    daemon_ended=_daemon_ended,
    retention=Retention(ended=Q.ended_before, group=Q.tree, needed=_needed, remove=_remove),
    rules=RUN_RULES,
)
