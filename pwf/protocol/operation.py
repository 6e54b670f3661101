"""What every operation is: its payload and its result, and what is true of it. The table is in `operations`."""

from __future__ import annotations

from typing import Any, NamedTuple


class Operation(NamedTuple):
    """`needs_run`: the frame's `run_id` is required. `changes`: leaves a receipt.

    `writes`: changes something without a receipt: a repeat is known by what it says.

    `guarded`: honours the frame's `expected_revision`, of the run that it changes; the others refuse one.
    """

    payload: type[Any]
    result: type[Any]
    needs_run: bool = False
    changes: bool = False
    writes: bool = False
    guarded: bool = False
