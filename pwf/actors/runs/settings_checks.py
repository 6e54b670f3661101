"""Checks of settings: what a workflow's `check=` says to a change, asked of the run's pinned code in its own process.

Promises: one at a time for each run, `AT_ONCE` in all, for a bounded time; whatever becomes of the process, nothing is
written here, and the caller commits only what was accepted. Where no process can be had, it says why
(`EnvironmentMissing`, `LoadFailed` …). If the caller is cancelled, its process is let go of, and ends itself.
"""

from __future__ import annotations

import itertools
from weakref import WeakValueDictionary

import trio

from pwf.actors.runs.judge import Judge
from pwf.actors.runs.launching import Supervision, acquire, look_up
from pwf.errors import Rejected, RunnerCrashed, Unavailable
from pwf.store.settings import CheckQuery, SettingsFacts, settings_launch

GENERATION = 1
AT_ONCE = 4  # a check may take a minute, which people with other runs do not wait for


class SettingsChecks:
    """For any task: each call is served by the task that makes it."""

    def __init__(self, epoch: int) -> None:
        self._epoch = (
            epoch  # an older daemon, which still ends processes of its own, has other names for them
        )
        # By run, as long as somebody waits for a check of it.
        self._turns: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
        self._slots = trio.CapacityLimiter(AT_ONCE)
        self._numbers = itertools.count(1)

    async def check(self, world: Supervision, facts: SettingsFacts, value: bytes) -> None:
        """Raise `Rejected` with what `check=` has against the value, or why there is no verdict."""
        turn = self._turns.setdefault(facts.run_id, trio.CapacityLimiter(1))
        async with turn, self._slots:
            known = await look_up(world.store, facts)
            name = f"{facts.run_id}/settings-{self._epoch}-{next(self._numbers)}"
            judge = Judge(world, facts.run_id, "check=")
            try:
                process = await acquire(world, known, name, GENERATION)
            except RunnerCrashed as error:
                raise Unavailable(
                    f"the settings can not be checked now: {error.message}", hint="try again"
                ) from error
            try:
                terms = world.terms
                query = CheckQuery(
                    run_id=facts.run_id,
                    scope=facts.scope,
                    value=value,
                    terms=terms,
                    marker=terms.marker_of(name, GENERATION),
                )
                launch = await world.store.read(settings_launch, query)
                verdict = await judge.converse(process, launch)
                await judge.prove_dead()
            finally:
                process.close()
        accepted, reason = (False, judge.obituary) if verdict is None else verdict
        if not accepted:
            raise Rejected(f"the settings would not be accepted: {reason}")
