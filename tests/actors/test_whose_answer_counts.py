"""Who settles what, and when: every action against every kind of request, state of its run, caller, revision and value.

The operations run on a real store, in virtual time; what each cell does is undone. What is accepted stands in a table
made by hand from docs/agents.md and docs/decisions.md: everything else must be refused, and change nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from pwf.actors.base.changes import Changes
from pwf.actors.base.mailbox import Mailbox
from pwf.actors.code.schemas import Schemas
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.dispatch import Operations
from pwf.actors.operations.people import People, Relative
from pwf.actors.sessions.session_coordinator import Attachment, SessionHandle
from pwf.errors import PwfError
from pwf.host.identity import Identity
from pwf.protocol.decisions import DecisionListPayload
from pwf.protocol.frames import Request
from pwf.protocol.runner import run_marker
from pwf.store.batch import Job
from pwf.store.decisions import Decide, decide, decision_list
from pwf.store.once import Done
from pwf.store.submissions import Submit, submit
from pwf.values import VALUE_BYTES_MAX, canonical
from tests.store.session_world import Session
from tests.store.test_decisions import HOUR, SHIP, SPEC, shown
from tests.store.world import World, graph, node

TYPE = {"type": "string"}

ACTIONS = ("answer", "submit", "assistant", "update", "decide")
KINDS = ("checkpoint", "agent", "assistant", "decision")
CALLERS = ("person", "own", "other", "fenced", "stale", "step", "shell")
REVISIONS = ("present", "old", None)
VALUES = ("same", "different")

#: What takes which kind of request. Nothing else is ever accepted.
TAKES = {
    ("answer", "checkpoint"),
    ("submit", "agent"),
    ("submit", "assistant"),
    ("assistant", "assistant"),
    ("update", "agent"),
    ("update", "assistant"),
    ("decide", "decision"),
}
#: Who may. `person`: at a terminal; `own`: the session of the run, on the connection that holds it.
MAY = {
    "answer": {"person"},
    "submit": {"person", "own"},
    "assistant": {"own"},
    "update": {"person", "own"},
    "decide": {"person"},
}
#: Where the request is open.
OPEN = {"waiting", "paused", "no session"}
JUDGED = {"judged", "judged, paused"}
#: Where it was settled, with the value `same`; of `settled earlier` the run asks anew at the same node.
SETTLED = {"settled", "settled earlier"}
STATES = (*sorted(OPEN), *sorted(JUDGED), *sorted(SETTLED), "cancelled")


class Cell(NamedTuple):
    action: str
    kind: str
    state: str
    caller: str
    revision: str | None
    value: str


def promised(cell: Cell) -> str:
    """`accepted`, `adopted` or `refused`."""
    action, kind, state, caller, revision, value = cell
    if (action, kind) not in TAKES or caller not in MAY[action]:
        return "refused"
    if caller == "own" and state == "no session":
        return "refused"
    if state in OPEN | JUDGED and action == "update":
        return "refused" if revision == "old" else "accepted"
    if state in OPEN:
        stands = state == "paused" and caller == "own"  # what a session submits under a pause does not count
        return "refused" if stands or revision == "old" else "accepted"
    if state in JUDGED | SETTLED and value == "same" and action != "update":
        return "adopted"  # a repeat, whatever was resumed since
    return "refused"


# --- the states -----------------------------------------------------------------------------------------------


def flow(kind: str, *, judged: bool) -> Any:
    if kind == "decision":
        facts = {"cases": {"ship": "gate", "revise": "gate"}, "field": "choice", "decision": SPEC}
        return graph(node("gate", kind, open_ms=HOUR, default=SHIP, **facts))
    facts = {"validates": True} if judged else {}
    return graph(node("gate", kind, to="gate", returns=TYPE, **facts))


class Setting:
    """A run that has come to a state, by its request, and the operations on it."""

    def __init__(self, world: World, kind: str, state: str) -> None:
        self.world, self.kind = world, kind
        self.other = Session(world, "other")
        self.stale = Session(world)
        self.own_fence = Session(world).fence
        session_id = None if state == "no session" else "chat"
        self.run_id = world.start(flow(kind, judged=state in JUDGED), session_id=session_id)
        self._ask()
        self.request_id = world.request_of(self.run_id)
        self.old = world.view(self.run_id).summary.revision
        world.pause(self.run_id)
        world.resume(self.run_id)  # so that there is an earlier revision
        if state in JUDGED:
            self._settle()
        if state in ("paused", "judged, paused"):
            world.pause(self.run_id)
        if state == "cancelled":
            world.cancel(self.run_id)
        self.digest = "" if kind != "decision" else self._digest()
        if state in SETTLED:
            self._settle()
        if state == "settled earlier":
            self._ask()
        self.operations = Operations(services(UndoneStore(world), self.run_id))  # type: ignore[arg-type]
        self._numbers = itertools.count()

    def _ask(self) -> None:
        runner = self.world.launch(self.run_id)
        facts: dict[str, Any] = {"schema": TYPE}
        if self.kind == "decision":
            facts = {"timeout_ms": HOUR}
        prompt = bytes(shown().json) if self.kind == "decision" else canonical("ok?")
        assert runner.ask(msgspec.json.decode(prompt), self.kind, **facts) == "park"
        runner.leave()

    def _digest(self) -> str:
        (view,) = self.world.read(decision_list, DecisionListPayload(decision_id=self.request_id)).decisions
        return str(view.digest)

    def _settle(self) -> None:
        if self.kind == "checkpoint":
            self.world.answer(self.run_id, "same", actor="client:ann")
        elif self.kind == "decision":
            command = Decide(
                decision=self.request_id,
                choice="ship",
                text=None,
                digest=self.digest,
                actor="client:ann",
                channel="terminal",
            )
            self.world.do(decide, command)
        else:
            command_ = Submit(request_id=self.request_id, value=canonical("same"), actor="session:chat")
            self.world.do(submit, command_)

    async def act(self, cell: Cell) -> str:
        """What the operation says: `accepted`, `adopted` or `refused`."""
        operation, payload, expected = self._said(cell)
        request = Request(
            request_id=f"r{next(self._numbers)}",
            client_id="c",
            operation=operation,
            expected_revision=expected,
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
        response = await self.operations.handle(request, self._caller(cell.caller))
        return response.outcome if response.outcome in ("accepted", "adopted") else "refused"

    def _said(self, cell: Cell) -> tuple[str, dict[str, Any], int | None]:
        named: dict[str, Any] = {"request_id": self.request_id}
        if cell.action == "decide":
            choice = "ship" if cell.value == "same" else "revise"
            digest = "0" * 64 if cell.revision == "old" else self.digest or "0" * 64
            facts = {"decision_id": self.request_id, "choice": choice, "digest": digest}
            return "decision.answer", facts | ({"text": "the name"} if choice == "revise" else {}), None
        if cell.action == "answer":
            now = self.world.view(self.run_id).summary.revision
            expected = {"present": now, "old": self.old, None: None}[cell.revision]
            return "request.answer", named | {"answer": cell.value}, expected
        revision = {"present": 2, "old": 1, None: None}[cell.revision]
        if self.kind not in ("agent", "assistant") and revision is not None:
            revision = 1
        field = {"submit": "value", "assistant": "text", "update": "data"}[cell.action]
        return f"request.{cell.action}", named | {field: cell.value, "revision": revision}, None

    def _caller(self, name: str) -> Caller:
        caller = Caller(1, _nothing, peer=PROCESSES.get(name, PROCESSES["person"]))
        fences = {
            "own": self.own_fence,
            "other": self.other.fence,
            "stale": self.stale.fence,
            "fenced": self.own_fence,
        }
        if name in fences:
            caller.session = SessionHandle(Mailbox(1, "nobody"), fences[name])
            caller.session.is_fenced = name == "fenced"
        return caller


# --- what stands around the operations --------------------------------------------------------------------------

PROCESSES = {
    name: Identity(pid=pid, start_tick=1, boot_id="b", session=1)
    for pid, name in enumerate(("person", "step", "shell", "agent"), 101)
}


class Undone(PwfError):
    """What a command gave, whose transaction is undone."""

    def __init__(self, result: object) -> None:
        super().__init__("undone")
        self.result = result


class UndoneStore:
    """The store of a world. A write is undone when it has answered; one that refuses has changed nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def read(self, handler: Callable[[Any, Any], Any], query: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return self._world.read(handler, query)

    async def write(self, handler: Callable[[Any, Any], Any], command: Any) -> Any:
        await trio.lowlevel.checkpoint()

        def act(tx: Any, command: Any) -> None:
            before = _stands(tx)
            result = handler(tx, command)
            if isinstance(result, Done) and result.refusal is not None:
                assert _stands(tx) == before, f"{command} was refused, and has changed something"
            raise Undone(result)

        answered = self._world.writer.run([Job(act, command)]).answers[0]
        if isinstance(answered.error, Undone):
            return answered.error.result
        assert answered.error is not None
        raise answered.error


def _stands(tx: Any) -> list[Any]:
    tables = ("runs", "requests", "submissions", "attempts", "updates", "messages", "events")
    return [tx.all(f"SELECT * FROM {table}") for table in tables]


def services(store: UndoneStore, run_id: str) -> Any:
    async def lineage(peer: Identity) -> list[Relative]:
        marker = run_marker("home", run_id, 1) if peer is PROCESSES["step"] else None
        above = [Relative(PROCESSES["agent"], None)] if peer is PROCESSES["shell"] else []
        return [Relative(peer, marker), *above]

    people = People(
        lineage,
        list,
        lambda: [Attachment("chat", PROCESSES["agent"], PROCESSES["agent"])],
        list,
        steps_may_answer=False,
    )
    return SimpleNamespace(
        store=store,
        people=people,
        schemas=Schemas(),
        changes=Changes(SimpleNamespace(on_change=lambda listener: None)),
        scheduler=SimpleNamespace(wake=lambda: None),
        channels=SimpleNamespace(audiences=SimpleNamespace(counting={})),
        config=SimpleNamespace(max_value_bytes=VALUE_BYTES_MAX),
        life=SimpleNamespace(state="serving"),
        user="ann",
    )


async def _nothing(_event: object) -> None:
    return None


# --- the matrix -----------------------------------------------------------------------------------------------


def there_are() -> Iterator[tuple[str, str]]:
    """Kinds and states. Only what is submitted is judged."""
    for kind, state in itertools.product(KINDS, STATES):
        if state not in JUDGED or kind in ("agent", "assistant"):
            yield kind, state


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    opened.close()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("kind", "state"),
    [
        pytest.param(kind, state, marks=() if kind == "agent" else pytest.mark.rest)
        for kind, state in there_are()
    ],
)
async def test_what_is_accepted_is_what_was_promised_and_nothing_else(
    world: World, kind: str, state: str, autojump_clock: object
) -> None:
    setting = Setting(world, kind, state)
    cells = [
        Cell(action, kind, state, caller, revision, value)
        for action, caller, revision, value in itertools.product(ACTIONS, CALLERS, REVISIONS, VALUES)
    ]
    found = {cell: await setting.act(cell) for cell in cells}
    wrong = {cell: outcome for cell, outcome in found.items() if outcome != promised(cell)}
    assert wrong == {}


def test_the_table_accepts_something_of_each_action_and_kind() -> None:
    cells = [
        Cell(action, kind, state, caller, "present", "same")
        for action, (kind, state), caller in itertools.product(ACTIONS, there_are(), CALLERS)
    ]
    accepted = {(cell.action, cell.kind) for cell in cells if promised(cell) == "accepted"}
    assert accepted == TAKES
