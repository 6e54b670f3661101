"""A database that was copied, restored or put back: a new home id, nothing leased, everything held (section 14)."""

import pytest

from pwf.host.identity import Identity
from pwf.store.daemon import ClaimEpoch, Release, release
from pwf.store.home import ClaimHome, HomeFolder, claim_home, last_owner
from tests.store.world import IDEMPOTENT, MANUAL, OBSERVED, PARTS, graph, linear, node

ASK = graph(node("ask", "checkpoint", to="then"), node("then"))
PLACE = {"device": 1, "inode": 7}
ELSEWHERE = {"device": 1, "inode": 8}


def serve(world, **place):
    """A daemon claims the database there; its home id."""
    command = ClaimHome(claim=ClaimEpoch(token="t", lease_ms=30_000, pid=9, version="x"), **(PLACE | place))
    claimed = world.do(claim_home, command)
    world.epoch = claimed.epoch
    return claimed.home_id


def fact(world, name):
    return world.sql("SELECT value FROM meta WHERE key = :key", {"key": name})[0][0]


@pytest.fixture
def served(world):
    serve(world)
    return world


def test_the_same_folder_is_the_same_home_after_a_reboot_with_other_device_numbers(served):
    first = fact(served, "home_id")
    run_id = served.start(linear(1))
    assert serve(served) == first
    served.reboot()
    assert serve(served, device=99) == first
    assert served.row(run_id)["hold"] is None


def test_another_folder_is_another_home_and_holds_a_queued_a_later_and_a_waiting_run(served):
    first = fact(served, "home_id")
    queued = served.start(linear(1))
    later = served.start(linear(1), at_ms=served.clock.wall_ms + 3_600_000)
    asked = served.launch(served.start(ASK, priority=5))
    asked.ask()
    asked.leave()

    assert serve(served, **ELSEWHERE) != first

    rows = {run_id: served.row(run_id) for run_id in (queued, later, asked.run_id)}
    assert {row["hold"] for row in rows.values()} == {"restored"}
    assert [row["status"] for row in rows.values()] == ["held", "held", "waiting"]
    assert served.admit() == ()
    served.resume(later)
    assert served.why(later).code == "due_later"
    served.answer(asked.run_id, 1)
    assert served.row(asked.run_id)["hold"] == "restored"
    served.resume(asked.run_id)
    served.resume(queued)
    assert {admission.run_id for admission in served.admit()} == {queued, asked.run_id}


def test_a_running_step_of_a_copy_is_interrupted_without_a_signal_and_held(served):
    runner = served.run(linear(2))
    token = served.row(runner.run_id)["lease_token"]
    assert token is not None

    serve(served, **ELSEWHERE)

    row = served.row(runner.run_id)
    assert (row["status"], row["hold"], row["lease_token"]) == ("held", "restored", None)
    assert served.sql("SELECT * FROM runners") == []
    assert served.trail(runner.run_id) == ["a.1 interrupted"]
    served.resume(runner.run_id)
    again = served.launch(runner.run_id)
    assert again.fence.generation > runner.fence.generation


@pytest.mark.parametrize(
    ("effect", "hold"), [(IDEMPOTENT, "restored"), (OBSERVED, "restored"), (MANUAL, "effect_ambiguous")]
)
def test_an_effect_that_was_being_applied_is_never_repeated_blindly_in_a_copy(served, effect, hold):
    runner = served.run(graph(node("send", "action", effect=effect)))
    serve(served, **ELSEWHERE)
    assert served.row(runner.run_id)["hold"] == hold
    if effect is OBSERVED:
        served.resume(runner.run_id)
        assert served.launch(runner.run_id).launch.observe


@pytest.mark.parametrize(("observable", "hold"), [(True, "restored"), (False, "effect_ambiguous")])
def test_each_of_several_effects_of_a_step_stands_by_its_own_key_in_a_copy(served, observable, hold):
    runner = served.run(graph(node("order", "action", effect=PARTS)))
    runner.part("a")
    runner.settle("a")
    for part in ("b", "c"):
        runner.part(part, observable=observable)
    serve(served, **ELSEWHERE)
    assert served.row(runner.run_id)["hold"] == hold
    if not observable:
        assert [status for _, _, status, _ in served.effects(runner.run_id)] == [
            "applied",
            *["ambiguous"] * 2,
        ]
        return
    served.resume(runner.run_id)
    again = served.launch(runner.run_id)
    assert [again.part(part).verdict for part in ("a", "b", "c")] == ["applied", "observe", "observe"]


def test_a_paused_run_of_a_copy_is_held_as_restored_and_one_resume_lifts_both(served):
    run_id = served.start(linear(1))
    served.pause(run_id)
    serve(served, **ELSEWHERE)
    row = served.row(run_id)
    assert (row["hold"], row["pause_requested"]) == ("restored", 0)
    assert "paused" in served.why(run_id).reason
    served.resume(run_id)
    assert served.status(run_id) == "queued"


def test_an_ended_run_of_a_copy_is_as_it_was(served):
    runner = served.run(linear(1))
    runner.finish(1)
    runner.leave()
    before = served.row(runner.run_id)
    serve(served, **ELSEWHERE)
    assert served.row(runner.run_id) == before


def test_a_row_that_can_not_be_handled_does_not_keep_a_copy_from_being_served(served):
    bad, good = served.run(linear(2)).run_id, served.start(linear(1))
    served.checked = False
    served.sql("UPDATE runs SET visits = x'00' WHERE run_id = :run", {"run": bad})

    serve(served, **ELSEWHERE)

    assert served.row(good)["hold"] == "restored"
    assert served.row(bad)["hold"] == "broken"
    assert served.sql("SELECT * FROM runners") == []


@pytest.mark.parametrize("place", ["", "7", "nonsense", "a b c d"])
def test_a_place_that_makes_no_sense_is_another_one(served, place):
    run_id = served.start(linear(1))
    served.sql("UPDATE meta SET value = :place WHERE key = 'home_place'", {"place": place})
    serve(served)
    assert served.row(run_id)["hold"] == "restored"


def test_an_older_copy_that_was_put_back_in_its_own_place_is_noticed(served):
    run_id = served.start(linear(1))
    home_id = fact(served, "home_id")
    # the lock file says that this home has seen two more daemons than the database knows
    assert serve(served, seen_home_id=home_id, seen_epoch=3) != home_id
    assert served.row(run_id)["hold"] == "restored"


def test_what_the_lock_file_says_of_another_home_or_of_an_earlier_daemon_changes_nothing(served):
    run_id = served.start(linear(1))
    home_id = fact(served, "home_id")
    assert serve(served, seen_home_id="another", seen_epoch=99) == home_id
    assert serve(served, seen_home_id=home_id, seen_epoch=2) == home_id
    assert served.row(run_id)["hold"] is None


# --- who serves -----------------------------------------------------------------------------------------------


def owner(world, **place):
    return world.do(last_owner, HomeFolder(**(PLACE | place)))


def test_a_home_that_was_claimed_and_not_given_up_names_the_process_that_claimed_it(world):
    assert owner(world) is None
    claim = ClaimEpoch(token="t", lease_ms=30_000, pid=9, start_tick=77, version="x")
    claimed = world.do(claim_home, ClaimHome(claim=claim, **PLACE))
    world.epoch = claimed.epoch
    boot_id = world.clock.now().boot_id
    assert owner(world) == Identity(pid=9, start_tick=77, boot_id=boot_id, session=0)
    world.do(release, Release(token="t", epoch=claimed.epoch))
    assert owner(world) is None


def test_a_copied_home_and_one_of_an_earlier_boot_name_nobody(served):
    assert owner(served, inode=8) is None
    assert owner(served, device=2) is None
    served.reboot()
    serve(served, inode=8)
    assert owner(served) is None
