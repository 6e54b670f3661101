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
from tests.secret_files import keep_secret

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


#: A host that accepts every form, and what it and its shell start: the same once more, and programs that speak for it.
FORMS = """
import contextlib, json, os, socket, sys, time
import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from pwf.client import open_session
from pwf.places import places
from pwf.protocol.channel_port import line_of
from pwf.protocol.host_port import Answer, Hello, socket_of

def raw():
    at = socket_of(places(), "mcp")
    while not at.exists():
        time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as adapter:
        adapter.settimeout(10)
        adapter.connect(str(at))
        return said(adapter)

def said(adapter):
    with contextlib.suppress(ConnectionError):
        adapter.sendall(line_of(Hello(token="a-long-word", host="claude-code")))
        offer = adapter.recv(65536)
        if offer:
            request = json.loads(offer.splitlines()[0])["request_id"]
            adapter.sendall(line_of(Answer(request_id=request, choice="ship")))
            adapter.recv(65536)
            return 1
    return 0

async def attached():
    async with open_session("raw", host_pid=os.getppid()):
        return await anyio.to_thread.run_sync(raw)

async def serves(below, wanted):
    forms = 0
    async def accept(context, params):
        nonlocal forms
        forms += 1
        return types.ElicitResult(action="accept", content={"choice": "ship"} if wanted else {})
    program = StdioServerParameters(command=sys.executable, args=["-m", "pwf", "mcp", "serve"], env=dict(os.environ))
    named = types.Implementation(name="claude-code", version="1")
    said = []
    async with Client(program, elicitation_callback=accept, client_info=named) as client:
        await client.call_tool("my_step", {"wait_s": 0})
        for what in below:
            shell = ["sh", "-c", 'exec "$@"', "sh", sys.executable, __file__, what]
            done = await anyio.run_process(shell, check=False)
            said.append(done.stdout.decode().strip() or done.stderr.decode()[-500:])
        with anyio.move_on_after(20 if wanted and below == ["none"] else 2):
            while not forms or not wanted:
                await client.call_tool("my_step", {"wait_s": 0})
                await anyio.sleep(0.05)
        await anyio.sleep(0.5 if wanted else 0)
    return [forms, said]

what = sys.argv[1]
if what == "none":
    print(0)
elif what == "raw":
    print(raw())
elif what == "attached":
    print(anyio.run(attached))
elif what == "nested":
    print(anyio.run(serves, [], True)[0])
elif what == "host":
    print(json.dumps(anyio.run(serves, ["raw", "attached", "nested"], False)))
else:
    print(json.dumps(anyio.run(serves, ["none"], True)))
"""

STARTS = """
import subprocess, sys
flow = Workflow("starts", input=str)

@flow.action(effect=idempotent("start"))
def start(ctx):
    return subprocess.run([sys.executable, ctx.input, "raw"], capture_output=True, text=True).stdout.strip()
"""

CHANNEL = """
[channels.mcp]
kind = "mcp"
token = "hosts"
hosts = ["claude-code"]
[audiences.operator]
channels = ["mcp"]
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


@attack("a step gives a person's word")
def forms_are_filled_in_by_programs(home: Home) -> str:
    """A step, and what a host's shell starts, name a configured host with the channel's token, and accept its forms."""
    home.config(CHANNEL)
    keep_secret(home.home / "secrets" / "hosts", "a-long-word")
    home.workflow("decides", DECIDES)
    home.workflow("starts", STARTS)
    script = home.project / "forms.py"
    script.write_text(FORMS)
    run = home.start("decides")
    home.wait_status(run, "waiting")
    step = home.start("starts", "--input", json.dumps(str(script)))
    home.wait_status(step, "completed")
    told = home.json("show", step)["output"]["json"]
    held(told == "0", f"a step was offered the decision: {told}")

    def hosted(what: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, str(script), what],
            env=home.environment,
            cwd=home.project,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        held(done.returncode == 0, f"the host failed: {done.stderr[-800:]}")
        said: list[Any] = json.loads(done.stdout)
        return said

    forms, below = hosted("host")
    held(forms > 0, "the host itself was shown no form")
    held(below == ["0", "0", "0"], f"what its shell has started was offered the decision: {below}")
    held(home.status(run) == "waiting", "the decision is made")
    hosted("person")
    home.wait_status(run, "completed")
    return "four programs were turned away; the form of the host itself decided"
