"""Due times and admission: timers fire once, whatever the clocks do; the cost does not grow with the backlog."""

import apsw
import pytest

from pwf.ids import Ids
from pwf.store.batch import Job
from pwf.store.database import open_reader
from pwf.store.queue import Admit, admit, look
from pwf.store.queue import Q as QUEUE
from pwf.store.runs import start_run
from pwf.store.tx import Tx
from tests.store.world import graph, linear, node

DAY_MS = 86_400_000
WAIT = graph(node("nap", "wait", to="after"), node("after"))


def park(world, flow=WAIT, **time):
    """A run whose timer is set, its runner gone."""
    runner = world.run(flow)
    assert runner.wait(**time) == "park"
    runner.leave()
    return runner.run_id


def test_a_timer_takes_no_process_and_fires_once(world):
    run_id = park(world, delay_ms=5_000)
    row = world.row(run_id)
    assert (row["status"], row["lease_token"]) == ("queued", None)
    assert world.sql("SELECT * FROM runners") == []
    assert world.admission().next_in_ms == 5_000
    world.clock.forward(5_000)
    due_ms = world.clock.wall_ms
    runner = world.launch(run_id)
    assert (runner.launch.node, runner.launch.attempt) == ("after", 2)
    assert bytes(runner.launch.past[0].output.json) == b'{"due_ms":%d}' % due_ms
    assert world.admit() == ()
    assert world.trail(run_id) == ["nap.1 completed", "after.1 active"]


def test_a_timer_needs_no_capacity_to_fire(world):
    run_id = park(world, graph(node("nap", "wait")), delay_ms=10)
    world.clock.forward(10)
    assert world.admit(limit=0) == ()
    assert world.status(run_id) == "completed"


@pytest.mark.parametrize("time", [{"delay_ms": 0}, {"delay_ms": -5}, {"wall_ms": 0}, {"wall_ms": 1_000}])
def test_a_time_that_has_passed_fires_at_once(world, time):
    run_id = park(world, **time)
    assert world.admission(limit=0).next_in_ms is None
    assert world.trail(run_id) == ["nap.1 completed"]
    assert world.launch(run_id).launch.node == "after"


def test_an_absolute_timer_follows_the_wall_clock(world):
    run_id = park(world, wall_ms=world.clock.wall_ms + DAY_MS)
    world.clock.elapsed_ms += 2 * DAY_MS
    assert world.admit() == ()
    world.clock.wall_ms += DAY_MS
    assert world.launch(run_id).launch.node == "after"


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_a_relative_timer_does_not_mind_steps_of_the_wall_clock(world, step_ms):
    run_id = park(world, delay_ms=10_000)
    world.clock.wall_ms += step_ms
    assert world.admission().next_in_ms == 10_000
    world.clock.forward(9_999)
    assert world.admit() == ()
    world.clock.forward(1)
    assert world.launch(run_id).launch.node == "after"


@pytest.mark.parametrize("made", ["started", "stepped"])
def test_a_due_run_stays_due_when_the_wall_clock_steps_back(world, made):
    if made == "stepped":
        runner = world.run(linear(2))
        runner.drain = True
        runner.finish(to="b")
        runner.leave()
        run_id = runner.run_id
    else:
        run_id = world.start(linear(1))
    world.pause(run_id)
    world.clock.wall_ms -= DAY_MS
    world.resume(run_id)
    assert world.why(run_id).code == "behind_in_queue"
    world.launch(run_id)


def test_a_timer_counts_the_machines_sleep(world):
    run_id = park(world, delay_ms=10_000)
    world.clock.elapsed_ms += 10_000
    world.clock.wall_ms += 10_000
    assert world.launch(run_id).launch.node == "after"


@pytest.mark.parametrize(("away_ms", "left_ms"), [(4_000, 6_000), (60_000, 0)])
def test_after_a_reboot_a_timer_has_left_what_the_wall_clock_says(world, away_ms, left_ms):
    run_id = park(world, delay_ms=10_000)
    world.reboot(away_ms=away_ms)
    assert world.rebase() == 1
    assert world.rebase() == 0
    if left_ms:
        assert world.admission().next_in_ms == left_ms
        world.clock.forward(left_ms)
    assert world.launch(run_id).launch.node == "after"


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_pause_across_a_reboot_keeps_the_due_time(world, when):
    run_id = park(world, delay_ms=10_000)
    if when in ("before", "both"):
        world.pause(run_id)
    world.reboot(away_ms=4_000)
    world.rebase()
    if when == "both":
        world.resume(run_id)
    if when in ("after", "both"):
        world.pause(run_id)
    world.resume(run_id)
    assert world.admission().next_in_ms == 6_000
    world.clock.forward(6_000)
    assert world.launch(run_id).launch.node == "after"


def test_a_timer_is_not_late_when_the_machine_came_up_with_a_wrong_clock(world):
    run_id = park(world, delay_ms=10_000)
    world.reboot(away_ms=4_000 - 365 * DAY_MS)
    world.rebase()
    assert world.admit() == ()
    world.clock.forward(1_000)
    world.clock.wall_ms += 365 * DAY_MS  # the network says what time it is
    assert world.admission().next_in_ms == 5_000
    world.clock.forward(5_000)
    assert world.launch(run_id).launch.node == "after"


def test_a_timer_that_is_resumed_past_its_time_fires_once(world):
    run_id = park(world, delay_ms=1_000)
    world.pause(run_id)
    world.clock.forward(60_000)
    assert world.admit() == ()
    world.resume(run_id)
    world.resume(run_id)
    assert world.launch(run_id).launch.node == "after"
    assert world.trail(run_id) == ["nap.1 completed", "after.1 active"]


def test_a_timer_fires_after_its_runner_is_killed(world):
    runner = world.run(WAIT)
    runner.wait(delay_ms=1_000)
    world.clock.forward(1_000)
    world.admit(limit=0)  # the timer fires before the runner's end is known
    assert world.status(runner.run_id) == "queued"
    assert world.admit() == ()  # and its process is not proved dead
    runner.gone()
    assert world.launch(runner.run_id).launch.node == "after"


def test_a_start_at_a_time_waits_for_it(world):
    run_id = world.start(linear(1), at_ms=world.clock.wall_ms + 5_000)
    assert world.admission().next_in_ms == 5_000
    assert world.why(run_id).code == "due_later"
    world.clock.forward(5_000)
    world.launch(run_id)


def test_admission_goes_by_priority_then_by_due_time(world):
    flow = linear(1)
    order = []
    for name, priority in (("late", 0), ("first", 5), ("later", 0)):
        world.clock.forward(1)
        order.append(world.start(flow, run_id=name, priority=priority))
    assert [admission.run_id for admission in world.admit()] == ["first", "late", "later"]


def test_admission_takes_what_fits_and_says_that_more_waits(world):
    for _ in range(3):
        world.start(linear(1))
    first = world.admission(2)
    assert (len(first.runs), first.more) == (2, False)


def test_a_full_batch_is_followed_at_once_by_another(world):
    flow = linear(1)
    for _ in range(70):
        world.start(flow)
    world.checked = False
    first = world.admission(100)
    assert (len(first.runs), first.more) == (64, True)
    second = world.admission(36)
    assert (len(second.runs), second.more) == (6, False)


def test_a_run_in_back_off_holds_no_capacity(world):
    flow = graph(node("a", retry=None, timeout_ms=None), name="other")
    runner = world.run(linear(1))
    runner.gone()
    runner = world.launch()
    runner.gone()
    other = world.start(flow)
    assert [admission.run_id for admission in world.admit(1)] == [other]


def test_a_row_that_can_not_be_handled_parks_its_own_run_only(world):
    lost, garbled, good = (park(world, delay_ms=5) for _ in range(3))
    world.sql("UPDATE runs SET node = 'gone' WHERE run_id = :run", {"run": lost})
    world.sql("UPDATE runs SET visits = CAST('{nonsense' AS BLOB) WHERE run_id = :run", {"run": garbled})
    world.clock.forward(5)
    world.checked = False  # it can't be clean any more
    world.launch(good)
    held = world.sql("SELECT run_id, status, hold_detail FROM runs WHERE hold = 'broken' ORDER BY run_no")
    assert [row[:2] for row in held] == [(lost, "held"), (garbled, "held")]
    assert "no node 'gone'" in held[0][2]
    assert world.why(lost).code == "broken"
    world.cancel(lost)
    history = "SELECT count(*), max(revision) FROM events JOIN runs ON run_no = entity_no WHERE run_id = :run"
    for run_id in (lost, garbled):
        assert len(set(world.sql(history, {"run": run_id})[0])) == 1  # what was undone left no gap


def test_a_ready_row_that_can_not_be_admitted_parks_its_own_run_only(world):
    bad, good = world.start(linear(1)), world.start(linear(1))
    world.checked = False
    lease = (
        "lease_owner = 'x', lease_token = 'x', lease_boot_id = 'boot-1', lease_until_awake_ms = 1000000000"
    )
    world.sql(
        f"UPDATE entities SET {lease} WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :id)",
        {"id": bad},
    )
    assert [admission.run_id for admission in world.admit()] == [good]
    assert world.row(bad)["hold"] == "broken"


def test_looking_changes_nothing_and_agrees_with_admission(world):
    parked = park(world, delay_ms=3_000)
    answer = world.do(look, None)
    assert (answer.due_now, answer.next_in_ms) == (False, 3_000)
    world.clock.forward(3_000)
    assert world.do(look, None).due_now is True
    world.launch(parked)
    assert world.do(look, None).due_now is False


def test_only_a_start_that_is_due_before_all_others_wakes_who_waits_for_the_nearest(world):
    def wakes(at_ms):
        command = world.start_command(linear(1), at_ms=at_ms)
        return "queue" in world.writer.run([Job(start_run, command)]).changed

    now = world.clock.wall_ms
    assert wakes(now + 5_000)
    assert not wakes(now + 6_000)
    assert wakes(now + 4_000)
    assert wakes(now)
    assert world.admission(limit=0).next_in_ms == 4_000


# --- S4: cost -------------------------------------------------------------------------------------------------

# Runs straight into the tables, as many as it takes. `n` counts them.
BACKLOG = {
    "entities": "INSERT INTO entities(kind, name, revision) SELECT 'run', id, 1 FROM n ORDER BY i",
    "runs": """INSERT INTO runs(run_no, run_id, workflow, definition_id, environment_id, status, node, visit, visits,
        due_wall_ms, input, created_wall_ms)
      SELECT entity_no, id, 'flow', :definition, (SELECT environment_id FROM environments), 'queued', 'a', 1,
        CAST('{"a":1}' AS BLOB), :due, CAST('null' AS BLOB), 1
      FROM n JOIN entities ON name = id""",
    "run_queue": """INSERT INTO run_queue SELECT run_no, :state, 0, :due + i, NULL, NULL, 1
      FROM n JOIN runs ON run_id = id""",
}
NUMBERS = """WITH RECURSIVE counter(i) AS (SELECT :low UNION ALL SELECT i + 1 FROM counter WHERE i < :high),
  n(i, id) AS (SELECT i, printf('%s%07d', :state, i) FROM counter)
"""


def add_backlog(world, definition_id, state, low, high, due_wall_ms):
    facts = {"state": state, "low": low, "high": high}
    for table, insert in BACKLOG.items():
        more = {"definition": definition_id} if table == "runs" else {}
        more |= {} if table == "entities" else {"due": due_wall_ms}
        world.sql(NUMBERS + insert, facts | more)


class Steps:
    """Counts the virtual machine's instructions of a connection, in tens."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.count = 0
        self._connection = connection

    def _tick(self) -> bool:
        self.count += 1
        return False

    def of(self, act) -> int:
        before = self.count
        self._connection.set_progress_handler(self._tick, 10)
        act()
        self._connection.set_progress_handler(None)
        return self.count - before


@pytest.mark.rest
def test_the_cost_of_an_admission_is_flat_whatever_the_backlog(world):
    definition_id = world.define(linear(1))
    world.cancel(world.start(linear(1)))
    world.checked = False
    steps = Steps(world.writer.tx._connection)
    command = Admit(limit=1, epoch=1, owner="daemon:1", lease_ms=30_000)
    costs, done = [], 0
    for backlog in (1_000, 100_000):
        add_backlog(world, definition_id, "later", done + 1, backlog, world.clock.wall_ms + DAY_MS)
        add_backlog(world, definition_id, "ready", done // 10 + 1, backlog // 10, 0)
        done = backlog
        costs.append([steps.of(lambda: world.do(admit, command)) for _ in range(5)])
        costs[-1].append(steps.of(lambda: world.do(look, None)))
    small, large = costs
    assert max(large) <= max(small) * 1.25 + 5, costs


@pytest.mark.parametrize(
    "name", ["due_by_wall", "due_by_elapsed", "next_by_wall", "next_by_elapsed", "going_on", "new_starts"]
)
def test_admission_reads_the_queue_by_an_index_of_just_those_rows(world, name):
    sql = dict(QUEUE)[name]
    params = {"is_new": 0, "wall_ms": 1, "elapsed_ms": 1, "limit": 1}
    plan = [row[3] for row in world.sql("EXPLAIN QUERY PLAN " + sql, params)]
    assert plan
    for line in plan:
        # A partial index holds only the rows of that state: reading it in order until the limit is no scan.
        assert (
            not line.startswith("SCAN") or "INDEX run_queue_going_on" in line or "INDEX run_queue_new" in line
        ), plan
        assert "TEMP B-TREE" not in line, plan
    reader = open_reader(world.spec.path)
    tx = Tx(reader, now=world.clock.now(), ids=Ids())
    assert look(tx, None).due_now is False  # and the reader's connection may ask it
    reader.close()


def test_what_is_due_at_a_time_waits_to_the_millisecond(world):
    start = world.start(linear(1), at_ms=world.clock.wall_ms + 1_000)
    runner = world.run(graph(node("nap", "wait")))
    runner.wait(wall_ms=world.clock.wall_ms + 1_000)
    runner.leave()
    world.clock.forward(999)
    assert world.admit() == ()
    assert (world.status(start), world.trail(runner.run_id)) == ("queued", ["nap.1 active"])
    world.clock.forward(1)
    assert [admission.run_id for admission in world.admit()] == [start]
    assert world.trail(runner.run_id) == ["nap.1 completed"]
