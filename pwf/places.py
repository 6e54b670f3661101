"""Where pwf keeps things, and which home is meant.

`PWF_HOME` overrides all; otherwise XDG. The lock file records the socket's path, and clients read it there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT_CONFIG = Path(".pwf") / "config.toml"  # below a project's root
SOCKET_PATH_BYTES_MAX = 100  # sun_path holds 104 bytes on macOS and 108 on Linux, with its NUL


@dataclass(frozen=True)
class Places:
    """The paths of one pwf home."""

    home: Path
    config: Path
    socket: Path

    @property
    def database(self) -> Path:
        return self.home / "pwf.db"

    @property
    def ballast(self) -> Path:
        return self.home / "ballast"

    @property
    def lock(self) -> Path:
        return self.home / "daemon.lock"

    @property
    def output(self) -> Path:
        """What the steps of runs print."""
        return self.home / "output"

    @property
    def signalled(self) -> Path:
        """Which daemon a step was about to send a signal to, as its runner has noted."""
        return self.home / "signalled"

    @property
    def log(self) -> Path:
        """The daemon's own records. Older ones stand beside it, as `daemon.log.1` and on."""
        return self.home / "daemon.log"

    @property
    def last_words(self) -> Path:
        """What the process of a daemon in the background prints: the interpreter's own crashes, and mostly nothing."""
        return self.home / "daemon.err"


def places(environment: dict[str, str] | None = None) -> Places:
    """Find the home, the configuration and the socket for this user and environment."""
    env = dict(os.environ) if environment is None else environment
    user_home = Path(env.get("HOME") or os.path.expanduser("~"))
    override = env.get("PWF_HOME")
    if override:
        home = Path(os.path.realpath(override))  # one home has one name, whatever links lead to it
        return Places(home, home / "config.toml", _socket(home / "pwf.sock", home))
    state = Path(env.get("XDG_STATE_HOME") or user_home / ".local" / "state")
    config = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config")
    home = Path(os.path.realpath(state / "pwf"))
    runtime = env.get("XDG_RUNTIME_DIR")
    # Homes that share a runtime folder have a name each in it.
    wanted = Path(runtime) / "pwf" / f"{_short(home)}.sock" if runtime else home / "pwf.sock"
    return Places(home, config / "pwf" / "config.toml", _socket(wanted, home))


def identity_of(home: Path) -> str:
    """Which folder this is, whatever it is called: device and inode; "" when there is none."""
    try:
        found = home.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _socket(wanted: Path, home: Path) -> Path:
    if len(os.fsencode(wanted)) <= SOCKET_PATH_BYTES_MAX:
        return wanted
    return Path("/tmp") / f"pwf-{os.getuid()}" / f"{_short(home)}.sock"


def _short(home: Path) -> str:
    import hashlib  # OpenSSL takes its time to load, and few homes need this

    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
