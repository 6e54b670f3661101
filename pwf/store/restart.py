"""Restart: a look at the old run, by which the caller finds the present code, then one transaction.

The old run's state is looked at again where the new run is made.

Between the look and that command another client may have restarted the
run. A refusal is kept where it is given, so that a repeat gets it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pwf.protocol.operations import RunStarted
from pwf.store.once import REFUSALS, Done, known_answer, once, refused
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import Restart, RestartFacts, StartRun, restart_facts, start_run
from pwf.store.tx import Tx


class LookRestart(msgspec.Struct, frozen=True, kw_only=True):
    """May this run be restarted? `receipt` is the restart's."""

    run_id: str
    expected_revision: int | None = None
    receipt: ReceiptKey | None = None


@dataclass(frozen=True)
class Looked:
    """`done`: the restart has its answer already. Otherwise `facts` is what the new run takes."""

    run_id: str
    facts: RestartFacts | None = None
    done: Done[RunStarted] | None = None


def look_restart(tx: Tx, command: LookRestart) -> Looked:
    """Look, and keep the refusal if it is one."""
    done = known_answer(tx, command.receipt, RunStarted)
    if done is not None:
        return Looked(command.run_id, done=done)
    try:
        query = Restart(run_id=command.run_id, expected_revision=command.expected_revision)
        return Looked(command.run_id, facts=restart_facts(tx, query))
    except REFUSALS as refusal:
        return Looked(command.run_id, done=refused(tx, command.receipt, refusal))


class RestartRun(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is the new run, with `parent_run` set; its receipt is the restart's."""

    start: StartRun
    expected_revision: int | None = None


def restart_run(tx: Tx, command: RestartRun) -> Done[RunStarted]:
    """Start the new run, or give back the one that a restart made before. `Rejected` when it may not be."""
    assert command.start.parent_run is not None
    query = Restart(run_id=command.start.parent_run, expected_revision=command.expected_revision)

    def act() -> tuple[RunStarted, bool]:
        facts = restart_facts(tx, query)
        if facts.existing is not None:
            return facts.existing, True
        done = start_run(tx, msgspec.structs.replace(command.start, receipt=None))
        return done.unwrap(), done.adopted

    return once(tx, command.start.receipt, RunStarted, act)
