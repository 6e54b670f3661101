"""How long a request is still open: its clock goes while its run only waits for it, and stands still under a hold.

Within a boot the elapsed clock decides, which nobody can set and which counts the machine's sleep; across a reboot the
wall clock. Started and stopped where a run is placed (`place`), and nowhere else.
"""

from __future__ import annotations

from pwf.store.queries import load_queries
from pwf.store.tx import Tx

Q = load_queries(__file__)


def start(tx: Tx, run_id: str) -> None:
    """Let the time of the run's open request pass, if it has a deadline."""
    now = tx.now
    tx.run(
        Q.start,
        {"run_id": run_id, "wall_ms": now.wall_ms, "elapsed_ms": now.elapsed_ms, "boot_id": now.boot_id},
    )


def stop(tx: Tx, run_id: str) -> None:
    """Keep what is left of it."""
    now = tx.now
    tx.run(
        Q.stop,
        {"run_id": run_id, "wall_ms": now.wall_ms, "elapsed_ms": now.elapsed_ms, "boot_id": now.boot_id},
    )


def rebase_deadlines(tx: Tx, _: None = None) -> int:
    """At start, once: deadlines of an earlier boot go by the wall clock from now on; returns how many there were."""
    return tx.run(Q.rebase, {"boot_id": tx.now.boot_id})


def left_ms(tx: Tx, wall_ms: int | None, elapsed_ms: int | None, boot_id: str | None) -> int | None:
    """Until a deadline, by the clock that decides: 0 or less when it is over. None: it is not set."""
    if elapsed_ms is not None and boot_id == tx.now.boot_id:
        return elapsed_ms - tx.now.elapsed_ms
    return None if wall_ms is None else wall_ms - tx.now.wall_ms
