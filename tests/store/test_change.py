"""A change of a run: fenced before, saved after, one event for each counted revision, and nothing when it fails."""

from pathlib import Path

import pytest

import pwf.store
from pwf.errors import ClaimLost, Conflict
from pwf.store import moves, place
from pwf.store.change import Change, changing
from pwf.store.state import load_run
from tests.store.world import linear


@pytest.fixture
def started(world):
    """A started run, as a function of a transaction that loads it."""
    run_id = world.start(linear(2))
    return lambda tx, _=None: load_run(tx, run_id)


def test_a_change_is_fenced_saved_and_has_its_event(world, started):
    def act(tx, _):
        run = started(tx)
        with changing(tx, run, expected_revision=run.revision):
            place.hold(tx, run, "paused")
            moves.note(tx, run, "paused", "test", {})

    world.do(act)
    run = world.do(started)
    assert (run.status, run.hold, run.revision) == ("held", "paused", 2)


def test_a_change_without_an_event_is_a_fault_of_ours(world, started):
    def act(tx, _):
        with changing(tx, started(tx)):
            pass

    with pytest.raises(AssertionError, match="without an event"):
        world.do(act)


@pytest.mark.parametrize(
    ("facts", "error"),
    [({"expected_revision": 7}, Conflict), ({"generation": 7}, ClaimLost), ({"token": "x"}, ClaimLost)],
)
def test_nothing_is_written_behind_a_fence_that_is_not_passed(world, started, facts, error):
    before = world.dump()

    def act(tx, _):
        with changing(tx, started(tx), **facts):
            raise AssertionError("the block must not be entered")

    with pytest.raises(error):
        world.do(act)
    assert world.dump() == before


def test_a_change_that_writes_nothing_saves_nothing(world, started):
    before = world.dump()

    def act(tx, _):
        run = started(tx)
        with Change(tx, run):
            run.node = "elsewhere"

    world.do(act)
    assert world.dump() == before


def test_writes_of_one_command_are_counted_one_by_one(world, started):
    def act(tx, _):
        run = started(tx)
        with Change(tx, run) as change:
            for _ in range(3):
                change.write()
                moves.note(tx, run, "counted", "test", {})

    world.do(act)
    assert world.do(started).revision == 4
    assert [row[0] for row in world.sql("SELECT revision FROM events WHERE kind = 'counted'")] == [2, 3, 4]


def test_a_loaded_run_is_written_by_no_other_way():
    """`broken` parks a run that can't be loaded; the daemon's entity, submissions and resources are no runs."""
    files = Path(pwf.store.__path__[0]).glob("*.py")
    assert {file.stem for file in files if "tx.fence(" in file.read_text()} == {
        "broken",
        "change",
        "daemon",
        "resource_broken",
        "resource_state",
        "resources",
        "retention",
        "submission_kind",
        "submissions",
    }
