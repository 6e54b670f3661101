"""Simulated agents with sessions: they attach, report, take turns and submit, over connections that end at any moment.

Two clients fight for the same session, so that each is fenced by the other. The rules are those of docs/agents.md, in
words of this file: what was sent is not asked for again, a message begins one turn that counts, and nothing of a
connection counts once another one has attached.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import trio

from pwf.actors.operations.caller import Caller
from pwf.host.identity import Identity
from pwf.protocol.frames import Event, Request, Response
from pwf.protocol.kinds import KINDS
from pwf.protocol.sessions import MessageView, SessionView
from tests.sim.clients import ORIGIN
from tests.sim.virtual_time import sleep
from tests.sim.workload import CHOICES

CLIENTS = 2  # of the one session
STARTS = 4  # of runs, by each
SESSION = "chat"
SHARE = 0.4  # of seeds that have sessions
PAUSE_S = 1.5
FENCED = "was attached by another connection"
AGENT = Identity(pid=3, start_tick=1, boot_id="sim", session=3)


class Conversation:
    """What the model was sent, in the one conversation that all clients of the session share."""

    def __init__(self) -> None:
        self.branch: list[str] = []
        self.active: dict[str, str] = {}  # message -> the turn that counts for it
        self.removed: set[str] = set()  # follow-ups
        self.recorded: dict[str, list[int]] = {}  # by run: what the clients have recorded, or have tried to
        self.acknowledged: dict[str, int] = {}  # by run: how much of that the daemon has


class Hung(Exception):
    """The connection is over."""


class SimSession:
    """One client of the session."""

    def __init__(self, world: Any, number: int, conversation: Conversation) -> None:
        self._world = world
        self._name = f"chat{number}"
        self._chance = world.stream(f"session:{number}")
        self._follows = world.stream(f"follow_ups:{number}")
        self._records = world.stream(f"records:{number}")
        self._conversation = conversation
        self._requests = 0
        self._starts_left = STARTS
        self._epoch = 0
        self._turn: tuple[str, MessageView] | None = None

    async def run(self) -> None:
        """Act at random until faults are over, on one connection after another."""
        while not self._world.calm:
            await sleep(self._chance.random() * PAUSE_S)
            life = self._world.life
            if life is None or not life.serving:
                continue
            caller = Caller(10, _nothing, peer=AGENT)
            with life.door.connection(caller) as scope:
                if scope is None:
                    continue
                with suppress(Hung):
                    await self._connected(life, caller)
            self._world.fault("session_dropped", client=self._name)

    async def _connected(self, life: Any, caller: Caller) -> None:
        attached = await self._ask(
            life, caller, "session.attach", {"session_id": SESSION, "client": self._name}
        )
        if attached.outcome not in ("accepted", "adopted"):
            raise Hung
        self._epoch = json.loads(bytes(attached.result or b""))["epoch"]
        if self._chance.random() < 0.5:
            self._turn = None  # the process is another one
        while not self._world.calm:
            view = await self._report(life, caller)
            if view.message is not None and self._turn is None:
                await self._act(life, caller, view, view.message)
            elif self._turn is not None:
                await self._end_turn(life, caller)
            elif view.run is None or view.run.ended_ms is not None:
                await self._start(life, caller)
            if view.run is not None and self._follows.random() < 0.2:
                await self._follow_up(life, caller, view.run.run_id)
            if view.run is not None and self._records.random() < 0.3:
                await self._record(life, caller, view.run.run_id)
            if self._chance.random() < 0.1:
                raise Hung
            await sleep(self._chance.random() * PAUSE_S)

    # --- what it does -----------------------------------------------------------------------------------------

    async def _report(self, life: Any, caller: Caller) -> SessionView:
        turn = None if self._turn is None else self._turn[0]
        reported = self._conversation.branch[-50:]  # another client may add to it meanwhile
        facts = {"branch": reported, "idle": turn is None, "turn": turn}
        response = await self._ask(life, caller, "session.report", facts)
        if response.outcome != "accepted":
            raise Hung
        view = msgspec.json.decode(response.result or b"", type=SessionView)
        if view.epoch != self._epoch:
            raise Hung  # another client has attached it since
        if view.message is not None and view.message.status == "pending":
            known = view.message.message_id in reported
            self._check(not known, f"{view.message.message_id} was sent, and is not asked for again")
        return view

    async def _act(self, life: Any, caller: Caller, view: SessionView, message: MessageView) -> None:
        if message.status != "pending":
            return
        self._conversation.branch.append(message.message_id)
        if not message.starts_turn:
            return
        turn_id = f"{self._name}-{self._requests}"
        self._turn = (turn_id, message)
        standing = await self._report_turn(life, caller, "started")
        if standing == "active":
            first = self._conversation.active.setdefault(message.message_id, turn_id)
            self._check(
                first == turn_id, f"{message.message_id} begins one turn that counts: {first}, {turn_id}"
            )
        if standing == "active" and message.kind == "follow_up":
            self._check_follow_up(message)
        if standing == "active" and message.request_id is not None and self._chance.random() < 0.8:
            await self._submit(life, caller, message)

    async def _submit(self, life: Any, caller: Caller, message: MessageView) -> None:
        way = self._chance.random()
        value = {"go": self._chance.choice(CHOICES), "by": self._name, "n": self._chance.randrange(1000)}
        revision = None if way < 0.5 else message.request_revision
        payload = {"request_id": message.request_id, "value": value, "revision": revision}
        response = await self._ask(life, caller, "request.submit", payload)
        if response.outcome == "accepted" and json.loads(bytes(response.result))["verdict"] == "accepted":
            ((owner, by),) = self._world.auditor.rows(
                "SELECT s.session_id, q.answered_by FROM requests q JOIN runs r USING (run_id)"
                " JOIN sessions s USING (session_no) WHERE request_id = ?",
                message.request_id,
            ) or ((SESSION, None),)
            self._check(owner == SESSION, f"{message.request_id} is {owner}'s, and {SESSION} submits for it")
            self._check(by in (None, f"session:{SESSION}"), f"{message.request_id} was answered by {by}")

    async def _follow_up(self, life: Any, caller: Caller, run_id: str) -> None:
        """Queue a follow-up, or remove the newest one or two at once."""
        if self._follows.random() < 0.6:
            await self._ask(life, caller, "follow_up.queue", {"text": f"Go on. {self._name}"}, run_id)
            return
        (count,) = self._world.auditor.rows(
            "SELECT count(*) FROM messages WHERE kind = 'follow_up' AND message_id LIKE ? || '.%'", run_id
        )[0]
        for number in range(max(1, count - self._follows.randrange(2)), count + 1):
            name = f"{run_id}.follow_up.{number}"
            response = await self._ask(life, caller, "follow_up.remove", {"follow_up": name}, run_id)
            if response.outcome in ("accepted", "adopted"):
                self._conversation.removed.add(name)

    async def _record(self, life: Any, caller: Caller, run_id: str) -> None:
        """Record entries of the conversation, some of them again, as after an answer that was lost."""
        said, known = self._conversation.recorded.setdefault(run_id, []), self._conversation.acknowledged
        at = max(0, known.get(run_id, 0) - self._records.randrange(3))
        said.extend(self._records.randrange(1000) for _ in range(self._records.randrange(3)))
        entries = [{"kind": "said", "data": data} for data in said[at:]]
        payload = {"run_id": run_id, "at": at, "entries": entries}
        response = await self._ask(life, caller, "session.record", payload)
        gone = run_id in self._world.auditor.pruned
        self._check(response.outcome == "accepted" or gone, f"what fits is recorded: {payload} {response}")
        if gone:
            return
        following = int(json.loads(bytes(response.result or b""))["following"])
        known[run_id] = max(following, known.get(run_id, 0))
        self._check(following >= at + len(entries), f"all of it was recorded: {payload} {following}")
        rows = self._world.auditor.rows(
            "SELECT e.body FROM session_entries e JOIN runs r USING (run_no) WHERE r.run_id = ? ORDER BY e.number",
            run_id,
        )
        stands = [int(body) for (body,) in rows]
        self._check(
            len(stands) >= known[run_id] and stands == said[: len(stands)],
            f"what was recorded of {run_id} stands once and in order: {stands}, {said}",
        )

    def _check_follow_up(self, message: MessageView) -> None:
        name, run_id = message.message_id, message.run_id
        self._check(name not in self._conversation.removed, f"{name} was removed, and is not sent")
        self._check(f"{run_id}.terminal" in self._conversation.branch, f"{name} comes after the end was told")
        rows = self._world.auditor.rows(
            "SELECT r.status, (SELECT count(*) FROM messages o WHERE o.run_no = m.run_no AND o.kind = 'follow_up'"
            " AND o.status = 'pending' AND o.message_no < m.message_no) FROM messages m JOIN runs r USING (run_no)"
            " WHERE m.message_id = ?",
            name,
        )
        self._check(rows == [("completed", 0)], f"{name} is the next of a run that has succeeded: {rows}")

    async def _end_turn(self, life: Any, caller: Caller) -> None:
        assert self._turn is not None
        way = self._chance.random()
        if way < 0.1:
            self._turn = None  # it forgets: the next report is idle
            return
        await self._report_turn(life, caller, "aborted" if way < 0.2 else "ended")
        if self._chance.random() < 0.1:
            await self._report_turn(life, caller, "aborted")  # late
        self._turn = None

    async def _report_turn(self, life: Any, caller: Caller, state: str) -> str:
        assert self._turn is not None
        turn_id, message = self._turn
        said = {"turn_id": turn_id, "message_id": message.message_id, "state": state}
        steering = self._world.auditor.steering
        pause = Request(  # what an abort is to its run
            request_id=f"{self._name}-{self._requests}-abort",
            client_id=self._name,
            operation="run.pause",
            run_id=message.run_id,
        )
        if state == "aborted":
            steering.sent(pause)
        response = await self._ask(life, caller, "session.turn", said)
        if state == "aborted":
            steering.answered(pause)
        if response.outcome != "accepted":
            raise Hung
        standing = str(json.loads(bytes(response.result or b""))["standing"])
        gone = message.run_id in self._world.auditor.pruned
        self._check(standing != "absent" or gone, f"{message.message_id} is the session's own")
        return standing

    async def _start(self, life: Any, caller: Caller) -> None:
        if self._starts_left <= 0 or self._chance.random() < 0.2:
            await self._meddle(life, caller)
            return
        self._starts_left -= 1
        models = self._world.models
        asking = [
            name
            for name in sorted(models)
            if any(KINDS[node.kind].prompts for node in models[name].nodes.values())
        ]
        payload = {
            "workflow": self._chance.choice(asking or sorted(models)),
            "origin": ORIGIN,
            "input": {"n": self._chance.randrange(1000)},
        }
        await self._ask(life, caller, "run.start", payload)

    async def _meddle(self, life: Any, caller: Caller) -> None:
        """Another's run is not there."""
        rows = self._world.auditor.rows("SELECT run_id FROM runs WHERE session_no IS NULL LIMIT 5")
        if not rows:
            return
        run_id = self._chance.choice(rows)[0]
        operation = self._chance.choice(["run.cancel", "run.pause", "run.view"])
        response = await self._ask(life, caller, operation, {}, run_id)
        fine = response.outcome in ("not_found", "unavailable", "claim_lost")
        self._check(fine, f"{run_id} is no run of {SESSION}: {response}")

    # --- asking -----------------------------------------------------------------------------------------------

    async def _ask(
        self, life: Any, caller: Caller, operation: str, payload: object, run_id: str | None = None
    ) -> Response:
        """Ask on this connection; `Hung` when it or its daemon is over. What is asked for may have been done."""
        self._requests += 1
        number = f"{self._name}-{self._requests}"
        request = Request(
            request_id=number,
            client_id=self._name,
            operation=operation,
            run_id=run_id,
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
        self._world.auditor.sent(request)
        doubled = self._chance.random() < self._world.rate("request_doubled")
        response = await life.door.serve(request, caller)
        if response is not None and doubled:
            again = await life.door.serve(request, caller)
            if again is not None and response.outcome == "accepted":
                fine = again.outcome in ("accepted", "adopted", "unavailable", "claim_lost")
                self._check(fine, f"a repeat of {operation} is no other answer: {response} {again}")
        if response is None or self._chance.random() < self._world.rate("reply_lost"):
            raise Hung
        if response.outcome in ("unavailable", "claim_lost"):
            if response.error is not None and FENCED not in response.error.message:
                self._world.auditor.refused(request, response)
            raise Hung
        sound = response.outcome not in (
            "not_found",
            "conflict",
        )  # when these are right, the rules of this file say
        if sound and operation in ("run.start", "request.submit", "follow_up.queue", "follow_up.remove"):
            self._world.auditor.answered(request, response)
        return response

    def _check(self, holds: object, rule: str) -> None:
        self._world.auditor.check(holds, rule)


async def _nothing(_event: Event) -> None:
    return None


async def serve_sessions(world: Any) -> None:
    """The clients of this seed's session, if it has one."""
    if world.stream("sessions").random() >= SHARE:
        return
    conversation = Conversation()
    async with trio.open_nursery() as clients:
        for number in range(CLIENTS):
            clients.start_soon(SimSession(world, number, conversation).run)
