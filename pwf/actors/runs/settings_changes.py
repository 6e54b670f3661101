"""Changes of the settings of a run: made from a patch, checked, and committed only on what they were made from.

Holds no state of its own. Promises: a change is checked before anything is written: who may do it, the type, and the
workflow's own `check=`; it is made anew where another one came first. What commits it, and for whom, the caller says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.code.schemas import Schemas
from pwf.actors.code.settings_patch import patch_of, patched
from pwf.actors.runs.launching import Supervision
from pwf.actors.runs.settings_checks import SettingsChecks
from pwf.errors import Conflict, Rejected, Unavailable
from pwf.protocol.settings import SETTINGS_BYTES_MAX, SettingsActor, SettingsChanged
from pwf.store.once import Done
from pwf.store.receipts import ReceiptKey
from pwf.store.settings import ChangeSettings, SettingsFacts, SettingsQuery, settings_facts

TRIES = 8  # while others change them, too


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A change that somebody wants. `kind`: as whom `who` may do what. `scope` None: the only settings there are."""

    run_id: str
    patch: bytes
    scope: str | None = ""
    expected_change: int | None = None
    kind: SettingsActor
    who: str
    receipt: ReceiptKey | None = None


Commit = Callable[[ChangeSettings], Awaitable[Done[SettingsChanged] | None]]


class SettingsChanges:
    """For any task: each call is served by the task that makes it."""

    def __init__(self, schemas: Schemas, epoch: int) -> None:
        self._schemas = schemas
        self._checks = SettingsChecks(epoch)

    async def make(self, world: Supervision, wanted: Wanted, commit: Commit) -> Done[SettingsChanged]:
        """Check it and commit it; with others in between, anew, unless the caller has said on what."""
        run_id, patch = wanted.run_id, patch_of(wanted.patch)
        query = SettingsQuery(run_id=run_id, scope=wanted.scope)
        # A few bytes may copy that much.
        copied = SETTINGS_BYTES_MAX if any(one.get("op") == "copy" for one in patch) else 0
        for _ in range(TRIES):
            facts = await world.store.read(settings_facts, query)
            if wanted.expected_change not in (None, facts.change):
                raise Conflict(
                    f"the settings of run {run_id} are at change {facts.change}; you expected "
                    f"{wanted.expected_change}",
                    hint=f"pwf settings get {run_id}",
                )
            size = len(facts.value) + len(wanted.patch) + copied
            made = await apart(size, lambda facts=facts: self._made(facts, patch, wanted.kind))  # type: ignore[misc]
            if facts.spec.checks and made != facts.value:
                await self._checks.check(world, facts, made)
            done = await commit(
                ChangeSettings(
                    run_id=run_id,
                    scope=facts.scope,
                    entry=facts.entry,
                    change=facts.change,
                    value=made,
                    paths=tuple(
                        f"{one.get('op')} {one.get('path')}" for one in patch if one.get("op") != "test"
                    ),
                    actor=wanted.who,
                    receipt=wanted.receipt,
                )
            )
            if done is not None:
                return done
        raise Unavailable(f"the settings of run {run_id} are being changed all the time", hint="try again")

    def _made(self, facts: SettingsFacts, patch: list[dict[str, object]], kind: SettingsActor) -> bytes:
        try:
            made = patched(facts.spec, facts.value, patch, kind)
        except Rejected as refusal:
            scope = f" --scope {facts.scope}" if facts.scope else ""
            hint = f"pwf settings get {facts.run_id}{scope} shows what may be changed"
            raise Rejected(refusal.message, hint=hint) from None
        return self._schemas.check_settings(facts.run_id, facts.spec.schema, made)
