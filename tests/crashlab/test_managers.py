"""A resource manager in the lab: killed at each boundary, it comes to the same end, or the report says to which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.main import main
from pwf.crashlab.managers import Life, ManagerLab
from pwf.crashlab.report import Findings
from pwf.protocol.crashlab import LAB_VARIABLE, LabFolder, ManagerPlan, encode_manager_plan
from pwf.runner.lab.reconcile import reach_of
from tests.workflow.manager_author import given

LEDGER = """
from pathlib import Path
from pwf import ResourceManager, applied, not_applied

manager = ResourceManager("ledger", spec=dict, status=dict)

@manager.reconcile
def reconcile(ctx, resource):
    path = Path(resource.spec["path"])
    if resource.deleting:
        path.unlink(missing_ok=True)
        return ctx.settled(finalizers=[])
    if not resource.finalizers:
        return ctx.requeue(finalizers=["file"])
    def send(request, key):
        with path.open("a") as file:
            file.write("sent\\n")
        return 1
    {send}
    return ctx.settled({{"sent": 1}})
"""
SAFE = (
    "ctx.effects.ensure('one', 'send', None, lambda *_: applied(1) if path.exists() else not_applied(), send)"
)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A reconcile of `lab-1`, and the folder of its lab."""
    folder = LabFolder(tmp_path)
    for name in ("plans", "reached"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(LAB_VARIABLE, str(tmp_path))
    return msgspec.structs.replace(given(), key="lab-1", marker="ours:u1:1"), folder


def test_boundaries_are_counted_over_all_processes_of_a_resource(told: Any) -> None:
    reconcile, folder = told
    folder.plan("lab-1").write_bytes(encode_manager_plan(ManagerPlan(home_id="ours")))
    for _ in range(2):
        reach = reach_of(reconcile)
        reach()
        reach()
    assert folder.passed("lab-1").stat().st_size == 4


def test_a_resource_of_another_home_never_ends_at_a_boundary(told: Any) -> None:
    reconcile, folder = told
    folder.plan("lab-1").write_bytes(encode_manager_plan(ManagerPlan(home_id="theirs", kill_at=1)))
    reach_of(reconcile)()
    assert not folder.passed("lab-1").exists()


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ({"file a": "x", "status.n": 1}, []),
        ({"file a": "y", "status.n": 1}, [("fault", "end_differs")]),
        ({"status.n": 1}, [("fault", "end_differs")]),
        ({"file a": "x", "status.n": 2}, [("note", "status_differs")]),
    ],
)
def test_the_world_must_be_as_without_a_crash_and_another_status_is_told(
    tmp_path: Path, end: dict[str, object], found: list[tuple[str, str]]
) -> None:
    first = Life(1, 0, tmp_path, end={"file a": "x", "status.n": 1, "status.at": 5}, passed=9)
    findings = Findings()
    lab: Any = ManagerLab.__new__(ManagerLab)
    lab._judge(Life(2, 4, tmp_path, end={**end, "status.at": 6}), first, {"file a", "status.n"}, findings)
    assert [(one.severity, one.code) for one in findings.all()] == found


@pytest.mark.rest
@pytest.mark.parametrize(("send", "code"), [(SAFE, exits.OK), ("send(None, '')", exits.NO)])
def test_what_is_done_twice_after_a_crash_is_found_and_an_observed_effect_is_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    send: str,
    code: int,
) -> None:
    resources = tmp_path / "project/.pwf/resources"
    resources.mkdir(parents=True)
    (resources / "ledger.py").write_text(LEDGER.format(send=send))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PWF_HOME", str(tmp_path / "home"))
    words = ("--effects", "real", "--input", '{"path": "{scratch}/sent"}', "--json")
    assert main(["crashlab", "ledger", *words]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["manager"]
    assert report["runner_crashes"] >= 9
    assert {one["code"] for one in report["findings"]} == (set() if code == exits.OK else {"end_differs"})
