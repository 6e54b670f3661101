"""Starting runs: ids, keys and times; and what is refused must leave no trace."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pwf.errors import Conflict
from tests.e2e.home import Home, wait_for
from tests.e2e.world import PATIENCE_S, World

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

ECHO = """
flow = Workflow("echo")

@flow.compute
def echo(ctx):
    return ctx.input
"""


@pytest.fixture
def echo(world: World) -> World:
    world.home.workflow("echo", ECHO)
    return world


# --- ids, keys, times -----------------------------------------------------------------------------------------


def test_a_start_with_an_id_that_exists_adopts_an_equal_run(echo: World) -> None:
    first = echo.home.json("run", "echo", "--id", "mine", "--input", "1", "--detach")
    again = echo.home.json("run", "echo", "--id", "mine", "--input", "1", "--detach")
    assert (first["run_id"], first["adopted"]) == ("mine", False)
    assert (again["run_id"], again["adopted"]) == ("mine", True)
    echo.finish("mine")
    said = echo.home.run("run", "echo", "--id", "mine", "--input", "1")
    assert "adopted" in said.stderr
    assert len(echo.steps("mine")) == 1


def test_a_start_with_an_id_that_exists_with_other_input_is_a_conflict_that_names_it(echo: World) -> None:
    echo.start("echo", 1, run_id="taken")
    before = echo.count()
    refused = echo.home.run("run", "echo", "--id", "taken", "--input", "2", "--detach", code=4)
    assert "input" in refused.stderr
    assert "taken" in refused.stderr
    assert echo.output("taken") == 1
    assert echo.count() == before


def test_an_adopted_run_says_when_its_code_is_older_than_the_file(echo: World) -> None:
    echo.home.workflow("aging", ECHO.replace('"echo"', '"aging"'))
    echo.home.run("run", "aging", "--id", "aged", "--detach")
    echo.home.workflow("aging", ECHO.replace('"echo"', '"aging"') + "# newer\n")
    again = echo.home.json("run", "aging", "--id", "aged", "--detach")
    assert (again["adopted"], again["code_is_older"]) == (True, True)


def test_a_key_starts_one_run_however_often_it_is_sent(echo: World) -> None:
    words = ("run", "echo", "--key", "nightly: 31 Jan", "--input", '{"full": true}', "--detach")
    first = echo.home.json(*words)
    again = echo.home.json(*words)
    assert again["run_id"] == first["run_id"]
    assert again["adopted"]
    echo.kill_daemon()
    assert echo.home.json(*words)["run_id"] == first["run_id"]
    refused = echo.home.run("run", "echo", "--key", "nightly: 31 Jan", "--input", "0", "--detach", code=4)
    assert "nightly" in refused.stderr or "key" in refused.stderr
    echo.home.workflow("echo", "def broken(:\n")  # the answer is known without the file
    assert echo.home.json(*words)["run_id"] == first["run_id"]


@pytest.mark.parametrize("option", ["key", "run_id"])
def test_a_workflow_of_the_same_name_in_another_project_is_not_the_same_start(
    world: World, option: str
) -> None:
    for name in ("here", "there"):
        workflows = world.folder(f"{name}-{option}") / ".pwf" / "workflows"
        workflows.mkdir(parents=True)
        text = ECHO.replace('"echo"', '"nightly"').replace("ctx.input", repr(name))
        (workflows / "nightly.py").write_text("from pwf import *\n" + text)
    here, there = (world.home.project / "outside" / f"{name}-{option}" for name in ("here", "there"))
    options: dict[str, str] = {option: f"same-{option}"}
    run_id = world.start("nightly", cwd=here, **options)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="its project is"):
        world.start("nightly", cwd=there, **options)  # type: ignore[arg-type]
    assert world.output(run_id) == "here"
    inside = here / ".pwf"  # the same project, from another folder of it
    assert world.start("nightly", cwd=inside, **options) == run_id  # type: ignore[arg-type]


def test_a_file_given_by_path_runs_in_its_own_project_whoever_types_it_where(world: World) -> None:
    here, there = world.folder("typed-in"), world.folder("owner")
    (here / ".pwf").mkdir()
    file = there / ".pwf" / "workflows" / "tag.py"
    file.parent.mkdir(parents=True)
    file.write_text("from pwf import *\nimport os\n" + ECHO.replace("ctx.input", "os.getcwd()"))

    assert world.output(world.start(str(file), cwd=here)) == str(there)

    run_id = world.start("../owner/.pwf/workflows/tag.py", cwd=here, key="once")
    file.unlink()  # a repeat is the same start, though the file is gone
    assert world.start("../owner/.pwf/workflows/tag.py", cwd=here, key="once") == run_id


def test_a_run_with_a_time_starts_then_and_not_before(echo: World) -> None:
    asked_ms = time.time() * 1000
    started = echo.home.json("run", "echo", "--at", "+2s", "--detach")
    run_id = started["run_id"]
    assert echo.why(run_id) == "due_later"
    echo.finish(run_id)
    started_ms = echo.view(run_id).summary.started_ms
    assert started_ms is not None
    assert asked_ms + 2_000 <= started_ms < asked_ms + 2_000 + PATIENCE_S * 1000


def test_a_run_for_a_later_day_survives_the_daemon_and_can_be_cancelled(echo: World) -> None:
    run_id = echo.home.json("run", "echo", "--at", "2090-01-31T02:00+00:00", "--detach")["run_id"]
    echo.kill_daemon()
    assert echo.home.json("explain", run_id)["explanation"]["changes_at_ms"] == 3_789_511_200_000
    echo.home.run("cancel", run_id)


def test_a_reference_is_a_unique_prefix_or_last_or_last_failed(echo: World) -> None:
    for run_id in ("prefix-aa", "prefix-ab"):
        echo.finish(echo.start("echo", run_id, run_id=run_id))
    assert echo.home.json("show", "prefix-aa", "--output") == "prefix-aa"
    assert echo.home.json("show", "@last", "--output") == "prefix-ab"
    assert "prefix-aa" in echo.home.run("show", "prefix-a", code=3).stderr
    assert "no run" in echo.home.run("show", "prefix-b", code=3).stderr
    echo.home.workflow("breaks", ECHO.replace('"echo"', '"breaks"').replace("ctx.input", "1 / 0"))
    echo.finish(echo.start("breaks", run_id="broken-one"), "failed")
    assert echo.home.json("show", "@last-failed")["summary"]["run_id"] == "broken-one"


def test_a_run_is_restarted_once_and_when_that_run_has_ended_it_is_the_one_to_restart(world: World) -> None:
    world.home.workflow("asks", 'flow = Workflow("asks")\n@flow.checkpoint\ndef ask(ctx): return "?"\n')
    run_id = world.start("asks")
    world.parked(run_id, "waiting")
    world.cancel(run_id)
    restarted = world.home.json("restart", run_id)["run_id"]
    world.parked(restarted, "waiting")
    assert world.home.json("restart", run_id)["run_id"] == restarted
    world.cancel(restarted)
    refused = world.home.run("restart", run_id, code=4)
    assert f"was restarted as {restarted}, which has ended (cancelled" in refused.stderr
    assert f"pwf restart {restarted}" in refused.stderr


def test_input_comes_from_a_file_from_stdin_and_from_set(echo: World) -> None:
    path = echo.home.project / "in.json"
    path.write_text('{"a": [1, 2]}')
    words = ("run", "echo", "--json")
    for done in (
        echo.home.run(*words, "--input", f"@{path}", "--set", "a.1=true", "--set", "b.c=text"),
        echo.home.run(*words, "--input", "-", text='{"a": [1, true], "b": {"c": "text"}}'),
    ):
        first, last = map(json.loads, done.stdout.splitlines())
        assert first["run_id"] == last["summary"]["run_id"]
        run_id = first["run_id"]
        assert echo.output(run_id) == {"a": [1, True], "b": {"c": "text"}}


# --- bad workflow files, bad input ----------------------------------------------------------------------------

BAD_FILES = {
    "a syntax error": ("def x(:\n", 8, ["bad.py:2", "SyntaxError"]),
    "an import error": ("import no_such_module_here\n", 8, ["no_such_module_here"]),
    "an error at import": ("1 / 0\n", 8, ["ZeroDivisionError", "bad.py"]),
    "the end of the process at import": ("import os; os._exit(3)\n", 8, ["exit status 3"]),
    "an unknown node": (
        'flow = Workflow("bad")\n@flow.compute\ndef a(ctx): return 1\nflow.graph(a >> b)\n',
        8,
        ["b", "bad.py"],
    ),
    "an unreachable node": (
        'flow = Workflow("bad")\n@flow.compute\ndef a(ctx): return 1\n@flow.compute\ndef lonely(ctx): return 1\n'
        "@flow.compute\ndef c(ctx): return 1\nflow.graph(a >> c)\n",
        8,
        ["lonely", "bad.py"],
    ),
    "a missing case": (
        'from typing import Literal\nflow = Workflow("bad")\n'
        '@flow.compute\ndef a(ctx) -> Literal["x", "y"]: return "x"\n'
        "@flow.compute\ndef b(ctx): return 1\nflow.graph(a.switch(x=b))\n",
        8,
        ["'y'", "bad.py"],
    ),
    "no node": ('flow = Workflow("bad")\n', 8, ["bad.py"]),
    "no workflow at all": ("x = 1  # no Workflow\n", 8, ["bad.py"]),
    "an action without an effect": (
        'flow = Workflow("bad")\n@flow.action\ndef a(ctx): return 1\n',
        8,
        ["effect", "bad.py"],
    ),
}


@contextmanager
def nothing_is_left(world: World) -> Iterator[None]:
    """What happens in this block adds no row to any table."""
    before = world.client.call("state.status").rows
    yield
    assert world.client.call("state.status").rows == before


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_workflow_file_gets_one_clear_error_and_leaves_no_trace(world: World, fault: str) -> None:
    text, code, words = BAD_FILES[fault]
    path = world.home.workflow("bad", text)
    with nothing_is_left(world):
        for command in (("run", "bad"), ("check", str(path))):
            refused = world.home.run(*command, code=None)
            said = refused.stderr + refused.stdout
            assert refused.returncode in (code, 1), said
            for word in words:
                assert word in said, said
            assert "Traceback" not in said or fault == "an error at import", said
    path.unlink()


TYPED = """
import msgspec

class Inner(msgspec.Struct):
    count: int

class Typed(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: list[Inner] = []

flow = Workflow("typed", input=Typed)

@flow.compute
def one(ctx):
    return ctx.input.name
"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"name": 1}', ["name"]),
        ("{}", ["name"]),
        ('{"name": "a", "inner": [{"count": 1}, {"count": "two"}]}', ["inner", "1", "count"]),
        ('{"name": "a", "other": 1}', ["other"]),
        ("[]", ["object"]),
    ],
)
def test_input_of_the_wrong_type_is_refused_with_its_place(
    world: World, given: str, words: list[str]
) -> None:
    world.home.workflow("typed", TYPED)
    with nothing_is_left(world):
        refused = world.home.run("run", "typed", "--input", given, code=2)
        for word in words:
            assert word in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--input", "{not json"),
        ("--input", "NaN"),
        ("--input", '{"a": 1, "a": 2}'),
        ("--input", "@/no/such/file"),
        ("--input", '"\\ud800"'),
        ("--set", "no equals sign"),
        ("--id", "../../etc/passwd"),
        ("--id", ""),
        ("--key", "line\nbreak"),
        ("--at", "yesterday-ish"),
        ("--no-such-option",),
    ],
)
def test_what_is_mistyped_is_refused_before_the_daemon_hears_of_it(
    echo: World, words: tuple[str, ...]
) -> None:
    with nothing_is_left(echo):
        refused = echo.home.run("run", "echo", *words, code=2)
        assert refused.stderr.startswith("pwf: ")
        assert len(refused.stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    "words",
    [
        ("show", "no-such-run"),
        ("cancel", "no-such-run"),
        ("answer", "no-such-request", "1"),
        ("run", "no_such_workflow"),
        ("run", "./no/such/file.py"),
        ("graph", "no_such_workflow"),
    ],
)
def test_what_does_not_exist_is_not_found_with_a_hint(echo: World, words: tuple[str, ...]) -> None:
    with nothing_is_left(echo):
        refused = echo.home.run(*words, code=3)
        assert "hint:" in refused.stderr
        assert words[1].removeprefix("./") in refused.stderr


# --- bad homes ------------------------------------------------------------------------------------------------


def test_a_stale_socket_is_replaced(home: Home) -> None:
    home.home.mkdir(mode=0o700)
    with closing(socket.socket(socket.AF_UNIX)) as stale:
        stale.bind(str(home.home / "pwf.sock"))
    home.run("start")
    home.run("status")


def test_a_home_that_can_not_be_made_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home.environment["PWF_HOME"] = str(tmp_path / "file" / "home")
    refused = home.run("start", code=8)
    assert str(tmp_path / "file") in refused.stderr
    assert "hint:" in refused.stderr


# --- bad frames -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"{" * 10 + b"\n",
        b"\xff\xfe\n",
        b'{"type":"hello","protocol":"pwf.client.v1","version":"0","surprise":1}\n',
        b'{"type":"no such type"}\n',
        b"x" * (1024 * 1024 + 1),
    ],
)
def test_a_bad_frame_gets_one_error_frame_and_closes_only_its_connection(world: World, sent: bytes) -> None:
    world.client.call("daemon.status")
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(world.home.record.socket)
        connection.sendall(sent)
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass  # what was sent beyond the limit is not read
    frames = [line for line in received.splitlines() if b'"hello"' not in line]
    assert len(frames) == 1
    assert b'"type":"error"' in frames[0]
    assert world.client.call("daemon.status").state == "serving"


def test_after_all_of_this_the_daemon_is_still_the_same(echo: World) -> None:
    wait_for(lambda: echo.client.call("daemon.status").clients <= 2, PATIENCE_S)
    assert echo.output(echo.start("echo", "fine")) == "fine"
