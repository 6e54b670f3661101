"""The zygote forks helpers and reaps them, stays small and clean, and takes everything with it when it ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import pwf
from pwf import host
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.spawn import Fork, Resolved
from pwf.runner.spawn.channel import SpawnSocket
from tests.runner.spawning import Gone, Link, ZygotePeer, graph_of, one_node


@pytest.fixture
def zygote() -> Iterator[ZygotePeer]:
    peer = ZygotePeer()
    yield peer
    ended_by_the_test = peer.process.poll() is not None
    assert peer.stop() == 0 or ended_by_the_test


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def write_flow(root: Path, head: str = "") -> Path:
    path = root / "flow.py"
    path.write_bytes(one_node(root, head=head).sources[0].text)
    return path


def test_it_says_what_it_is(zygote: ZygotePeer) -> None:
    assert zygote.hello.pwf == pwf.__version__
    assert zygote.hello.identity == host.process_identity(zygote.process.pid)


def test_it_is_single_threaded_and_holds_only_its_control_socket(zygote: ZygotePeer) -> None:
    pid = zygote.process.pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    kinds = {os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")}
    own = {os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in (1, 2)}
    assert kinds - own <= {"/dev/null", "socket", "pipe"}
    assert "apsw" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_resolver_answers_over_its_own_socket(zygote: ZygotePeer, tmp_path: Path) -> None:
    path = write_flow(tmp_path)
    link, identity = zygote.resolver(path, tmp_path)
    answer = link.answer(Resolved)
    assert answer.error is None
    assert answer.definition.graph.name == "flow"
    assert path.read_bytes() in answer.texts.values()
    exited = zygote.exit_of(identity)
    assert (exited.status, exited.clean) == (0, True)


def test_each_resolver_sees_the_file_as_it_stands(zygote: ZygotePeer, tmp_path: Path) -> None:
    path = write_flow(tmp_path)
    first = zygote.resolver(path, tmp_path)[0].answer(Resolved)
    write_flow(tmp_path, head="changed = True")
    second = zygote.resolver(path, tmp_path)[0].answer(Resolved)
    assert first.definition.definition_id != second.definition.definition_id


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import os\nos._exit(3)", 3),
    ],
)
def test_a_file_that_ends_its_resolver_ends_only_that(
    zygote: ZygotePeer, tmp_path: Path, head: str, status: int
) -> None:
    path = write_flow(tmp_path, head)
    link, identity = zygote.resolver(path, tmp_path)
    with pytest.raises(Gone):
        link.receive()
    assert zygote.exit_of(identity).status == status
    write_flow(tmp_path)
    assert zygote.resolver(path, tmp_path)[0].answer(Resolved).error is None


def test_what_loading_starts_ends_with_the_resolver(zygote: ZygotePeer, tmp_path: Path) -> None:
    head = f"import os\nos.system('env -i setsid sleep 60 & echo $! > {tmp_path}/pid')"
    link, identity = zygote.resolver(write_flow(tmp_path, head), tmp_path)
    assert link.answer(Resolved).error is None
    assert zygote.exit_of(identity).clean
    left = host.process_identity(int((tmp_path / "pid").read_text()))
    assert left is None or not host.is_alive(left)


def test_memory_is_bounded_while_loading(zygote: ZygotePeer, tmp_path: Path) -> None:
    answer = zygote.resolver(write_flow(tmp_path, "x = bytearray(16 << 30)"), tmp_path)[0].answer(Resolved)
    assert answer.error_code == "load_failed"
    assert "MemoryError" in answer.error


def test_everything_below_it_ends_when_the_daemon_closes_its_socket(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = f"""
    import os, time
    os.system("env -i setsid sh -c 'trap \\"\\" TERM; sleep 61' & echo $! > {tmp_path}/pid")
    time.sleep(60)
    """
    bundle = one_node(tmp_path, body=body)
    template, _ = zygote.template(bundle)
    runner = template.fork()
    runner.launch(graph_of(bundle))
    pid_file = tmp_path / "pid"
    assert until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    below = [host.process_identity(zygote.process.pid), *host.descendants(zygote.process.pid)]
    assert len(below) >= 4
    zygote.stop()
    assert until(lambda: not any(host.is_alive(identity) for identity in below if identity is not None))


def test_an_exec_started_runner_has_its_environment_and_marker_from_the_start(
    zygote: ZygotePeer, tmp_path: Path
) -> None:
    body = "import os, sys\nreturn [os.getsid(0) == os.getpid(), sorted(os.environ), sys.argv[1:]]"
    bundle = one_node(tmp_path, body=body)
    runner, loaded = zygote.fresh(bundle, marker="home:fresh:9")
    assert loaded.error is None
    assert host.read_variable(runner.identity.pid, MARKER_VARIABLE) == "home:fresh:9"
    leads, names, _ = runner.run(graph_of(bundle))
    assert leads
    assert set(names) <= {"PATH", "HOME", "LANG", MARKER_VARIABLE, "LC_CTYPE"}
    exited = zygote.exit_of(runner.identity)
    assert (exited.status, exited.clean) == (0, True)


def test_exit_handlers_run_in_an_exec_started_runner(zygote: ZygotePeer, tmp_path: Path) -> None:
    head = f"import atexit, pathlib\natexit.register(pathlib.Path({str(tmp_path / 'said')!r}).write_text, 'goodbye')"
    bundle = one_node(tmp_path, head=head)
    runner, _ = zygote.fresh(bundle)
    runner.run(graph_of(bundle))
    assert zygote.exit_of(runner.identity).status == 0
    assert (tmp_path / "said").read_text() == "goodbye"


def test_an_exec_started_runner_says_why_loading_failed(zygote: ZygotePeer, tmp_path: Path) -> None:
    runner, loaded = zygote.fresh(one_node(tmp_path, head="import no_such_module"))
    assert loaded.error_code == "load_failed"
    assert "no_such_module" in loaded.error
    assert zygote.exit_of(runner.identity).status == 0


def test_a_bad_frame_ends_it_rather_than_being_guessed_at(zygote: ZygotePeer) -> None:
    zygote.ours.sendall(b"\x00\x00\x00\x03abc")
    assert zygote.process.wait(10) != 0


# --- frames -------------------------------------------------------------------------------------------------


def test_descriptors_come_with_the_frame_that_they_were_sent_with() -> None:
    peer = Link()
    receiving = SpawnSocket(os.dup(peer.theirs.fileno()))
    pairs = [socket.socketpair() for _ in range(2)]
    peer.send(Fork(call=1, role="template"))
    peer.send(Fork(call=2, role="template"), [pairs[0][0].fileno()])
    peer.send(Fork(call=3, role="resolver"))
    peer.send(Fork(call=4, role="resolver"), [pairs[1][0].fileno(), pairs[1][1].fileno()])
    received = [receiving.receive() for _ in range(4)]
    assert [(frame[0].call, len(frame[1])) for frame in received if frame] == [(1, 0), (2, 1), (3, 0), (4, 2)]
    for frame in received:
        assert frame is not None
        for descriptor in frame[1]:
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)
    peer.close()
    assert receiving.receive() is None
    receiving.close()
    for ends in pairs:
        for end in ends:
            end.close()


def test_an_identity_goes_over_the_wire_unchanged(zygote: ZygotePeer) -> None:
    data = msgspec.msgpack.encode(zygote.hello.identity)
    assert msgspec.msgpack.decode(data, type=host.Identity) == zygote.hello.identity
