"""Operations on the settings of a run: what they are, and a change by a JSON Patch.

Holds no state: `settings_changes` makes and checks a change. A repeat gets the first answer, also where that refuses.
"""

from __future__ import annotations

from functools import partial

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.code.settings_patch import visible
from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services, kept_refusal
from pwf.actors.runs.settings_changes import Wanted
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
    ValueTooLarge,
)
from pwf.protocol.settings import ChangeSettings, GetSettings, SettingsActor, SettingsChanged, SettingsView
from pwf.store.runs import resolve_ref
from pwf.store.settings import SettingsQuery, change_settings, settings_facts
from pwf.values import canonical

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
            f"the settings of run {run_id} are not for you to read: the workflow does not say that you may",
            hint='it says who may with flow.settings(…, paths={"": {"human": ["read", "replace"]}})',
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
    wanted = Wanted(
        run_id=run_id,
        patch=bytes(asked.payload.patch),
        scope=asked.payload.scope,
        expected_change=asked.payload.expected_change,
        kind=actor,
        who=who,
        receipt=receipt,
    )
    try:
        done = await services.change_settings(wanted, partial(services.store.write, change_settings))
    except REFUSALS as refusal:
        return await kept_refusal(services.store, receipt, SettingsChanged, refusal)
    return Answer(done.unwrap(), done.adopted)


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
