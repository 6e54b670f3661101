"""`ctx.effect` against the real ledger: what is called, what a repeat gets, and what a step's end then says."""

import contextlib
import functools
import threading
from collections import Counter

import msgspec
import pytest
import trio
import trio.lowlevel

from pwf import (
    EffectUnknown,
    NotApplied,
    PwfError,
    Workflow,
    applied,
    idempotent,
    not_applied,
    parts,
    unknown,
)
from pwf.errors import Conflict, InvalidArgument, InvalidValue, Rejected
from pwf.protocol.graph import EffectSpec, NodeSpec
from pwf.protocol.masking import Masks
from pwf.protocol.runner import BeginPart, Finish, PartAnswer, effect_key
from pwf.runner.base.parts import Parts, how_it_ended
from pwf.store.step_parts import PartCall, part_call
from pwf.values import digest
from tests.runner.peer import MemoryRun, run_inline
from tests.store.conftest import clock, world
from tests.store.world import PARTS, graph, node, value

__all__ = ["clock", "world"]

SPEC = NodeSpec(id="order", kind="action", effect=EffectSpec(mode="parts", type="order"))


class Link:
    """The values socket, without a socket: every call is a command of the store."""

    def __init__(self, runner):
        self.runner = runner
        self.asked = []

    def put(self, data):
        return value(msgspec.json.decode(data))

    def ask(self, message):
        self.asked.append(message)
        fence = self.runner.fence
        return self.runner.world.do(part_call, PartCall(fence=fence, call=message))

    def fetch(self, found, what):
        return bytes(found.json)


class Step:
    """A run of one node, whose attempts make effects in a world that counts them."""

    def __init__(self, world):
        self.world = world
        self.happened = Counter()
        self.masks = Masks()
        self.runner = world.run(graph(node("order", "action", effect=PARTS)))
        self._begin()

    def _begin(self):
        self.link = Link(self.runner)
        key_of = functools.partial(effect_key, "run", "order", 1)
        self.parts = Parts(self.link, self.runner.attempt, SPEC, key_of, 1_000_000, self.masks)

    def again(self, **how):
        """The process is gone; another one takes the next attempt."""
        self.runner.gone(**how)
        self.runner = self.world.launch()
        self._begin()
        return self

    def apply(self, request, effect_key):
        self.happened[effect_key] += 1
        return {"did": request}

    def look(self, request, effect_key):
        return applied({"did": "seen"}) if self.happened[effect_key] else not_applied()

    def make(self, key="a", request=1, **facts):
        facts = {"apply": self.apply, "observe": self.look} | facts
        return self.parts.effect(key, request, **facts)

    def status(self):
        return self.world.effects(self.runner.run_id)[0][2]


@pytest.fixture
def step(world):
    return Step(world)


class Dies(BaseException):
    """The process ends here."""


def dies_before(request, effect_key):
    raise Dies


def test_it_is_applied_once_and_gives_its_output_as_json(step):
    assert step.make() == {"did": 1}
    assert step.make() == {"did": 1}
    assert step.again(stopped=True).make() == {"did": 1}
    assert step.happened == {"run:order:1/a": 1}


def test_its_row_is_there_before_it_is_applied(step):
    def apply(request, effect_key):
        assert step.status() == "applying"
        assert (request, effect_key) == ({"to": "ann"}, "run:order:1/a")

    assert step.make(request={"to": "ann"}, apply=apply) is None
    assert step.status() == "applied"


@pytest.mark.parametrize("later", [False, True])
def test_another_request_under_a_key_is_a_conflict_that_names_both_fingerprints(step, later):
    step.make(request=1)
    if later:
        step.again(stopped=True)
    with pytest.raises(Conflict) as caught:
        step.make(request=2)
    assert caught.value.message.count("fingerprint") == 1
    assert all(digest(request) in caught.value.message for request in (b"1", b"2"))
    assert step.happened == {"run:order:1/a": 1}


@pytest.mark.parametrize("happens", [False, True])
def test_what_a_killed_process_left_is_observed_and_happens_once(step, happens):
    def apply(request, effect_key):
        if happens:
            step.apply(request, effect_key)
        raise Dies

    with pytest.raises(Dies):
        step.make(apply=apply)
    step.again()
    assert step.make() == {"did": "seen" if happens else 1}
    assert step.happened == {"run:order:1/a": 1}


def test_without_an_observer_it_is_left_to_a_person_and_never_applied_again(step):
    with pytest.raises(Dies):
        step.make(apply=dies_before, observe=None)
    step.runner.gone()
    assert step.world.status(step.runner.run_id) == "ambiguous"
    assert step.status() == "ambiguous"


def test_an_error_of_its_own_leaves_it_unknown_and_what_is_found_not_to_have_happened_fails_as_it_did(step):
    def apply(request, effect_key):
        raise OSError("no route")

    for _ in range(2):
        with pytest.raises(OSError, match="no route"):
            step.make(apply=apply)  # a repeat raises the same, and applies nothing
    assert step.status() == "applying"
    step.again()
    with pytest.raises(NotApplied) as caught:
        step.make()
    assert how_it_ended(caught.value)[1].message == "no route"
    assert step.status() == "rejected"
    with pytest.raises(NotApplied):
        step.make()  # within the attempt it is not tried again: nobody has asked for a retry
    assert step.again(stopped=True).make() == {"did": 1}


def test_a_step_whose_earlier_try_took_too_long_ends_as_timed_out(step):
    with pytest.raises(Dies):
        step.make(apply=dies_before)
    step.again(timed_out=step.runner.attempt)
    with pytest.raises(NotApplied) as caught:
        step.make()
    assert how_it_ended(caught.value)[0] == "timed_out"
    assert how_it_ended(BaseExceptionGroup("of a nursery", [caught.value]))[0] == "timed_out"
    assert how_it_ended(BaseExceptionGroup("two", [caught.value, ValueError()])) is None


def test_not_applied_settles_it_and_a_further_try_applies_it_again(step):
    def apply(request, effect_key):
        raise NotApplied("sold out")

    with pytest.raises(NotApplied):
        step.make(apply=apply)
    assert step.status() == "rejected"
    assert step.again(stopped=True).make() == {"did": 1}


@pytest.mark.parametrize("answer", [unknown, lambda: None, lambda: 1 / 0])
def test_an_observer_that_can_not_tell_ends_the_step_whatever_its_function_makes_of_it(step, answer):
    with pytest.raises(Dies):
        step.make(apply=dies_before)
    step.again()
    assert step.parts.unsure is None
    with pytest.raises(EffectUnknown):
        step.make(observe=lambda *_: answer())
    with pytest.raises(EffectUnknown):
        step.make("b")  # nothing more is begun
    assert step.parts.unsure.code == "effect_unknown"
    assert step.happened == {}


def test_an_idempotent_one_is_simply_applied_again(step):
    for raised in (Dies, ValueError):
        with pytest.raises(raised):
            step.make(apply=lambda *_, raised=raised: _raise(raised), mode="idempotent", observe=None)
        step.again(stopped=True)
    assert step.make(mode="idempotent", observe=None) == {"did": 1}


def _raise(error):
    raise error


def test_an_output_that_is_no_json_is_the_steps_fault_and_the_effect_has_happened(step):
    for _ in range(2):
        with pytest.raises(InvalidValue):
            step.make(apply=lambda *which: step.apply(*which) and {1, 2}.__iter__())
        step.again(stopped=True)
    assert step.happened == {"run:order:1/a": 1}
    assert step.status() == "applied"


def test_no_secret_is_kept_of_an_effect(step):
    step.masks.add("hunter2x")
    assert step.make(request={"token": "hunter2x"}, apply=lambda request, key: request) == {"token": "***"}
    with pytest.raises(ValueError, match="hunter2x"):
        step.make("b", apply=lambda *_: int("hunter2x"))
    kept = step.world.sql("SELECT request, output, error, ref FROM effects")
    assert len(kept) == 2
    assert "hunter2x" not in repr(kept)


def test_async_functions_are_awaited_and_a_cancelled_one_is_left_to_be_observed(step):
    async def apply(request, effect_key):
        step.apply(request, effect_key)
        await trio.sleep(1 if step.happened[effect_key] > 1 else 0)
        return "did"

    async def look(request, effect_key):
        await trio.lowlevel.checkpoint()
        return step.look(request, effect_key)

    async def both():
        assert await step.make(apply=apply, observe=look) == "did"
        with trio.move_on_after(0.01):
            step.happened["run:order:1/b"] = 1
            await step.make("b", apply=apply, observe=look)

    trio.run(both)
    step.again()
    assert trio.run(lambda: _awaited(step.make("b", apply=apply, observe=look))) == {"did": "seen"}


async def _awaited(made):
    return await made


def finish_of(function, answer_part):
    """How a step ends that makes effects, as its runner says it."""
    flow = Workflow("w")
    flow.action(effect=parts("order"))(function)
    run = MemoryRun(flow.to_graph(), answer_part=answer_part)
    run_inline(flow, run)
    return next(message for message in run.received if isinstance(message, Finish))


def test_a_step_that_swallows_what_an_observer_could_not_tell_is_held_all_the_same():
    def order(ctx):
        with contextlib.suppress(EffectUnknown):
            ctx.effect("a", 1, apply=lambda *_: 1, observe=lambda *_: unknown())
        return "fine"

    finish = finish_of(order, lambda call: PartAnswer(verdict="observe"))
    assert (finish.outcome, finish.settled, finish.observed) == ("failed", "unknown", True)
    assert finish.error.code == "effect_unknown"


def test_large_requests_and_outputs_travel_in_chunks_from_any_thread():
    calls = []

    def answer(call):
        calls.append(call)
        return PartAnswer(verdict="apply" if isinstance(call, BeginPart) else "settled")

    def order(ctx):
        found = []
        work = threading.Thread(
            target=lambda: found.append(ctx.effect("a", "x" * 600_000, apply=lambda wanted, _: wanted))
        )
        work.start()
        work.join()
        return len(found[0])

    finish = finish_of(order, answer)
    assert bytes(finish.output.json) == b"600000"
    begun, settled = calls
    assert begun.request.digest == settled.output.digest == digest(b'"' + b"x" * 600_000 + b'"')


def test_a_node_that_declares_no_such_effects_makes_none():
    flow = Workflow("w")

    @flow.action(effect=idempotent("x"))
    def order(ctx):
        with pytest.raises(Rejected, match="one by one"):
            ctx.effect("a", 1, apply=lambda *_: 1)

    run = MemoryRun(flow.to_graph())
    run_inline(flow, run)
    assert run.status == "completed"


def test_one_key_is_not_made_twice_at_a_time(step):
    def apply(request, effect_key):
        with pytest.raises(Rejected, match="being made already"):
            step.make()
        return "once"

    assert step.make(apply=apply) == "once"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"key": ""}, "1 to 200"),
        ({"key": "a\nb"}, "printable"),
        ({"key": "x" * 201}, "1 to 200"),
        ({"mode": "parts"}, "mode="),
        ({"apply": None}, "not a function"),
        ({"apply": lambda: 1}, "f\\(request, effect_key\\)"),
        ({"observe": 7}, "not a function"),
        ({"type": ""}, "type"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(step, facts, said):
    with pytest.raises(InvalidArgument, match=said):
        step.make(**facts)
    with pytest.raises(PwfError):
        step.make(request={1, 2}.__iter__())
    assert not any(isinstance(message, BeginPart) for message in step.link.asked)
