"""Peers are known by the kernel's word, and file systems that SQLite can not trust are recognised."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pwf import host

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_peer_of_a_unix_socket_is_known_by_its_user() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert host.peer_uid(ours) == os.getuid()


def test_the_process_that_connected_is_known_as_long_as_it_lives(tmp_path: Path) -> None:
    connects = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"
    )
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        child = subprocess.Popen([sys.executable, "-c", connects, str(tmp_path / "s")], stdin=subprocess.PIPE)
        with listening.accept()[0] as accepted:
            alive = host.peer_process(accepted)
            child.communicate()
            assert alive is not None
            assert alive.pid == child.pid
            assert host.peer_process(accepted) is None


@linux_only
def test_the_file_system_of_a_path_is_found_even_before_the_path_exists(tmp_path: Path) -> None:
    assert host.filesystem_type("/proc/self/status") == "proc"
    assert host.filesystem_type(tmp_path / "not" / "there" / "yet") == host.filesystem_type(tmp_path) != ""
    assert not host.is_network_filesystem(tmp_path)


@linux_only
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_network_file_system_is_recognised_by_its_mount(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        b"40 22 0:41 / /srv rw - tmpfs none rw\n"
        b"41 22 0:42 / /srv/a\\040b rw shared:5 - " + kind.encode() + b" server:/x rw\n"
    )
    real = Path.read_bytes

    def read(path: Path) -> bytes:
        return mounts if str(path) == "/proc/self/mountinfo" else real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    assert host.is_network_filesystem("/srv/a b/state")
    assert host.filesystem_type("/srv/a b/state") == kind
    assert not host.is_network_filesystem("/srv/a bc")
    assert not host.is_network_filesystem("/srv/other")
    assert host.filesystem_type("/home") == "ext4"


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be_and_never_lowered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert host.raise_open_files(300) == 300
        assert host.raise_open_files(200) == 300
        if hard != resource.RLIM_INFINITY:
            assert host.raise_open_files(hard + 10) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
