"""A kind of entity that is no run: fence, lease, custody, recovery, history, verify, restore and prune work for it.

The kind stands in this file alone. Not a line of theirs knows it.
"""

from __future__ import annotations

import msgspec
import pytest

from pwf.errors import ClaimLost, Conflict, InvalidValue
from pwf.protocol.spawn import Identity
from pwf.store.custody import runners_gone, standing_runners
from pwf.store.custody_rows import add_runner, runner_is_ending
from pwf.store.daemon import ClaimEpoch, Renew, claim, renew
from pwf.store.entity_kinds import EntityKind, Retention, Rule, RunnerGone
from pwf.store.kinds import KINDS
from pwf.store.retention import Place, PruneTree, plan_prune, prune_tree
from pwf.store.values import PutValueChunk, UnusedValues, claim_value, put_chunk, unused_values
from pwf.store.verify import verify
from pwf.values import digest
from tests.store.test_home import ELSEWHERE, serve
from tests.store.world import linear

TABLE = """CREATE TABLE kettles(entity_no INTEGER PRIMARY KEY REFERENCES entities(entity_no), state TEXT NOT NULL,
  ended_wall_ms INTEGER, crashes INTEGER NOT NULL DEFAULT 0) STRICT"""
IDENTITY = Identity(pid=7, start_tick=70, boot_id="boot-1", session=7)


def settle(tx, gone: RunnerGone) -> None:
    row = tx.one("SELECT state FROM kettles WHERE entity_no = :no", {"no": gone.entity_no})
    entity = tx.one("SELECT generation FROM entities WHERE entity_no = :no", {"no": gone.entity_no})
    if row[0] != "boiling" or entity[0] != gone.generation:
        return
    revision = tx.fence(gone.entity_no, generation=gone.generation)
    facts = {"crashed": not gone.stopped, "no": gone.entity_no}
    tx.run("UPDATE kettles SET state = 'cold', crashes = crashes + :crashed WHERE entity_no = :no", facts)
    tx.release_lease(gone.entity_no)
    tx.event(gone.entity_no, revision, "cooled", "daemon", gone.generation, {})


def hold_copied(tx) -> None:
    for (number,) in tx.all("SELECT entity_no FROM kettles WHERE ended_wall_ms IS NULL"):
        revision = tx.fence(number)
        tx.run("UPDATE kettles SET state = 'held' WHERE entity_no = :no", {"no": number})
        tx.event(number, revision, "held", "daemon", 0, {})


def needed(tx, number: int, _name: str) -> str | None:
    hot = tx.one("SELECT 1 FROM kettles WHERE entity_no = :no AND state = 'hot'", {"no": number})
    return None if hot is None else "it is hot"


def remove(tx, number: int, _name: str) -> None:
    assert tx.run("DELETE FROM kettles WHERE entity_no = :no", {"no": number}) == 1


KETTLE = EntityKind(
    name="kettle",
    table="kettles",
    settle=settle,
    unattended="""SELECT k.entity_no, e.name, e.generation FROM kettles k JOIN entities e USING (entity_no)
      WHERE k.state = 'boiling' AND NOT EXISTS (SELECT 1 FROM runners p WHERE p.entity_no = k.entity_no)""",
    hold_copied=hold_copied,
    retention=Retention(
        ended="""SELECT ended_wall_ms, entity_no, entity_no FROM kettles WHERE ended_wall_ms < :before_ms
          AND (ended_wall_ms, entity_no) > (:after_ms, :after_no) ORDER BY 1, 2 LIMIT :limit""",
        group="""SELECT k.entity_no, e.name, k.ended_wall_ms FROM kettles k JOIN entities e USING (entity_no)
          WHERE k.entity_no = :group""",
        needed=needed,
        remove=remove,
    ),
    rules={
        "kettle_dry": Rule(
            "SELECT name FROM kettles JOIN entities USING (entity_no) WHERE state = 'dry'",
            "the kettle is dry",
            "fill {name}",
        )
    },
)


@pytest.fixture
def kettles(world, monkeypatch):
    monkeypatch.setitem(KINDS, "kettle", KETTLE)
    world.sql(TABLE)
    return world


def make(world, name="k1", *, state="cold", ended_ms=None) -> int:
    def act(tx, _):
        number = tx.create_entity("kettle", name)
        facts = {"no": number, "state": state, "ended": ended_ms}
        tx.run("INSERT INTO kettles VALUES (:no, :state, :ended, 0)", facts)
        tx.event(number, 1, "made", "client:ann", 0, {})
        return number

    return int(world.do(act))


def boil(world, number: int, *, custody=True) -> None:
    """Take the lease and record a process."""

    def act(tx, _):
        until = tx.now.awake_ms + 30_000
        revision, generation = tx.take_lease(number, token="t", owner="daemon:1", until_awake_ms=until)
        tx.event(number, revision, "boils", "daemon", generation, {})
        tx.run("UPDATE kettles SET state = 'boiling' WHERE entity_no = :no", {"no": number})
        if custody:
            add_runner(tx, number, generation, 1, IDENTITY)

    world.do(act)


def gone_of(number: int, name="k1", *, proved=True) -> tuple[RunnerGone, ...]:
    gone = RunnerGone(entity_no=number, kind="kettle", name=name, generation=1, proved=proved)
    return (gone,)


def state(world, number: int) -> str:
    return str(world.sql("SELECT state FROM kettles WHERE entity_no = :no", {"no": number})[0][0])


def test_numbers_count_up_over_every_kind_and_a_runs_number_is_its_entitys(kettles):
    first = kettles.start(linear(1))
    kettle = make(kettles)
    second = kettles.start(linear(1))

    rows = kettles.sql("SELECT entity_no, kind, name FROM entities WHERE entity_no > 0 ORDER BY entity_no")
    assert rows == [(1, "run", first), (kettle, "kettle", "k1"), (3, "run", second)]
    assert kettles.sql("SELECT run_no, run_id FROM runs ORDER BY run_no") == [(1, first), (3, second)]


def test_the_fence_names_the_entity_and_lets_only_its_owner_write(kettles):
    run_id = kettles.start(linear(1))
    number = make(kettles)
    boil(kettles, number)

    for wrong, error in (
        ({"generation": 2}, ClaimLost),
        ({"generation": 1, "token": "another"}, ClaimLost),
        ({"expected_revision": 9}, Conflict),
    ):
        with pytest.raises(error, match="kettle:k1"):
            kettles.do(lambda tx, _, wrong=wrong: tx.fence(number, **wrong))
    kettles.checked = False  # a revision without its event
    assert kettles.do(lambda tx, _: tx.fence(number, generation=1, token="t")) == 3
    assert kettles.row(run_id)["revision"] == 1


def test_a_live_lease_is_renewed_with_the_daemons_and_nobody_elses(kettles):
    kettles.do(claim, ClaimEpoch(token="d", lease_ms=30_000, pid=1, version="0"))
    mine, other = make(kettles, "k1"), make(kettles, "k2")
    boil(kettles, mine)
    boil(kettles, other)
    kettles.clock.forward(10_000)

    live = ((mine, 1, "t"), (other, 1, "stolen"))
    assert kettles.do(renew, Renew(token="d", epoch=1, lease_ms=30_000, live=live)) == 1

    until = dict(kettles.sql("SELECT entity_no, lease_until_awake_ms FROM entities WHERE entity_no > 0"))
    assert until[mine] == kettles.clock.awake_ms + 30_000
    assert until[other] == kettles.clock.awake_ms + 20_000


@pytest.mark.parametrize(("custody", "identity"), [(True, IDENTITY), (False, None)])
def test_recovery_finds_it_with_its_process_or_without_and_settles_it_beside_a_run(
    kettles, custody, identity
):
    runner = kettles.run(linear(2))
    number = make(kettles)
    boil(kettles, number, custody=custody)

    standing = {found.name: found for found in kettles.do(standing_runners, None)}
    assert (standing["k1"].kind, standing["k1"].entity_no) == ("kettle", number)
    assert standing["k1"].identity == identity
    facts = ("entity_no", "kind", "name", "generation")
    gone = [{fact: getattr(found, fact) for fact in facts} for found in standing.values()]
    kettles.do(runners_gone, tuple(RunnerGone(proved=True, **one) for one in gone))

    assert (state(kettles, number), kettles.status(runner.run_id)) == ("cold", "queued")
    assert kettles.do(standing_runners, None) == ()


def test_custody_stays_until_its_own_process_is_proved_dead(kettles):
    number, other = make(kettles, "k1"), make(kettles, "k2")
    boil(kettles, number)
    boil(kettles, other)

    kettles.do(runners_gone, gone_of(number, proved=False))
    rows = kettles.sql("SELECT entity_no, state FROM runners ORDER BY 1")
    assert rows == [(number, "ending"), (other, "live")]

    kettles.do(runners_gone, gone_of(number))
    assert kettles.sql("SELECT entity_no FROM runners") == [(other,)]


def test_its_end_wakes_who_listens_for_it_by_its_name(kettles):
    number = make(kettles)
    boil(kettles, number)
    told = []

    def act(tx, _):
        runners_gone(tx, gone_of(number))
        told.extend(tx.changed_keys)

    kettles.do(act)
    assert told == ["kettle:k1"]


def test_a_late_end_of_an_earlier_generation_changes_nothing(kettles):
    number = make(kettles)
    boil(kettles, number)
    kettles.do(runners_gone, gone_of(number))
    boil(kettles, number)

    kettles.do(runners_gone, gone_of(number))

    assert state(kettles, number) == "boiling"
    assert kettles.sql("SELECT generation FROM runners") == [(2,)]


def test_what_it_uploads_is_held_for_it_and_its_generation_alone(kettles):
    number, other = make(kettles, "k1"), make(kettles, "k2")
    boil(kettles, number)
    data = b'"' + b"x" * 9_000 + b'"'
    upload = PutValueChunk(
        entity_no=number, generation=1, digest=digest(data), index=0, data=data, last=True, limit=10_000
    )
    kettles.do(put_chunk, upload)

    assert kettles.do(lambda tx, _: claim_value(tx, digest(data), number, 1)) == len(data)
    with pytest.raises(InvalidValue):
        kettles.do(lambda tx, _: claim_value(tx, digest(data), other, 1))
    assert kettles.do(unused_values, UnusedValues()).values == ()

    kettles.do(runners_gone, gone_of(number))
    assert [name for name, _ in kettles.do(unused_values, UnusedValues()).values] == [digest(data)]


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("kettle_dry", "UPDATE kettles SET state = 'dry'"),
        ("history_broken", "DELETE FROM events WHERE entity_no = :no"),
        ("entity_bare", "DELETE FROM kettles"),
    ],
)
def test_verify_names_what_breaks_a_rule_of_its_kind_or_of_every_kind(kettles, rule, damage):
    number = make(kettles)
    kettles.checked = False
    kettles.sql(damage, {"no": number} if ":no" in damage else None)

    found = [one for one in kettles.do(verify, 0).violations if one.rule == rule]

    assert len(found) == 1
    assert found[0].run_id is None
    assert "kettle:k1" in found[0].message


def test_a_copied_home_signals_nobody_and_holds_it_beside_the_runs(kettles):
    serve(kettles)
    runner = kettles.run(linear(2))
    number = make(kettles)
    boil(kettles, number)

    serve(kettles, **ELSEWHERE)

    assert state(kettles, number) == "held"
    assert kettles.view(runner.run_id).summary.hold == "restored"
    assert kettles.sql("SELECT * FROM runners") == []
    assert kettles.sql("SELECT lease_token FROM entities WHERE entity_no > 0") == [(None,), (None,)]


def prune(world, before_ms: int) -> tuple[int, dict[str, int]]:
    trees, kept = 0, {}
    place: Place | None = Place()
    while place is not None:
        found = world.do(prune_tree, PruneTree(before_ms=before_ms, after=place))
        trees, place = trees + found.trees, found.after
        kept |= found.kept
    return trees, kept


def test_prune_goes_from_kind_to_kind_and_takes_history_along(kettles):
    now = kettles.clock.wall_ms
    kettles.cancel(kettles.start(linear(1)))
    make(kettles, "old", ended_ms=now - 5)
    hot = make(kettles, "hot", state="hot", ended_ms=now - 5)
    young = make(kettles, "young", ended_ms=now + 5)
    kettles.clock.forward(1)
    assert kettles.do(plan_prune, PruneTree(before_ms=now + 1, after=Place(kind="kettle"))).trees == 1

    assert prune(kettles, now + 1) == (2, {"it is hot": 1})

    left = [row[0] for row in kettles.sql("SELECT entity_no FROM entities WHERE entity_no > 0")]
    assert left == [hot, young]
    assert {row[0] for row in kettles.sql("SELECT entity_no FROM events")} == {hot, young}


def test_prune_leaves_what_has_a_process_that_is_not_proved_dead(kettles):
    number = make(kettles, ended_ms=1)
    kettles.do(lambda tx, _: add_runner(tx, number, 0, 1, IDENTITY))
    kettles.do(lambda tx, _: runner_is_ending(tx, number, 0))

    assert prune(kettles, 10) == (0, {"a process is not proved dead": 1})
    assert msgspec.structs.asdict(IDENTITY)["pid"] == kettles.sql("SELECT pid FROM runners")[0][0]
    assert state(kettles, number) == "cold"
