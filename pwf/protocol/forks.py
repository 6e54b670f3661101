"""Forks on the wire: on what terms a run is gone on with in a new one."""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.protocol.bounds import Name
from pwf.protocol.raw import OptionalRaw


class ForkPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Go on from `node`, at its newest `visit` unless one is said; without `node` from where the run failed.

    `input`: in place of the run's own. `code`: the files as they are now, or what the run has executed. `max_steps`: in
    place of the workflow's. `repeat_effects`: effects that happened may happen again. `keep_answers`: what people
    answered to questions of the run holds for the new one; of decisions it never does. `agent`, `session`: who does the
    steps of agents, as of `run.start`, in place of who did those of the run.
    """

    node: Name | None = None
    visit: int | None = None
    input: OptionalRaw = None
    code: Literal["current", "stored"] = "current"
    max_steps: int | None = None
    repeat_effects: bool = False
    keep_answers: bool = False
    agent: Name | None = None
    session: Name | None = None


class RestartPayload(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Start anew. `agent`, `session`: as of `run.fork`."""

    agent: Name | None = None
    session: Name | None = None
