"""What does each command take of the processor, on a live daemon?

User and system time of the command's own process, of which a person waits for no less. Each is run as it is typed,
with what it needs made before. Left out: `daemon` and `crashlab`, as the target says; what serves until it is
stopped (`web`, `mcp serve`); what is for a person at a terminal (`agent-loop`, `channel setup`); what needs a
session, a service of the network or the user's service manager (`follow-up queue` and `remove`, `channel test` and
`recover`, `service install` and `uninstall`); and what is about a daemon that does not serve (`stop`, `state
restore`, `state new`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.daemon import Daemon
from benchmarks.questions.cli_start import command
from benchmarks.rows import Row
from benchmarks.workflows import ASKING, DECIDING, IDLE_MANAGER, ONE

QUESTION = "commands"
TARGET_MS = 150
TIMES = 10

FAILING = """
from pwf import Workflow
flow = Workflow("failing")

@flow.compute
def only(ctx):
    raise ValueError("it broke")
"""
WORKING = """
from pwf import Workflow
flow = Workflow("working")

@flow.agent(returns=int)
def look(ctx):
    return "How many?"
"""
SETTABLE = """
import msgspec
from pwf import Workflow

class Settings(msgspec.Struct):
    level: int = 1

flow = Workflow("settable")
flow.settings(Settings, Settings(), paths={"/level": {"human": ["read", "replace"]}})

@flow.checkpoint
def ask(ctx):
    return "Go on?"
"""
DOUBTFUL = """
import os, signal
from pwf import Workflow, manual
flow = Workflow("doubtful")

@flow.action(effect=manual("send"))
def send(ctx):
    os.kill(os.getpid(), signal.SIGKILL)
"""
WORKFLOWS = {
    "one": ONE,
    "ask": ASKING,
    "deciding": DECIDING,
    "failing": FAILING,
    "working": WORKING,
    "settable": SETTABLE,
    "doubtful": DOUBTFUL,
}

#: As they are typed. A word in braces is made anew for each time (`_World.made`).
COMMANDS = (
    "run one",
    "run one --detach",
    "watch {done}",
    "wait {done}",
    "ls",
    "show {done}",
    "show {done} only",
    "output {done}",
    "explain {asking}",
    "events {done}",
    "pause {asking}",
    "resume {paused}",
    "cancel {asking}",
    "restart {done}",
    "retry {failed}",
    "fork {done} --from only",
    "requests",
    "answer {asked}",
    "answer {asked} 1",
    "submit {wanted}",
    "submit {wanted} 1",
    "sessions",
    "inbox",
    "agents",
    "mcp install claude-code",
    "decisions",
    "decide {decision} go",
    "channel status",
    "channel reload",
    "settings get {settable}",
    "settings change {settable} level=2",
    "follow-up ls {done}",
    "effects",
    "effects show {doubt}",
    "effects resolve {doubt} give-up",
    "recover {doubted} happened --output null",
    "workflows",
    "check .pwf/workflows/one.py",
    "managers",
    "resource apply idle {new} --spec {}",
    "resource ls",
    "resource get idle {kept}",
    "resource explain idle {kept}",
    "resource events idle {kept}",
    "resource logs idle {kept}",
    "resource reconcile idle {kept}",
    "resource pause idle {kept}",
    "resource resume idle {kept}",
    "resource delete idle {kept}",
    "graph one",
    "start",
    "service status",
    "status",
    "logs {done}",
    "logs --lines 20",
    "state status",
    "state verify",
    "state backup {file}",
    "state prune --before 2020-01-01 --dry-run",
    "doctor",
    "completion bash",
    "version",
)

#: What else than 0 they end with here: a home without a service, and requests that are shown, and not answered.
ALSO = {"answer {asked}": 2, "submit {wanted}": 2, "doctor": 1, "service status": 1}


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each command."""
    with bench.folder() as folder, Daemon(folder) as daemon:
        world = _World(daemon, folder / "project")
        for typed in COMMANDS:
            value = bench.sample(partial(world.processor_ms, typed), times=bench.pick(TIMES, 3))
            yield Row(
                question=QUESTION,
                what=f"pwf {typed}",
                value=value,
                unit="ms of a core",
                better="less",
                target=TARGET_MS,
            )


class _World:
    """A project with workflows of each kind, and what the commands need."""

    def __init__(self, daemon: Daemon, project: Path) -> None:
        self._daemon = daemon
        self._project = project
        self._numbers = count(1)
        for name, text in WORKFLOWS.items():
            _write(project / ".pwf" / "workflows" / f"{name}.py", text)
        _write(project / ".pwf" / "resources" / "idle.py", IDLE_MANAGER)
        self._makers: dict[str, Callable[[], str]] = {
            "done": partial(self._run, "one", "ended"),
            "failed": partial(self._run, "failing", "ended"),
            "asking": partial(self._run, "ask", "parked"),
            "paused": self._paused,
            "asked": partial(self._request, "ask"),
            "wanted": partial(self._request, "working", "--agent", "person"),
            "decision": partial(self._request, "deciding"),
            "settable": partial(self._run, "settable", "parked"),
            "doubted": partial(self._run, "doubtful", "parked"),
            "doubt": self._doubt,
            "new": self._name,
            "kept": self._resource,
            "file": lambda: str(project.parent / f"{self._name()}.db"),
        }

    def processor_ms(self, typed: str) -> float:
        """What one command takes, once what it needs is there."""
        words = [self.made(word) for word in typed.split()]
        process = subprocess.Popen(
            [*command(), *words],
            env=self._daemon.environment,
            cwd=self._project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, ALSO.get(typed)):
            raise RuntimeError(f"pwf {' '.join(words)}: {process.returncode} {said.decode(errors='replace')}")
        return (used.ru_utime + used.ru_stime) * 1_000

    def made(self, word: str) -> str:
        """What stands for a word in braces; another word is itself."""
        make = self._makers.get(word.strip("{}")) if word.startswith("{") else None
        return word if make is None else make()

    # --- what commands need ---

    def _run(self, workflow: str, until: str, *more: str) -> str:
        """A new run that has ended, or that waits; its id."""
        run_id = str(json.loads(self._typed("run", workflow, "--detach", "--json", *more))["run_id"])
        self._typed("wait", run_id, "--until", until, "--json", codes=(0, 1, 7))
        return run_id

    def _request(self, workflow: str, *more: str) -> str:
        run_id = self._run(workflow, "parked", *more)
        found = json.loads(self._typed("requests", "--json"))["requests"]
        return next(str(one["request_id"]) for one in found if one["run_id"] == run_id)

    def _paused(self) -> str:
        run_id = self._run("ask", "parked")
        self._typed("pause", run_id)
        return run_id

    def _doubt(self) -> str:
        run_id = self._run("doubtful", "parked")
        found = json.loads(self._typed("effects", "--ambiguous", "--json"))["effects"]
        return next(str(one["effect_key"]) for one in found if one["run_id"] == run_id)

    def _resource(self) -> str:
        name = self._name()
        self._typed("resource", "apply", "idle", name, "--spec", "{}")
        return name

    def _name(self) -> str:
        return f"one-{next(self._numbers)}"

    def _typed(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [*command(), *words],
            env=self._daemon.environment,
            cwd=self._project,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in codes:
            raise RuntimeError(f"pwf {' '.join(words)}: {done.returncode} {done.stderr}")
        return done.stdout


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
