"""Each rule of the auditor's model of daemons' deaths is broken once."""

from __future__ import annotations

import pytest

from tests.sim.blame import DEATHS_MAX
from tests.sim.stage import breaks


def marks(stage, count):
    stage.store.sql("UPDATE runs SET daemon_deaths = :count", {"count": count})


@pytest.mark.parametrize(("died", "count"), [(True, 0), (True, 2), (False, 1)])
def test_a_mark_that_is_missing_or_too_much_is_seen(stage, died, count):
    stage.run()
    stage.auditor.blame.about_to_claim()
    marks(stage, count)
    with breaks("marks of 0"):
        stage.auditor.blame.claimed(died=died, boot_id="b", alone=True)


def test_a_mark_that_survives_another_boot_is_seen(stage):
    stage.auditor.blame.claimed(died=False, boot_id="a", alone=True)
    stage.run()
    marks(stage, 1)
    stage.auditor.blame.about_to_claim()
    with breaks("has 0 marks"):
        stage.auditor.blame.claimed(died=False, boot_id="b", alone=True)


def admitted_with(stage, count):
    """The run begins, and has been marked so often before."""
    stage.store.start(stage.graph)
    stage.look()
    stage.store.admit()
    marks(stage, count)
    stage.look()


def test_a_run_that_is_admitted_beside_one_that_is_to_be_alone_is_seen(stage):
    stage.run()
    stage.store.start(stage.graph)
    stage.store.admit()
    marks(stage, 2)
    with breaks("alone|beside"):
        stage.look()


def test_what_a_daemon_committed_just_before_its_death_is_judged_by_the_marks_of_that_time(stage):
    stage.run()
    stage.store.start(stage.graph)
    stage.store.admit()  # the daemon dies before anybody has looked
    stage.auditor.blame.about_to_claim()
    marks(stage, 2)
    stage.look()


def test_a_run_that_is_admitted_although_daemons_died_over_it_again_and_again_is_seen(stage):
    with breaks("again and again is held"):
        admitted_with(stage, DEATHS_MAX)
