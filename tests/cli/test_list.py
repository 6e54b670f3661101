"""`pwf ls`: what is listed, how it goes on, and that a table stays within the terminal."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from pwf.cli.out import Out
from pwf.errors import NotFound
from pwf.protocol import operations as ops
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def test_ls_filters_and_lists(pwf: Pwf, daemon: FakeDaemon) -> None:
    asked: list[Any] = []

    def runs(request: Any, payload: Any) -> Any:
        asked.append(payload)
        due = samples.summary(run_id="later", status="queued", due_ms=samples.NOW + 3_600_000)
        return ops.RunList(runs=(samples.summary(status="waiting", request_id="q1"), due), next_cursor=9)

    daemon.on("run.list", runs)
    result = pwf("ls", "--status", "waiting", "--status", "queued", "--workflow", "release", "--limit", "2")
    assert asked[0] == ops.RunListPayload(statuses=("waiting", "queued"), workflow="release", limit=2)
    lines = result.out.splitlines()
    assert lines[0].split() == ["RUN", "WORKFLOW", "STATUS", "NODE", "AGE", "NOTE"]
    assert samples.RUN in lines[1]
    assert "request q1" in lines[1]
    assert "due in" in lines[2]
    assert "there are more" in result.err
    assert len(pwf("ls", "--json").json["runs"]) == 2


def test_a_table_stays_in_the_width_at_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [["k3v9x2m4p7qa", "a-long-workflow (and its title)", "completed", "node", "a note of some length"]]
    heads = ["RUN", "WORKFLOW", "STATUS", "NODE", "NOTE"]
    for width in (40, 60, 100):
        monkeypatch.setattr(Out, "width", width)
        Out(as_json=False).table(heads, rows)
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) == 2
        assert max(map(len, shown)) <= width
    assert shown[1].endswith("a note of some length")


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pwf", "version"], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.startswith("pwf ")


def test_a_list_goes_on_where_its_page_ended(pwf: Pwf, daemon: FakeDaemon) -> None:
    asked: list[Any] = []

    def runs(request: Any, payload: Any) -> Any:
        asked.append(payload.cursor)
        return ops.RunList(runs=(samples.summary(),), next_cursor=None if payload.cursor else 9)

    daemon.on("run.list", runs)
    assert "go on with --cursor 9" in pwf("ls").err
    assert pwf("ls", "--cursor", "9").err == ""
    assert asked == [None, 9]


def test_runs_are_listed_by_the_name_of_their_file_as_well(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("workflow.describe", lambda request, payload: samples.described(name="the-release"))
    daemon.on(
        "run.list",
        lambda request, payload: ops.RunList(
            runs=(samples.summary(),) if payload.workflow == "the-release" else ()
        ),
    )
    assert samples.RUN in pwf("ls", "--workflow", "release").out
    daemon.on("workflow.describe", lambda request, payload: NotFound("no such workflow"))
    assert pwf("ls", "--workflow", "relaese").err == "no such runs\n"


def test_a_list_that_is_as_long_as_it_may_be_says_so(pwf: Pwf, daemon: FakeDaemon) -> None:
    two = (samples.request(), samples.request(request_id="q2"))
    daemon.on("request.list", lambda request, payload: ops.RequestList(requests=two))
    assert "only 2 are shown; see more with --limit N" in pwf("requests", "--limit", "2").err
    assert "are shown" not in pwf("requests").err
