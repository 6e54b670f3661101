"""Values of every size: by content, bounded, named when they are too large (S5)."""

from __future__ import annotations

import json

import psutil
import pytest

from tests.e2e.home import Home

MIB = 1024 * 1024

GIVES = """
flow = Workflow("gives", input=dict)

@flow.compute
def small(ctx):
    return "kept"

@flow.compute
def large(ctx):
    return "x" * ctx.input["size"]

@flow.compute
def measured(ctx):
    return len(ctx[large])

flow.graph(small >> large, large >> measured)
"""


def memory(home: Home) -> int:
    return int(psutil.Process(home.pid).memory_info().rss)


def test_a_value_of_twenty_megabytes_is_kept_whole_and_read_back(home: Home) -> None:
    home.workflow("gives", GIVES)
    size = 20 * MIB
    run_id = home.start("gives", "--set", f"size={size}")
    home.wait_status(run_id, "completed", seconds=60)

    view = home.json("show", run_id)
    large = next(step for step in view["steps"] if step["node"] == "large")
    assert large["output"]["size"] == size + 2
    assert "json" not in large["output"] or large["output"]["json"] is None
    assert json.loads(home.run("show", run_id, "--output").stdout) == size
    assert memory(home) < 200 * MIB


@pytest.mark.rest
def test_a_value_above_the_limit_is_an_error_that_names_step_size_and_limit(home: Home) -> None:
    home.workflow("gives", GIVES)
    run_id = home.start("gives", "--set", f"size={300 * MIB}")
    home.wait_status(run_id, "failed", seconds=100)

    view = home.json("show", run_id)
    error = view["error"]
    assert "large" in (error["node"], *error["message"].split())
    assert "67,108,864" in error["message"]
    assert "314,572" in error["message"]
    small = next(step for step in view["steps"] if step["node"] == "small")
    assert small["output"]["json"] == "kept"
    assert memory(home) < 200 * MIB


def test_input_that_is_too_large_is_refused_before_any_row_exists(home: Home) -> None:
    home.workflow("gives", GIVES)
    home.run("start")
    path = home.project / "input.json"
    path.write_text(json.dumps({"size": 1, "more": "x" * (70 * MIB)}))

    refused = home.run("run", "gives", "--input", f"@{path}", "--detach", code=2)

    assert "limit" in refused.stderr
    assert home.json("state", "status")["rows"]["runs_ever"] == 0
