"""The size of the database: its budget, and giving free pages back."""

import pytest

from pwf.errors import StateFull
from pwf.store.runs import start_run
from pwf.store.space import (
    PAYS_BYTES,
    Space,
    budget_problem,
    compact,
    refuse_over_budget,
    space,
    to_give_back,
)
from tests.store.support import do, put
from tests.store.world import linear

PAGE = 4096


def fill(tx, count):
    for number in range(count):
        tx.run("INSERT INTO meta (key, value) VALUES (:k, :v)", {"k": f"f{number}", "v": "x" * 4_000})


def empty(tx, _):
    tx.run("DELETE FROM meta WHERE key LIKE 'f%'")


def test_free_pages_are_given_back_a_few_at_a_time(writer, spec):
    do(writer, put, "kept")
    do(writer, fill, 500)
    do(writer, empty)
    before = do(writer, space, None)
    assert before.free_pages > 400
    assert do(writer, compact, 100) == 100
    while do(writer, compact, 100):
        pass
    after = do(writer, space, None)
    assert (after.free_pages, after.used_bytes) == (0, after.pages * PAGE)
    assert after.pages < before.pages - 400
    writer.checkpoint(cut=True)
    assert spec.path.stat().st_size == after.pages * PAGE
    assert do(writer, lambda tx, _: tx.one("SELECT value FROM meta WHERE key = 'kept'")) == ("v",)


@pytest.mark.parametrize(
    ("pages", "free", "gives"),
    [
        (100_000, PAYS_BYTES // PAGE - 1, 0),  # too little to be worth it
        (100_000, 19_000, 0),  # a small share of the file
        (100_000, 50_000, 45_000),  # some room is kept for what comes next
        (20_000, 19_000, 18_000),
    ],
)
def test_compaction_is_done_only_when_it_pays(pages, free, gives):
    assert to_give_back(Space(page_bytes=PAGE, pages=pages, free_pages=free)) == gives


def test_on_a_full_disk_every_free_page_is_given_back():
    assert to_give_back(Space(page_bytes=PAGE, pages=1_000, free_pages=3), disk_full=True) == 3


def test_above_the_budget_a_start_is_refused_with_what_to_do_and_leaves_no_trace(world):
    command = world.start_command(linear(1), state_bytes_max=PAGE)
    before = world.dump()
    with pytest.raises(StateFull) as caught:
        world.do(start_run, command)
    assert "max_state_size" in caught.value.message
    assert "pwf state prune" in caught.value.hint
    assert world.dump() == before


def test_above_the_budget_what_was_started_is_adopted_goes_on_and_is_cancelled(world):
    runner = world.run(linear(2), run_id="r1")
    other = world.start(linear(1))
    again = world.start_command(linear(2), run_id="r1", state_bytes_max=PAGE)
    assert world.done(start_run, again).adopted
    assert runner.finish(1, to="b") == "go"
    world.cancel(other)


def test_on_a_full_disk_nothing_is_admitted_timers_fire_and_what_runs_goes_on(world):
    runner = world.run(linear(2))
    world.start(linear(1))
    world.writer.tx.disk_full = True
    assert world.admit() == ()
    assert runner.finish(1, to="b") == "go"
    world.writer.tx.disk_full = False
    assert len(world.admit()) == 1


def test_free_pages_do_not_count_against_the_budget(writer):
    do(writer, fill, 500)
    limit = do(writer, space, None).used_bytes
    with pytest.raises(StateFull):
        do(writer, refuse_over_budget, limit)
    do(writer, empty)
    do(writer, refuse_over_budget, limit)


def test_status_warns_from_eighty_percent_on():
    assert budget_problem(10**9, None) is None
    assert budget_problem(79, 100) is None
    assert "80 %" in budget_problem(80, 100)
    assert "nothing new is started" in budget_problem(120, 100)
