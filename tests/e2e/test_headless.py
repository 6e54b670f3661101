"""A run with an agent of its own: configured, named at the start, executed, and stopped like any other step."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.home import Home, wait_for
from tests.e2e.test_agents import REVIEW
from tests.e2e.world import PATIENCE_S, lines

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

PROGRAM = """
import json, os, sys, time
prompt = sys.stdin.read()
folder = os.path.dirname(os.path.abspath(__file__))
with open(folder + "/begun", "a") as file:
    file.write(f"{os.getpid()}\\n")
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
print(json.dumps({"verdict": "ship", "why": prompt.splitlines()[0]}))
"""


# An agent with a conversation, which has used something as soon as it has begun.
SPOKEN = """
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
file = folder + "/conversation"
def send(**message):
    print(json.dumps(message), flush=True)
def said(text):
    usage = {"input": 100, "output": 20, "cost": {"total": 0.5}}
    send(type="message_end", message={"role": "assistant", "content": [{"type": "text", "text": text}], "usage": usage})
for line in sys.stdin:
    asked = json.loads(line)
    data = {"sessionFile": file} if asked["type"] == "get_state" else {}
    send(type="response", id=asked["id"], success=True, data=data)
    if asked["type"] in ("switch_session", "prompt"):
        with open(file, "a") as kept:
            kept.write(asked["type"] + "\\n")
    if asked["type"] == "prompt":
        said("working")
        with open(folder + "/begun", "a") as begun:
            begun.write(f"{os.getpid()}\\n")
        while not os.path.exists(folder + "/go"):
            time.sleep(0.01)
        said('{"verdict": "ship"}')
        send(type="agent_end")
"""


@pytest.fixture
def agent(home: Home) -> Path:
    """The folder of an agent that waits for a file `go` in it."""
    folder = home.project / "agent"
    folder.mkdir()
    (folder / "agent.py").write_text(PROGRAM)
    command = json.dumps([sys.executable, str(folder / "agent.py")])
    spoken = json.dumps([sys.executable, str(folder / "spoken.py")])
    (folder / "spoken.py").write_text(SPOKEN)
    home.config(
        f"[agents.coder]\ncommand = {command}\n[agents.gone]\ncommand = ['no-such-program']\n"
        f"[agents.pi]\ncommand = {spoken}\nadapter = 'pi-rpc'\n"
        "[agents.broke]\ncommand = ['sh', '-c', 'echo usage limit reached >&2; exit 1']\naccount = 'team'\n"
    )
    home.workflow("agent_review", REVIEW)
    return folder


def test_an_agent_does_a_runs_steps_and_a_start_that_names_nobody_says_what_to_type(
    home: Home, agent: Path
) -> None:
    (agent / "go").touch()
    refused = home.run("run", "agent_review", "--set", "version=3", code=None)
    assert refused.returncode == 4
    assert "has steps for an agent (review), and nobody was named" in refused.stderr
    assert "known are: coder, gone, pi, broke, person" in refused.stderr
    assert "--session ID (pwf sessions lists them)" in refused.stderr
    unknown = home.run("run", "agent_review", "--agent", "nobody", code=3)
    assert "there is no agent 'nobody'" in unknown.stderr
    assert "add [agents.nobody] to " in unknown.stderr
    listed = {one["name"]: one["found"] for one in home.json("agents")["agents"]}
    assert (listed["coder"], listed["gone"]) == (sys.executable, None)

    done = home.run("run", "agent_review", "--set", "version=3", "--agent", "coder")

    assert '"ship"' in done.stdout
    assert len(lines(agent / "begun")) == 1
    failed = home.run("run", "agent_review", "--set", "version=3", "--agent", "gone", code=1)
    assert "agent 'gone' could not be started" in failed.stdout + failed.stderr
    for verb in ("retry", "restart"):
        again = home.json(verb, "@last-failed", "--agent", "coder")["run_id"]
        assert home.wait_status(again, "completed", seconds=PATIENCE_S) == "completed"


def test_when_the_daemon_dies_the_old_agent_is_dead_before_another_one_gets_the_step(
    home: Home, agent: Path
) -> None:
    run_id = home.start("agent_review", "--set", "version=3", "--agent", "pi")
    wait_for(lambda: (home.json("show", run_id).get("usage") or {}).get("input_tokens") == 100, PATIENCE_S)

    home.kill_daemon()
    home.status(run_id)
    wait_for(lambda: len(lines(agent / "begun")) == 2, PATIENCE_S)

    old, new = (int(line) for line in lines(agent / "begun"))
    assert not Path(f"/proc/{old}").exists()
    assert Path(f"/proc/{new}").exists()
    (agent / "go").touch()
    assert home.wait_status(run_id, "completed", seconds=PATIENCE_S) == "completed"
    assert home.steps(run_id) == [("review", "interrupted"), ("review", "completed"), ("done", "completed")]
    # The conversation went on, and what was used is counted once for each time that it was.
    assert lines(agent / "conversation") == ["prompt", "switch_session", "prompt"]
    view = home.json("show", run_id)
    assert [(step["work"]["conversation"], step["work"].get("afresh")) for step in view["steps"][:2]] == [
        (str(agent / "conversation"), None)
    ] * 2
    assert view["usage"] == {"input_tokens": 300, "output_tokens": 60, "cost_micros": 1_500_000}
    assert "(300 tokens read, 60 written, $1.5000)" in home.run("show", run_id).stdout


def test_a_run_waits_for_a_usage_limit_and_is_held_for_its_budget_until_a_person_says_more(
    home: Home, agent: Path
) -> None:
    limited = home.start("agent_review", "--set", "version=3", "--agent", "broke")
    wait_for(lambda: home.json("show", limited)["explanation"]["code"] == "limited", PATIENCE_S)
    assert home.steps(limited) == [("review", "limited")]
    (line,) = (one for one in home.json("agents")["agents"] if one["name"] == "broke")
    assert line["limited_until_ms"] > 0

    run_id = home.start("agent_review", "--set", "version=3", "--agent", "pi", "--budget", "tokens=100")
    assert home.wait_status(run_id, "held", seconds=PATIENCE_S) == "held"
    assert "120 tokens of 100" in home.run("explain", run_id).stdout
    refused = home.run("resume", run_id, "--budget", "tokens=many", code=2)
    assert "--budget tokens=100000" in refused.stderr
    (agent / "go").touch()
    home.run("resume", run_id, "--budget", "tokens=1_000")
    assert home.wait_status(run_id, "completed", seconds=PATIENCE_S) == "completed"
    assert lines(agent / "conversation") == ["prompt", "switch_session", "prompt"]
