"""A prepared effect in a node: one function for both, under the visit's key, and typed as the request says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pwf.effects.command import RunCommand
from pwf.effects.files import FileWritten, WriteFile
from pwf.errors import Rejected
from pwf.workflow.workflow import Workflow
from tests.runner.peer import MemoryRun, memory_run, run_inline

FILE = "report.txt"


def saving(folder: Path) -> tuple[Workflow[Any], MemoryRun]:
    flow: Workflow[Any] = Workflow("saving")

    @WriteFile.prepared("report")
    def report(ctx: Any) -> WriteFile:
        return WriteFile(path=folder / FILE, data=f"for {ctx.input}")

    @flow.action(effect=report.effect)
    def save(ctx: Any) -> FileWritten:
        return report.apply(ctx)

    return flow, memory_run(flow, input="Ada")


def test_what_was_written_before_the_runner_died_is_found_and_becomes_the_output(tmp_path: Path) -> None:
    flow, first = saving(tmp_path)
    wanted = run_inline(flow, first).output
    flow, again = saving(tmp_path)
    again.observe = "run"
    written = (tmp_path / FILE).stat().st_mtime_ns
    run_inline(flow, again)
    assert (again.status, again.output, again.last.observed) == ("completed", wanted, True)
    assert again.last.effect_ref == wanted["digest"]
    assert (tmp_path / FILE).stat().st_mtime_ns == written, "it was not written again"


def test_what_was_not_written_is_written_by_the_next_runner(tmp_path: Path) -> None:
    flow, run = saving(tmp_path)
    run.observe = "run"
    run_inline(flow, run)
    assert (run.status, (tmp_path / FILE).read_text()) == ("completed", "for Ada")


def test_what_surely_did_not_happen_is_rejected(tmp_path: Path) -> None:
    flow, run = saving(tmp_path / "nowhere")
    run_inline(flow, run)
    assert (run.status, run.last.settled) == ("failed", "rejected")


def test_the_output_is_made_in_the_same_way_of_what_was_applied_and_of_what_was_found(tmp_path: Path) -> None:
    @WriteFile.prepared("report", output=lambda written: {"bytes": written.size})
    def report(ctx: Any) -> WriteFile:
        return WriteFile(path=tmp_path / FILE, data="1234")

    for observe in (None, "run"):
        flow: Workflow[Any] = Workflow("saving")
        flow.action(effect=report.effect, id="save")(report.apply)
        run = memory_run(flow)
        run.observe = observe
        run_inline(flow, run)
        assert (run.output, run.last.observed) == ({"bytes": 4}, observe is not None)


def test_a_request_that_could_not_be_made_has_not_happened(tmp_path: Path) -> None:
    flow: Workflow[Any] = Workflow("saving")

    @WriteFile.prepared("report")
    def report(ctx: Any) -> WriteFile:
        return WriteFile(path=tmp_path / FILE, data=(tmp_path / "token").read_text())

    flow.action(effect=report.effect, id="save")(report.apply)
    run = memory_run(flow)
    run_inline(flow, run)
    assert (run.status, run.last.settled) == ("failed", "rejected")


def test_a_node_that_declares_no_effect_is_told_to(tmp_path: Path) -> None:
    @RunCommand.prepared("run")
    def run(ctx: Any) -> RunCommand:
        return RunCommand(words=["true"], receipts=tmp_path)

    class Nowhere:
        node, effect_key = "n", None

    with pytest.raises(Rejected, match="declares no effect"):
        run.apply(Nowhere())  # type: ignore[arg-type]
