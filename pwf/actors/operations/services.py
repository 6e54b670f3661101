"""What the handlers of client operations work with, and the shape of what they are asked and answer.

Owns nothing: it is the list of handles that `wiring` puts together, and the daemon's own state of life.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from pwf.actors.base.apart import apart
from pwf.actors.base.changes import Changes
from pwf.actors.base.logging import Log
from pwf.actors.base.store_actor import StoreHandle
from pwf.actors.channels.channels import ChannelsHandle
from pwf.actors.claim.server_claim import ClaimHandle
from pwf.actors.code.agents import Agents
from pwf.actors.code.definitions import DefinitionsHandle
from pwf.actors.code.newer_code import NewerCodeHandle
from pwf.actors.code.schemas import Schemas
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.people import People
from pwf.actors.pages.pages import PagesHandle
from pwf.actors.processes.kept import Kept
from pwf.actors.runs.scheduler import SchedulerHandle
from pwf.actors.runs.settings_changes import Commit, Wanted
from pwf.actors.sessions.session_coordinator import Attached
from pwf.actors.upkeep.backup import BackupsHandle
from pwf.actors.upkeep.pruner import PrunerHandle
from pwf.clock import Clock
from pwf.config import Config
from pwf.errors import InvalidArgument, PwfError
from pwf.host import Identity
from pwf.ids import check_key
from pwf.places import Places
from pwf.protocol.frames import Request
from pwf.protocol.settings import SettingsChanged
from pwf.store.once import Done, FirstDone, KeepRefusal, first_done, keep_refusal
from pwf.store.receipts import ReceiptKey
from pwf.values import canonical, digest, parse

P = TypeVar("P")
R = TypeVar("R")

State = Literal["starting", "serving", "draining", "degraded"]


class Subscriptions(Protocol):
    """The handle of the views that clients follow."""

    async def subscribe(
        self,
        caller: Caller,
        subscription: str,
        key: str,
        view: Hashable,
        read: Callable[[], Awaitable[msgspec.Struct]],
        is_calm: Callable[[Any], bool],
    ) -> None:
        """Begin: `key` is what wakes it, `read` gives the newest state of `view`, `is_calm` says whether nothing but
        the store can change that.
        """
        ...

    async def unsubscribe(self, caller: Caller, subscription: str) -> None:
        """End it."""
        ...


@dataclass
class Life:
    """Where the daemon is in its life. `stop` begins the drain; `why_degraded` is set after a crash loop."""

    started_wall_ms: int
    stop: Callable[[int | None], None]
    state: State = "starting"
    why_degraded: str | None = None
    problems: list[str] = field(default_factory=list)


@dataclass
class Services:
    """Every handle that an operation may need."""

    store: StoreHandle
    scheduler: SchedulerHandle
    definitions: DefinitionsHandle
    schemas: Schemas
    changes: Changes
    views: Subscriptions
    newer_code: NewerCodeHandle
    claim: ClaimHandle
    places: Places
    config: Config
    agents: Agents
    clock: Clock
    log: Log
    life: Life
    clients: Callable[[], int]
    runners: Callable[[], list[tuple[str, Identity]]]  # marker and process of each that has a run
    kept: Kept
    user: str  # of the operating system: who all clients are
    people: People
    attached: Attached
    change_settings: Callable[[Wanted, Commit], Awaitable[Done[SettingsChanged]]]
    pruner: PrunerHandle
    backups: BackupsHandle
    pages: PagesHandle
    channels: ChannelsHandle


@dataclass(frozen=True)
class Asked(Generic[P]):
    """One request with its decoded payload."""

    request: Request
    payload: P
    caller: Caller
    scope_key: str | None  # what a repeat is recognised by, where the operation changes something
    actor: str

    async def make_receipt(self) -> ReceiptKey | None:
        """The whole key: the same command again is the same scope, operation and payload, which may be large."""
        return await apart(len(bytes(self.request.payload)), lambda: self._receipt)

    @cached_property
    def _receipt(self) -> ReceiptKey | None:
        return None if self.scope_key is None else receipt_key(self.request, self.scope_key)

    @property
    def run_ref(self) -> str:
        """The reference to a run; `InvalidArgument` when the frame has none."""
        if self.request.run_id is None:
            raise InvalidArgument(f"{self.request.operation} needs a run_id")
        return self.request.run_id


@dataclass(frozen=True)
class Answer:
    """A good answer."""

    result: msgspec.Struct
    adopted: bool = False


async def first_answer(
    store: StoreHandle, receipt: ReceiptKey, result_type: type[Any], refusal: PwfError
) -> Answer:
    """What a repeat of this command was answered first. Raises the refusal where there was no such command."""
    done: Done[Any] | None = await store.read(first_done, FirstDone(key=receipt, result_type=result_type))
    if done is None or (done.refusal is not None and done.refusal.code == refusal.code):
        raise refusal
    return Answer(done.unwrap(), done.adopted)


async def kept_refusal(
    store: StoreHandle, receipt: ReceiptKey | None, result_type: type[Any], refusal: PwfError
) -> Answer:
    """Keep and raise a refusal by the present code, so that a repeat gets it again; or what a repeat had first."""
    command = KeepRefusal(key=receipt, result_type=result_type, refusal=refusal)
    done = await store.write(keep_refusal, command)
    return Answer(done.unwrap(), done.adopted)


def scope_key(request: Request, session: str | None = None) -> str:
    """What a repeat of this command is recognised by: its key, else its request id.

    An explicit key is scoped to the user, who is the same for every connection; a request id to its client. What acts
    for a session has keys of its own. Each part but the last has its length before it: any of them may have colons.
    """
    scope = "" if session is None else f"session:{len(session)}:{session}:"
    if request.idempotency_key is not None:
        return f"{scope}key:{check_key(request.idempotency_key)}"
    client, by_client = request.client_id, f"{request.client_id}:{request.request_id}"
    return f"{scope}request:{len(client)}:{check_key(by_client, 'request_id')}"


def receipt_key(request: Request, scope: str) -> ReceiptKey:
    """The key under which the answer is kept. A payload is the same when its canonical JSON is."""
    facts = [request.run_id, request.expected_revision, parse(bytes(request.payload), what="payload")]
    if request.contents:
        facts.append(request.contents)
    return ReceiptKey(
        scope_key=scope,
        operation=request.operation,
        payload_digest=digest(canonical(facts, what="payload")),
    )


OperationHandler = Callable[[Services, Asked[Any]], Awaitable[Answer]]
