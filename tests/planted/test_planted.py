"""Every planted bug still has its place, and the harness says what catches one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.__main__ import ALL, ROOT, by_unit_test, plant
from tests.planted.bugs import BUGS

CAUGHT = next(bug for bug in BUGS if bug.name == "the fence forgets the token")


def test_a_planted_bug_has_its_place_and_its_tests():
    lost = [bug for bug in ALL if (ROOT / bug.file).read_text(encoding="utf-8").count(bug.old) != 1]
    assert [f"{bug.file}: {bug.name}" for bug in lost] == []
    assert [bug.name for bug in ALL if bug.old == bug.new] == []
    assert [name for bug in ALL for name in bug.tests if not (ROOT / "tests" / name).exists()] == []


def test_the_names_of_bugs_differ_and_there_are_forty():
    assert len({bug.name for bug in ALL}) == len(ALL) >= 40


@pytest.mark.rest
def test_the_harness_names_the_unit_test_that_catches_a_bug(tmp_path: Path):
    plant(CAUGHT, tmp_path)
    assert "test_tx.py" in by_unit_test(CAUGHT, tmp_path)
