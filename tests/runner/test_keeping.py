"""A process that is to have further runs has another one only if it is as it was: whatever a run leaves is named."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf import host
from pwf.protocol.crashlab import LAB_VARIABLE
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.runner import MARKER_VARIABLE, Finish, Leaving, PastStep, StepReply, Value, encode_line
from pwf.runner.spawn.template import project_to_keep
from pwf.workflow.workflow import Workflow
from tests.runner.spawning import (
    ENVIRONMENT,
    MARKER,
    WAIT_S,
    WAITING_MARKER,
    RunnerPeer,
    TemplatePeer,
    ZygotePeer,
    bundle_of_text,
    graph_of,
)

#: A project whose one step does what its input says, in the module's own names.
FLOW = """
import collections, dataclasses, functools, itertools, pathlib, random, threading, types
import steps
from pwf import Workflow

flow = Workflow("flow", isolate="keep")
number = 0
folder = pathlib.Path("/tmp")
names = ["a"]
table = {"a": 1}
seen = {1}
state = types.SimpleNamespace(count=0, items=[])
buffer = bytearray(b"x")
generator = random.Random(1)


class Thing:
    count = 0
    items = []

    def __init__(self):
        self.number = 1
        self.parts = []


@dataclasses.dataclass
class Point:
    x: int = 1


point = Point()


class Slotted:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1


class Private:
    __slots__ = ("__value", "unset")

    def __getattr__(self, name):
        raise RuntimeError("not configured")

    def set(self, value):
        self.__value = value


class Lazy:  # as a library's settings that nobody has configured yet
    @property
    def __class__(self):
        raise RuntimeError("not configured")

    def __getattr__(self, name):
        raise RuntimeError("not configured")


class Odd(dict):
    def __len__(self):
        raise RuntimeError("not to be asked")

    __iter__ = keys = values = items = __len__


thing, slotted, private, lazy, odd = Thing(), Slotted(), Private(), Lazy(), Odd(a=1)
private.set(1)
counts = collections.Counter(a=1)
guard, reentrant = threading.Lock(), threading.RLock()


@functools.lru_cache
def squared(value):
    return value * value


def collect(value, found=[]):
    found.append(value)
    return found


def counter():
    count = 0
    def more():
        nonlocal count
        count += 1
        return count
    return more


more = counter()


@flow.compute
def step(ctx):
    own = {"ctx": ctx}
    exec(ctx.input, globals(), own)
    return own.get("answer")
"""
STEPS = "kept = []\nvalue = 1\n\ndef helper():\n    return value\n"


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygotePeer]:
    peer = ZygotePeer()
    yield peer
    assert peer.stop() == 0


@pytest.fixture(scope="module")
def template(
    zygote: ZygotePeer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TemplatePeer, WorkflowGraph]:
    bundle = bundle_of_text(tmp_path_factory.mktemp("project"), FLOW, steps=STEPS)
    made, loaded = zygote.template(bundle)
    assert (loaded.error, loaded.unsafe) == (None, None)
    return made, graph_of(bundle)


def run(runner: RunnerPeer, graph: WorkflowGraph, text: str, runs: int = 9) -> Leaving:
    """One run of these statements, to the runner's last word."""
    runner.launch(graph, given=text, runs_per_process=runs)
    finish = runner.receive()
    assert isinstance(finish, Finish)
    assert finish.error is None, finish.error
    assert finish.seq == 1, "each run has its own numbers"
    leaving = runner.receive()
    assert isinstance(leaving, Leaving)
    return leaving


#: What a run does, and what is said of it.
LEFT = {
    "a child": ("import os, time; os.fork() or time.sleep(9)", "left a process"),
    "a thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "threads",
    ),
    "a descriptor": ("import os; os.open('/dev/null', 0)", "descriptors: 8 (/dev/null)"),
    "a descriptor far away": ("import os; os.dup2(0, 200)", "descriptors: 200"),
    "another descriptor in its place": ("import os; os.dup2(1, 0)", "descriptors: 0"),
    "a closed descriptor": ("import os; os.close(0)", "descriptors: 0"),
    "a descriptor for children": ("import os; os.set_inheritable(3, True)", "descriptors: 3"),
    "a wake-up descriptor": (
        "import signal, os; signal.set_wakeup_fd(5, warn_on_full_buffer=False)",
        "wake-up",
    ),
    "a timer": ("import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 99)", "a timer"),
    "an alarm": ("import signal; signal.alarm(99)", "a timer"),
    "a stream": ("import sys, io; sys.stdout = io.StringIO()", "standard streams"),
    "a stream's way": ("import sys; sys.stdout.reconfigure(line_buffering=False)", "standard streams"),
    "a stream that writes through": (
        "import sys; sys.stdout.reconfigure(write_through=True)",
        "standard streams",
    ),
    "a descriptor that no longer waits": ("import os; os.set_blocking(1, False)", "descriptors: 1"),
    "a signal that C code ignores": ("import ctypes; ctypes.CDLL(None).signal(10, 1)", "a signal's handling"),
    "a timeout of sockets": ("import socket; socket.setdefaulttimeout(3)", "timeout of sockets"),
    "a child that its garbage starts": (
        "class Late:\n"
        "    def __del__(self):\n"
        "        __import__('os').posix_spawn('/bin/sleep', ['sleep', '30'], {})\n"
        "late = Late(); late.own = late",
        "left a child process",
    ),
    "a lock that is held": ("guard.acquire()", "flow.guard"),
    "a lock that is held more than once": ("reentrant.acquire()", "flow.reentrant"),
    "a private slot": ("private.set(2)", "flow.private"),
    "an entry of a dictionary of its own kind": ("dict.__setitem__(odd, 'b', 2)", "flow.odd"),
    "a count": ("counts['a'] += 1", "flow.counts"),
    "an exit handler": ("import atexit; atexit.register(print)", "exit handlers"),
    "a finalizer": ("import weakref; weakref.finalize(Thing, print)", "exit handlers"),
    "an audit hook": ("import sys; sys.addaudithook(lambda *_: None)", "audit hook"),
    "a trace": ("import sys; sys.settrace(lambda *_: None)", "hook of the interpreter"),
    "a profile": ("import sys; sys.setprofile(lambda *_: None)", "hook of the interpreter"),
    "an exception hook": ("import sys; sys.excepthook = print", "hook of the interpreter"),
    "a finder": ("import sys; sys.meta_path.append(Thing())", "hook of the interpreter"),
    "a limit": ("import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0))", "a limit of the process"),
    "a recursion limit": ("import sys; sys.setrecursionlimit(999)", "setting of the interpreter"),
    "a nice value": ("import os; os.nice(1)", "priority"),
    "an affinity": ("import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])", "processors"),
    "no subreaper": ("import ctypes; ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)", "the session"),
    "a path": ("import sys; sys.path.append('/nowhere')", "sys.path"),
    "a level of logging": ("import logging; logging.getLogger('x').setLevel(10)", "logging"),
    "a handler of logging": (
        "import logging; logging.getLogger().addHandler(logging.NullHandler())",
        "logging",
    ),
    "a locale": ("import locale; locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')", "the locale"),
    "a filter of warnings": ("import warnings; warnings.simplefilter('error')", "filters of warnings"),
    "a context variable": ("import contextvars; contextvars.ContextVar('x').set(1)", "a context variable"),
    "a built-in": ("import builtins; builtins.open = print", "the built-in names"),
    "memory": ("import sys; sys.modules['left'] = b'x' * 80_000_000", "its memory, which grew by"),
    "a name": ("global number; number = 1", "flow.number"),
    "a new name": ("global fresh; fresh = 1", "flow.fresh"),
    "a name less": ("global number; del number", "flow.number"),
    "a name of a helper module": ("steps.value = 2", "steps.value"),
    "a list": ("names.append('b')", "flow.names"),
    "an item of a list": ("names[0] = 'b'", "flow.names"),
    "a dictionary": ("table['b'] = 2", "flow.table.b"),
    "a value in a dictionary": ("table['a'] = 2", "flow.table.a"),
    "a set": ("seen.add(2)", "flow.seen"),
    "bytes": ("buffer.append(1)", "flow.buffer"),
    "a list of a helper module": ("steps.kept.append(1)", "steps.kept"),
    "an attribute of a class": ("Thing.count = 1", "flow.Thing.count"),
    "a list of a class": ("Thing.items.append(1)", "flow.Thing.items"),
    "a method": ("Thing.__init__ = lambda self: None", "flow.Thing.__init__"),
    "an attribute of an object": ("thing.number = 2", "flow.thing.number"),
    "a list of an object": ("thing.parts.append(1)", "flow.thing.parts"),
    "a slot": ("slotted.value = 2", "flow.slotted"),
    "a namespace": ("state.count += 1", "flow.state.count"),
    "a list in a namespace": ("state.items.append(1)", "flow.state.items"),
    "a cache": ("squared(2)", "flow.squared"),
    "a default": ("collect(1)", "a default of flow.collect"),
    "a closure": ("more()", "count in flow.more"),
    "an attribute of a function": ("collect.calls = 1", "flow.collect"),
    "another function's code": ("collect.__code__ = (lambda value, found: 1).__code__", "flow.collect"),
    "a generator of random numbers": ("generator.random()", "flow.generator"),
    "another module in its place": (
        "import sys, types; sys.modules['steps'] = types.ModuleType('steps')",
        "module steps",
    ),
}


@pytest.mark.parametrize("left", LEFT)
def test_a_process_in_which_a_run_has_left_something_is_not_kept_and_the_reason_says_what(
    left: str, template: tuple[TemplatePeer, WorkflowGraph]
) -> None:
    made, graph = template
    text, said = LEFT[left]
    leaving = run(made.fork(), graph, text)
    assert not leaving.stays
    assert said in leaving.not_kept


#: What a run may do: it is as before by itself, or made so.
HARMLESS = {
    "nothing": "pass",
    "what a step has made good": "import os; os.environ['X'] = '1'; os.umask(0o7); os.chdir('/tmp')",
    "a handler": "import signal; signal.signal(signal.SIGUSR1, print)",
    "a signal mask": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
    "values of its own": "own = [1, 2]",
    "a child that has ended": "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "a file that was closed": "open('/dev/null').close()",
    "a thread that has ended": "import threading; (one := threading.Thread(target=int)).start(); one.join()",
    "a module of the library": "import colorsys",
    "a logger": "import logging; logging.getLogger('y').warning('seen')",
    "random numbers": "random.random()",
    "a warning": "import warnings; warnings.warn('once')",
    "a path": "str(folder / 'file'), hash(folder), folder.parts",
    "an input and an output of a type of its own": "import msgspec; msgspec.json.encode(point); Point(2)",
    "a cycle": "a = []; a.append(a)",
    "a lock that is free again": "guard.acquire(); guard.release()",
    "a filled cache that is cleared": "squared(3); squared.cache_clear()",
}


@pytest.mark.parametrize("done", HARMLESS)
def test_a_process_that_is_as_before_is_kept(done: str, template: tuple[TemplatePeer, WorkflowGraph]) -> None:
    made, graph = template
    text = HARMLESS[done]
    runner = made.fork()
    for _ in range(3):
        assert run(runner, graph, text, runs=9) == Leaving(childless=True, stays=True)


STAYS = Leaving(childless=True, stays=True)


def answer(runner: RunnerPeer, graph: WorkflowGraph, expression: str, **options: Any) -> Any:
    """What an expression gives in the next run of a process that is kept."""
    text = f"answer = {expression}"
    runner.launch(graph, given=text, runs_per_process=9, **options)
    finish = runner.receive()
    assert isinstance(finish, Finish)
    assert finish.output is not None, finish.error
    assert finish.output.json is not None
    assert runner.receive() == STAYS
    return msgspec.json.decode(finish.output.json)


def test_a_run_that_failed_ends_its_process(template: tuple[TemplatePeer, WorkflowGraph]) -> None:
    made, graph = template
    runner = made.fork()
    runner.launch(graph, given="1 / 0", runs_per_process=9)
    assert isinstance(runner.receive(), Finish)
    leaving = runner.receive()
    assert leaving == Leaving(childless=True, not_kept="step 'step' failed")
    assert runner.ends()


def test_a_process_ends_after_as_many_runs_as_it_may_have_and_nothing_kept_it_from_more(
    template: tuple[TemplatePeer, WorkflowGraph],
) -> None:
    made, graph = template
    runner = made.fork()
    assert [run(runner, graph, "pass", runs=3) for _ in range(3)] == [STAYS, STAYS, Leaving(childless=True)]
    assert runner.ends()


def test_it_bears_the_waiting_marker_when_it_says_that_it_stays_and_each_run_bears_its_own(
    template: tuple[TemplatePeer, WorkflowGraph],
) -> None:
    made, graph = template
    runner = made.fork()
    own = "open('/proc/self/environ').read().partition('PWF_RUN_MARKER=')[2].partition(chr(0))[0]"
    started = "__import__('subprocess').check_output('echo $PWF_RUN_MARKER', shell=True, text=True).strip()"
    for number in range(3):
        runner.marker = f"{MARKER}{number}"
        assert (
            answer(runner, graph, f"[{own}, __import__('os').environ['PWF_RUN_MARKER']]")
            == [runner.marker] * 2
        )
        assert host.read_variable(runner.identity.pid, MARKER_VARIABLE) == WAITING_MARKER
        assert answer(runner, graph, started) == runner.marker


def test_what_a_run_forks_bears_its_marker_for_ever(template: tuple[TemplatePeer, WorkflowGraph]) -> None:
    """Also what hides from its process: it gives up its descendants for a moment, and claims them again."""
    made, graph = template
    first, second = f"{MARKER}1", f"{MARKER}2"
    runner = made.fork(first)
    assert run(runner, graph, HIDES) == STAYS
    try:
        assert marked(first) != []
        runner.marker = second
        assert run(runner, graph, "pass") == STAYS
        assert marked(second) == []
    finally:
        for pid in marked(first):
            os.kill(pid, signal.SIGKILL)


HIDES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.prctl(36, 0, 0, 0, 0)
child = os.fork()
if child == 0:
    if os.fork() == 0:
        os.closerange(0, 100)
        time.sleep(30)
    os._exit(0)
os.waitpid(child, 0)
libc.prctl(36, 1, 0, 0, 0)
"""


def marked(marker: str) -> list[int]:
    return [one.identity.pid for one in host.find_bearers(MARKER_VARIABLE, 0) if one.marker == marker]


def test_answers_that_come_late_are_skipped_up_to_the_next_launch(
    template: tuple[TemplatePeer, WorkflowGraph],
) -> None:
    made, graph = template
    runner = made.fork()
    for _ in range(3):
        assert run(runner, graph, "pass") == STAYS
        late = encode_line([StepReply(seq=1, verdict="end"), StepReply(seq=1, verdict="go")])
        runner.messages.sendall(late)


def test_random_numbers_begin_anew_in_each_run(template: tuple[TemplatePeer, WorkflowGraph]) -> None:
    made, graph = template
    runner = made.fork()
    drawn = [answer(runner, graph, "(random.random(), random.seed(1))[0]") for _ in range(3)]
    assert len(set(drawn)) == 3


def test_each_run_stands_in_its_folder_and_prints_to_its_own(
    template: tuple[TemplatePeer, WorkflowGraph], tmp_path: Path
) -> None:
    made, graph = template
    runner = made.fork()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        options = {"root": str(tmp_path / name), "output_folder": str(tmp_path / f"{name}-output")}
        said = f"(print({name!r}), __import__('os').getcwd())[1]"
        assert answer(runner, graph, said, **options) == str(tmp_path / name)
    for name in ("one", "two"):
        assert (tmp_path / f"{name}-output" / "1.out").read_text() == f"{name}\n"


def test_what_is_printed_after_the_last_step_is_no_other_runs(
    template: tuple[TemplatePeer, WorkflowGraph], tmp_path: Path
) -> None:
    made, graph = template
    runner = made.fork()
    late = "class Late:\n    def __del__(self):\n        print('late', flush=True)\nlate = Late(); late.own = late"
    for name, text in (("one", late), ("two", "print('two')")):
        runner.launch(graph, given=text, runs_per_process=9, output_folder=str(tmp_path / name))
        assert isinstance(runner.receive(), Finish)
        assert runner.receive() == STAYS
    assert (tmp_path / "one" / "1.out").read_text() == "late\n"
    assert (tmp_path / "two" / "1.out").read_text() == "two\n"


def test_a_read_of_a_value_that_was_broken_off_ends_the_process_whose_next_run_would_get_its_answer(
    template: tuple[TemplatePeer, WorkflowGraph],
) -> None:
    made, graph = template
    runner = made.fork()
    before = PastStep(node="step", visit=1, outcome="completed", output=Value(digest="d" * 64, size=9))
    runner.launch(graph, given=BREAKS_OFF, runs_per_process=9, past=(before,))
    runner.values.settimeout(WAIT_S)
    assert runner.values.recv(4_096)  # nobody answers
    while not select.select([runner.messages], [], [], 0.02)[
        0
    ]:  # a signal just before it waits would be missed
        os.kill(runner.identity.pid, signal.SIGALRM)
    assert isinstance(runner.receive(), Finish)
    leaving = runner.receive()
    assert isinstance(leaving, Leaving)
    assert not leaving.stays
    assert "read of a value" in leaving.not_kept


#: It waits for the answer until a signal's handler raises.
BREAKS_OFF = """
import signal
def ring(*_, rung=[]):
    if not rung:
        rung.append(1)
        raise LookupError
signal.signal(signal.SIGALRM, ring)
try:
    ctx.outputs["step"]
except LookupError:
    pass
"""


def test_it_ends_when_its_socket_closes_while_it_waits(template: tuple[TemplatePeer, WorkflowGraph]) -> None:
    made, graph = template
    runner = made.fork()
    assert run(runner, graph, "pass") == STAYS
    runner.close()
    assert runner.ends()


NEVER = {
    "an iterator": ("ids = iter([1, 2])", "pass", "flow.ids, an iterator"),
    "a count": ("import itertools\nids = itertools.count()", "pass", "flow.ids, an iterator"),
    "too much": ("large = list(range(60_000))", "pass", "more than 50,000 entries"),
    "what can not be looked at": (
        "class Odd:\n    __dict__ = property(lambda self: 1 / 0)\nodd = Odd()",
        "pass",
        "flow.odd, which could not be looked at: ZeroDivisionError",
    ),
    "a module that a step imports": (
        "def more():\n    import lazy",
        "more()",
        "module lazy, which a step imported",
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_can_not_be_compared_is_never_kept(case: str, zygote: ZygotePeer, tmp_path: Path) -> None:
    head, body, said = NEVER[case]
    flow = "flow = Workflow('flow', isolate='keep')\n\n@flow.compute\ndef step(ctx):\n"
    text = f"from pwf import Workflow\n{head}\n{flow}    {body}\n"
    bundle = bundle_of_text(tmp_path, text, lazy="value = []\n")
    made, loaded = zygote.template(bundle)
    assert loaded.unsafe is None
    assert said in run(made.fork(), graph_of(bundle), "").not_kept


def test_where_the_system_can_not_show_what_a_run_has_left_no_process_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Workflow("flow", isolate="keep")

    @flow.compute
    def step(ctx: Any) -> None:
        pass

    assert project_to_keep(flow) is not None
    monkeypatch.setattr(host, "SAFE_TO_KEEP", False)
    assert project_to_keep(flow) is None


def test_a_crash_lab_keeps_no_process(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = bundle_of_text(tmp_path, FLOW, steps=STEPS)
    made, _ = zygote.template(bundle, {**ENVIRONMENT, LAB_VARIABLE: str(tmp_path)})
    assert run(made.fork(), graph_of(bundle), "pass") == Leaving(childless=True)


def test_a_process_by_exec_is_its_runs_alone(zygote: ZygotePeer, tmp_path: Path) -> None:
    """As where the code is not safe to fork."""
    bundle = bundle_of_text(tmp_path, FLOW, steps=STEPS)
    runner, loaded = zygote.fresh(bundle)
    assert loaded.error is None
    assert run(runner, graph_of(bundle), "pass") == Leaving(childless=True)


def test_a_fresh_process_for_each_run_is_the_rule(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = bundle_of_text(tmp_path, FLOW.replace(', isolate="keep"', ""), steps=STEPS)
    made, _ = zygote.template(bundle)
    assert run(made.fork(), graph_of(bundle), "pass") == Leaving(childless=True)
