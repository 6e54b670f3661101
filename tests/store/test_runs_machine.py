"""Random commands over several runs, against a small model that knows only what people are promised.

The model predicts which runs may be admitted, what each runner is answered, what each command of a person comes
to, and what everybody sees. `verify` is clean after every step. `PWF_FUZZ=n` makes n times as many examples,
other ones each time.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pwf.errors import PwfError
from pwf.protocol.runner import Sequenced
from tests.store.world import IDEMPOTENT, MANUAL, OBSERVED, Runner, World, graph, node, retry

FUZZ = int(os.environ.get("PWF_FUZZ", "0"))
RUNS_MAX = 4
MAX_STEPS = 9

FLOW = graph(
    node("think", to="write", retry=retry(1, 500)),
    node("write", "action", effect=IDEMPOTENT, to="ask", on={"failed": "rescue", "timed_out": "rescue"}),
    node("ask", "checkpoint", cases={"again": "think", "on": "pay"}),
    node("pay", "action", effect=OBSERVED, to="nap", on={"failed": "rescue"}, retry=retry(1, 0)),
    node("nap", "wait", to="send"),
    node("send", "action", effect=MANUAL, to="close"),
    node("close"),
    node("rescue"),
    max_steps=MAX_STEPS,
)
NODES = {spec.id: spec for spec in FLOW.nodes}
#: Each node may be the first: long ways are rare in random walks.
FLOWS = {name: msgspec.structs.replace(FLOW, start=name) for name in NODES}


@dataclass
class Model:
    """One run, as it should be. `due_ms` is of the elapsed clock; `row`: a process is not proved dead yet."""

    run_id: str
    node: str
    visits: dict[str, int]
    phase: str = "queued"  # queued, running, waiting, ended
    end: str = ""
    due_ms: int = 0
    timer: bool = False
    hold: str | None = None  # paused, ambiguous, no_progress, unreaped
    pause: bool = False  # wanted at the next boundary, or beneath another hold
    row: bool = False
    failures: int = 0
    crashes: int = 0
    observe: str | None = None  # run, failed, timed_out
    died: bool = False  # the effect's own attempt, whose outcome is to be reported
    done: list[tuple[str, int]] = field(default_factory=list)
    begun: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def mode(self) -> str | None:
        effect = NODES[self.node].effect
        return None if effect is None else effect.mode

    @property
    def key(self) -> tuple[str, int]:
        return self.node, self.visits[self.node]

    @property
    def shown(self) -> str:
        if self.phase == "ended":
            return self.end
        if self.hold is not None:
            return self.hold if self.hold in ("paused", "ambiguous") else "held"
        return self.phase

    def ready(self, now_ms: int) -> bool:
        return self.phase == "queued" and self.hold is None and not self.timer and self.due_ms <= now_ms

    # --- moves ---

    def finish_as(self, status: str) -> str:
        self.phase, self.end, self.hold, self.pause = "ended", status, None, False
        return "end"

    def queue(self, due_ms: int, *, timer: bool = False) -> None:
        self.phase, self.due_ms, self.timer = "queued", due_ms, timer
        if self.pause:
            self.hold, self.pause = "paused", False

    def enter(self, target: str, now_ms: int, *, go: bool) -> str:
        if sum(self.visits.values()) >= MAX_STEPS:
            return self.finish_as("failed")
        self.node = target
        self.visits[target] = self.visits.get(target, 0) + 1
        self.failures, self.observe = 0, None
        if go and not self.pause:
            self.begin()
            return "go"
        self.queue(now_ms)
        return "park"

    def begin(self) -> None:
        self.phase = "running"
        if self.mode is not None:
            self.begun[self.key] = self.begun.get(self.key, 0) + 1

    def outcome(
        self, outcome: str, now_ms: int, *, go: bool, target: str | None = None, died: bool = False
    ) -> str:
        """What an attempt's end leads to, and the answer to its runner."""
        self.crashes, self.observe = 0, None
        spec = NODES[self.node]
        if outcome == "completed":
            self.done.append(self.key)
        else:
            self.failures += 1
            if spec.retry is not None and self.failures <= spec.retry.times:
                self.queue(now_ms + spec.retry.delay_ms(self.failures))
                return "park"
            if spec.retry is None and died and self.failures < 3:
                self.queue(now_ms + (1_000 if self.failures == 2 else 0))
                return "park"
        if target is None:
            way = spec.way(outcome)
            target = None if way is None else way.target
        return self.finish_as(outcome) if target is None else self.enter(target, now_ms, go=go)

    def unknown(self, outcome: str, now_ms: int, *, observed: bool, delay_ms: int = 0) -> None:
        effect = NODES[self.node].effect
        assert effect is not None
        if not observed:
            self.observe = outcome
        if effect.observable and not observed:
            self.queue(now_ms + delay_ms)
        else:
            self.phase, self.hold = "queued", "ambiguous"

    def crashed(self, now_ms: int) -> None:
        if self.crashes >= 3:
            self.phase, self.hold = "queued", "no_progress"
            self.due_ms, self.timer = now_ms, False
        else:
            self.queue(now_ms + (1_000 if self.crashes == 2 else 0))


class RunsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name))
        self.models: dict[str, Model] = {}
        self.runners: dict[str, Runner] = {}
        self.stale: list[tuple[Runner, Sequenced]] = []
        self.last: dict[str, tuple[Runner, Sequenced, str]] = {}
        self.seen: dict[str, tuple[int, int]] = {}

    def teardown(self) -> None:
        self.world.close()
        self.folder.cleanup()

    @property
    def now_ms(self) -> int:
        return self.world.clock.elapsed_ms

    def some(self, number: int, *phases: str) -> Model | None:
        """One run in one of the phases; without phases, one that has not ended, most of the time."""
        models = list(self.models.values())
        if phases:
            found = [model for model in models if model.phase in phases]
        else:
            found = [model for model in models if model.phase != "ended" or number == 0] or models
        return found[number % len(found)] if found else None

    # --- the daemon ---

    @initialize(firsts=st.lists(st.sampled_from(sorted(NODES)), min_size=2, max_size=3))
    def begin(self, firsts):
        for first in firsts:
            self.start(first)

    @precondition(lambda self: len(self.models) < RUNS_MAX)
    @rule(first=st.sampled_from(sorted(NODES)))
    def start(self, first):
        run_id = self.world.start(FLOWS[first])
        self.models[run_id] = Model(run_id, first, {first: 1}, due_ms=self.now_ms)

    @rule(number=st.integers(0, 9))
    def go_on(self, number):
        """One run's usual way: its old runner leaves, it is admitted, does a step, asks and is answered."""
        model = self.some(number)
        if model is None:
            return
        if model.row and model.phase != "running":
            self.leave(model, "stopped", proved=True)
        self.admit_some(4)
        if model.phase == "running":
            self.one_step(model, "completed", go=True, delay_ms=0)
        elif model.phase == "waiting":
            self.answer_one(model, 0)

    @rule(limit=st.integers(0, 3), pause_first=st.booleans())
    def admit(self, limit, pause_first):
        self.admit_some(limit, pause_first)

    def admit_some(self, limit, pause_first=False):
        for model in self.models.values():  # timers need no capacity
            if model.phase == "queued" and model.hold is None and model.timer and model.due_ms <= self.now_ms:
                model.timer = False
                model.outcome("completed", self.now_ms, go=False)
        may = {model.run_id for model in self.models.values() if model.ready(self.now_ms) and not model.row}
        admissions = self.world.admit(limit)
        assert {admission.run_id for admission in admissions} <= may
        assert len(admissions) == min(limit, len(may))
        for admission in admissions:
            self.launch(admission, pause_first)

    def launch(self, admission, pause_first):
        model = self.models[admission.run_id]
        model.row = True
        self.last.pop(model.run_id, None)
        runner = self.runners[model.run_id] = Runner(self.world, admission)
        if pause_first:
            self.world.pause(model.run_id)
            assert type(runner.begin()).__name__ == "Parked"
            model.hold, model.phase, model.due_ms = "paused", "queued", self.now_ms
            return
        runner.begin()
        model.begin()
        told = runner.launch
        assert (told.node, told.visit) == model.key
        assert told.observe is (model.observe is not None)
        assert told.observe_then == (model.observe if model.observe != "run" else None)
        assert {step.node for step in told.past if step.outcome == "completed"} == {
            name for name, _ in model.done
        }

    # --- a runner ---

    @precondition(lambda self: self.some(0, "running"))
    @rule(
        number=st.integers(0, 9),
        outcome=st.sampled_from(["completed", "completed", "completed", "failed", "rejected", "unknown"]),
        drain=st.booleans(),
        delay_ms=st.integers(-5, 3_000),
    )
    def step(self, number, outcome, drain, delay_ms):
        model = self.some(number, "running")
        if model is not None:
            self.one_step(model, outcome, go=not drain, delay_ms=delay_ms)

    def one_step(self, model, outcome, *, go, delay_ms):
        runner = self.runners[model.run_id]
        runner.drain = not go
        kind = NODES[model.node].kind
        if kind == "checkpoint" and outcome == "completed":
            assert runner.ask() == "park"
            self.parked(model)
        elif kind == "wait" and outcome == "completed":
            assert runner.wait(delay_ms=delay_ms) == "park"
            model.crashes = 0
            model.queue(self.now_ms + max(0, delay_ms), timer=True)
        else:
            self.finish(model, runner, outcome, go=go)

    def parked(self, model):
        model.crashes, model.phase = 0, "waiting"
        if model.pause:
            model.hold, model.pause = "paused", False

    def finish(self, model, runner, outcome, *, go):
        spec = NODES[model.node]
        facts = {"to": spec.way("completed").target if spec.way("completed") else None}
        if outcome == "completed":
            facts["settled"] = "applied" if model.mode == "manual" else None
            expect = lambda: model.outcome("completed", self.now_ms, go=go)  # noqa: E731
        elif model.mode != "manual" or outcome == "rejected":
            reported = model.observe in ("failed", "timed_out") and model.mode == "manual"
            word = model.observe if reported else "failed"
            facts |= {"outcome": word, "to": None, "observed": reported}
            facts["settled"] = "rejected" if model.mode == "manual" else None
            died = reported and model.died
            if reported:
                facts["error"] = runner.launch.observe_error
            expect = lambda: model.outcome(word, self.now_ms, go=go, died=died)  # noqa: E731
        else:
            observed = model.observe is not None
            # To say nothing about a manual effect that failed is to not know.
            settled = "unknown" if outcome == "unknown" or observed else None
            facts |= {"outcome": "failed", "to": None, "settled": settled, "observed": observed}
            expect = lambda: self.left_unknown(model, observed)  # noqa: E731
        message = runner.finished("x", **facts)
        generation = runner.fence.generation
        verdict = runner.send(message)[0]
        assert verdict == expect()
        assert runner.fence.generation == generation
        self.last[model.run_id] = (runner, message, verdict)

    def left_unknown(self, model, observed):
        model.crashes, model.died = 0, model.died and observed
        model.unknown("failed", self.now_ms, observed=observed)
        return "park"

    @precondition(lambda self: self.last or self.stale)
    @rule(number=st.integers(0, 99))
    def old_words_are_said_again(self, number):
        """The last message of a runner, or any of one that is gone: the same answer, and nothing changes."""
        before = self.world.dump()
        if self.stale and (number % 2 or not self.last):
            runner, message = self.stale[number % len(self.stale)]
            assert runner.send(message) == ["claim_lost"]
            runner.gone()
            if self.runners[runner.run_id] is not runner:
                runner.gone(proved=False)
        else:
            runner, message, verdict = list(self.last.values())[number % len(self.last)]
            assert runner.send(message) == [verdict]
        assert self.world.dump() == before

    @precondition(lambda self: any(model.row for model in self.models.values()))
    @rule(number=st.integers(0, 9), proved=st.sampled_from([True, True, True, False]),
          how=st.sampled_from(["crash", "crashes", "died", "stopped", "timed_out"]))  # fmt: skip
    def runner_ends(self, number, proved, how):
        found = [model for model in self.models.values() if model.row]
        model = found[number % len(found)]
        if how == "crashes":
            self.keep_crashing(model)
        else:
            self.leave(model, how, proved=proved)

    def keep_crashing(self, model):
        for _ in range(3):
            if model.row:
                self.leave(model, "crash", proved=True)
                self.world.clock.forward(1_000)
                self.admit_some(4)

    def leave(self, model, how, *, proved):
        runner = self.runners[model.run_id]
        late = runner.attempt if how == "timed_out" else None
        executing = model.phase == "running"
        if how == "died":
            runner.die(proved=proved)
        else:
            runner.gone(proved=proved, stopped=how == "stopped", timed_out=late)
        if executing:
            self.interrupted(model, how, proved)
        if not proved and model.phase != "ended" and model.hold is None:
            model.hold = "unreaped"
        if proved:
            model.row = False
            self.stale.append((runner, runner.finished("late")))
            self.last.pop(model.run_id, None)

    def interrupted(self, model, how, proved):
        reports = model.observe in ("failed", "timed_out")
        model.crashes += how == "crash" or (how == "died" and reports)
        if model.mode == "manual":
            observed = reports and (how == "timed_out" or model.crashes >= 3)
            outcome = model.observe if reports else {"timed_out": how, "died": "failed"}.get(how, "run")
            model.died = (how == "died") if not reports else model.died
            model.unknown(outcome, self.now_ms, observed=observed)
            if model.hold != "ambiguous":
                model.pause, model.hold = model.pause or model.hold == "paused", None
                model.crashed(self.now_ms)
        elif how == "timed_out" and proved:
            model.outcome("timed_out", self.now_ms, go=False)
        elif how == "died" and proved:
            model.outcome("failed", self.now_ms, go=False, died=True)
        else:
            model.crashed(self.now_ms)

    # --- people ---

    def tried(self, act, *args):
        """What a person's command comes to: its result, or the code of its refusal."""
        try:
            return act(*args).status
        except PwfError as error:
            return error.code

    @rule(number=st.integers(0, 9), what=st.sampled_from(["pause", "resume", "recover", "answer", "cancel"]),
          word=st.integers(0, 5))  # fmt: skip
    def a_person_acts(self, number, what, word):
        model = self.some(number, *(["waiting"] if what == "answer" else []))
        if what == "recover":
            held = [model for model in self.models.values() if model.hold == "ambiguous"]
            if not held and word:
                return
            model = held[number % len(held)] if held else model
        if model is None:
            return
        if what == "cancel" and (word or model.phase == "ended"):
            what = "resume" if word < 3 else "recover"
        getattr(self, what + "_one")(model, word)

    def pause_one(self, model, _word):
        answer = self.tried(self.world.pause, model.run_id)
        if model.phase == "ended":
            assert answer == "rejected"
        elif model.hold is None and model.phase != "running":
            model.hold = "paused"
        elif model.hold != "paused":
            model.pause = True
        if model.phase != "ended":
            assert answer == model.shown

    def resume_one(self, model, _word):
        answer = self.tried(self.world.resume, model.run_id)
        only_waits = model.phase == "waiting" and model.hold is None
        if model.phase == "ended" or model.hold == "ambiguous" or only_waits:
            assert answer == "rejected"
            return
        if model.hold in ("no_progress", "unreaped"):
            model.crashes = 0
        model.hold, model.pause = None, False
        assert answer == model.shown

    def cancel_one(self, model, _word):
        answer = self.tried(self.world.cancel, model.run_id)
        assert answer == "cancelled"
        model.finish_as("cancelled")

    def answer_one(self, model, word):
        word = ("on", "on", "on", "again", "again", "nonsense")[word]
        answer = self.tried(self.world.answer, model.run_id, word)
        hold, model.hold = model.hold, None
        wanted, model.pause = model.pause, model.pause or hold == "paused"
        target = {"again": "think", "on": "pay"}.get(word)
        if target is None:
            model.done.append(model.key)
            model.finish_as("failed")
        else:
            model.outcome("completed", self.now_ms, go=False, target=target)
        if hold not in (None, "paused") and model.phase != "ended":
            model.hold, model.pause = hold, wanted
        assert answer == model.shown

    def recover_one(self, model, word):
        verdict = ("happened", "not_happened", "observe")[word % 3]
        if model.phase == "ended":  # a closed book here: test_effects opens it
            return
        answer = self.tried(self.world.recover, model.run_id, verdict)
        observable = model.mode is not None and NODES[model.node].effect.observable
        never = {"observe": not observable, "not_happened": model.row}
        if model.hold != "ambiguous" or never.get(verdict, False):
            assert answer == "rejected"
            return
        model.hold = None
        if verdict == "happened":
            crashes = model.crashes
            model.outcome("completed", self.now_ms, go=False)
            model.crashes = crashes
        else:
            model.observe = (model.observe or "run") if verdict == "observe" else None
            model.queue(self.now_ms)
        assert answer == model.shown

    # --- time ---

    @rule(
        ms=st.sampled_from([1, 600, 1_000, 5_000]), step_ms=st.sampled_from([0, 0, -86_400_000, 86_400_000])
    )
    def time_passes_and_the_wall_clock_may_step(self, ms, step_ms):
        self.world.clock.forward(ms)
        self.world.clock.wall_ms += step_ms

    # --- what always holds ---

    @invariant()
    def everybody_sees_what_is(self):
        for model in self.models.values():
            explained = self.world.view(model.run_id, used=0, capacity=4)
            assert explained.summary.status == model.shown, (explained.summary, model)
            assert explained.explanation.code
            if model.phase != "ended":
                assert explained.summary.node == model.node

    @invariant()
    def no_step_is_completed_twice_and_no_effect_begun_unasked(self):
        for model in self.models.values():
            completed = [line for line in self.world.trail(model.run_id) if line.endswith(" completed")]
            assert completed == [f"{name}.{visit} completed" for name, visit in model.done]
            begun = {(name, visit): times for name, visit, _, times in self.world.effects(model.run_id)}
            assert begun == model.begun

    @invariant()
    def generations_and_revisions_only_grow(self):
        for run_id in self.models:
            row = self.world.row(run_id)
            seen = row["revision"], row["generation"]
            before = self.seen.get(run_id, (0, 0))
            assert seen[0] >= before[0]
            assert seen[1] >= before[1]
            self.seen[run_id] = seen


RunsMachine.TestCase.settings = settings(
    max_examples=14 * max(1, FUZZ),
    stateful_step_count=50,
    deadline=None,
    derandomize=not FUZZ,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRunsMachine = RunsMachine.TestCase
