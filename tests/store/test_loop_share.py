"""The loop's share, the rule: which commands are short, and when the disk is fast. `test_loop_batches` runs by it."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pwf.actors
from pwf.store.at_run import AtRun, at_run
from pwf.store.batch import Job
from pwf.store.control import cancel
from pwf.store.loop_share import (
    APART_S_MIN,
    COMMITS_SEEN,
    HELD_S_MAX,
    LONG,
    PROBE_S_MAX,
    SHORT,
    Pace,
    is_short,
)
from tests.store.support import put

# --- the tables -----------------------------------------------------------------------------------------------


def written() -> Iterator[tuple[str, object]]:
    """Every command of the daemon: what is handed to the store's `write`, or to `AtRun`, by its name."""
    for found in pkgutil.walk_packages(pwf.actors.__path__, "pwf.actors."):
        module = importlib.import_module(found.name)
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] in {"write", "write_along", "_write"}:
                yield f"{found.name}: {ast.unparse(node.args[0])}", named(module, node.args[0])
            if called == "_control":
                yield f"{found.name}: {ast.unparse(node.args[2])}", named(module, node.args[2])
            if called == "_drop":
                yield f"{found.name}: {ast.unparse(node.args[1])}", named(module, node.args[1])


def named(module, argument) -> object:
    try:
        value = eval(ast.unparse(argument), vars(module))
    except (NameError, AttributeError, TypeError):
        return None
    return value if inspect.isfunction(value) and value.__module__.startswith("pwf.store.") else None


def test_every_command_is_classified():
    found = {name: handler for name, handler in written() if handler is not None}
    handlers = set(found.values()) - {at_run}
    assert len(handlers) > 20, "the search finds them"
    assert not {name for name, handler in found.items() if handler in handlers - SHORT - LONG}


def test_no_command_is_both_short_and_long():
    assert not SHORT & LONG


def test_what_is_done_at_a_run_counts_as_what_it_does():
    assert is_short(Job(at_run, AtRun("r", cancel, str)))
    assert not is_short(Job(at_run, AtRun("r", put, str)))


def test_a_command_that_nobody_knows_is_not_short():
    assert not is_short(Job(put, "a"))


# --- the pace -------------------------------------------------------------------------------------------------


def paced(*took: float, pace: Pace | None = None, now: float = 100.0) -> Pace:
    pace = pace or Pace()
    for one in took:
        pace.note(one, now)
    return pace


FAST_S = PROBE_S_MAX / 8
FAST = [FAST_S] * COMMITS_SEEN
SLOW = [2 * PROBE_S_MAX] * COMMITS_SEEN


def in_loop() -> Pace:
    """One that has made a probe there."""
    return paced(*FAST, FAST_S)


def test_commits_are_made_in_the_loop_after_so_many_elsewhere():
    assert not paced(*FAST[1:]).in_loop
    assert paced(*FAST).in_loop


def test_a_busy_loop_that_makes_commits_elsewhere_look_slow_does_not_keep_a_fast_disk_apart():
    pace = paced(HELD_S_MAX * 2, pace=in_loop(), now=100.0)
    waits_for_the_interpreter_lock = [0.005] * COMMITS_SEEN
    paced(*waits_for_the_interpreter_lock, pace=pace, now=100.0 + APART_S_MIN)
    assert pace.in_loop
    assert paced(*FAST, pace=pace).in_loop


def test_a_slow_disk_holds_the_loop_for_one_commit_a_second():
    now, probes = 100.0, 0
    pace = Pace()
    for _ in range(1_000):
        probes += pace.in_loop
        now += SLOW[0]
        paced(SLOW[0], pace=pace, now=now)
    assert 0 < probes <= 1 + (now - 100.0) / APART_S_MIN


def test_a_disk_that_hangs_is_not_tried():
    assert not paced(*[HELD_S_MAX] * (10 * COMMITS_SEEN)).in_loop


def test_a_few_slow_commits_do_not_keep_a_fast_disk_apart():
    assert paced(0.05, *FAST[2:], 0.05).in_loop


def test_a_disk_that_takes_five_milliseconds_is_left_after_four_commits():
    pace = in_loop()
    assert paced(0.005, 0.005, 0.005, pace=pace).in_loop
    assert not paced(0.005, pace=pace).in_loop


def test_a_commit_that_hangs_is_the_last_one_in_the_loop():
    assert not paced(HELD_S_MAX * 2, pace=in_loop()).in_loop


def test_a_slow_commit_now_and_then_is_borne():
    pace = in_loop()
    for _ in range(20):
        paced(0.010, *FAST, pace=pace)
    assert pace.in_loop


def test_a_disk_that_is_fast_again_is_trusted_after_a_while():
    pace = paced(HELD_S_MAX * 2, pace=in_loop(), now=100.0)
    paced(*FAST, *FAST, pace=pace, now=100.0 + APART_S_MIN / 2)
    assert not pace.in_loop
    paced(FAST_S, pace=pace, now=100.0 + APART_S_MIN)
    assert pace.in_loop
