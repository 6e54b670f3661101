"""`summary`, `plan` and `implement` as a person starts them, with an agent of a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.home import Home

# It does what the beginning of the prompt asks for.
AGENT = """
import json, sys
prompt = sys.stdin.read()
answers = {
    "Sum up": {"headline": "Short", "points": [prompt.strip().splitlines()[2]]},
    "Frame": {"goal": "g", "facts": [], "bounds": [], "done_when": ["d"]},
    "Find": {"candidates": [{"name": n, "idea": "i", "risks": []} for n in "abc"]},
    "Choose": {"name": "b", "why": "w"},
    "Write": {"title": "The plan", "steps": [{"does": "write ok", "verified_by": "test"}]},
    "Do": {"summary": "made it"},
    "Review": {"verdict": "good" if "+The plan" in prompt else "change", "findings": ["write the plan's title"]},
}
if prompt.startswith("Do"):
    open("ok", "w").write("The plan" if '"title": "The plan"' in prompt else "no plan")
print(json.dumps(next(answer for word, answer in answers.items() if prompt.startswith(word))))
"""


@pytest.mark.rest
def test_agents_sum_up_plan_and_implement_from_the_command_line(home: Home) -> None:
    agent = home.home.parent / "agent.py"
    agent.write_text(AGENT)
    home.config(f"[agents.coder]\ncommand = {json.dumps([sys.executable, str(agent)])}\n")
    for words in (
        ["init", "--quiet"],
        ["config", "user.name", "N"],
        ["config", "user.email", "n@example.org"],
        ["add", "--all"],
        ["commit", "--quiet", "--allow-empty", "--message=base"],
    ):
        subprocess.run(["git", *words], cwd=home.project, check=True)

    def done(workflow: str, **given: object) -> Any:
        found = home.json("run", workflow, "--agent", "coder", "--input", json.dumps(given))
        return found["output"]["json"]

    summary = done("summary", command=["echo", "one thing"])
    plan = done("plan", task="Make ok")
    made = done("implement", task="Make ok", verify=["test", "-e", "ok"], decide="auto", commit="Made")

    assert summary == {"headline": "Short", "points": ["one thing"], "cut": False}
    assert home.json("inbox")["notices"][0]["text"] == "Short\n- one thing"
    assert (plan["title"], plan["way"]) == ("The plan", "b")
    assert (made["exit"], made["was"], made["verified"], made["rounds"]) == ("accepted", False, True, 1)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home.project, capture_output=True, text=True, check=True
    )
    assert made["commit"] == head.stdout.strip() != made["base"]
