"""Attacks by models: a host of tools that tries what its grant has not, and its shell that gives a person's word."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from pwf.mcp.tools import TOOLS
from pwf.protocol.operations import OPERATIONS
from tests.attack.attack import attack, held
from tests.attack.steps import ANSWERS, ASKS, UNKNOWN, typed_by_a_step
from tests.e2e.home import Home

DECIDES = """
flow = Workflow("decides")

@flow.decision(audience="operator", choices=[Choice("ship", "Ship it")], timeout=None)
def approve(ctx):
    return "Ship it?"
"""

DOES = """
flow = Workflow("does")

@flow.agent(returns=str)
def look(ctx):
    return "Look at it."
"""

#: A host: it has started `pwf mcp serve`, and its own shell types commands beside that.
HOST = """
import json, subprocess, sys
import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

async def main():
    program, commands, environment = json.loads(sys.argv[1])
    async with Client(StdioServerParameters(command=program[0], args=program[1:], env=environment)) as client:
        await client.call_tool("my_step", {"wait_s": 0})
        said = []
        for words, away in commands:
            shell = ["sh", "-c", 'exec "$@"', "sh", sys.executable, "-m", "pwf", *words]
            done = subprocess.run(shell, capture_output=True, text=True, start_new_session=away)
            said.append([done.returncode, done.stdout + done.stderr])
    print(json.dumps(said))

anyio.run(main)
"""


def serving(home: Home, *words: str) -> list[str]:
    return [sys.executable, "-m", "pwf", "-C", str(home.project), "mcp", "serve", *words]


def waiting(home: Home) -> dict[str, str]:
    """One run for each thing that only a person may say: its run by workflow."""
    home.workflow("asks", ASKS)
    home.workflow("decides", DECIDES)
    home.workflow("does", DOES)
    home.workflow("unknown", UNKNOWN)
    runs = {
        "asks": home.start("asks", "--input", "{}"),
        "decides": home.start("decides"),
        "does": home.start("does", "--agent", "person"),
        "unknown": home.start("unknown"),
    }
    for name, run in runs.items():
        home.wait_status(run, "ambiguous" if name == "unknown" else "waiting")
    return runs


def peoples_words(runs: dict[str, str]) -> list[list[str]]:
    return [
        ["answer", f"run:{runs['asks']}", "true"],
        ["decide", f"run:{runs['decides']}", "ship"],
        ["submit", f"run:{runs['does']}", "mine"],
        ["recover", runs["unknown"], "happened", "--output", "1"],
        ["effects", "resolve", f"{runs['unknown']}:send:1", "not-happened"],
    ]


def unmoved(home: Home, runs: dict[str, str]) -> None:
    for name, run in runs.items():
        wanted = "ambiguous" if name == "unknown" else "waiting"
        held(home.status(run) == wanted, f"the run of {name} is {home.status(run)}")


@attack("a model's tools")
def a_worker_tries_every_operation(home: Home) -> str:
    """Call every tool and every operation there is under the grant of a worker: none but its own is there."""
    runs = waiting(home)
    names = sorted({*TOOLS, *OPERATIONS, *(name.replace(".", "_") for name in OPERATIONS)})

    async def tried() -> tuple[int, list[str]]:
        program = serving(home)
        refused, taken = 0, []
        parameters = StdioServerParameters(command=program[0], args=program[1:], env=home.environment)
        async with McpClient(parameters) as client:
            own = {tool.name for tool in (await client.list_tools()).tools}
            for name in names:
                for run in runs.values():
                    given: dict[str, Any] = {"run": run} if TOOLS.get(name) else {"run_id": run}
                    if name == "my_step":
                        given = {"wait_s": 0}
                    if name == "submit":
                        given = {"request": f"run:{run}", "revision": 1, "json": "true"}
                    said = await client.call_tool(name, given)
                    if said.is_error:
                        refused += 1
                    elif name != "my_step" or (said.structured_content or {}).get("state") != "nothing":
                        taken.append(f"{name} of {run}: {said.structured_content}")
            held(own == {name for name, tool in TOOLS.items() if tool.grant == "worker"}, f"it has {own}")
        return refused, taken

    refused, taken = anyio.run(tried)
    held(not taken, f"taken: {taken}")
    unmoved(home, runs)
    return f"{refused} calls were refused"


@attack("a step gives a person's word")
def the_shell_of_a_host_gives_a_persons_word(home: Home) -> str:
    """While a host has a session, its shell, which stands beside `pwf mcp`, types each word of a person's."""
    runs = waiting(home)
    script = home.project / "host.py"
    script.write_text(HOST)
    commands = [[words, away] for words in peoples_words(runs) for away in (False, True)]
    for grant in ((), ("--grant", "operator")):
        given = json.dumps([serving(home, *grant), commands, home.environment])
        done = subprocess.run(
            [sys.executable, str(script), given],
            env=home.environment,
            cwd=home.project,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        held(done.returncode == 0, f"the host failed: {done.stderr[-800:]}")
        for (words, _), (code, said) in zip(commands, json.loads(done.stdout), strict=True):
            held(code == 4, f"pwf {' '.join(words)} was not refused: {code} {said[-300:]}")
            held("session" in said, f"it does not say why: {said[-300:]}")
    unmoved(home, runs)
    home.run("decide", f"run:{runs['decides']}", "ship")
    return f"{2 * len(commands)} commands were refused; a person's was taken"


@attack("a step gives a person's word")
def a_step_is_a_host(home: Home) -> str:
    """A step of a run starts `pwf mcp serve` and a client for it: no session is attached."""
    home.workflow("answers", ANSWERS)
    home.workflow("does", DOES)
    for away in (False, True):
        said = typed_by_a_step(home, "mcp", "serve", "--grant", "operator", away=away)
        held(said["code"] != 0, f"it serves: {said}")
        held("no step of a run may attach a session" in str(said["said"]), f"it says: {said}")
    return "refused twice"
