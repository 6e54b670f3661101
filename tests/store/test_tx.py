"""The fence, leases and events, on a real database."""

import pytest

from pwf.errors import ClaimLost, Conflict
from tests.store.support import do


@pytest.fixture
def entity(writer):
    do(writer, lambda tx, _: tx.create_entity("run", "r7", 7))
    return 7


def lease(writer, entity, owner="daemon:1", token="t1", ms=30_000, **more):
    return do(
        writer,
        lambda tx, _: tx.take_lease(
            entity, token=token, owner=owner, until_awake_ms=tx.now.awake_ms + ms, **more
        ),
    )


def row(writer, entity):
    return do(
        writer,
        lambda tx, _: tx.one(
            "SELECT revision, generation, lease_token FROM entities WHERE entity_no = :e", {"e": entity}
        ),
    )


def test_a_fence_counts_the_write(writer, entity):
    assert do(writer, lambda tx, _: tx.fence(entity)) == 2
    assert do(writer, lambda tx, _: tx.fence(entity, expected_revision=2)) == 3


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        ({"generation": 2}, ClaimLost),
        ({"generation": 0, "token": "t1"}, ClaimLost),
        ({"generation": 1, "token": "other"}, ClaimLost),
        ({"generation": 1, "token": "t1", "expected_revision": 1}, Conflict),
        ({"expected_revision": 9}, Conflict),
        # of two faults, the lost claim counts: whoever does not own it must not be told to look again
        ({"generation": 7, "expected_revision": 9}, ClaimLost),
    ],
)
def test_a_fence_that_does_not_hold_writes_nothing(writer, entity, claim, error):
    lease(writer, entity)
    before = row(writer, entity)
    with pytest.raises(error):
        do(writer, lambda tx, _: tx.fence(entity, **claim))
    assert row(writer, entity) == before


def test_a_fence_on_nothing_is_a_lost_claim(writer):
    with pytest.raises(ClaimLost, match="entity 9 does not exist"):
        do(writer, lambda tx, _: tx.fence(9))


def test_a_conflict_says_both_revisions(writer, entity):
    with pytest.raises(Conflict, match="has revision 1 by now; you expected 5") as caught:
        do(writer, lambda tx, _: tx.fence(entity, expected_revision=5))
    assert caught.value.details == {"revision": 1}


def test_each_owner_has_the_next_generation(writer, entity, clock):
    assert lease(writer, entity, "daemon:1", "t1") == (2, 1)
    clock.forward(30_000)
    assert lease(writer, entity, "daemon:2", "t2") == (3, 2)
    with pytest.raises(ClaimLost):
        do(writer, lambda tx, _: tx.fence(entity, generation=1, token="t1"))


def test_a_live_lease_keeps_others_out(writer, entity, clock):
    lease(writer, entity, "daemon:1", "t1")
    clock.forward(29_999)
    with pytest.raises(ClaimLost, match="belongs to daemon:1 for another 1 ms"):
        lease(writer, entity, "daemon:2", "t2")


def test_a_lease_ends_at_once_under_another_boot(writer, entity, clock):
    lease(writer, entity, "daemon:1", "t1")
    clock.boot_id, clock.awake_ms = "boot-2", 0
    assert lease(writer, entity, "daemon:2", "t2") == (3, 2)


def test_a_lease_ends_at_once_when_its_owner_is_proved_dead(writer, entity):
    lease(writer, entity, "daemon:1", "t1")
    with pytest.raises(ClaimLost):
        lease(writer, entity, "daemon:3", "t3", dead_owner="daemon:2")
    assert lease(writer, entity, "daemon:3", "t3", dead_owner="daemon:1") == (3, 2)


def test_a_wall_clock_that_steps_a_day_takes_no_lease(writer, entity, clock):
    lease(writer, entity, "daemon:1", "t1")
    clock.wall_ms += 86_400_000
    with pytest.raises(ClaimLost):
        lease(writer, entity, "daemon:2", "t2")


def test_a_night_of_sleep_takes_no_lease(writer, entity, clock):
    lease(writer, entity, "daemon:1", "t1")
    clock.wall_ms += 8 * 3_600_000
    clock.elapsed_ms += 8 * 3_600_000
    with pytest.raises(ClaimLost):
        lease(writer, entity, "daemon:2", "t2")


def test_the_same_owner_may_take_its_entity_again_with_the_next_generation(writer, entity):
    lease(writer, entity, "daemon:1", "t1")
    assert lease(writer, entity, "daemon:1", "t2") == (3, 2)


def test_a_released_entity_keeps_its_generation(writer, entity):
    lease(writer, entity)

    def release(tx, _):
        tx.fence(entity, generation=1, token="t1")
        tx.release_lease(entity)

    do(writer, release)
    assert row(writer, entity) == (3, 1, None)
    with pytest.raises(ClaimLost, match="belongs to nobody by now"):
        do(writer, lambda tx, _: tx.fence(entity, generation=1, token="t1"))
    assert lease(writer, entity, "daemon:2", "t2") == (4, 2)


def renew(writer, entity, token="t1", generation=1):
    do(
        writer,
        lambda tx, _: tx.renew_lease(
            entity, generation=generation, token=token, until_awake_ms=tx.now.awake_ms + 30_000
        ),
    )


def test_renewal_counts_no_revision_and_revives_an_ended_lease_that_nobody_took(writer, entity, clock):
    lease(writer, entity)
    clock.forward(100_000)
    renew(writer, entity)
    assert row(writer, entity) == (2, 1, "t1")
    with pytest.raises(ClaimLost):
        lease(writer, entity, "daemon:2", "t2")


def test_renewal_after_somebody_took_the_lease_is_a_lost_claim(writer, entity, clock):
    lease(writer, entity)
    clock.forward(100_000)
    lease(writer, entity, "daemon:2", "t2")
    with pytest.raises(ClaimLost):
        renew(writer, entity)
    assert row(writer, entity) == (3, 2, "t2")


def test_one_event_per_revision(writer, entity, clock):
    import apsw

    do(writer, lambda tx, _: tx.event(entity, 1, "created", "client", 0, {"b": 1, "a": 2}))
    do(writer, lambda tx, _: tx.event(entity, 2, "paused", "client", 0, b"{}"))
    with pytest.raises(apsw.ConstraintError):
        do(writer, lambda tx, _: tx.event(entity, 1, "again", "client", 0, {}))
    sql = "SELECT revision, kind, payload, at_wall_ms FROM events ORDER BY revision"
    assert do(writer, lambda tx, _: tx.all(sql)) == [
        (1, "created", b'{"a":2,"b":1}', clock.wall_ms),
        (2, "paused", b"{}", clock.wall_ms),
    ]


def test_run_says_how_many_rows_changed(writer):
    insert = "INSERT INTO meta (key, value) VALUES (:key, 'v')"
    for key in ("a", "b", "c"):
        assert do(writer, lambda tx, key: tx.run(insert, {"key": key}), key) == 1
    assert do(writer, lambda tx, _: tx.run("DELETE FROM meta WHERE key > :key", {"key": "a"})) == 2
    assert do(writer, lambda tx, _: tx.run("DELETE FROM meta WHERE key > :key", {"key": "a"})) == 0


def test_a_forgotten_parameter_is_an_error_and_not_a_null(writer):
    with pytest.raises(KeyError):
        do(writer, lambda tx, _: tx.one("SELECT key FROM meta WHERE key = :key", {"kye": "a"}))


def test_one_refuses_a_second_row(writer):
    with pytest.raises(AssertionError, match="2 rows where at most one"):
        do(writer, lambda tx, _: tx.one("SELECT 1 UNION SELECT 2"))
