"""What a manager's function sees and may do: its resource, effects that happen once, child runs, and its outcome."""

from __future__ import annotations

import msgspec
import pytest

from pwf.errors import (
    Conflict,
    EffectAbandoned,
    EffectUnknown,
    InvalidArgument,
    InvalidValue,
    Rejected,
    ValueTooLarge,
)
from pwf.protocol.reconcile import SENT_BYTES_MAX
from pwf.protocol.resources import Condition as KeptCondition
from pwf.values import canonical
from pwf.workflow.effects import NotApplied, Observation, after_error, applied, not_applied, unknown
from pwf.workflow.reconcile_context import Outcome, ReconcileContext
from pwf.workflow.resource import Condition, Resource
from pwf.workflow.resource_manager import ResourceManager
from pwf.workflow.timing import seconds
from tests.workflow.author import value
from tests.workflow.manager_author import FakePort, LedgerRow, given, reconcile


class Spec(msgspec.Struct):
    size: int = 1


class Status(msgspec.Struct):
    made: int = 0
    last: str | None = None


Ctx = ReconcileContext
Mine = Resource[Spec, Status]


@pytest.fixture
def manager() -> ResourceManager[Spec, Status]:
    return ResourceManager("sample", spec=Spec, status=Status)


# --- what it sees, and what it says -----------------------------------------------------------------------------


def test_a_reconcile_sees_its_resource_typed(manager: ResourceManager[Spec, Status]) -> None:
    seen: list[Mine] = []

    @manager.reconcile
    def look(ctx: Ctx, resource: Mine) -> Outcome:
        seen.append(resource)
        return ctx.settled()

    kept = KeptCondition(type="Ready", status="False", reason="Busy", changed_ms=7)
    reconcile(manager, given({"size": 3}, {"made": 2}, conditions=(kept,), deleting=True, failures=4))

    (resource,) = seen
    assert (resource.spec, resource.status) == (Spec(3), Status(2))
    assert resource.conditions == {"Ready": Condition("Ready", False, "Busy", changed_ms=7)}
    assert (resource.deleting, resource.failures, resource.key) == (True, 4, "k")


def test_a_whole_status_becomes_a_patch_of_what_is_new(manager: ResourceManager[Spec, Status]) -> None:
    @manager.reconcile
    def count(ctx: Ctx, resource: Mine) -> Outcome:
        return ctx.settled(Status(made=resource.status.made + 1))

    said = reconcile(manager, given(status={"made": 1, "last": "x"}))

    assert bytes(said.status) == b'{"last":null,"made":2}'


def test_a_dict_is_merged_into_the_status(manager: ResourceManager[Spec, Status]) -> None:
    @manager.reconcile
    def count(ctx: Ctx, resource: Mine) -> Outcome:
        return ctx.requeue({"last": "y"}, after=seconds(2), finalizers=["disk"])

    said = reconcile(manager, given(status={"made": 1}))

    assert (bytes(said.status), said.outcome, said.after_ms) == (b'{"last":"y"}', "requeue", 2_000)
    assert said.finalizers == ("disk",)


@pytest.mark.parametrize("status", [None, Status(made=1), {"made": 1}, {}])
def test_a_status_as_it_was_is_an_empty_patch(manager: ResourceManager[Spec, Status], status: object) -> None:
    @manager.reconcile
    def again(ctx: Ctx, resource: Mine) -> Outcome:
        return ctx.settled(status)

    said = reconcile(manager, given(status={"made": 1}))

    assert (bytes(said.status), said.finalizers, said.conditions) == (b"{}", None, ())


@pytest.mark.parametrize("status", [{"made": "x"}, {"made": []}, [1], "text"])
def test_a_status_of_another_type_fails_the_reconcile(
    manager: ResourceManager[Spec, Status], status: object
) -> None:
    @manager.reconcile
    def wrong(ctx: Ctx, resource: Mine) -> Outcome:
        return ctx.settled(status)

    with pytest.raises(InvalidValue, match="status of manager 'sample'"):
        reconcile(manager, given())


def test_a_function_that_returns_no_outcome_fails(manager: ResourceManager[Spec, Status]) -> None:
    manager.reconcile(lambda ctx, resource: "done")

    with pytest.raises(InvalidValue, match="returned 'done'") as caught:
        reconcile(manager, given())
    assert "ctx.settled" in str(caught.value.hint)


def test_a_spec_from_before_that_no_longer_fits_says_so(manager: ResourceManager[Spec, Status]) -> None:
    manager.reconcile(lambda ctx, resource: ctx.settled())

    with pytest.raises(InvalidValue, match="sample/k does not fit the types of its manager any more"):
        reconcile(manager, given({"size": "large"}))


def test_conditions_and_events_are_told(manager: ResourceManager[Spec, Status]) -> None:
    @manager.reconcile
    def tell(ctx: Ctx, resource: Mine) -> Outcome:
        ctx.event("Fetched", "12 objects", objects=12)
        ctx.event("Plain")
        return ctx.settled(conditions=[Condition("Ready", True, "InSync"), Condition("Fresh", None)])

    said = reconcile(manager, given())

    assert [(one.type, one.status) for one in said.conditions] == [("Ready", "True"), ("Fresh", "Unknown")]
    assert [(one.reason, one.data and bytes(one.data)) for one in said.events] == [
        ("Fetched", b'{"objects":12}'),
        ("Plain", None),
    ]


def test_what_a_manager_may_not_say_is_an_error_at_the_call() -> None:
    ctx = ReconcileContext(FakePort(), lambda found: b"", [])

    with pytest.raises(InvalidArgument, match="status 'yes'"):
        Condition("Ready", "yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="twice"):
        ctx.settled(conditions=[Condition("A", True), Condition("A", False)])
    with pytest.raises(InvalidArgument, match="no unit"):
        ctx.requeue(after=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="finalizers"):
        ctx.settled(finalizers=[3])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="reason of an event"):
        ctx.event("")
    for number in range(64):
        ctx.event(f"E{number}")
    with pytest.raises(Rejected, match="at most 64 events"):
        ctx.event("one too many")


def test_an_async_function_is_awaited(manager: ResourceManager[Spec, Status]) -> None:
    import trio

    @manager.reconcile
    async def slowly(ctx: Ctx, resource: Mine) -> Outcome:
        await trio.lowlevel.checkpoint()
        return ctx.settled({"made": 5})

    assert manager.is_async
    assert bytes(reconcile(manager, given()).status) == b'{"made":5}'


# --- effects ------------------------------------------------------------------------------------------------------


class Sink:
    """An outside system that counts, and may lose its answer."""

    def __init__(self) -> None:
        self.had: list[tuple[object, str]] = []
        self.dies = False
        self.refuses = False
        self.says: Observation | None = None

    def apply(self, request: object, key: str) -> int:
        if self.refuses:
            raise NotApplied("full")
        self.had.append((request, key))
        if self.dies:
            raise KeyboardInterrupt  # the process ends here
        return len(self.had)

    def observe(self, request: object, key: str) -> Observation:
        if self.says is not None:
            return self.says
        return applied(len(self.had), ref="r") if (request, key) in self.had else not_applied()


@pytest.fixture
def port() -> FakePort:
    return FakePort()


@pytest.fixture
def ctx(port: FakePort) -> ReconcileContext:
    return ReconcileContext(port, lambda found: bytes(found.json or b""), [])


def test_an_effect_is_applied_once_and_a_repeat_gets_the_stored_result(ctx: Ctx) -> None:
    sink = Sink()

    results = [ctx.effects.ensure("a", "send", {"n": 1}, sink.observe, sink.apply) for _ in range(3)]

    assert results == [1, 1, 1]
    assert sink.had == [({"n": 1}, "resource:a")]


def test_another_request_under_the_key_is_a_conflict(ctx: Ctx) -> None:
    sink = Sink()
    ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply)

    with pytest.raises(Conflict):
        ctx.effects.ensure("a", "send", 2, sink.observe, sink.apply)
    assert len(sink.had) == 1


def test_an_interrupted_effect_is_observed_and_not_applied_again(ctx: Ctx, port: FakePort) -> None:
    sink = Sink()
    sink.dies = True
    with pytest.raises(KeyboardInterrupt):
        ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply)
    sink.dies = False

    assert ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply) == 1
    assert len(sink.had) == 1
    assert (port.rows["a"].status, port.rows["a"].ref) == ("applied", "r")


def test_an_effect_that_was_observed_not_to_have_happened_is_applied(ctx: Ctx, port: FakePort) -> None:
    port.rows["a"] = LedgerRow("send", b"1", "manual", True)  # as a kill before `apply` leaves it
    sink = Sink()

    assert ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply) == 1
    assert len(sink.had) == 1


def test_an_effect_of_which_nobody_can_tell_ends_the_reconcile(ctx: Ctx, port: FakePort) -> None:
    sink = Sink()
    sink.says = unknown()
    port.rows["a"] = LedgerRow("send", b"1", "manual", True)

    for _ in range(2):
        with pytest.raises(EffectUnknown, match="effect 'a'"):
            ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply)
    assert sink.had == []


def test_without_an_observer_an_interrupted_effect_is_never_repeated(ctx: Ctx) -> None:
    sink = Sink()
    sink.dies = True
    with pytest.raises(KeyboardInterrupt):
        ctx.effects.ensure("a", "send", 1, apply=sink.apply)

    with pytest.raises(EffectUnknown):
        ctx.effects.ensure("a", "send", 1, apply=sink.apply)
    assert len(sink.had) == 1


def test_an_idempotent_effect_is_applied_again(ctx: Ctx) -> None:
    sink = Sink()
    sink.dies = True
    with pytest.raises(KeyboardInterrupt):
        ctx.effects.ensure("a", "send", 1, apply=sink.apply, mode="idempotent")
    sink.dies = False

    assert ctx.effects.ensure("a", "send", 1, apply=sink.apply, mode="idempotent") == 2


def test_what_surely_did_not_happen_passes_and_may_be_tried_again(ctx: Ctx, port: FakePort) -> None:
    sink = Sink()
    sink.refuses = True
    with pytest.raises(NotApplied, match="full"):
        ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply)
    assert (port.rows["a"].status, port.rows["a"].error) == ("rejected", "full")
    sink.refuses = False

    assert ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply) == 1


def test_an_error_of_apply_passes_and_leaves_the_effect_unknown(ctx: Ctx, port: FakePort) -> None:
    def breaks(request: object, key: str) -> None:
        raise OSError("line cut")

    with pytest.raises(OSError, match="line cut"):
        ctx.effects.ensure("a", "send", 1, apply=breaks)
    assert (port.rows["a"].status, port.rows["a"].error) == ("ambiguous", "OSError: line cut")


def test_what_a_person_gave_up_is_told_as_that_and_never_as_what_did_not_happen(
    ctx: Ctx, port: FakePort
) -> None:
    sink = Sink()
    port.reserve_effect(key="a", kind="send", request=b"1", mode="manual", observable=False)
    port.rows["a"].status = "abandoned"
    for _ in range(2):
        with pytest.raises(EffectAbandoned, match="may have happened"):
            ctx.effects.ensure("a", "send", 1, sink.observe, sink.apply)
    assert sink.had == []
    assert not issubclass(EffectAbandoned, (NotApplied, EffectUnknown)), "neither is tried again nor holds it"


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(
    ("output", "said"), [(object(), "can not be written as JSON"), ("x" * SENT_BYTES_MAX, "the limit is")]
)
def test_an_effect_whose_result_can_not_be_kept_has_happened_and_every_repeat_says_so(
    ctx: Ctx, port: FakePort, observed: bool, output: object, said: str
) -> None:
    sink = Sink()
    if observed:
        port.rows["a"] = LedgerRow("send", b"1", "manual", True)
        sink.says = applied(output, ref="r")

    def apply(request: object, key: str) -> object:
        sink.apply(request, key)
        return output

    with pytest.raises((InvalidValue, ValueTooLarge), match=said):
        ctx.effects.ensure("a", "send", 1, sink.observe, apply)
    assert (port.rows["a"].status, port.rows["a"].ref) == ("applied", "r" if observed else None)
    with pytest.raises(InvalidValue, match="happened, and its result could not be kept: .*" + said):
        ctx.effects.ensure("a", "send", 1, sink.observe, apply)
    assert len(sink.had) == (0 if observed else 1)


@pytest.mark.parametrize(
    ("error", "manual"),
    [
        (NotApplied("full"), "rejected"),
        (ExceptionGroup("", [NotApplied("full"), NotApplied("shut")]), "rejected"),
        (ExceptionGroup("", [NotApplied("full"), OSError("cut")]), "unknown"),
        (OSError("cut"), "unknown"),
    ],
)
def test_an_error_of_apply_settles_by_what_it_says_and_an_idempotent_effect_has_just_failed(
    ctx: Ctx, port: FakePort, error: Exception, manual: str
) -> None:
    def breaks(request: object, key: str) -> None:
        raise error

    for mode in ("manual", "idempotent"):
        with pytest.raises(type(error)) as raised:
            ctx.effects.ensure(mode, "send", 1, not_seen, breaks, mode=mode)  # type: ignore[arg-type]
        assert raised.value is error
    assert after_error(error, "manual") == manual
    assert port.rows["manual"].status == ("applying" if manual == "unknown" else manual)
    assert port.rows["idempotent"].status == "failed"


def not_seen(request: object, key: str) -> Observation:
    return not_applied()


def test_what_does_not_fit_into_a_message_is_refused_before_it_is_sent(ctx: Ctx, port: FakePort) -> None:
    with pytest.raises(ValueTooLarge, match="the input of child run"):
        ctx.workflows.ensure("build-1", "build", "x" * SENT_BYTES_MAX)
    with pytest.raises(InvalidArgument, match="workflow of child run"):
        ctx.workflows.ensure("build-1", "b" * 5_000)
    with pytest.raises(InvalidArgument, match="kind of effect"):
        ctx.effects.ensure("a", "k" * 1_000, 1, apply=Sink().apply)
    assert (port.children, port.rows) == ({}, {})


def test_an_effect_without_a_way_to_apply_it_is_refused(ctx: Ctx) -> None:
    with pytest.raises(InvalidArgument, match="no apply="):
        ctx.effects.ensure("a", "send", {"n": 1})


def test_a_ready_made_request_brings_both_functions(ctx: Ctx, tmp_path: object) -> None:
    from pwf.effects.files import WriteFile

    request = WriteFile(path=f"{tmp_path}/x", data="hello")

    first = ctx.effects.ensure("write-1", "file", request)
    again = ctx.effects.ensure("write-1", "file", request)

    assert first == again
    assert again["size"] == 5


# --- child runs ---------------------------------------------------------------------------------------------------


def test_a_child_run_is_started_once_and_its_output_is_read(ctx: Ctx, port: FakePort) -> None:
    first = ctx.workflows.ensure("build-1", "build", {"v": 1})
    port.end_child("build-1", {"ok": True})
    again = ctx.workflows.ensure("build-1", "build", {"v": 1})

    assert (first.status, first.ended, first.output) == ("queued", False, None)
    assert (again.run_id, again.completed, again.output) == (first.run_id, True, {"ok": True})
    with pytest.raises(Conflict):
        ctx.workflows.ensure("build-1", "build", {"v": 2})


def test_a_child_run_is_cancelled_by_its_key(ctx: Ctx) -> None:
    ctx.workflows.ensure("build-1", "build")

    found = ctx.workflows.cancel("build-1")

    assert found is not None
    assert found.ended
    assert ctx.workflows.cancel("nothing") is None


def test_settings_of_a_child_are_changed_once_under_a_key(ctx: Ctx, port: FakePort) -> None:
    ctx.workflows.ensure("build-1", "build")
    patch = [{"op": "replace", "path": "/workers", "value": 4}]

    first = ctx.workflows.change_settings("build-1", patch, key="more-1")

    assert (first, ctx.workflows.change_settings("build-1", patch, key="more-1")) == (1, 1)
    assert ctx.workflows.change_settings("build-1", patch, key="more-2", scope="review") == 2
    assert port.words["change", "build-1"]["more-2"] == (canonical(patch), "review")
    with pytest.raises(Conflict):
        ctx.workflows.change_settings("build-1", [], key="more-1")
    with pytest.raises(InvalidArgument, match="key of a change"):
        ctx.workflows.change_settings("build-1", patch, key="")


def test_follow_ups_of_a_child_are_queued_once_under_a_key_and_removed_by_their_id(
    ctx: Ctx, port: FakePort
) -> None:
    ctx.workflows.ensure("build-1", "build")

    first = ctx.workflows.queue_follow_up("build-1", "Say what is new.\nIn a line.", key="news-1")
    ctx.workflows.remove_follow_up("build-1", first)

    assert first == ctx.workflows.queue_follow_up("build-1", "Say what is new.\nIn a line.", key="news-1")
    assert port.removed == [("build-1", first)]
    with pytest.raises(InvalidArgument, match="text of follow-up"):
        ctx.workflows.queue_follow_up("build-1", "", key="news-2")


def test_children_of_before_are_told(manager: ResourceManager[Spec, Status], port: FakePort) -> None:
    child = port.ensure_child(request_key="c", workflow="build", input=b"null")
    seen: list[Mine] = []

    @manager.reconcile
    def look(ctx: Ctx, resource: Mine) -> Outcome:
        seen.append(resource)
        return ctx.settled()

    done = msgspec.structs.replace(child, status="completed", output=value([1]))
    reconcile(manager, given(children=(done,)), port)

    assert seen[0].children["c"].output == [1]
