"""The workflows of the storm: each effect counts itself outside, under its key, and takes its time to be hit by kills.

One file per effect key, appended to: the number of its lines is the number of applications.
"""

from __future__ import annotations

from pathlib import Path

HEAD = '''
import json, random, subprocess, sys, time, urllib.request
from pathlib import Path
from typing import Literal

from pwf import *

OUTSIDE = Path({folder!r})
URL = {url!r}


def moment(ctx, most_s=0.06):
    """The same pause in each attempt of a visit, another one for each run; none for every third."""
    drawn = random.Random(f"{{ctx.run_id}}:{{ctx.node}}:{{ctx.visit}}").random()
    if drawn > 0.33:
        time.sleep(drawn * most_s)


def path_of(ctx):
    return OUTSIDE / ctx.effect_key.replace(":", "_")


def append(ctx):
    moment(ctx)
    with open(path_of(ctx), "a") as file:
        file.write(f"{{ctx.attempt}}\\n")
    moment(ctx)
    return ctx.effect_key


def look_in_file(ctx):
    path = path_of(ctx)
    return applied(ctx.effect_key) if path.exists() and path.read_text() else not_applied()


def post(ctx, what="apply"):
    request = urllib.request.Request(
        f"{{URL}}/{{what}}?key={{ctx.effect_key}}&attempt={{ctx.attempt}}", data=b"", method="POST"
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def send(ctx):
    moment(ctx)
    if not post(ctx)["applied"]:
        raise NotApplied("the service has fenced off this attempt")
    moment(ctx)
    return ctx.effect_key


def look_in_service(ctx):
    return applied(ctx.effect_key) if post(ctx, "look")["count"] else not_applied()


def settle_later(ctx):
    return unknown()


CHILD = """
import fcntl, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open(sys.argv[1] + ".lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(sys.argv[1] + ".overlap", "a").close()
time.sleep(300)
"""

flow = Workflow({name!r}, isolate={isolate!r})
'''

WORKFLOWS = {
    "pure": """
@flow.compute
def one(ctx):
    return ctx.input["n"] + 1

@flow.compute
def two(ctx):
    moment(ctx, 0.02)
    return ctx[one] * 2

@flow.compute
def three(ctx):
    return ctx[two] + 1

flow.graph(one >> two >> three)
""",
    "files": """
a = flow.action(id="a", effect=idempotent("file"))(append)
b = flow.action(id="b", effect=manual("file", observe=look_in_file))(append)

@flow.compute
def end(ctx):
    return [ctx[a], ctx[b], ctx.input["n"]]

flow.graph(a >> b >> end)
""",
    "service": """
a = flow.action(id="a", effect=manual("http", observe=look_in_service))(send)
b = flow.action(id="b", effect=idempotent("http"))(send)

@flow.compute
def end(ctx):
    return [ctx[a], ctx[b], ctx.input["n"]]

flow.graph(a >> b >> end)
""",
    "blind": """
a = flow.action(id="a", effect=manual("file"))(append)
b = flow.action(id="b", effect=manual("http", observe=settle_later))(send)

@flow.compute
def end(ctx):
    return ctx.input["n"]

flow.graph(a >> b >> end)
""",
    "commands": """
@flow.shell(effect=idempotent("file"), shell="/bin/sh", env=lambda ctx: {"FILE": str(path_of(ctx))})
def a(ctx):
    return "sleep 0.02; echo x >> $FILE; sleep 0.02"

@flow.shell(effect=manual("file", observe=look_in_file), shell="/bin/sh", env=lambda ctx: {"FILE": str(path_of(ctx))})
def b(ctx):
    return "sleep 0.02; echo x >> $FILE; sleep 0.02"

@flow.compute
def end(ctx):
    return ctx.input["n"]

flow.graph(a >> b >> end)
""",
    "asks": """
@flow.compute
def draft(ctx):
    return ctx.visit

@flow.checkpoint(returns=Literal["again", "ship"])
def ask(ctx):
    return {"draft": ctx[draft]}

ship = flow.action(id="ship", effect=manual("file", observe=look_in_file))(append)
flow.graph(draft >> ask, ask.switch(again=draft, ship=ship))
""",
    "waits": """
@flow.wait
def nap(ctx):
    return seconds(0.05 + random.Random(ctx.run_id).random())

after = flow.action(id="after", effect=idempotent("file"))(append)
flow.graph(nap >> after)
""",
    "retries": """
@flow.action(effect=manual("file", observe=look_in_file), retry=Retry(8, backoff=seconds(0.05), factor=1))
def stubborn(ctx):
    mark = OUTSIDE / (ctx.run_id + ".tried")
    if not mark.exists():
        mark.touch()
        raise NotApplied("the first try never works")
    return append(ctx)
""",
    "children": """
@flow.action(effect=idempotent("file"))
def parent(ctx):
    # Flees into a session of its own, ignores SIGTERM, and shows if another attempt's child still lives.
    fled = subprocess.Popen([sys.executable, "-S", "-c", CHILD, str(path_of(ctx))], start_new_session=True)
    append(ctx)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(0.1)"])
    child.wait()
    return ctx.effect_key
""",
    "large": """
@flow.action(effect=idempotent("file"))
def make(ctx):
    append(ctx)
    return "x" * 600_000

@flow.compute
def size(ctx):
    return len(ctx[make])

flow.graph(make >> size)
""",
    "late": """
@flow.action(effect=idempotent("file"), timeout=seconds(0.3))
def slow(ctx):
    append(ctx)
    time.sleep(5)

@flow.compute
def noticed(ctx):
    return ctx.results[slow].outcome

flow.graph(slow.on("timed_out") >> noticed)
""",
    "asynchronous": """
import trio

@flow.action(effect=manual("file", observe=look_in_file))
async def a(ctx):
    await trio.sleep(0.02)
    with open(path_of(ctx), "a") as file:
        file.write("x\\n")
    await trio.sleep(0.02)
    return ctx.effect_key
""",
}

#: What a completed run's output must be, from its number and id; None: not compared.
OUTPUTS = {
    "pure": lambda n, run: (n + 1) * 2 + 1,
    "files": lambda n, run: [f"{run}:a:1", f"{run}:b:1", n],
    "service": lambda n, run: [f"{run}:a:1", f"{run}:b:1", n],
    "blind": lambda n, run: n,
    "commands": lambda n, run: n,
    "large": lambda n, run: 600_000,
    "late": lambda n, run: "timed_out",
    "asynchronous": lambda n, run: f"{run}:a:1",
}

#: Those whose processes may have several runs; what a child of "children" has left alive ends its process.
KEPT = frozenset({"pure", "files", "commands", "asks", "waits", "children", "large", "asynchronous"})

#: How often each is drawn.
WEIGHTS = {
    "pure": 3,
    "files": 4,
    "service": 4,
    "blind": 2,
    "commands": 2,
    "asks": 3,
    "waits": 2,
    "retries": 2,
    "children": 3,
    "large": 1,
    "late": 1,
    "asynchronous": 1,
}


def write(folder: Path, outside: Path, url: str) -> None:
    """Put the workflows into a project."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in WORKFLOWS.items():
        isolate = "keep" if name in KEPT else "fork"
        head = HEAD.format(folder=str(outside), url=url, name=name, isolate=isolate)
        (folder / f"{name}.py").write_text(head + text)
