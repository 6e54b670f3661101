"""What `state verify` finds about managed resources: each rule with a planted violation, each row with damage in it."""

from __future__ import annotations

import pytest

from pwf.store.resource_rules import RESOURCE_RULES
from pwf.store.soundness import ENCODED
from pwf.store.verify import verify
from tests.store.resource_world import Resources
from tests.store.test_children import ensure

TABLES = ("resources", "reconcile_queue", "former_children")

#: rule -> what is planted, after `prepare`: `live` is being reconciled, `idle` is settled, `gone` was deleted
PLANTED = {
    "reconcile_unowned": "DELETE FROM runners WHERE entity_no = :live",
    "resource_owned": "DELETE FROM reconcile_queue WHERE resource_no = :live",
    "resource_kept_back_due": "UPDATE resources SET paused = 1 WHERE resource_no = :due",
    "resource_forgotten": "UPDATE resources SET spec_generation = 2 WHERE resource_no = :idle",
    "resource_gone_open": "INSERT INTO reconcile_queue VALUES (:gone, 'ready', 1, 1, 'boot-1', x'5b5d', 0)",
    "resource_lingers": "UPDATE resources SET deleting_wall_ms = 1, children = 'leave' WHERE resource_no = :idle",
    "child_orphaned": "UPDATE runs SET called_by = :gone, call_key = 'x', call_fingerprint = 'f'",
    "child_stray": "UPDATE runs SET called_by = run_no, call_key = 'x', call_fingerprint = 'f'",
    "child_twice": "UPDATE former_children SET call_key = 'k' WHERE resource_no = :idle",
    "finalizer_stray": "INSERT INTO finalizers VALUES (:gone, 0, 'left')",
}


def prepare(resources: Resources) -> dict[str, int]:
    """One resource in each state, and a run that is the child of the settled one."""
    idle = resources.apply("idle").uid
    reconcile = resources.launch(idle)
    ensure(reconcile)
    reconcile.end()
    gone = resources.apply("gone").uid
    resources.settle(gone)
    resources.delete(gone)
    live = resources.apply("live").uid
    resources.launch(live)
    due = resources.apply("due").uid
    rows = dict(resources.world.sql("SELECT uid, resource_no FROM resources"))
    resources.world.sql(
        "INSERT INTO former_children(resource_no, call_key, call_fingerprint, run_no, run_id, workflow, status,"
        " restart_no, created_wall_ms, ended_wall_ms) VALUES (:idle, 'past', 'f', 1, 'r1', 'flow', 'failed', 0, 1, 1)",
        {"idle": rows[idle]},
    )
    return {"idle": rows[idle], "gone": rows[gone], "live": rows[live], "due": rows[due]}


def test_every_rule_has_a_planted_violation():
    assert PLANTED.keys() == RESOURCE_RULES.keys()


@pytest.mark.parametrize("rule", PLANTED)
def test_verify_names_the_resource_that_breaks_a_rule(resources, rule):
    numbers = prepare(resources)
    resources.world.checked = False
    text = PLANTED[rule]
    resources.world.sql(text, {name: number for name, number in numbers.items() if f":{name}" in text})

    found = [one for one in resources.world.do(verify, 1).violations if one.rule == rule]

    assert len(found) == 1, rule
    assert found[0].message
    assert found[0].fix


@pytest.mark.parametrize(("table", "column"), sorted(one for one in ENCODED if one[0] in TABLES))
def test_a_column_that_does_not_decode_is_named_with_its_row(resources, table, column):
    prepare(resources)
    resources.world.checked = False
    resources.world.sql(f"UPDATE {table} SET {column} = x'7b22ff'")

    found = [one for one in resources.world.do(verify, 1).violations if one.rule == "row_damaged"]

    assert found
    assert all(f"of {table} (" in one.message and column in one.message for one in found)
