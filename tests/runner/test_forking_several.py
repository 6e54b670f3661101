"""Runners that are forked together are as much apart as those that are forked one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pwf import host
from tests.runner.spawning import ZygotePeer, graph_of, one_node

MARKERS = ("home:a:1", "home:b:1", "home:c:1", "home:d:1")


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygotePeer]:
    peer = ZygotePeer()
    yield peer
    assert peer.stop() == 0


def test_each_is_a_process_of_its_own_with_a_run_of_its_own(zygote: ZygotePeer, tmp_path: Path) -> None:
    body = """
    import os
    from pwf.protocol.runner import MARKER_VARIABLE
    return [os.getpid(), os.getsid(0), os.environ[MARKER_VARIABLE]]
    """
    bundle = one_node(tmp_path, body=body)
    template, _ = zygote.template(bundle)
    runners = template.fork_some(*MARKERS)
    assert len({runner.identity.pid for runner in runners}) == len(MARKERS)
    for runner in reversed(runners):
        pid = runner.identity.pid
        assert runner.run(graph_of(bundle)) == [pid, pid, runner.marker]
        assert template.link.exit_of(runner.identity).status == 0


def test_each_has_no_descriptors_but_its_own(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="import os\nreturn sorted(map(int, os.listdir('/proc/self/fd')))[:-1]")
    template, _ = zygote.template(bundle)
    for runner in template.fork_some(*MARKERS):
        assert runner.run(graph_of(bundle)) == [0, 1, 2, 3, 4, 5, 6]


def test_one_whose_socket_closes_ends_while_the_others_go_on(zygote: ZygotePeer, tmp_path: Path) -> None:
    bundle = one_node(tmp_path, body="return 7")
    template, _ = zygote.template(bundle)
    first, second = template.fork_some(*MARKERS[:2])
    first.close()
    deadline = time.monotonic() + 5
    while host.is_alive(first.identity):
        assert time.monotonic() < deadline, "a brother holds its socket open"
        time.sleep(0.005)
    assert second.run(graph_of(bundle)) == 7
