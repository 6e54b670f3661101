"""Simulated managers: people who apply and delete resources, and the processes that reconcile them, with faults.

Rules, besides those of `state.verify`: no two reconciles of one name overlap, also not of two lives; custody is stored
before a process works; an effect happens once under its key; when the faults are over, every resource is what its spec
says, or gone, and has seen whatever changed outside before a wake-up that was taken, and each end of a child run.
What a reconcile has started works no more when the next one begins, and a child is one run under its key.
A change of a child's settings happens once under its key, in each run of the child, and a child without a session gets
no follow-up. Nothing is due whose process is not proved dead. The first result of a process counts.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from pwf.protocol.effects import EffectList
from pwf.protocol.graph import ManagerSpec, WorkflowDefinition, WorkflowGraph
from pwf.protocol.reconcile import (
    ChangeChild,
    ChildAnswer,
    EnsureRun,
    QueueForChild,
    Reconcile,
    Reconciled,
)
from pwf.protocol.resources import ResourceList, ResourceSummary
from pwf.protocol.runner import (
    BeginPart,
    Leaving,
    PartAnswer,
    SettlePart,
    StepError,
    Value,
    effect_key,
    encode_line,
)
from pwf.values import canonical, digest
from tests.sim.bounds import PROOF_TIMEOUT_S
from tests.sim.clients import ORIGIN, SimClient
from tests.sim.virtual_time import sleep
from tests.sim.workload import root_source

SHARE = 0.4  # of the seeds have managers
NAME = "m0"
KEYS = ("a", "b", "c")
PAUSE_S = 4.0
LEAVES_CHILD = 0.15  # of the reconciles, where no fault has more do so
OUTLIVES_PROOF = 0.2  # of those children are in the kernel's hands for longer than a proof may take
SAYS_MORE = 0.15  # of the processes give a second result
DEADLINE_MS = 5_000
ACTS = ("apply", "apply", "apply", "touch", "touch", "pause", "resume", "resume", "delete")
PAGE = 500
SETTLED = ("settled", "gone")

_LIVE = """SELECT p.generation, p.pid FROM runners p JOIN entities e USING (entity_no)
WHERE e.kind = 'resource' AND e.name = ?"""
_UNLIKE = """SELECT uid, CAST(spec AS TEXT), CAST(status AS TEXT) FROM resources WHERE gone_wall_ms IS NULL
AND (json_extract(CAST(spec AS TEXT), '$.n') IS NOT json_extract(CAST(status AS TEXT), '$.n')
  OR observed_generation <> spec_generation)"""
_DUE_WITH_PROCESS = """SELECT e.name, q.state, p.pid FROM reconcile_queue q
JOIN runners p ON p.entity_no = q.resource_no JOIN entities e USING (entity_no) WHERE q.state <> 'live'"""
_SAID_AGAIN = "SELECT uid FROM resources WHERE json_extract(CAST(status AS TEXT), '$.again') IS NOT NULL"
_SEEN = (
    """SELECT key, json_extract(CAST(status AS TEXT), '$.seen') FROM resources WHERE gone_wall_ms IS NULL"""
)
_OBSERVED = """SELECT r.uid, e.kind, json_extract(CAST(e.payload AS TEXT), '$.generation')
FROM events e JOIN resources r ON r.resource_no = e.entity_no WHERE e.kind IN ('applied', 'observed')
ORDER BY e.entity_no, e.revision"""

_ENDED_CHILDREN = """SELECT r.uid, c.call_key, CAST(r.status AS TEXT) FROM runs c
JOIN resources r ON r.resource_no = c.called_by WHERE c.ended_wall_ms IS NOT NULL AND r.gone_wall_ms IS NULL"""

_MANAGED = """SELECT c.run_id, CAST(e.payload AS TEXT) FROM events e JOIN runs c ON c.run_no = e.entity_no
JOIN resources r ON r.resource_no = c.called_by
WHERE r.uid = ?1 AND c.call_key LIKE ?2 AND e.kind = 'settings_changed' AND e.actor = 'resource:' || ?1"""
_CHILD = """SELECT 1 FROM runs c JOIN resources r ON r.resource_no = c.called_by
WHERE r.uid = ?1 AND c.call_key = ?2"""
AGAIN = msgspec.Raw(canonical({"again": True}))

_answer = msgspec.json.Decoder(PartAnswer)
_child = msgspec.json.Decoder(ChildAnswer)


def is_reconcile(line: bytes) -> bool:
    """Whether a line of the daemon is for a process that reconciles."""
    return line.startswith(b'{"type":"reconcile"')


def read_reconcile(line: bytes) -> Reconcile:
    """What it says."""
    return msgspec.json.decode(line, type=Reconcile)


class Managers:
    """One per world. `definition` and `texts` are what a resolver answers for the manager's file."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._chance = world.stream("managers")
        self.active = self._chance.random() < SHARE
        graph = WorkflowGraph(
            name=NAME, start="", nodes=(), file=self.path, manager=ManagerSpec(deadline_ms=DEADLINE_MS)
        )
        source, self.texts = root_source(NAME, b"# a manager\n")
        self.definition = WorkflowDefinition(
            definition_id=digest(f"{NAME}:{world.seed}".encode()), graph=graph, root="/", sources=(source,)
        )
        self._working: dict[str, Any] = {}  # key -> the process that reconciles it
        self._children: dict[tuple[str, str], str] = {}  # uid and request key -> the run
        self._changes: Counter[str] = (
            Counter()
        )  # key -> how often the world has changed behind its manager's back
        self._owed: dict[str, int] = {}  # key -> the last change whose wake-up was taken

    @property
    def path(self) -> str:
        return f"/sim/{NAME}.py"

    # --- people ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Act at random until faults are over."""
        client = SimClient(self._world, "managers")
        while not self._world.calm:
            await sleep(self._chance.random() * PAUSE_S)
            act = self._chance.choice(ACTS)
            key = self._chance.choice(KEYS)
            if act == "apply":
                await self.apply(client, key, self._chance.randrange(5))
            elif act == "touch":
                await self.touch(client, key)
            else:
                which: dict[str, Any] = {"manager": NAME, "key": key, "cwd": "/"}
                if act == "delete":
                    which["abandon"] = self._chance.random() < 0.2
                await client.send(client.request(f"resource.{act}", which))

    async def apply(self, client: SimClient, key: str, n: int) -> None:
        """A spec."""
        which = {"manager": NAME, "key": key, "origin": ORIGIN, "spec": {"n": n}}
        await client.send(client.request("resource.apply", which))

    async def touch(self, client: SimClient, key: str) -> None:
        """Change the world, and say so: once that is taken, some reconcile begins after the change."""
        self._changes[key] += 1
        change = self._changes[key]
        which = {"manager": NAME, "key": key, "cwd": "/"}
        response = await client.send(client.request("resource.reconcile", which))
        if response is not None and response.outcome in ("accepted", "adopted"):
            self._owed[key] = max(change, self._owed.get(key, 0))

    async def tidy(self, client: SimClient) -> bool:
        """One round of a patient person after the faults; whether every resource is at rest."""
        found: list[ResourceSummary] | None
        found = await client.read_all("resource.list", PAGE, ResourceList, "resources")
        if found is None:
            return False
        await self._say_what_happened(client, {one.uid for one in found})
        for one in found:
            if one.hold not in (None, "effect_ambiguous"):
                await client.send(client.request("resource.resume", {"uid": one.uid}))
        return all(one.state in SETTLED and one.deleting_ms is None for one in found)

    async def _say_what_happened(self, client: SimClient, uids: set[str]) -> None:
        """Of what nobody inside can tell: a person looks at the outside world once the processes are dead."""
        found = await client.read("effect.list", {"statuses": ["ambiguous"]}, EffectList)
        for effect in found.effects if found is not None else ():
            living = {process.run_id for process in self._world.machine.living()}
            if effect.run_id in uids and effect.run_id not in living:
                happened = self._world.outside.happened(effect.effect_key)
                verdict = "happened" if happened else "not_happened"
                payload = {"verdict": verdict, "effect_key": effect.effect_key, "output": None}
                await self._world.ask(client.request("effect.resolve", payload, effect.run_id))

    def look(self) -> None:
        """After each commit."""
        if self.active:
            due = self._world.auditor.rows(_DUE_WITH_PROCESS)
            self._world.auditor.check(not due, f"nothing is due whose process is not proved dead: {due}")

    def at_rest(self) -> None:
        """Every resource is what its spec says, no wake-up was lost, and no result counted for an older spec."""
        unlike = self._world.auditor.rows(_UNLIKE)
        self._world.auditor.check(not unlike, f"every resource converges: {unlike}")
        for (uid,) in self._world.auditor.rows("SELECT uid FROM resources"):
            self._check_changes(uid)
        again = self._world.auditor.rows(_SAID_AGAIN)
        self._world.auditor.check(not again, f"the first result of a process counts: {again}")
        for key, seen in self._world.auditor.rows(_SEEN):
            owed = self._owed.get(key, 0)
            self._world.auditor.check(seen >= owed, f"no wake-up of {key} is lost: {seen} of {owed}")
        for uid, child, status in self._world.auditor.rows(_ENDED_CHILDREN):
            told = json.loads(status).get("ended", [])
            self._world.auditor.check(child in told, f"the end of child {child} wakes {uid}: {status}")
        present: dict[str, int] = {}
        for uid, kind, generation in self._world.auditor.rows(_OBSERVED):
            fits = kind == "applied" or generation == present[uid]
            self._world.auditor.check(fits, f"a result of {uid} for an older generation counts: {generation}")
            present[uid] = generation if kind == "applied" else present[uid]

    # --- a process that reconciles ------------------------------------------------------------------------------

    async def reconcile(self, process: Any, stream: Any, values: Any, told: Reconcile) -> None:
        """Its whole work. Returns when it has said its last word."""
        world, chance = self._world, world_chance(self._world, process)
        process.marker, process.at_work = told.marker, True
        self._begins(process, told)
        seen = self._changes[told.key]
        await process.breathe(chance.random() * 2.0)
        if chance.random() < world.rate("step_hangs"):
            await process.breathe(DEADLINE_MS / 1000 * 4)
        if not told.deleting:
            await self._effect(process, values, told, chance)
            if chance.random() < 0.5:
                await self._ensure_child(values, told)
                if chance.random() < 0.6:
                    await self._say_to_child(values, told, chance)
        leaves = world.rate("orphan_child") or chance.random() < LEAVES_CHILD
        left = self._leave_child(process, told, chance) if leaves else None
        if chance.random() < world.rate("runner_exit"):
            process.died = True
            return
        result = self._result(told, chance, seen)
        more = [Reconciled(outcome="settled", status=AGAIN)] if chance.random() < SAYS_MORE else []
        await stream.send_all(encode_line([result, *more]))
        if chance.random() < world.rate("lingers"):
            await process.breathe(chance.random() * 4.0)
        await stream.send_all(encode_line([Leaving(childless=left is None or not left.alive)]))

    def _begins(self, process: Any, told: Reconcile) -> None:
        check = self._world.auditor.check
        before = self._working.get(told.key)
        overlaps = before is not None and before is not process and before.alive
        check(not overlaps, f"no two reconciles of {told.key} overlap: {before}, {process}")
        self._working[told.key] = process
        rows = self._world.auditor.rows(_LIVE, told.uid)
        fits = not rows or rows == [(told.lease_generation, process.identity.pid)]
        stale = any(generation > told.lease_generation for generation, _ in rows)
        check(fits or stale, f"custody of {process.identity} is stored before it reconciles: {rows}")

    def _leave_child(self, process: Any, told: Reconcile, chance: Any) -> Any:
        """A process that goes on when its reconcile is over, unless somebody ends it."""
        child = self._world.machine.add_process(process.marker)
        child.epoch, child.at_work = process.epoch, True
        delay_s = chance.random() * 6.0
        if chance.random() < OUTLIVES_PROOF and not self._world.calm:
            delay_s += PROOF_TIMEOUT_S
            child.survive(delay_s)

        async def work() -> None:
            await child.breathe(delay_s)
            alone = self._working[told.key] is process
            self._world.auditor.check(
                alone, f"what a reconcile of {told.key} has left works beside the next one"
            )

        self._world.start_process(child, work)
        return child

    async def _ensure_child(self, values: Any, told: Reconcile) -> None:
        """One child run for each generation of the spec."""
        models = self._world.models
        changing = [name for name in sorted(models) if models[name].definition.graph.settings is not None]
        names = changing if changing and told.generation % 2 else sorted(models)
        key, workflow = f"c{told.generation}", names[told.generation % len(names)]
        wish = EnsureRun(
            request_key=key, workflow=workflow, input=msgspec.Raw(canonical({"n": told.generation}))
        )
        child = (await _ask(values, wish, _child)).child
        if child is not None:
            run_id = self._children.setdefault((told.uid, key), child.run_id)
            self._world.auditor.check(
                run_id == child.run_id, f"child {key} of {told.uid} is one run: {child}"
            )

    async def _say_to_child(self, values: Any, told: Reconcile, chance: Any) -> None:
        """One change of its settings for each child, and a follow-up."""
        key, check = f"c{told.generation}", self._world.auditor.check
        path = "/fixed" if chance.random() < 0.1 else "/said/-"
        patch = [{"op": "add", "path": path, "value": told.generation}]
        change = ChangeChild(request_key=key, key=path, patch=msgspec.Raw(canonical(patch)))
        answer = await _ask(values, change, _child)
        if chance.random() < 0.5:
            answer = await _ask(values, change, _child)
        check(
            path != "/fixed" or answer.code is not None, f"a manager may not change what is fixed: {answer}"
        )
        if answer.change is not None and self._world.auditor.rows(
            _CHILD, told.uid, key
        ):  # else it was pruned since
            made = [json.loads(facts) for _run, facts in self._world.auditor.rows(_MANAGED, told.uid, key)]
            numbers = [facts["change"] for facts in made]
            check(answer.change in numbers, f"a change that {told.uid} was told of is made: {answer} {made}")
        if chance.random() < 0.3:
            word = QueueForChild(request_key=key, key="f", text="Go on.")
            answer = await _ask(values, word, _child)
            check(answer.code is not None, f"a child without a session gets no follow-up: {answer}")

    def _check_changes(self, uid: str) -> None:
        """Each run of a child was changed once at most, as its manager changes a child once."""
        runs = Counter(run for run, _facts in self._world.auditor.rows(_MANAGED, uid, "%"))
        once = all(count == 1 for count in runs.values())
        self._world.auditor.check(once, f"a manager's change happens once under its key: {runs}")

    async def _effect(self, process: Any, values: Any, told: Reconcile, chance: Any) -> None:
        """One effect for each generation of the spec, observed truthfully where its outcome is unknown."""
        part = f"e{told.generation}"
        key = effect_key(told.uid, "reconcile", 1, part)
        request = Value(json=msgspec.Raw(canonical(told.generation)), size=1)
        begin = BeginPart(attempt=1, part=part, kind="sim", mode="manual", request=request, observable=True)
        answer = await _ask(values, begin)
        outside = self._world.outside
        if answer.verdict == "observe":
            if not outside.happened(key):
                await _ask(values, SettlePart(attempt=1, part=part, status="rejected"))
                answer = await _ask(values, begin)
            else:
                await _ask(values, SettlePart(attempt=1, part=part, status="applied"))
        if answer.verdict != "apply":
            return
        await process.breathe(chance.random() * 0.5)
        outside.apply(key)
        once = outside.applications[key] == 1
        self._world.auditor.check(once, f"effect {key} happens once: {outside.applications[key]}")
        await process.breathe(chance.random() * 0.5)
        await _ask(values, SettlePart(attempt=1, part=part, status="applied"))

    def _result(self, told: Reconcile, chance: Any, seen: int) -> Reconciled:
        if chance.random() < self._world.rate("step_fails"):
            error = StepError(code="node_failed", message="it broke")
            return Reconciled(outcome="failed", error=error)
        spec = json.loads(bytes(told.spec.json or b"{}"))
        finalizers = () if told.deleting else ("undo",)
        if chance.random() < 0.2 and not self._world.calm:
            return Reconciled(
                outcome="requeue", after_ms=chance.choice([None, 500, 5_000]), finalizers=("undo",)
            )
        ended = sorted(child.request_key for child in told.children if child.ended_ms is not None)
        status = msgspec.Raw(canonical({"n": spec.get("n"), "seen": seen, "ended": ended}))
        return Reconciled(outcome="settled", status=status, finalizers=finalizers)


def world_chance(world: Any, process: Any) -> Any:
    """The randomness of one process."""
    return world.stream(f"reconcile:{process.identity.pid}:{process.identity.start_tick}")


async def _ask(values: Any, question: msgspec.Struct, decoder: Any = _answer) -> Any:
    """Ask the daemon, and wait. Raises what a stream does when the daemon is gone."""
    await values.send_all(encode_line([question]))
    data = b""
    while not data.endswith(b"\n"):
        more = await values.receive_some()
        if not more:
            raise ConnectionError
        data += bytes(more)
    return decoder.decode(data)
