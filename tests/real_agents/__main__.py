"""`make agents`: the pi coding agent and an agent of the Agent Client Protocol, as they come from the npm registry.

Each does the steps of a workflow, in a scratch home, with a scripted model on loopback: with a tool that it uses, an
answer that is rejected first, and none, and with a result that it hands in while it works; pi also with a usage limit
with and without a time, and an error. Then pi in a terminal is a session, by the extension of `examples/agents/pi`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect

from tests.e2e.home import Home, wait_for
from tests.real_agents.model_server import PRICE, ModelServer

PACKAGES = ("@earendil-works/pi-coding-agent@0.74.2", "pi-acp@0.0.23")  # these two go together, on node 20
WITHIN_S = 90.0
EXTENSION = Path(__file__).parents[2] / "examples" / "agents" / "pi" / "pwf.js"
SESSION = "pi-sits-here"
WORKFLOW = """
from typing import Literal
import msgspec

flow = Workflow("real_review")

class Review(msgspec.Struct):
    verdict: Literal["ship", "fix"]

@flow.agent(returns=Review)
def review(ctx):
    return "Review it."
"""
READER = WORKFLOW.replace("real_review", "real_read").replace(
    "returns=Review", "returns=Review, tools=('read',)"
)
ACP_CHECKS = (
    "uses a tool, and answers",
    "corrects what was rejected",
    "submits nothing",
    "hands in by a command",
)
GOOD, WRONG = 'text:{"verdict": "ship"}', 'text:{"verdict": "perhaps"}'


def main() -> int:
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        print(f"make agents: {' and '.join(missing)} is missing here: no real agent was driven")
        return 0
    with tempfile.TemporaryDirectory(prefix="pwf-agents-") as folder:
        programs = install(Path(folder))
        with ModelServer().serving() as model:
            home = Home(Path(folder) / "home")
            try:
                configure(home, Path(folder), programs, model)
                return sum(drive(home, model, name) for name in ("pi", "acp")) + sit(home, model)
            finally:
                home.end()


def install(folder: Path) -> Path:
    """Where the programs are."""
    words = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--prefix",
        str(folder),
        *PACKAGES,
    ]
    subprocess.run(words, check=True)
    programs = folder / "node_modules" / ".bin"
    version = subprocess.run([programs / "pi", "--version"], capture_output=True, text=True, check=True)
    print(
        f"pi {(version.stdout or version.stderr).strip()}, with pi-acp in front for the Agent Client Protocol"
    )
    return programs


def configure(home: Home, folder: Path, programs: Path, model: ModelServer) -> None:
    own = folder / "pi-home"
    own.mkdir()
    one = {"id": "scripted", "cost": PRICE}
    provider = {"baseUrl": model.url, "api": "openai-completions", "apiKey": "none", "models": [one]}
    (own / "models.json").write_text(json.dumps({"providers": {"local": provider}}))
    settings = {
        "defaultProvider": "local",
        "defaultModel": "scripted",
        "retry": {"provider": {"maxRetries": 0}},
    }
    (own / "settings.json").write_text(json.dumps(settings))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    home.environment |= {"PI_CODING_AGENT_DIR": str(own), "PI_OFFLINE": "1", "PATH": path}
    home.config(
        "[environment]\npass = ['PI_*']\n"
        "[agents.pi]\nadapter = 'pi-rpc'\ncommand = ['pi', '--provider', 'local', '--model', 'scripted']\n"
        "[agents.acp]\nadapter = 'acp'\ncommand = ['pi-acp']\n"
    )
    home.workflow("real_review", WORKFLOW)
    home.workflow("real_read", READER)


def drive(home: Home, model: ModelServer, agent: str) -> int:
    """How many checks have failed."""

    def run(*acts: str, workflow: str = "real_review") -> Any:
        model.play(*acts)
        run_id = home.start(workflow, "--agent", agent)
        parked = ("completed", "failed", "timed_out", "queued")
        wait_for(lambda: settled(home, run_id, parked), WITHIN_S)
        return home.json("show", run_id)

    def settled(home: Home, run_id: str, parked: tuple[str, ...]) -> bool:
        view = home.json("show", run_id)
        status = view["summary"]["status"]
        return status in parked and (status != "queued" or view["explanation"]["code"] == "limited")

    checks: dict[str, Callable[[], bool]] = {
        "uses a tool, and answers": lambda: told(run("tool:echo hello", GOOD), "completed", model, 2),
        "corrects what was rejected": lambda: told(run(WRONG, GOOD), "completed", model, 2),
        "submits nothing": lambda: failed(run("text:I am thinking about it."), "missing_submission"),
        "meets a limit that says its end": lambda: limited(run("limited"), 3 * 3_600),
        "tries at once when it is resumed": lambda: resumed(home, model),
        "meets a limit that says no end": lambda: limited(run("limited_no_time"), 60),
        "has a model that fails": lambda: (
            bool(resumed(home, model)) and failed(run("broken"), "agent_failed")
        ),
    }
    if agent == "pi":  # pi-acp gives its pi no MCP servers
        hands_in = ('submit:{"verdict": "perhaps"}', 'submit:{"verdict": "ship"}', "text:That is done.")
        checks["hands in by the tool of pwf"] = lambda: told(run(*hands_in), "completed", model, 3)
        checks["has no tool but those of its step"] = lambda: (
            told(run(*hands_in[1:], workflow="real_read"), "completed", model, 2)
            and {one["function"]["name"] for one in model.asked[0]["tools"]} == {"read", "ls", "submit"}
        )
    typed = "tool:$PWF_SUBMIT verdict=ship"
    checks["hands in by a command"] = lambda: told(run(typed, "text:That is done."), "completed", model, 2)
    if agent == "acp":  # pi-acp passes no error of its model on: its turn ends with an empty answer
        checks = {name: check for name, check in checks.items() if name in ACP_CHECKS}
    return checked(agent, checks)


def checked(agent: str, checks: dict[str, Callable[[], bool]]) -> int:
    """Do them in order, and say of each how it went; how many have failed."""
    failures = 0
    for name, check in checks.items():
        began = time.monotonic()
        try:
            fine, why = check(), ""
        except Exception as error:  # noqa: BLE001 - each check is told by itself
            fine, why = False, f"  {error!r}"
        print(
            f"{'ok  ' if fine else 'FAIL'} {agent}: {name} ({time.monotonic() - began:.1f} s){why}",
            flush=True,
        )
        failures += not fine
    return failures


def sit(home: Home, model: ModelServer) -> int:
    """pi in a terminal, as a session of pwf: how many checks have failed."""
    words = ["--provider", "local", "--model", "scripted", "--extension", str(EXTENSION)]
    more = {
        "PWF_SESSION": SESSION,
        "PWF_MCP": f"exec {sys.executable} -m pwf mcp serve",
        "TERM": "xterm-256color",
    }
    terminal = pexpect.spawn(
        "pi",
        words,
        cwd=str(home.project),
        env={**home.environment, **more},
        dimensions=(40, 120),
        timeout=WITHIN_S,
    )
    reader = threading.Thread(
        target=terminal.expect, args=(pexpect.EOF,), kwargs={"timeout": None}, daemon=True
    )
    reader.start()  # else it waits for somebody to read what it draws

    def ended(*acts: str) -> bool:
        model.play(*acts)
        run_id = home.start("real_review", "--session", SESSION)
        return home.wait_status(run_id, "completed", seconds=WITHIN_S) == "completed"

    wrong, good = 'submit:{"verdict": "perhaps"}', 'submit:{"verdict": "ship"}'
    try:
        wait_for(
            lambda: SESSION in [one["session_id"] for one in home.json("sessions")["sessions"]], WITHIN_S
        )
        return checked(
            "pi in a terminal",
            {
                "hands in what was corrected": lambda: ended(wrong, good, "text:That is done."),
                "is told again, and then hands in": lambda: ended(
                    "text:I think.", good, "text:That is done."
                ),
            },
        )
    finally:
        terminal.terminate(force=True)


def told(view: Any, status: str, model: ModelServer, asked: int) -> bool:
    step = view["steps"][-1]
    if view["summary"]["status"] != status:
        raise AssertionError(step.get("error") or view["explanation"])
    return len(model.asked) == asked and bool(step["work"]["conversation"])


def failed(view: Any, code: str) -> bool:
    if view["error"]["code"] != code:
        raise AssertionError(view["error"])
    return True


def limited(view: Any, after_s: float) -> bool:
    if view["explanation"]["code"] != "limited":
        raise AssertionError(view["explanation"])
    left_s = view["summary"]["due_ms"] / 1000 - time.time()
    return after_s - 60 < left_s < after_s + 60


def resumed(home: Home, model: ModelServer) -> bool:
    """Every run that waits for a limit goes on, and ends."""
    model.play(GOOD)
    waiting = [run["run_id"] for run in home.json("ls", "--status", "queued")["runs"]]
    for run_id in waiting:
        home.run("resume", run_id)
        home.wait_status(run_id, "completed", seconds=WITHIN_S)
    return bool(waiting)


if __name__ == "__main__":
    sys.exit(main())
