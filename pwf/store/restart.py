"""Restart in one transaction: the old run's state is looked at again where the new run is made.

Between the look that the caller resolved the code by and this command another client may have restarted the
run.
"""

from __future__ import annotations

import msgspec

from pwf.protocol.operations import RunStarted
from pwf.store.once import Done, once
from pwf.store.runs import Restart, StartRun, restart_facts, start_run
from pwf.store.tx import Tx


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
