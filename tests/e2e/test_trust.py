"""A workflow that others can change, from the command line to the daemon and back."""

from __future__ import annotations

import json

import pytest

from pwf.cli import exits
from tests.e2e.home import Home

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

FLOW = """
flow = Workflow("flow")

@flow.compute
def echo(ctx):
    return ctx.input

flow.graph(echo)
"""


def test_what_others_can_change_is_listed_as_refused_and_neither_checked_drawn_run_nor_restarted(
    home: Home,
) -> None:
    home.workflow("sound", FLOW.replace('"flow"', '"sound"'))
    file = home.workflow("flow", FLOW)
    run_id = home.json("run", "flow")["summary"]["run_id"]
    file.chmod(0o646)

    listed = {line["name"]: line for line in home.json("workflows")["workflows"]}
    assert listed["sound"]["error"] is None
    assert listed["flow"]["error"] == f"the workflow {file} is not trusted: everyone can write it (mode 0646)"
    assert "trusted_folders" in listed["flow"]["hint"]
    assert "not trusted" in home.run("workflows").stdout
    for words in (("run", "flow"), ("graph", "flow"), ("restart", run_id)):
        refused = home.run(*words, "--json", code=exits.UNSOUND)
        assert json.loads(refused.stderr)["error"]["code"] == "untrusted"
    assert home.json("check", "flow", code=exits.NO)["files"][0]["error"]["code"] == "untrusted"

    home.config(f'trusted_folders = ["{home.project}"]\n')  # the daemon goes on as it is

    assert home.json("run", "flow")["summary"]["status"] == "completed"
    home.run("restart", run_id)
