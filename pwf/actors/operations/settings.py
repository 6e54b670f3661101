"""Operations on the settings of a run: what they are, and a change by a JSON Patch.

Holds no state. Promises: a change is checked before anything is written: who may do it, the type, and the workflow's
own `check=`; it commits only on the settings that it was checked on, and is made anew where another one came first.
"""

from __future__ import annotations

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.code.settings_patch import patch_of, patched, visible
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services, kept_refusal
from pwf.errors import (
    Conflict,
    EnvironmentMissing,
    GraphError,
    InvalidArgument,
    InvalidInput,
    LoadFailed,
    PersonNeeded,
    Rejected,
    SourceChanged,
    Unavailable,
    ValueTooLarge,
)
from pwf.protocol.settings import ChangeSettings, GetSettings, SettingsActor, SettingsChanged, SettingsView
from pwf.store.once import Done
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import resolve_ref
from pwf.store.settings import ChangeSettings as Change
from pwf.store.settings import SettingsFacts, SettingsQuery, change_settings, settings_facts
from pwf.values import canonical

TRIES = 8  # while others change them, too
REFUSALS = (
    Rejected,
    Conflict,
    InvalidInput,
    InvalidArgument,
    ValueTooLarge,
    LoadFailed,
    GraphError,
    EnvironmentMissing,
    SourceChanged,
)


async def get_settings(services: Services, asked: Asked[GetSettings]) -> Answer:
    """`settings.get`: what the caller may read."""
    run_id = await services.store.read(resolve_ref, asked.run_ref)
    actor, _who = await _actor(services, asked)
    query = SettingsQuery(run_id=run_id, scope=asked.payload.scope)
    facts = await services.store.read(settings_facts, query)
    value, hidden = await apart(len(facts.value), lambda: visible(facts.spec, facts.value, actor))
    if hidden and not any("read" in rule.may.get(actor, ()) for rule in facts.spec.paths):
        raise Rejected(
            f"the settings of run {run_id} are not for you to read: the workflow does not say that you may"
        )
    return Answer(
        SettingsView(
            run_id=run_id,
            scope=facts.scope,
            change=facts.change,
            value=msgspec.Raw(canonical(value)),
            hidden=hidden,
            paths=facts.spec.paths,
            schema=facts.spec.schema,
        )
    )


async def change(services: Services, asked: Asked[ChangeSettings]) -> Answer:
    """`settings.change`. A repeat is answered as the first was, whatever they are by now."""
    run_id = await services.store.read(resolve_ref, asked.run_ref)
    actor, who = await _actor(services, asked)
    receipt = await asked.make_receipt()
    try:
        done = await changed(services, run_id, asked.payload, actor, who, receipt)
    except REFUSALS as refusal:
        return await kept_refusal(services.store, receipt, SettingsChanged, refusal)
    return Answer(done.unwrap(), done.adopted)


async def changed(
    services: Services,
    run_id: str,
    wanted: ChangeSettings,
    actor: SettingsActor,
    who: str,
    receipt: ReceiptKey | None,
) -> Done[SettingsChanged]:
    """Check it and commit it; with others in between, anew, unless the caller has said on what."""
    patch = patch_of(bytes(wanted.patch))
    query = SettingsQuery(run_id=run_id, scope=wanted.scope)
    for _ in range(TRIES):
        facts = await services.store.read(settings_facts, query)
        if wanted.expected_change not in (None, facts.change):
            raise Conflict(
                f"the settings of run {run_id} are at change {facts.change}; you expected {wanted.expected_change}",
                hint=f"pwf settings get {run_id}",
            )
        made = await apart(len(facts.value), lambda facts=facts: _made(services, facts, patch, actor))  # type: ignore[misc]
        if facts.spec.checks and made != facts.value:
            await services.settings_checks.check(facts, made)
        paths = tuple(f"{one.get('op')} {one.get('path')}" for one in patch if one.get("op") != "test")
        command = Change(
            run_id=run_id,
            scope=facts.scope,
            entry=facts.entry,
            change=facts.change,
            value=made,
            paths=paths,
            actor=who,
            receipt=receipt,
        )
        done = await services.store.write(change_settings, command)
        if done is not None:
            return done
    raise Unavailable(f"the settings of run {run_id} are being changed all the time", hint="try again")


def _made(
    services: Services, facts: SettingsFacts, patch: list[dict[str, object]], actor: SettingsActor
) -> bytes:
    made = patched(facts.spec, facts.value, patch, actor)
    return services.schemas.check_settings(facts.run_id, facts.spec.schema, made)


async def _actor(
    services: Services, asked: Asked[GetSettings] | Asked[ChangeSettings]
) -> tuple[SettingsActor, str]:
    """As whom the caller acts: a step of a run, and what it has started, act as an agent does."""
    try:
        await services.people.check(asked.caller, "act as a person")
    except PersonNeeded:
        return "session", f"agent ({asked.actor})"
    return "human", asked.actor


HANDLERS: dict[str, OperationHandler] = {
    "settings.get": get_settings,
    "settings.change": change,
}
