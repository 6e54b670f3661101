"""Which process is the host that has started `pwf mcp`."""

from __future__ import annotations

import pytest

from pwf.host.identity import Identity, Process
from pwf.mcp.host_process import host_pid


def found(*chain: str) -> int | None:
    """The host of the last of these commands: each has started the next, the first is process 1."""
    rows = {
        pid: Process(Identity(pid=pid, start_tick=pid, boot_id="b", session=1), pid - 1, False)
        for pid in range(1, len(chain) + 1)
    }
    return host_pid(len(chain), rows.get, lambda pid: chain[pid - 1])


@pytest.mark.parametrize(
    ("chain", "host"),
    [
        (("init", "zsh", "claude", "python -m pwf mcp serve"), 3),
        (("init", "codex", "/bin/sh -c pwf", "uv run pwf mcp serve", "python"), 2),
        (("init", "code", "-bash", "env A=b pwf", "python"), 2),
        (("init", "python"), None),
        (("init", "sh -c pwf", "python"), None),
    ],
)
def test_the_nearest_that_is_no_shell_and_no_launcher(chain: tuple[str, ...], host: int | None) -> None:
    assert found(*chain) == host
