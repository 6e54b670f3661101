"""Effects in mid-step, at the ledger: begun and settled by their keys, whatever entity they belong to."""

import hashlib

import pytest

from pwf.protocol.runner import BeginPart, SettlePart, Value
from pwf.store.effect_parts import (
    Occasion,
    Word,
    begin_part,
    leave_ambiguous,
    look_at_part,
    note_end,
    observe_again,
    settle_by_word,
    settle_part,
    unknown_parts,
)
from pwf.store.values import PutValueChunk, UnusedValues, drop_values, put_chunk, unused_values
from pwf.values import digest
from tests.store.test_entity_kinds import boil, kettles, make
from tests.store.world import error, value

__all__ = ["kettles"]


def look_and_begin(tx, occasion, call):
    """As whoever answers a process does."""
    answer = look_at_part(tx, occasion, call)
    return begin_part(tx, occasion, call) if answer.verdict == "apply" else answer


class Reconcile:
    """The process of an entity that is no run, which says one thing at a time."""

    def __init__(self, world, number: int, generation: int = 1, parts_max: int = 5) -> None:
        self.world = world
        self.occasion = Occasion(
            entity_no=number, generation=generation, node="reconcile", visit=1, parts_max=parts_max
        )

    def within(self, act, *args):
        """One command under the fence, with its event."""

        def command(tx, _):
            occasion = self.occasion
            revision = tx.fence(occasion.entity_no, generation=occasion.generation)
            answer = act(tx, occasion, *args)
            tx.event(occasion.entity_no, revision, "effect", "runner", occasion.generation, {})
            return answer

        return self.world.do(command)

    def begin(self, part="p", request=1, *, mode="manual", observable=True, sent: Value | None = None):
        request = sent or value(request)
        call = BeginPart(
            attempt=1, part=part, kind="write", mode=mode, request=request, observable=observable
        )
        return self.within(look_and_begin, call)

    def settle(self, part="p", status="applied", **facts):
        return self.within(settle_part, SettlePart(attempt=1, part=part, status=status, **facts))

    def after(self) -> "Reconcile":
        """The process of the next generation."""
        number = self.occasion.entity_no

        def act(tx, _):
            now = tx.now.awake_ms
            tx.release_lease(number)
            revision, generation = tx.take_lease(number, token="u", owner="daemon:1", until_awake_ms=now + 9)
            tx.event(number, revision, "boils", "daemon", generation, {})
            return generation

        generation = self.world.do(act)
        self.world.sql("UPDATE runners SET generation = :g", {"g": generation})
        return Reconcile(self.world, number, generation)

    def row(self, part="p", columns="status, attempts, generation"):
        return self.world.sql(f"SELECT {columns} FROM effects WHERE part = :part", {"part": part})[0]

    @property
    def place(self):
        return {**self.occasion.place, "part": "p"}


@pytest.fixture
def process(kettles):
    number = make(kettles)
    boil(kettles, number)
    return Reconcile(kettles, number)


def test_a_part_is_applying_on_disk_with_its_request_and_fingerprint_before_it_is_applied(process):
    assert process.begin("p", {"to": "ann"}).verdict == "apply"
    assert process.row() == ("applying", 1, 1)
    fingerprint = hashlib.sha256(b'{"to":"ann"}').hexdigest()
    assert process.row(columns="request, fingerprint") == (b'{"to":"ann"}', fingerprint)


def test_a_part_that_happened_gives_its_output_and_is_never_begun_again(process):
    process.begin()
    assert process.settle(output=value({"id": 7}), ref="r-7").verdict == "settled"
    for again in (process.begin, lambda: process.after().begin()):
        answer = again()
        assert (answer.verdict, bytes(answer.output.json), answer.ref) == ("applied", b'{"id":7}', "r-7")
    assert process.row() == ("applied", 1, 1)


@pytest.mark.parametrize("settled", [True, False])
def test_the_same_part_with_another_request_is_a_conflict_and_changes_nothing(process, settled):
    process.begin("p", 1)
    if settled:
        process.settle()
    before = process.row(columns="*")
    answer = process.begin("p", 2)
    assert (answer.verdict, answer.fingerprint) == ("conflict", hashlib.sha256(b"1").hexdigest())
    assert process.row(columns="*") == before


def test_a_part_that_an_earlier_process_left_open_is_observed(process):
    process.begin()
    assert process.begin().verdict == "unknown"  # its own process may still be at it
    later = process.after()
    assert later.begin().verdict == "observe"
    assert later.settle(status="rejected").verdict == "settled"
    assert later.begin().verdict == "apply"
    assert later.row() == ("applying", 2, 2)


def test_why_a_try_left_it_unknown_is_kept_until_it_is_begun_again(process):
    process.begin()
    process.settle(status="unknown", error=error("no route"))
    assert process.row()[0] == "applying"
    later = process.after()
    assert later.begin().error.message == "no route"
    later.settle(status="rejected", error=error("no route"))
    later.begin()
    assert later.row(columns="error") == (None,)


def test_a_process_that_ended_says_why_of_what_it_began_and_said_nothing_of(process):
    process.begin("a")
    process.begin("b")
    process.settle("b", "unknown", error=error("its own"))
    process.begin("again", mode="idempotent")
    process.within(note_end, error("killed"))
    later = process.after()
    said = [later.begin(part).error.message for part in ("a", "b")]
    assert said == ["killed", "its own"]
    assert process.row("again")[0] == "failed"


def test_without_an_observer_nobody_can_tell_and_a_person_is_asked(process):
    process.begin(observable=False)
    process.begin("q")
    open_ = process.within(unknown_parts)
    assert [(one.part, one.observable) for one in open_] == [("p", False), ("q", True)]
    assert process.within(leave_ambiguous) == 2
    assert process.after().begin(observable=False).verdict == "unknown"


@pytest.mark.parametrize(
    ("verdict", "then"), [("happened", "applied"), ("not_happened", "apply"), ("give_up", "abandoned")]
)
def test_a_persons_word_settles_one_part_by_its_key(process, verdict, then):
    process.begin()
    process.begin("q")
    process.within(leave_ambiguous)
    word = Word(verdict=verdict, output=b"5", said_by="client:ann", note="looked")

    def say(tx, occasion):
        return settle_by_word(tx, {**occasion.place, "part": "p"}, word)

    assert process.within(say) is True
    assert process.within(say) is False  # it is settled
    assert process.row("q")[0] == "ambiguous"
    answer = process.after().begin()
    assert answer.verdict == then
    if then == "applied":
        assert bytes(answer.output.json) == b"5"


def test_a_person_may_have_a_part_observed_again_if_its_code_can(process):
    process.begin()
    process.begin("blind", observable=False)
    process.within(leave_ambiguous)
    for part, can in (("p", True), ("blind", False)):
        assert process.within(lambda tx, o, part=part: observe_again(tx, {**o.place, "part": part})) is can
    assert process.after().begin().verdict == "observe"


@pytest.mark.parametrize(
    ("mode", "status"), [("manual", "failed"), ("idempotent", "rejected"), ("idempotent", "unknown")]
)
def test_a_part_becomes_only_what_its_mode_allows(process, mode, status):
    process.begin(mode=mode)
    answer = process.settle(status=status)
    assert (answer.verdict, process.row()[0]) == ("refused", "applying")
    assert process.settle("nobody").verdict == "refused"


def test_a_part_that_may_be_repeated_simply_begins_again(process):
    process.begin(mode="idempotent", observable=False)
    process = process.after()
    assert process.begin(mode="idempotent").verdict == "apply"
    process.settle(status="failed", error=error("busy"))
    assert process.begin(mode="idempotent").verdict == "apply"


def test_a_visit_has_only_so_many_parts(process):
    for number in range(5):
        assert process.begin(f"p{number}").verdict == "apply"
    answer = process.begin("more")
    assert (answer.verdict, "5 effects already" in answer.error.message) == ("refused", True)
    assert process.begin("p0").verdict == "unknown"  # those that are there go on


def test_a_large_request_and_output_are_values_that_were_uploaded_and_stay(process):
    data = b'"' + b"x" * 5_000 + b'"'
    sent = Value(digest=digest(data), size=len(data))
    assert "not uploaded" in process.begin(sent=sent).error.message
    chunk = PutValueChunk(
        entity_no=process.occasion.entity_no,
        generation=1,
        digest=sent.digest,
        index=0,
        data=data,
        last=True,
    )
    process.world.do(put_chunk, chunk)
    assert process.begin(sent=sent).verdict == "apply"
    assert process.settle(output=sent).verdict == "settled"
    assert process.row(columns="fingerprint, request_digest, output_digest") == (sent.digest,) * 3
    process.after()  # the upload's own hold ends with its lease
    assert process.world.do(unused_values, UnusedValues()).values == ()
    assert process.world.do(drop_values, (sent.digest,)) == 0
