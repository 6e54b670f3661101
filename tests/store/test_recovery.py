"""A daemon that comes up finds what an earlier one left, and settles it from the store alone."""

import pytest

from pwf.errors import ClaimLost, Rejected
from pwf.store.custody import runners_gone, standing_runners
from pwf.store.daemon import (
    ClaimEpoch,
    Release,
    Renew,
    claim,
    daemon_counts,
    owner_of,
    release,
    renew,
    state_status,
)
from pwf.store.entity_kinds import RunnerGone
from tests.store.world import MANUAL, Runner, graph, linear, node


def take_over(world):
    """Another daemon, of the next epoch."""
    claimed = world.do(claim, ClaimEpoch(token=f"t{world.epoch}", lease_ms=30_000, pid=1, version="0.1.0"))
    world.epoch = claimed.epoch
    return claimed


def settle(world, *, proved=True):
    """One pass of recovery; how many it settled."""
    standing = world.do(standing_runners, None)
    gone = tuple(
        RunnerGone(
            entity_no=s.entity_no,
            kind=s.kind,
            name=s.name,
            generation=s.generation,
            proved=proved,
            stopped=True,
        )
        for s in standing
    )
    world.do(runners_gone, gone)
    return len(gone)


def test_each_claim_has_the_next_epoch_and_fences_the_one_before(world):
    assert take_over(world).epoch == 1
    assert world.do(renew, Renew(token="t1", epoch=1, lease_ms=30_000, live=[])) == 0
    assert take_over(world).epoch == 2
    with pytest.raises(ClaimLost):
        world.do(renew, Renew(token="t1", epoch=1, lease_ms=30_000, live=[]))
    with pytest.raises(ClaimLost):
        world.do(release, Release(token="t1", epoch=1))


def test_a_released_claim_is_taken_at_once(world):
    take_over(world)
    world.do(release, Release(token="t1", epoch=1))
    assert world.sql("SELECT lease_token FROM entities WHERE entity_no = 0") == [(None,)]
    assert take_over(world).epoch == 2


def test_the_home_has_an_id(world):
    world.sql("INSERT OR REPLACE INTO meta VALUES ('home_id', 'h1')")
    assert take_over(world).home_id == "h1"


def test_renewal_renews_only_what_is_still_owned(world):
    take_over(world)
    live, parked = world.run(linear(2)), world.run(linear(2))
    revision = world.row(live.run_id)["revision"]
    parked.drain = True
    parked.finish(1, to="b")
    world.clock.forward(10_000)
    both = tuple((one.fence.entity_no, one.fence.generation, one.fence.token) for one in (live, parked))
    assert world.do(renew, Renew(token="t1", epoch=1, lease_ms=30_000, live=both)) == 1
    until = world.sql(
        "SELECT lease_until_awake_ms FROM entities JOIN runs ON run_no = entity_no WHERE run_id = :id",
        {"id": live.run_id},
    )
    assert until == [(world.clock.awake_ms + 30_000,)]
    assert world.row(live.run_id)["revision"] == revision  # a renewal is no event


@pytest.mark.parametrize("wrong", [{"generation": 2}, {"token": "another"}], ids=["generation", "token"])
def test_renewal_of_a_run_by_an_owner_with_another_generation_or_token_changes_nothing(world, wrong):
    take_over(world)
    fence = world.run(linear(2)).fence
    owner = {"generation": fence.generation, "token": fence.token} | wrong
    leases = "SELECT lease_until_awake_ms, lease_token FROM entities WHERE kind = 'run'"
    before = world.sql(leases)
    world.clock.forward(10_000)
    live = ((fence.entity_no, owner["generation"], owner["token"]),)
    assert world.do(renew, Renew(token="t1", epoch=1, lease_ms=30_000, live=live)) == 0
    assert world.sql(leases) == before


@pytest.mark.parametrize("wrong", [{"epoch": 2}, {"token": "another"}], ids=["epoch", "token"])
def test_renewal_of_the_claim_by_a_daemon_with_another_epoch_or_token_is_a_lost_claim(world, wrong):
    take_over(world)
    before = world.dump()["entities"]
    world.clock.forward(10_000)
    with pytest.raises(ClaimLost):
        world.do(renew, Renew(**({"token": "t1", "epoch": 1, "lease_ms": 30_000, "live": ()} | wrong)))
    assert world.dump()["entities"] == before


def test_a_late_renewal_after_the_terminal_commit_changes_nothing(world):
    take_over(world)
    runner = world.run(linear(1))
    runner.finish()
    before = world.dump()
    late = ((runner.fence.entity_no, runner.fence.generation, runner.fence.token),)
    assert world.do(renew, Renew(token="t1", epoch=1, lease_ms=30_000, live=late)) == 0
    assert world.dump()["events"] == before["events"]


def test_what_an_earlier_daemon_left_is_found_and_goes_on_at_once(world):
    world.checked = False  # between the new claim and recovery, runners of the old one stand
    take_over(world)
    running = world.run(linear(2))
    running.finish(1, to="b")
    started = world.start(linear(1))
    world.admit()
    take_over(world)
    found = {s.name: s.identity for s in world.do(standing_runners, None)}
    assert found[running.run_id].boot_id == "boot-1"
    assert found[started] is None  # it was never told to begin
    assert world.admit() == ()
    assert settle(world) == 2
    world.check()
    assert {admission.run_id for admission in world.admit()} == {running.run_id, started}
    assert owner_of(world.epoch) == "daemon:2"


def test_recovery_settles_ended_and_parked_runs_too(world):
    world.checked = False
    take_over(world)
    ended, parked = world.run(linear(1)), world.run(graph(node("a", "checkpoint")))
    ended.finish("it")
    parked.ask()
    take_over(world)
    assert settle(world) == 2
    world.check()
    assert [world.status(runner.run_id) for runner in (ended, parked)] == ["completed", "waiting"]
    assert world.do(standing_runners, None) == ()


def test_a_run_without_a_runner_row_is_an_orphan_too(world):
    world.checked = False
    runner = world.run(linear(2))
    world.sql("DELETE FROM runners")
    assert [s.name for s in world.do(standing_runners, None)] == [runner.run_id]
    settle(world)
    world.check()
    assert world.launch(runner.run_id).launch.node == "a"


def test_a_recovery_that_fails_half_way_is_finished_by_the_next(world):
    world.checked = False
    take_over(world)
    runs = [world.run(linear(2)) for _ in range(50)]
    take_over(world)
    for count, runner in enumerate(runs):
        if count % 2 == 0:
            runner.gone(stopped=True)
    assert settle(world) == 25
    assert settle(world) == 0
    world.check()
    assert len(world.admit(64)) == 50


def test_a_recovery_that_can_prove_nothing_holds_every_run_and_says_so(world):
    world.checked = False
    take_over(world)
    runs = [world.run(linear(2)) for _ in range(3)]
    take_over(world)
    settle(world, proved=False)
    world.check()  # held with a reason: no rule is broken
    assert {world.view(runner.run_id).summary.hold for runner in runs} == {"process_unreaped"}


def test_one_recovery_clears_all_and_parks_what_can_not_be_read(world):
    world.checked = False
    take_over(world)
    runs = [world.run(graph(node("a", "action", effect=MANUAL, to="b"), node("b"))) for _ in range(100)]
    lost, garbled, good = runs[:5], runs[5:10], runs[10:]
    for runner in lost:
        world.sql("UPDATE runs SET node = 'gone' WHERE run_id = :run", {"run": runner.run_id})
    for runner in garbled:
        world.sql("UPDATE runs SET visits = CAST('{' AS BLOB) WHERE run_id = :run", {"run": runner.run_id})
    take_over(world)
    assert settle(world) == 100
    assert settle(world) == 0
    holds = dict(world.sql("SELECT hold, count(*) FROM runs GROUP BY hold"))
    assert holds == {"broken": 10, "effect_ambiguous": 90}
    assert {world.status(runner.run_id) for runner in good} == {"ambiguous"}
    with pytest.raises(Rejected, match="is damaged"):
        world.resume(garbled[0].run_id)
    world.cancel(garbled[0].run_id)
    assert world.status(garbled[0].run_id) == "cancelled"


def test_a_broken_run_that_is_put_right_goes_on_by_the_rules(world):
    world.checked = False
    runner = world.run(graph(node("a", "action", effect=MANUAL, to="b"), node("b")))
    world.sql("UPDATE runs SET node = 'gone'")
    runner.gone(stopped=True)
    assert world.view(runner.run_id).summary.hold == "broken"
    world.sql("UPDATE runs SET node = 'a'")
    world.resume(runner.run_id)
    (admission,) = world.admit()
    again = Runner(world, admission)
    with pytest.raises(Exception, match="UNIQUE"):
        again.begin()  # the attempt that was open when it broke
    again.gone(stopped=True)
    assert (
        world.status(runner.run_id) == "ambiguous"
    )  # the manual effect of that attempt: nothing is tried blindly
    assert world.effects(runner.run_id) == [("a", 1, "ambiguous", 1)]
    world.check()


@pytest.mark.parametrize("damage", ["node = 'gone'", "visits = CAST('{' AS BLOB)"])
def test_a_run_that_can_not_be_read_is_not_launched_again_and_again(world, damage):
    run_id = world.start(linear(1))
    (admission,) = world.admit()
    world.checked = False
    world.sql(f"UPDATE runs SET {damage}")
    runner = Runner(world, admission)
    assert type(runner.begin()).__name__ == "Parked"
    runner.gone(stopped=True)
    assert world.row(run_id)["hold"] == "broken"
    assert world.row(run_id)["lease_token"] is None
    assert world.admit() == ()


def test_the_sweep_loses_against_a_run_that_has_ended(world):
    runner = world.run(linear(1))
    (standing,) = world.do(standing_runners, None)
    runner.finish("the result")
    runner.leave()
    before = world.dump()
    gone = RunnerGone(
        entity_no=standing.entity_no,
        kind=standing.kind,
        name=standing.name,
        generation=standing.generation,
        proved=True,
        stopped=True,
    )
    world.do(runners_gone, (gone,))
    assert world.dump() == before


def test_a_daemon_that_was_down_across_a_timer_fires_it_once(world):
    take_over(world)
    runner = world.run(graph(node("a", "wait", to="b"), node("b")))
    runner.wait(delay_ms=1_000)
    runner.leave()
    world.reboot(away_ms=3_600_000)
    take_over(world)
    assert world.rebase() == 1
    assert world.launch(runner.run_id).launch.node == "b"
    assert world.trail(runner.run_id) == ["a.1 completed", "b.1 active"]


# --- numbers --------------------------------------------------------------------------------------------------


def test_status_counts_runs_as_people_see_them(world):
    take_over(world)
    ended = world.run(linear(1))
    ended.finish()
    ended.leave()
    asking = world.run(graph(node("a", "checkpoint")))
    asked_ms = world.clock.wall_ms
    asking.ask()
    asking.leave()
    world.clock.forward(5)
    unknown = world.run(graph(node("a", "action", effect=MANUAL)))
    unknown.gone()
    paused = world.start(linear(1))
    world.pause(paused)
    world.start(linear(1))
    counts = world.do(daemon_counts, None)
    assert counts.runs == {"completed": 1, "waiting": 1, "ambiguous": 1, "paused": 1, "queued": 1}
    assert counts.held == {"effect_ambiguous": 1, "paused": 1}
    assert (counts.requests_open, counts.request_oldest_ms, counts.effects_ambiguous) == (1, asked_ms, 1)
    facts = world.do(state_status, None)
    assert facts.rows == {"runs_ever": 5, "runs": 5, "requests_open": 1}
    assert facts.file_bytes == counts.store_bytes


def test_a_paused_question_counts_as_paused(world):
    runner = world.run(graph(node("a", "checkpoint")))
    runner.ask()
    runner.leave()
    world.pause(runner.run_id)
    counts = world.do(daemon_counts, None)
    assert counts.runs == {"paused": 1}
    assert counts.requests_open == 1
