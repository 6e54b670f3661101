"""A runner forked from a template is a process of its own in every way that matters, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pwf import host
from pwf.protocol.runner import MARKER_VARIABLE, Finish
from tests.runner.spawning import (
    ENVIRONMENT,
    MARKER,
    WAITING_MARKER,
    Gone,
    RunnerPeer,
    ZygotePeer,
    bundle_of_text,
    graph_of,
    one_node,
)

WITH_AGENT = """
    import sys
    from pwf import Workflow
    flow = Workflow("flow")

    @flow.compute
    def step(ctx):
        return sorted({"pwf.runner.kinds.headless", "jsonschema_rs"} & set(sys.modules))

    @flow.agent(returns=int)
    def ask(ctx):
        return "A number."

    flow.graph(step >> ask)
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygotePeer]:
    peer = ZygotePeer()
    yield peer
    assert peer.stop() == 0


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def output_of(zygote: ZygotePeer, root: Path, body: str, head: str = "") -> object:
    """What one run of a one-node workflow gives."""
    bundle = one_node(root, body=body, head=head)
    template, loaded = zygote.template(bundle)
    assert (loaded.error, loaded.unsafe) == (None, None)
    return template.fork().run(graph_of(bundle))


def test_it_leads_a_session_and_is_the_subreaper_of_its_own(zygote: ZygotePeer, tmp_path: Path) -> None:
    body = "import os\nfrom pwf import host\nreturn [os.getsid(0) == os.getpid(), host.is_subreaper()]"
    assert output_of(zygote, tmp_path, body) == [True, True]


def test_nothing_is_loaded_that_has_work_to_do_in_each_fork(zygote: ZygotePeer, tmp_path: Path) -> None:
    body = """
    import sys
    return sorted({"threading", "logging", "random", "tempfile", "importlib.metadata"} & set(sys.modules))
    """
    assert output_of(zygote, tmp_path, body) == []


def test_what_a_headless_agent_needs_is_loaded_before_the_fork(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = bundle_of_text(tmp_path, WITH_AGENT)
    template, _ = zygote.template(bundle)
    runner = template.fork()
    runner.launch(graph_of(bundle))
    finish = runner.receive()
    assert isinstance(finish, Finish)
    assert finish.output is not None
    assert finish.output.json is not None
    assert msgspec.json.decode(finish.output.json) == ["jsonschema_rs", "pwf.runner.kinds.headless"]
    runner.close()


def test_it_has_no_descriptors_but_its_two_sockets_and_where_its_output_is_read(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = """
    import os
    found = {}
    for fd in map(int, os.listdir('/proc/self/fd')):
        try:
            found[str(fd)] = [os.readlink(f'/proc/self/fd/{fd}').partition(':')[0], os.get_inheritable(fd)]
        except OSError:
            pass
    return found
    """
    found = output_of(zygote, tmp_path, body)
    assert isinstance(found, dict)
    assert found.pop("0") == ["/dev/null", True]
    assert {found.pop("1")[1], found.pop("2")[1]} == {True}
    pipe, socket = ["pipe", False], ["socket", False]
    assert found == {"3": socket, "4": socket, "5": pipe, "6": pipe}


def test_signals_have_their_defaults_again(zygote: ZygotePeer, tmp_path: Path) -> None:
    body = """
    import signal
    names = ['SIGCHLD', 'SIGTERM', 'SIGHUP', 'SIGUSR1']
    mask = sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    handlers = {n: signal.getsignal(getattr(signal, n)) == signal.SIG_DFL for n in names}
    return [mask, handlers, signal.getsignal(signal.SIGINT) is signal.default_int_handler]
    """
    defaults = dict.fromkeys(["SIGCHLD", "SIGTERM", "SIGHUP", "SIGUSR1"], True)
    assert output_of(zygote, tmp_path, body) == [[], defaults, True]


def test_runners_draw_different_random_numbers(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="return random.random()", head="import random\nrandom.seed(1)")
    template, _ = zygote.template(bundle)
    graph = graph_of(bundle)
    assert template.fork().run(graph) != template.fork().run(graph)


def test_it_has_the_runs_environment_and_time_zone_and_no_other(zygote: ZygotePeer, tmp_path: Path) -> None:
    body = "import os, time\nreturn [dict(os.environ), time.tzname[0], os.popen('date +%Z').read().strip()]"
    bundle = one_node(tmp_path, body=body)
    environment = {**ENVIRONMENT, "TZ": "XYZ-3", "GIVEN": "value"}
    template, _ = zygote.template(bundle, environment)
    given, zone, shown = template.fork(marker="h:r:5").run(graph_of(bundle))
    assert given == {**environment, MARKER_VARIABLE: "h:r:5"}
    assert (zone, shown) == ("XYZ", "XYZ")


def test_what_loading_changed_in_the_environment_stays(zygote: ZygotePeer, tmp_path: Path) -> None:
    head = "import os\nos.environ['FROM_LOADING'] = 'kept'"
    body = f"return [os.environ['FROM_LOADING'], os.environ[{MARKER_VARIABLE!r}]]"
    assert output_of(zygote, tmp_path, body, head) == ["kept", MARKER]


def test_garbage_collection_is_on_in_a_runner(zygote: ZygotePeer, tmp_path: Path) -> None:
    assert output_of(zygote, tmp_path, "import gc\nreturn gc.isenabled()") is True


def test_the_marker_can_be_seen_in_a_runner_and_in_what_it_forks_without_exec(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = f"""
    import os, time
    if os.fork() == 0:
        os.setsid()
        open({str(tmp_path / "pid")!r}, 'w').write(str(os.getpid()))
        time.sleep(60)
    time.sleep(60)
    """
    bundle = one_node(tmp_path, body=body)
    template, _ = zygote.template(bundle)
    runner = template.fork(marker="home:the_run:12")
    runner.launch(graph_of(bundle))
    assert until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    assert host.read_variable(runner.identity.pid, MARKER_VARIABLE) == "home:the_run:12"
    assert host.read_variable(int((tmp_path / "pid").read_text()), MARKER_VARIABLE) == "home:the_run:12"
    os.kill(runner.identity.pid, signal.SIGKILL)
    assert template.link.exit_of(runner.identity).clean


# --- a runner that waits for its launch ---------------------------------------------------------------------


def comm(identity: host.Identity) -> str:
    return Path(f"/proc/{identity.pid}/comm").read_text().strip()


def test_it_has_no_run_until_its_launch_and_its_runs_name_and_marker_from_then_on(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = f"""
    import os
    from pwf import host
    own = host.read_variable(os.getpid(), {MARKER_VARIABLE!r})
    return [own, os.environ[{MARKER_VARIABLE!r}], open('/proc/self/comm').read().strip()]
    """
    bundle = one_node(tmp_path, body=body)
    template, _ = zygote.template(bundle)
    runner = template.fork(marker="h:run:7")
    assert until(lambda: comm(runner.identity) == "pwf-waiting")
    assert host.read_variable(runner.identity.pid, MARKER_VARIABLE) == WAITING_MARKER
    assert runner.run(graph_of(bundle)) == ["h:run:7", "h:run:7", "pwf-runner"]


def test_it_ends_when_nobody_wants_it(zygote: ZygotePeer, tmp_path: Path) -> None:
    template, _ = zygote.template(one_node(tmp_path, body="return 1"))
    runner = template.fork()
    runner.close()
    assert template.link.exit_of(runner.identity).clean


def test_it_does_not_end_with_its_template(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="return 1")
    template, _ = zygote.template(bundle)
    runner = template.fork()
    assert until(lambda: host.read_variable(runner.identity.pid, MARKER_VARIABLE) == WAITING_MARKER)
    template.link.close()
    assert zygote.exit_of(template.identity).status == 0
    assert runner.run(graph_of(bundle)) == 1


# --- what a runner leaves -----------------------------------------------------------------------------------

ESCAPES = {
    "through two shells": "sh -c 'sh -c \"sleep 61\" &'",
    "in a session of its own": "setsid sleep 61 &",
    "without the marker, in a session of its own": "env -i setsid sleep 61 &",
    "ignoring SIGTERM": "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &",
    "forking on and on": "env -i setsid sh -c 'while :; do (sleep 0.01; sleep 60) & sleep 0.002; done' &",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_what_a_killed_runner_leaves_is_ended_before_its_exit_is_reported(
    name: str, zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = f"import os, time\nos.system({ESCAPES[name]!r})\ntime.sleep(60)"
    bundle = one_node(tmp_path, body=body)
    template, _ = zygote.template(bundle)
    other = template.fork(marker="home:other:1")
    runner = template.fork()
    runner.launch(graph_of(bundle))
    assert until(lambda: len(host.descendants(runner.identity.pid)) >= 1)
    left = host.descendants(runner.identity.pid)
    os.kill(runner.identity.pid, signal.SIGKILL)
    exited = template.link.exit_of(runner.identity)
    assert (exited.status, exited.clean) == (-signal.SIGKILL, True)
    assert not any(host.is_alive(identity) for identity in left)
    assert [one.pid for one in host.descendants(template.identity.pid)] == [other.identity.pid]


def test_runners_outlive_their_template(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="return 'still here'")
    template, _ = zygote.template(bundle)
    runner = template.fork()
    template.link.close()
    assert zygote.exit_of(template.identity).status == 0
    assert runner.is_alive
    assert runner.run(graph_of(bundle)) == "still here"
    assert zygote.exit_of(runner.identity).status == 0, "the zygote reaps what it adopted"


def test_a_runner_that_is_never_launched_ends_when_its_socket_closes(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    template, _ = zygote.template(one_node(tmp_path))
    runner = template.fork()
    runner.close()
    assert template.link.exit_of(runner.identity).status == 0


def test_a_crash_of_the_runner_is_reported_with_its_signal(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="import os\nos.abort()")
    template, _ = zygote.template(bundle)
    runner = template.fork()
    runner.launch(graph_of(bundle))
    with pytest.raises((Gone, ConnectionError)):
        runner.receive()
    assert template.link.exit_of(runner.identity).status == -signal.SIGABRT
    assert template.fork().is_alive, "the template goes on"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("flow = (", "load_failed", "flow.py:1"),
        ("import no_such_module", "load_failed", "no_such_module"),
        ("raise SystemExit(3)", "load_failed", "SystemExit"),
        ("x = 1", "no_workflow", "flow.py"),
        ("from pwf import Workflow\nflow = Workflow('f')\n", "graph_error", "flow.py"),
    ],
)
def test_a_workflow_that_does_not_load_is_answered_with_why(
    text: str, code: str, said: str, zygote: ZygotePeer, tmp_path: Path
) -> None:
    template, loaded = zygote.template(bundle_of_text(tmp_path, text))
    assert (loaded.error_code, loaded.unsafe) == (code, None)
    assert said in loaded.error
    assert zygote.exit_of(template.identity).status == 0


def test_what_a_workflow_loaded_once_is_shared_by_its_runners(zygote: ZygotePeer, tmp_path: Path) -> None:
    head = (
        f"import os\nwith open({str(tmp_path / 'loads')!r}, 'a') as file: file.write(str(os.getpid()) + ' ')"
    )
    bundle = one_node(tmp_path, body="return 1", head=head)
    template, _ = zygote.template(bundle)
    graph = graph_of(bundle)
    before = (tmp_path / "loads").read_text().split()
    assert [template.fork().run(graph) for _ in range(3)] == [1, 1, 1]
    assert (tmp_path / "loads").read_text().split() == before
    assert str(template.identity.pid) in before


def test_a_runner_costs_little_memory_of_its_own(zygote: ZygotePeer, tmp_path: Path) -> None:
    template, _ = zygote.template(one_node(tmp_path))
    runners: list[RunnerPeer] = [template.fork() for _ in range(3)]
    time.sleep(0.05)
    assert all(host.memory_private_bytes(runner.identity.pid) < 8_000_000 for runner in runners)
