"""Processes are told apart exactly, found by what they bear, and signalled only when they are the ones meant."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pwf import host
from pwf.errors import Unavailable
from pwf.host import Identity
from pwf.host.holders import files_of, holders, pinned_by

MARKER = "PWF_TEST_MARKER"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARKER: "one:two:3"})
    until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    yield process
    process.kill()
    process.wait()


def identity_of(pid: int) -> Identity:
    found = host.process_identity(pid)
    assert found is not None
    return found


def test_an_identity_is_stable_and_alive_until_the_process_ends(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    assert identity == identity_of(sleeper.pid)
    assert host.is_alive(identity)
    sleeper.kill()
    sleeper.wait()
    assert not host.is_alive(identity)
    assert host.process_identity(sleeper.pid) is None


def test_a_zombie_is_dead_and_still_has_its_identity(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    sleeper.kill()
    assert until(lambda: not host.is_alive(identity))
    assert identity_of(sleeper.pid) == identity, "not reaped yet"


def test_a_process_whose_leader_ended_while_a_thread_goes_on_is_alive_and_bears_its_marker() -> None:
    code = (
        "import threading, time, ctypes\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this one thread (x86-64)
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the number of the system call")
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARKER: "one:two:3"})
    try:
        assert until(lambda: b") Z" in Path(f"/proc/{process.pid}/stat").read_bytes())
        assert host.is_alive(identity_of(process.pid))
        assert host.read_variable(process.pid, MARKER) == "one:two:3"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("change", [{"start_tick": 1}, {"boot_id": "another"}])
def test_a_process_with_a_recycled_pid_is_never_signalled(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    stranger = msgspec.structs.replace(identity_of(sleeper.pid), **change)
    assert not host.is_alive(stranger)
    assert not host.kill_identity(stranger)
    assert host.open_exit(stranger) is None
    assert sleeper.poll() is None


def test_killing_by_identity_ends_exactly_that_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    assert host.kill_identity(identity, signal.SIGTERM)
    assert sleeper.wait(5) == -signal.SIGTERM
    assert not host.kill_identity(identity)


def test_the_exit_descriptor_gets_readable_when_the_process_ends(sleeper: subprocess.Popen[bytes]) -> None:
    descriptor = host.open_exit(identity_of(sleeper.pid))
    assert descriptor is not None
    assert select.select([descriptor], [], [], 0)[0] == []
    sleeper.kill()
    assert select.select([descriptor], [], [], 5)[0] == [descriptor]
    os.close(descriptor)


def test_bearers_of_a_variable_are_found_with_its_value(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    found = {bearer.identity.pid: bearer for bearer in host.find_bearers(MARKER, identity.start_tick)}
    assert found[sleeper.pid].marker == "one:two:3"
    assert found[sleeper.pid].identity == identity
    assert found[sleeper.pid].parent == os.getpid()
    assert all(bearer.identity.start_tick >= identity.start_tick for bearer in found.values())


def test_a_process_that_calls_exec_on_and_on_is_never_missed() -> None:
    script = 'exec sh -c "$0" "$0"'
    process = subprocess.Popen(["sh", "-c", script, script], env={**os.environ, MARKER: "always"})
    try:
        since = identity_of(process.pid).start_tick
        for _ in range(200):
            markers = {one.identity.pid: one.marker for one in host.find_bearers(MARKER, since)}
            assert markers[process.pid] == "always"
    finally:
        process.kill()
        process.wait()


def test_a_process_that_calls_exec_on_and_on_is_named_by_its_words_never_by_its_programs_name_alone() -> None:
    script = 'exec sh -c "$0" "$0"'
    process = subprocess.Popen(["sh", "-c", script, script])
    try:
        assert {host.command_of(process.pid, wait_s=60) for _ in range(2_000)} == {shlex.join(process.args)}
    finally:
        process.kill()
        process.wait()


def test_a_process_that_has_ended_is_named_at_once_by_its_programs_name() -> None:
    process = subprocess.Popen(["sleep", "0"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert host.command_of(process.pid, wait_s=3_600) == "sleep"
    process.wait()
    assert host.command_of(process.pid, wait_s=3_600) == ""


@pytest.mark.serial
def test_a_process_without_any_environment_is_not_waited_for() -> None:
    process = subprocess.Popen(["sleep", "60"], env={})
    until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    before = time.monotonic()
    assert host.read_variable(process.pid, MARKER) is None
    assert time.monotonic() - before < 0.01
    process.kill()
    process.wait()


@pytest.mark.serial
def test_a_process_without_any_environment_is_not_waited_for_though_its_leader_ended() -> None:
    code = (
        "import threading, time, ctypes\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={})
    try:
        assert until(lambda: b") Z" in Path(f"/proc/{process.pid}/stat").read_bytes())
        before = time.monotonic()
        assert host.read_variable(process.pid, MARKER) is None
        assert time.monotonic() - before < 0.1
    finally:
        process.kill()
        process.wait()


def test_a_variable_whose_name_only_begins_alike_is_not_taken(sleeper: subprocess.Popen[bytes]) -> None:
    assert host.read_variable(sleeper.pid, MARKER[:-1]) is None
    assert host.read_variable(sleeper.pid, MARKER) == "one:two:3"
    assert host.read_variable(2**22 + 1, MARKER) is None


def test_a_process_that_started_later_has_no_earlier_tick_than_now() -> None:
    before = host.now_tick() - 2
    process = subprocess.Popen(["sleep", "60"])
    assert before <= identity_of(process.pid).start_tick <= host.now_tick()
    process.kill()
    process.wait()


def test_descendants_are_found_through_several_generations() -> None:
    process = subprocess.Popen(["sh", "-c", "sh -c 'sleep 60 & wait' & wait"])
    try:
        assert until(lambda: len(host.descendants(process.pid)) == 2)
        assert host.descendants(process.pid)[0].pid == host.children(process.pid)[0]
    finally:
        for identity in host.descendants(process.pid):
            host.kill_identity(identity)
        process.kill()
        process.wait()


def test_a_forked_child_shows_the_marker_that_it_wrote_and_so_do_its_own_children() -> None:
    code = f"""
import os, sys, time
from pwf import host
reserved = host.ReservedVariable({MARKER!r})
assert reserved.room == 40, reserved.room
if os.fork() == 0:
    assert not reserved.write("x" * 41)
    assert reserved.write("home:run:7")
    if os.fork() == 0:
        print(host.read_variable(os.getpid(), {MARKER!r}), os.environ["OTHER"], flush=True)
        os._exit(0)
    os.wait()
    print(host.read_variable(os.getpid(), {MARKER!r}), flush=True)
    os._exit(0)
os.wait()
print(host.read_variable(os.getpid(), {MARKER!r}), host.ReservedVariable("NOT_THERE").room)
"""
    shown = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env={"A": "1", MARKER: "." * 40, "OTHER": "untouched"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert shown.stdout.split() == ["home:run:7", "untouched", "home:run:7", "." * 40, "-1"], shown.stderr


def test_orphans_come_to_a_subreaper() -> None:
    code = """
import os, time
from pwf import host
assert not host.is_subreaper() and not host.has_children()
host.set_subreaper()
assert host.is_subreaper()
if os.fork() == 0:
    os.system("sleep 0.2 &")
    os._exit(0)
os.wait()
assert host.has_children()
print(len(host.children(os.getpid())))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=20
    )
    assert shown.stdout == "1\n", shown.stderr


def test_threads_and_descriptors_are_counted_as_the_kernel_has_them() -> None:
    threads, descriptors = host.kernel_threads(), host.open_descriptors()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    read, write = os.pipe()
    assert host.kernel_threads() == threads + 1
    opened = {fd: at for fd, at in host.open_descriptors().items() if descriptors.get(fd) != at}
    assert set(opened) >= {read, write}
    assert opened[read].startswith("pipe:")
    stop.set()
    thread.join()
    os.close(read)
    os.close(write)


def test_private_memory_is_counted_and_is_zero_for_a_process_that_is_gone() -> None:
    assert host.memory_private_bytes(os.getpid()) > 1_000_000
    assert host.memory_private_bytes(2**22 + 1) == 0


def test_an_end_that_can_not_be_watched_for_want_of_descriptors_costs_none() -> None:
    code = """
import os, resource
from pwf import host
identity = host.process_identity(os.getpid())
os.close(host.open_exit(identity))
used = max(map(int, os.listdir("/proc/self/fd")))  # of the listing itself: the next free number
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))  # one more may be opened, and no second one
for _ in range(3):
    try:
        host.open_exit(identity)
    except OSError:
        pass
    else:
        raise SystemExit("there was a descriptor to read the process with")
    os.close(os.open("/dev/null", os.O_RDONLY))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=20
    )
    assert shown.returncode == 0, shown.stderr


# --- what the system doesn't say ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe"])
def test_a_boot_id_that_can_not_be_read_is_one_plain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes | None
) -> None:
    file = tmp_path / "boot_id"
    if text is not None:
        file.write_bytes(text)
    monkeypatch.setattr("pwf.host.linux._BOOT_ID", str(file))
    host.boot_id.cache_clear()
    with pytest.raises(Unavailable, match="the boot id of this machine can not be read") as caught:
        host.boot_id()
    assert str(file) in (caught.value.hint or "")
    monkeypatch.undo()
    assert host.boot_id()


@pytest.mark.parametrize("found", [None, ValueError("no number"), IndexError()])
def test_a_start_time_that_can_not_be_read_is_one_plain_error(
    monkeypatch: pytest.MonkeyPatch, found: Exception | None
) -> None:
    def process_identity(pid: int) -> None:
        if found is not None:
            raise found

    monkeypatch.setattr(host, "process_identity", process_identity)
    with pytest.raises(Unavailable, match="the start time of this process"):
        host.own_identity()


# --- who has a file open ------------------------------------------------------------------------------------------


def test_a_process_that_has_a_file_open_is_found_by_pid_and_name(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    with (tmp_path / "x.db").open("rb") as mine:
        assert holders(files_of(tmp_path / "x.db")) == []
        child = subprocess.Popen(["sleep", "60"], stdin=mine)
    try:
        (found,) = holders(files_of(tmp_path / "x.db"))
        assert str(found) == f"pid {child.pid} (sleep)"
        assert holders(files_of(tmp_path / "x.db"), besides=(child.pid,)) == []
        assert f"pid {child.pid} (sleep) has the database open" in pinned_by(64 * 1024**2, [found])
    finally:
        child.kill()
        child.wait()
    assert "64 MiB" in pinned_by(64 * 1024**2, [])
