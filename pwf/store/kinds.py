"""The kinds of entities that this daemon serves, by name. `entity_kinds` says what each brings, and how to add one."""

from __future__ import annotations

from pwf.store.channel_kind import CHANNEL
from pwf.store.entity_kinds import EntityKind
from pwf.store.resource_kind import RESOURCE
from pwf.store.run_kind import RUN
from pwf.store.session_kind import SESSION
from pwf.store.submission_kind import SUBMISSION

DAEMON = EntityKind(name="daemon")

KINDS: dict[str, EntityKind] = {
    kind.name: kind for kind in (DAEMON, RUN, SUBMISSION, SESSION, RESOURCE, CHANNEL)
}
