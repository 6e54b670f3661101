"""Commands run in this process against the fake daemon; terminal tests run them behind a real pseudo
terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pexpect
import pytest

from pwf.cli.main import main
from pwf.protocol.operations import Nothing
from tests.client import samples
from tests.client.conftest import daemon, home
from tests.client.fake_daemon import FakeDaemon

__all__ = ["daemon", "home"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pwf = Callable[..., Result]


@pytest.fixture
def pwf(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Pwf:
    """Run one command: `pwf("ls", "--json")`."""
    monkeypatch.setenv("PWF_HOME", str(daemon.places.home))
    monkeypatch.setenv("PWF_NO_AUTOSTART", "1")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Result:
        code = main(list(words))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


Spawn = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def terminal(daemon: FakeDaemon, tmp_path: Path) -> Iterator[Spawn]:
    """Run one command behind a pseudo terminal of 100 columns."""
    live: list[pexpect.spawn[str]] = []

    def spawn(*words: str, **env: str) -> pexpect.spawn[str]:
        environment = {**os.environ, "PWF_HOME": str(daemon.places.home), "PWF_NO_AUTOSTART": "1", **env}
        environment.setdefault("TERM", "xterm-256color")
        child = pexpect.spawn(
            sys.executable,
            ["-m", "pwf.cli.main", *words],
            env=environment,
            cwd=str(tmp_path),
            dimensions=(30, 100),
            encoding="utf-8",
            timeout=20,
        )
        live.append(child)
        return child

    yield spawn
    for child in live:
        child.close(force=True)


def script_run(daemon: FakeDaemon, *views: Any) -> None:
    """`run.start` is accepted; the run's subscription sends these views one after another."""
    daemon.on("run.start", lambda request, payload: samples.started())
    daemon.on("workflow.describe", lambda request, payload: samples.described())
    daemon.on("view.subscribe", lambda request, payload: Nothing())

    def push(request: Any, payload: Any) -> None:
        for revision, view in enumerate(views, 1):
            daemon.push(payload.id, "snapshot", revision, view)

    daemon.on("after:view.subscribe", push)
