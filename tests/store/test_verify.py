"""`state verify` is clean after everything that pwf does, and names every rule that somebody else has broken."""

import pytest

from pwf.protocol.web import hash_of
from pwf.store import run_rules
from pwf.store import verify as verify_module
from pwf.store.kinds import KINDS
from pwf.store.queries import load_queries
from pwf.store.run_rules import RUN_RULES
from pwf.store.verify import FURTHER, RULES, cheap_violations, verify
from pwf.store.web_tokens import MakeLink, make_link
from tests.store import test_decisions, test_settings
from tests.store.test_control import (
    ambiguous,
    no_progress,
    paused,
    queued,
    running,
    timer,
    waiting,
)
from tests.store.test_fork import failed, fork
from tests.store.test_recovery import settle, take_over
from tests.store.test_retention import prune
from tests.store.world import IDEMPOTENT, MANUAL, graph, linear, node


def ended(world):
    runner = world.run(linear(2))
    runner.finish(1, to="b")
    runner.finish(2)
    runner.leave()
    return runner.run_id


def answered(world):
    """A run whose question is answered, and that is to go on."""
    runner = world.run(graph(node("a", "checkpoint", to="b"), node("b")))
    runner.ask()
    runner.leave()
    world.answer(runner.run_id, 1)
    return runner.run_id


def asked_to_decide(world):
    return test_decisions.ask(world)


def decided(world):
    run_id = test_decisions.ask(world)
    test_decisions.decided(world, run_id, "ship")
    return run_id


def decided_by_link(world):
    run_id = test_decisions.ask(world)
    command = MakeLink(decision=world.request_of(run_id), token_hash=hash_of("t"), actor="client:ann")
    world.do(make_link, command)
    test_decisions.decided(world, run_id, "ship", token="t")
    return run_id


def paused_question(world):
    run_id = waiting(world)
    world.pause(run_id)
    return run_id


def applied(world):
    """A run that goes on after an applied manual effect."""
    runner = world.run(graph(node("a", "action", effect=MANUAL, to="b"), node("b")))
    runner.finish(to="b", settled="applied")
    return runner.run_id


def restarted(world):
    """The third run of a chain of restarts, all of which have ended."""
    first = ended(world)
    made = [first]
    for number in (1, 2):
        more = {"restarted_from": made[-1], "restart_root": first, "restart_no": number}
        runner = world.launch(world.start(linear(1), **more))
        runner.finish()
        runner.leave()
        made.append(runner.run_id)
    return made[-1]


def forked(world):
    """A fork of a run that failed at its second node."""
    return fork(world, failed(world)).run_id


def with_settings(world):
    return test_settings.changed_twice(world).run_id


def large(world):
    """A run whose input is content-addressed."""
    return world.start(linear(1), input="x" * 5_000)


def told(world):
    """A run whose last step was a notice."""
    runner = world.run(graph(node("a", "notify", notice="final")))
    runner.finish("done")
    runner.leave()
    return runner.run_id


EFFECT = "INSERT INTO effects(entity_no, node, visit, type, mode, status, attempts, reserved_wall_ms)"
LEASE = "lease_owner = 'x', lease_token = 'x', lease_boot_id = 'x', lease_until_awake_ms = 1"
ATTEMPT = (
    "INSERT INTO attempts(run_no, attempt, node, visit, tries, status, generation, started_wall_ms,"
    " ended_wall_ms)"
)
REQUEST = (
    "INSERT INTO requests(request_id, run_id, node, visit, attempt, kind, status, created_wall_ms)"
    " VALUES ('r1', :run, 'a', 1, 1, 'checkpoint', 'pending', 1)"
)
NO = "(SELECT run_no FROM runs WHERE run_id = :run)"
SETTING = "INSERT INTO settings(run_no, scope, entry, change, value, changed_wall_ms) VALUES"
OLD = "(SELECT restarted_from FROM runs WHERE run_id = :run)"
QUEUE = f"INSERT INTO run_queue VALUES ({NO}, '{{}}', 0, 1, NULL, NULL, 0)"
RUNNER = (
    "INSERT INTO runners(entity_no, generation, epoch, state, created_wall_ms)"
    f" VALUES ({NO}, 1, {{}}, 'launching', 1)"
)
OWN = f"UPDATE entities SET {LEASE} WHERE entity_no = {NO}"
DISOWN = "UPDATE entities SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL"

#: rule, a clean state, what somebody does to it behind everybody's back
PLANTED = [
    ("ended_open", ended, QUEUE.format("ready")),
    ("ended_open", ended, REQUEST),
    ("ended_open", ended, f"{ATTEMPT} VALUES ({NO}, 3, 'b', 2, 1, 'active', 1, 1, NULL)"),
    ("ended_open", ended, OWN),
    ("ended_open", ended, RUNNER.format(0)),
    (
        "ended_open",
        ended,
        f"{EFFECT} VALUES ({NO}, 'a', 1, 't', 'manual', 'applying', 1, 1)",
    ),
    ("notice_empty", told, f"UPDATE attempts SET output = NULL, output_crc32 = NULL WHERE run_no = {NO}"),
    ("running_unowned", running, f"DELETE FROM run_queue WHERE run_no = {NO}"),
    ("running_unowned", running, f"DELETE FROM runners WHERE entity_no = {NO}"),
    ("running_unowned", running, f"UPDATE runners SET generation = 9 WHERE entity_no = {NO}"),
    ("running_unowned", running, f"{DISOWN} WHERE entity_no = {NO}"),
    ("queued_undue", queued, f"DELETE FROM run_queue WHERE run_no = {NO}"),
    ("queued_undue", queued, f"UPDATE run_queue SET state = 'live' WHERE run_no = {NO}"),
    ("queued_undue", queued, OWN),
    ("ready_open", timer, f"UPDATE run_queue SET state = 'ready' WHERE run_no = {NO}"),
    ("queue_misplaced", queued, f"UPDATE run_queue SET is_new = 1 - is_new WHERE run_no = {NO}"),
    ("queue_misplaced", timer, f"UPDATE run_queue SET is_new = 1 - is_new WHERE run_no = {NO}"),
    ("waiting_unasked", waiting, "DELETE FROM requests WHERE run_id = :run"),
    ("waiting_unasked", waiting, QUEUE.format("later")),
    ("waiting_unasked", waiting, OWN),
    ("held_loose", paused, "UPDATE runs SET hold = NULL WHERE run_id = :run"),
    ("held_loose", paused, QUEUE.format("later")),
    ("held_loose", no_progress, REQUEST),
    ("held_loose", paused, OWN),
    ("request_stray", queued, REQUEST),
    ("answer_lost", answered, "UPDATE requests SET attempt = 9 WHERE run_id = :run"),
    ("answer_lost", answered, f"UPDATE attempts SET status = 'failed' WHERE run_no = {NO}"),
    ("request_stray", waiting, "UPDATE requests SET attempt = 2 WHERE run_id = :run"),
    (
        "settings_stray",
        queued,
        f"{SETTING} ({NO}, '', 0, 0, x'31', 1)",
    ),
    (
        "settings_stray",
        with_settings,
        f"{SETTING} ({NO}, 'a', 1, 0, x'31', 1)",
    ),
    ("settings_uncounted", with_settings, f"UPDATE settings SET change = 1 WHERE run_no = {NO}"),
    ("settings_uncounted", with_settings, f"DELETE FROM settings WHERE run_no = {NO}"),
    ("decision_unwon", decided, "DELETE FROM answers"),
    (
        "decision_unwon",
        asked_to_decide,
        "INSERT INTO answers SELECT request_id, 1, 'person', 'a', 't', NULL, 'ship', NULL, 1, NULL, 1"
        " FROM requests WHERE run_id = :run",
    ),
    ("decision_misled", decided, "UPDATE answers SET choice = 'revise'"),
    ("link_misled", decided_by_link, "UPDATE web_tokens SET digest = 'other'"),
    ("link_misled", decided_by_link, "UPDATE answers SET channel = 'terminal'"),
    ("clock_misplaced", waiting, "UPDATE requests SET left_ms = 5 WHERE run_id = :run"),
    (
        "clock_misplaced",
        paused_question,
        "UPDATE requests SET left_ms = NULL, deadline_wall_ms = 5 WHERE run_id = :run",
    ),
    ("position_miscounted", queued, "UPDATE runs SET steps = 5 WHERE run_id = :run"),
    ("position_miscounted", queued, "UPDATE runs SET visit = 2 WHERE run_id = :run"),
    ("position_miscounted", queued, "UPDATE runs SET node = 'b' WHERE run_id = :run"),
    (
        "entries_miscounted",
        queued,
        'UPDATE runs SET entries = CAST(\'{"m":{"m.a":2}}\' AS BLOB) WHERE run_id = :run',
    ),
    ("attempts_miscounted", running, "UPDATE runs SET attempts = 2 WHERE run_id = :run"),
    ("attempts_miscounted", ended, f"UPDATE attempts SET attempt = 7 WHERE run_no = {NO} AND attempt = 2"),
    ("history_broken", queued, f"DELETE FROM events WHERE entity_no = {NO}"),
    ("history_broken", ended, f"UPDATE entities SET revision = revision + 1 WHERE entity_no = {NO}"),
    ("ambiguous_loose", ambiguous, "UPDATE runs SET hold = 'paused' WHERE run_id = :run"),
    ("step_repeated", ended, f"{ATTEMPT} VALUES ({NO}, 3, 'a', 1, 1, 'completed', 1, 1, 1)"),
    ("manual_repeated", applied, f"UPDATE attempts SET status = 'failed' WHERE run_no = {NO} AND node = 'a'"),
    ("manual_repeated", applied, f"{ATTEMPT} VALUES ({NO}, 3, 'a', 1, 2, 'completed', 1, 1, 1)"),
    (
        "effect_unsettled",
        applied,
        f"UPDATE effects SET status = 'applying', settled_wall_ms = NULL WHERE entity_no = {NO}",
    ),
    (
        "effect_left",
        applied,
        f"UPDATE effects SET status = 'ambiguous', settled_wall_ms = NULL WHERE entity_no = {NO}",
    ),
    ("detail_stray", ended, "UPDATE runs SET hold_detail = 'x' WHERE run_id = :run"),
    ("probe_stray", ended, f"INSERT INTO agent_limits VALUES ('a', 1, 0, {NO}, 1)"),
    ("budget_stray", ended, f"INSERT INTO run_budgets(run_no, over_day) VALUES ({NO}, 1)"),
    (
        "work_stray",
        ended,
        f"INSERT INTO agent_work VALUES ({NO}, 99, 'coder', NULL, NULL, 0, 0, 0)",
    ),
    ("effect_unattempted", applied, f"UPDATE effects SET visit = 7 WHERE entity_no = {NO}"),
    (
        "effect_mixed",
        applied,
        "INSERT INTO effects(entity_no, node, visit, part, type, mode, status, attempts, request, request_crc32,"
        " fingerprint, reserved_wall_ms, settled_wall_ms)"
        f" VALUES ({NO}, 'a', 1, 'p', 't', 'manual', 'applied', 1, CAST('1' AS BLOB), 2212294583, 'f', 1, 1)",
    ),
    ("effect_early", applied, f"UPDATE effects SET generation = 9 WHERE entity_no = {NO}"),
    ("active_stray", running, f"UPDATE attempts SET node = 'b' WHERE run_no = {NO}"),
    ("counts_wrong", queued, "UPDATE run_counts SET runs = 7 WHERE status = 'queued' AND :run <> ''"),
    ("counts_wrong", queued, "DELETE FROM run_counts WHERE :run <> ''"),
    ("runner_stray", running, f"UPDATE runners SET epoch = 0 WHERE entity_no = {NO}"),
    ("restart_orphaned", restarted, "UPDATE runs SET restarted_from = 'gone' WHERE run_id = :run"),
    (
        "restart_early",
        restarted,
        f"UPDATE runs SET status = 'queued', ended_wall_ms = NULL WHERE run_id = {OLD}",
    ),
    ("restart_misrooted", restarted, f"UPDATE runs SET restart_root = {OLD} WHERE run_id = :run"),
    ("restart_misrooted", restarted, "UPDATE runs SET restart_root = NULL WHERE run_id = :run"),
    ("restart_misrooted", queued, "UPDATE runs SET restart_root = 'x' WHERE run_id = :run"),
    ("restart_miscounted", restarted, "UPDATE runs SET restart_no = 3 WHERE run_id = :run"),
    ("restart_miscounted", restarted, "UPDATE runs SET restart_no = 1 WHERE run_id = :run"),
    ("restart_miscounted", queued, "UPDATE runs SET restart_no = 1 WHERE run_id = :run"),
    ("restart_circular", restarted, "UPDATE runs SET restarted_from = :run WHERE restart_root IS NULL"),
    ("restart_circular", queued, "UPDATE runs SET restarted_from = :run WHERE run_id = :run"),
    ("fork_orphaned", forked, "UPDATE runs SET forked_from = 'gone' WHERE run_id = :run"),
    ("fork_circular", forked, "UPDATE runs SET forked_from = run_id WHERE run_id = :run"),
    ("tree_misrooted", forked, "UPDATE runs SET tree_root = 'x' WHERE run_id = :run"),
    ("tree_misrooted", restarted, f"UPDATE runs SET tree_root = {OLD} WHERE run_id = :run"),
    ("tree_misrooted", queued, "UPDATE runs SET tree_root = 'x' WHERE run_id = :run"),
    ("adopted_stray", forked, f"UPDATE attempts SET adopted = 7 WHERE run_no = {NO}"),
    ("adopted_stray", forked, f"UPDATE attempts SET output_crc32 = 7 WHERE run_no = {NO}"),
    (
        "adopted_effect",
        forked,
        f"{EFFECT[:-1]}, settled_wall_ms) VALUES ({NO}, 'a', 1, 't', 'manual', 'applied', 1, 1, 1)",
    ),
    ("content_incomplete", large, "UPDATE contents SET complete = 0 WHERE :run <> ''"),
    ("history_stray", queued, "INSERT INTO events VALUES (999, 1, 'x', 'x', 0, 0, x'7b7d')"),
    ("history_stray", queued, RUNNER.replace(NO, "999").format(0)),
    ("custody_unowned", running, f"UPDATE runners SET generation = 9 WHERE entity_no = {NO}"),
    ("entity_bare", queued, "INSERT INTO entities(kind, name, revision) VALUES ('run', 'nobody', 1)"),
    ("kind_unknown", queued, f"UPDATE entities SET kind = 'ghost' WHERE entity_no = {NO}"),
    ("foreign_key", queued, "DELETE FROM definitions WHERE :run <> ''"),
]


#: What is named where it is not the run itself.
SUBJECTS = {"counts_wrong": None, "history_stray": None, "kind_unknown": None, "entity_bare": "nobody"}


@pytest.mark.parametrize(("rule", "state", "damage"), PLANTED)
def test_a_broken_rule_is_named_with_its_run(world, rule, state, damage):
    run_id = state(world)
    world.check()
    connection = world.writer.tx._connection
    for pragma in ("foreign_keys = OFF", "ignore_check_constraints = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    world.checked = False
    world.sql(damage, {"run": run_id})
    found = world.violations()
    subject = SUBJECTS.get(rule, run_id)
    assert (rule, subject) in found, found
    assert all(violation.fix for violation in world.do(verify, world.epoch).violations)


#: What a person types lifts every violation that a fix in commands is given for. The others are faults of pwf.
LIFTED = [
    (rule, state, damage)
    for rule, state, damage in PLANTED
    if rule in RUN_RULES
    and RUN_RULES[rule].fix.startswith(("pwf cancel", "restart"))
    and "INTO effects" not in damage  # nobody knows whether that effect happened: its run stays for ever
]


@pytest.mark.parametrize(("rule", "state", "damage"), LIFTED)
def test_the_fix_of_a_violation_lifts_it(world, rule, state, damage):
    run_id = state(world)
    world.checked = False
    connection = world.writer.tx._connection
    connection.execute("PRAGMA ignore_check_constraints = ON").fetchall()
    world.sql(damage, {"run": run_id})
    violations = world.do(verify, world.epoch).violations
    connection.execute("PRAGMA ignore_check_constraints = OFF").fetchall()
    if any(violation.fix.startswith("pwf cancel") for violation in violations):
        world.cancel(run_id)
    take_over(world)
    while settle(world):
        pass
    if any("pwf state prune" in violation.fix for violation in violations):
        world.clock.forward(1)
        prune(world, days=0)
    assert world.violations() == []


CHEAP = [
    planted for planted in PLANTED if planted[0] in RUN_RULES and RUN_RULES[planted[0]].among is not None
]


@pytest.mark.parametrize(("rule", "state", "damage"), CHEAP)
def test_what_breaks_a_cheap_rule_is_seen_by_a_look_at_the_status(world, rule, state, damage):
    run_id = state(world)
    assert world.do(cheap_violations, world.epoch) == ()
    world.writer.tx._connection.execute("PRAGMA ignore_check_constraints = ON").fetchall()
    world.checked = False
    world.sql(damage, {"run": run_id})
    assert (rule, run_id) in {(v.rule, v.run_id) for v in world.do(cheap_violations, world.epoch)}


def test_a_cheap_rule_is_left_out_where_there_are_many_rows_to_look_at(world, monkeypatch):
    monkeypatch.setattr(verify_module, "CHEAP_ROWS", 1)
    for _ in range(2):
        queued(world)
    world.checked = False
    world.sql("DELETE FROM run_queue")
    assert world.do(cheap_violations, 0) == ()


@pytest.mark.parametrize("name", sorted(name for name, rule in RUN_RULES.items() if rule.among is not None))
def test_a_cheap_rule_scans_no_table_that_grows(world, name):
    steps = [row[3] for row in world.sql(f"EXPLAIN QUERY PLAN {RUN_RULES[name].sql}")]
    indexes = ("one_open_request", "effects_unsettled", "runs_by_status")
    assert all(not step.startswith("SCAN") or any(name in step for name in indexes) for step in steps), steps


def test_every_rule_has_a_planted_violation_and_a_query():
    assert {rule for rule, _, _ in PLANTED} >= {*RULES, *RUN_RULES}
    queries = {name for name, _ in load_queries(verify.__globals__["__file__"])}
    assert queries == set(RULES) | {"row_counts", "kinds", "status_counts"}
    assert {name for name, _ in load_queries(run_rules.__file__)} == set(RUN_RULES)


def test_a_violation_says_what_to_do(world):
    run_id = queued(world)
    world.checked = False
    world.sql("DELETE FROM run_queue")
    (violation,) = world.do(verify, 0).violations
    assert violation.run_id == run_id
    assert violation.fix == f"pwf cancel {run_id}, then pwf restart {run_id}"
    world.cancel(run_id)
    world.check()


def test_damage_is_found_by_sqlites_own_check(world):
    for _ in range(50):
        world.start(linear(1))
    world.checked = False
    ((page,),) = world.sql("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_by_status'")
    world.writer.tx._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    world.close()
    path = world.spec.path
    data = bytearray(path.read_bytes())
    start = (page - 1) * 4096
    data[start + 2_000 : start + 4_096] = bytes(2_096)
    path.write_bytes(data)
    world.writer = world.spec.writer()
    assert {rule for rule, _ in world.violations()} == {"integrity"}


def test_a_clean_store_says_what_it_looked_at(world):
    ended(world)
    runner = world.run(graph(node("a", "action", effect=IDEMPOTENT)))
    runner.finish()
    result = world.do(verify, 1)
    assert result.violations == ()
    assert result.checked == {
        "rules": len(RULES) + len(FURTHER) + sum(len(kind.rules) for kind in KINDS.values()),
        "runs": 2,
        "attempts": 3,
        "events": 9,
        "requests": 0,
        "effects": 1,
        "values": 0,
    }


def test_runners_of_this_daemon_are_no_violation(world):
    world.epoch = 7
    running(world)
    world.check()
    world.checked = False
    world.epoch = 8
    assert [rule for rule, _ in world.violations()] == ["runner_stray"]
