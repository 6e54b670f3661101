"""The scratch home of a lab: its folder, its daemon and its client. Nothing of the user's own home is touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from pwf import host
from pwf.client.sync import SyncClient
from pwf.config import Config
from pwf.errors import PwfError
from pwf.places import Places, places
from pwf.protocol.crashlab import LAB_VARIABLE, STAND_IN_AGENT, LabFolder
from pwf.protocol.operations import StopPayload
from pwf.protocol.origin import Origin
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.views import Violation

DIES_S_MAX = 10.0
LEAVES_S_MAX = 10.0
SECRETS = "secrets"  # the folder of those of which the configuration says nothing (`pwf.secrets`)
#: Settings that a lab takes over from the user's own configuration.
TAKEN_OVER = (
    "interpreter",
    "trusted_folders",
    "max_value_bytes",
    "max_output_bytes",
    "runner_memory_bytes",
)


class ScratchHome:
    """Use it as a context manager. The client starts the daemon again after each kill."""

    def __init__(self, config: Config, workflows: Path, *, runners: int) -> None:
        # No run's id (`lab-8`) may stand in the folder's name: ids are taken out of what runs are compared by.
        self.folder = Path(tempfile.mkdtemp(prefix="pwf-crashlab."))
        self.lab = LabFolder(self.folder / "lab")
        for name in ("plans", "reached"):
            (self.lab.path / name).mkdir(parents=True)
        self.lab.ledger.touch()
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()
        self.places: Places = places({"PWF_HOME": str(self.folder / "home"), "HOME": os.path.expanduser("~")})
        self.places.home.mkdir(mode=0o700)
        (self.places.home / "workflows").symlink_to(
            workflows
        )  # the user's: they belong to no project here either
        if (workflows.parent / "resources").is_dir():
            (self.places.home / "resources").symlink_to(workflows.parent / "resources")
        if (workflows.parent / SECRETS).is_dir():
            (self.places.home / SECRETS).symlink_to(workflows.parent / SECRETS)
        self.places.config.write_text(_toml(config, runners), encoding="utf-8")
        self.client = SyncClient(self.places, autostart=True)
        self.home_id = ""
        self.killed = 0
        self._ended = False

    def __enter__(self) -> ScratchHome:
        self.client.open()
        self.home_id = self.client.call("state.status").home_id
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def origin(self, origin: Origin) -> Origin:
        """The user's origin, with what makes a run one of this lab's."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**origin.environment, LAB_VARIABLE: str(self.lab.path), "TMPDIR": str(temporary)}
        return Origin(cwd=origin.cwd, python=origin.python, environment=environment)

    def kill_daemon(self) -> None:
        """SIGKILL, and wait until it is dead. The next call of the client starts another."""
        daemon = host.process_identity(self.client.pid)
        if daemon is None:
            return
        host.kill_identity(daemon, signal.SIGKILL)
        self.killed += 1
        until = time.monotonic() + DIES_S_MAX
        while host.is_alive(daemon) and time.monotonic() < until:
            time.sleep(0.005)

    def violations(self) -> tuple[Violation, ...]:
        """What `pwf state verify` finds; a run that is being settled at this moment is looked at again."""
        for _ in range(20):
            found: tuple[Violation, ...] = self.client.call("state.verify").violations
            if not found:
                return ()
            time.sleep(0.1)
        return found

    def end(self) -> list[int]:
        """Stop the daemon; the processes of the lab's runs that are left then, which are killed. Once."""
        if self._ended:
            return []
        self._ended = True
        with contextlib.suppress(PwfError):
            self.client.call("daemon.stop", StopPayload(drain_ms=0), timeout_s=10)
        daemon = host.process_identity(self.client.pid) if self.client.pid else None
        self.client.close()
        until = time.monotonic() + LEAVES_S_MAX
        while daemon is not None and host.is_alive(daemon) and time.monotonic() < until:
            time.sleep(0.01)
        if daemon is not None and host.is_alive(daemon):
            host.kill_identity(daemon, signal.SIGKILL)
        left = self._left()
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = self._left()
        for identity in left:
            with contextlib.suppress(PermissionError):
                host.kill_identity(identity, signal.SIGKILL)
        return [identity.pid for identity in left]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _left(self) -> list[host.Identity]:
        if not self.home_id:
            return []
        return [
            bearer.identity
            for bearer in host.find_bearers(MARKER_VARIABLE)
            if bearer.marker is not None and bearer.marker.startswith(f"{self.home_id}:")
        ]


def _toml(config: Config, runners: int) -> str:
    lines = [f"max_runners = {runners}", "stop_grace_s = 0.5"]
    for name in TAKEN_OVER:
        value: Any = getattr(config, name)
        if value != getattr(Config(), name):
            lines.append(_line(name, value))
    for name, source in config.secrets.items():  # a step needs the same ones
        given = {one: getattr(source, one) for one in source.__struct_fields__}
        lines += [f"[secrets.{json.dumps(name)}]"]
        lines += [_line(one, value) for one, value in given.items() if value is not None]
    lines += [f"[agents.{STAND_IN_AGENT}]", 'command = ["true"]']
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"
