"""The user's service manager: systemd on Linux, launchd on macOS. What is written for it, and what it is asked.

Owns the text of the unit. Promises: it is the user's own unit, never the system's; one home has one unit, and another
home another one; a file that somebody else has written there is never replaced or removed. Only `pwf service` calls it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from pwf.errors import Conflict, Unavailable
from pwf.places import Places, places

MARK = "Written by `pwf service install`; `pwf service uninstall` removes it."
COMMAND_S_MAX = 60.0
RESTART_S = 10  # after a crash, and between tries while another daemon serves
STOP_MORE_S = 30  # over the drain time, before what is left is killed


class ServiceState(NamedTuple):
    """What the manager says. `pid` 0: no process."""

    active: bool
    enabled: bool
    pid: int
    says: str


@dataclass(frozen=True)
class Service:
    """One unit: its name, its file, and what stands in it."""

    name: str
    path: Path
    text: str

    @property
    def is_installed(self) -> bool:
        """Whether the file is there."""
        return self.path.exists()

    @property
    def is_ours(self) -> bool:
        """Whether the file that is there was written by pwf."""
        return MARK in self._read()

    @property
    def is_current(self) -> bool:
        """Whether it says what would be written now."""
        return self._read() == self.text

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def write(self) -> None:
        """Raises `Conflict` for a file of somebody else's."""
        if self.is_installed and not self.is_ours:
            raise Conflict(
                f"{self.path} is there, and was not written by pwf", hint="look at it, and move it away"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text, encoding="utf-8")

    def remove(self) -> None:
        """Raises `Conflict` for a file of somebody else's."""
        if self.is_installed and not self.is_ours:
            raise Conflict(f"{self.path} was not written by pwf", hint="remove it yourself")
        self.path.unlink(missing_ok=True)


def service_of(at: Places, drain_s: float) -> Service:
    """The unit of this home, with the Python that runs now and the `PATH` of whoever asks."""
    command = [sys.executable, "-m", "pwf.cli.main", "daemon"]
    variables = {"PATH": os.environ.get("PATH", os.defpath)}
    name = "pwf"
    if at != places({name: value for name, value in os.environ.items() if name != "PWF_HOME"}):
        variables["PWF_HOME"] = str(at.home)
        name += "-" + re.sub(r"[^A-Za-z0-9]+", "-", str(at.home)).strip("-")[-60:]
    stop_s = int(drain_s) + STOP_MORE_S
    if sys.platform == "darwin":
        label = f"org.{name}"
        path = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
        return Service(label, path, _plist(label, command, variables, stop_s))
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    unit = f"{name}.service"
    return Service(unit, folder / unit, _unit(at, command, variables, stop_s))


def check_manager() -> None:
    """Raises `Unavailable` where no service manager of the user's answers."""
    program = "launchctl" if sys.platform == "darwin" else "systemctl"
    if shutil.which(program) is None:
        raise Unavailable(f"there is no {program} here", hint="pwf service install --print shows the unit")
    if sys.platform != "darwin":
        _call("systemctl", "--user", "show-environment")


def switch_on(service: Service) -> None:
    """Make the manager read the file, start the daemon, and start it again at each login or boot."""
    if sys.platform == "darwin":
        _call("launchctl", "bootout", f"gui/{os.getuid()}/{service.name}", may_fail=True)
        _call("launchctl", "bootstrap", f"gui/{os.getuid()}", str(service.path))
        return
    _call("systemctl", "--user", "daemon-reload")
    _call("systemctl", "--user", "enable", "--now", service.name)


def switch_off(service: Service) -> None:
    """Stop the daemon of the service, which drains, and start it no more."""
    if sys.platform == "darwin":
        _call("launchctl", "bootout", f"gui/{os.getuid()}/{service.name}", may_fail=True)
    else:
        _call("systemctl", "--user", "disable", "--now", service.name, may_fail=True)


def forget(service: Service) -> None:
    """The file is gone: make the manager see that."""
    if sys.platform != "darwin":
        _call("systemctl", "--user", "daemon-reload", may_fail=True)


def state_of(service: Service) -> ServiceState:
    """What the manager says of it; nothing of one that it doesn't know."""
    if sys.platform == "darwin":
        said = _call("launchctl", "print", f"gui/{os.getuid()}/{service.name}", may_fail=True)
        pid = re.search(r"^\s*pid = (\d+)", said, re.M)
        return ServiceState(
            pid is not None, bool(said), int(pid[1]) if pid else 0, "running" if pid else "not running"
        )
    wanted = "--property=ActiveState,SubState,UnitFileState,MainPID"
    said = _call("systemctl", "--user", "show", service.name, wanted, may_fail=True)
    facts = dict(line.partition("=")[::2] for line in said.splitlines())
    return ServiceState(
        facts.get("ActiveState") == "active",
        facts.get("UnitFileState") == "enabled",
        int(facts.get("MainPID") or 0),
        f"{facts.get('ActiveState') or 'unknown'} ({facts.get('SubState') or 'unknown'})",
    )


def ends_with_login() -> bool:
    """Whether the user's services end when the user logs out, and begin only when the user logs in."""
    if sys.platform == "darwin":
        return True
    user = str(os.getuid())
    return "Linger=no" in _call("loginctl", "show-user", user, "--property=Linger", may_fail=True)


def _call(*words: str, may_fail: bool = False) -> str:
    """What the command prints. Raises `Unavailable` when it fails, unless it may."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        if may_fail:
            return ""
        raise Unavailable(f"{' '.join(words)}: {error}", hint="is it installed?") from error
    if done.returncode != 0 and not may_fail:
        raise Unavailable(
            f"{' '.join(words)} failed: {done.stderr.strip() or done.returncode}",
            hint="pwf service install --print shows the unit, for a manager of your own",
        )
    return done.stdout if done.returncode == 0 else ""


# --- texts ----------------------------------------------------------------------------------------------------


def _unit(at: Places, command: list[str], variables: dict[str, str], stop_s: int) -> str:
    settings = "\n".join(f"Environment={_quoted(f'{name}={value}')}" for name, value in variables.items())
    return f"""# {MARK}
[Unit]
Description=pwf: durable workflows of {_plain(str(at.home))}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={" ".join(_quoted(word).replace("$", "$$") for word in command)}
{settings}
# Variables for secrets that `environment = "NAME"` names; no run gets them. It is yours alone: chmod 600.
EnvironmentFile=-{_plain(str(at.config.parent / "environment"))}
# After a crash, and while another daemon serves; not after `pwf stop`.
Restart=on-failure
RestartSec={RESTART_S}
# The daemon alone is told to stop: it lets steps reach a boundary, and ends what is left.
KillMode=mixed
TimeoutStopSec={stop_s}
# A step that takes too much memory ends alone.
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    return '"' + _plain(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(word: str) -> str:
    return word.replace("%", "%%").replace("\n", " ")


def _plist(label: str, command: list[str], variables: dict[str, str], stop_s: int) -> str:
    words = "".join(f"\n    <string>{escape(word)}</string>" for word in command)
    settings = "".join(
        f"\n    <key>{escape(name)}</key><string>{escape(value)}</string>"
        for name, value in variables.items()
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- {MARK} -->
<plist version="1.0"><dict>
  <key>Label</key><string>{escape(label)}</string>
  <key>ProgramArguments</key><array>{words}
  </array>
  <key>EnvironmentVariables</key><dict>{settings}
  </dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ThrottleInterval</key><integer>{RESTART_S}</integer>
  <key>ExitTimeOut</key><integer>{stop_s}</integer>
  <key>AbandonProcessGroup</key><true/>
</dict></plist>
"""
