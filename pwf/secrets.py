"""Finds the value of a secret, at the moment when somebody needs it: `[secrets.NAME]` of the user's configuration says
where, or else it is the file `secrets/NAME` beside that.

Owns nothing: a value is returned and not kept. Promises: no message names a value; a file that others can read is
refused. What it calls may block, for as long as `COMMAND_S_MAX`: callers in an event loop run it in a thread. The
daemon uses it for steps; whatever else in the daemon needs a secret asks here, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from pwf.config import SecretSource, load_config
from pwf.errors import SecretMissing
from pwf.protocol.masking import LENGTH_MIN

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
SECRET_BYTES_MAX = 64 * 1024
COMMAND_S_MAX = 20.0
FOLDER = "secrets"  # beside the user's configuration file


def resolve(name: str, config: Path, environment: Mapping[str, str] | None = None) -> str:
    """The secret's value, without the newline at its end. `environment`: this process's, unless given.

    Raises `SecretMissing`, which says where it was looked for and what to do, and `ConfigError`.
    """
    source = _source(name, config)
    if source is None:
        data = _of_file(name, default_file(name, config), is_default=True)
    elif source.file is not None:
        data = _of_file(name, Path(os.path.expanduser(source.file)))
    elif source.environment is not None:
        data = _of_variable(name, source.environment, os.environ if environment is None else environment)
    elif source.command is not None:
        data = _of_command(name, source.command, "its command")
    else:
        data = _of_command(name, _keyring_command(name, source.keyring or ""), "the system's keyring")
    return _checked(name, data)


def without_source(names: Sequence[str], config: Path) -> tuple[str, ...]:
    """Those of which nothing says where they are. Whether one can be had is only known when it is needed."""
    known = load_config(config).secrets
    return tuple(
        name for name in names if name not in known and not os.path.lexists(default_file(name, config))
    )


def default_file(name: str, config: Path) -> Path:
    """Where a secret lies of which the configuration says nothing."""
    return config.parent / FOLDER / name


def how_to_give(name: str, config: Path) -> str:
    """What to type for a secret that has no source."""
    file = quote(str(default_file(name, config)))
    return (
        f"install -D -m 600 /dev/stdin {file}  (type the value, then Ctrl-D), or [secrets.{name}] in {config}"
    )


def _source(name: str, config: Path) -> SecretSource | None:
    if not NAME.fullmatch(name):
        raise SecretMissing(f"{name!r:.80} is no name of a secret", hint="letters, digits and _ . -")
    return load_config(config).secrets.get(name)


def _of_file(name: str, path: Path, *, is_default: bool = False) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        said = "has no source: there is no" if is_default else "is to be in a file that is not there:"
        hint = how_to_give(name, path.parent.parent / "config.toml") if is_default else f"make {path}"
        raise SecretMissing(f"the secret {name} {said} {path}", hint=hint) from error
    except OSError as error:
        raise SecretMissing(
            f"the secret {name} can not be read from {path}: {error.strerror}",
            hint=f"ls -l {quote(str(path))}",
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise SecretMissing(f"the secret {name} is to be in {path}, which is no file", hint="name a file")
        if facts.st_uid != os.geteuid():
            raise SecretMissing(
                f"the secret {name} is in {path}, which is not yours",
                hint=f"sudo chown $USER {quote(str(path))}",
            )
        if facts.st_mode & 0o077:
            raise SecretMissing(
                f"the secret {name} is in {path}, which others may read (mode {stat.S_IMODE(facts.st_mode):04o})",
                hint=f"chmod 600 {quote(str(path))}",
            )
        return file.read(SECRET_BYTES_MAX + 1)


def _of_variable(name: str, variable: str, environment: Mapping[str, str]) -> bytes:
    value = environment.get(variable)
    if value is None:
        raise SecretMissing(
            f"the secret {name} is to be in the variable {variable}, which the daemon does not have",
            hint=f"export {variable}, then pwf stop && pwf start; a service takes it from its unit's EnvironmentFile=",
        )
    return os.fsencode(value)


def _of_command(name: str, command: Sequence[str], what: str) -> bytes:
    """What the command prints. Nothing that it says is told on: it may be the value."""
    try:
        asked = subprocess.Popen(
            [os.path.expanduser(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise SecretMissing(
            f"the secret {name}: {what} can not be started: {error.strerror}",
            hint=f"which {quote(command[0])}",
        ) from error
    data = _printed(asked)
    if data is None:
        raise SecretMissing(
            f"the secret {name}: {what} took longer than {COMMAND_S_MAX:g} s",
            hint="does it ask for something?",
        )
    if asked.returncode != 0 and len(data) <= SECRET_BYTES_MAX:
        raise SecretMissing(
            f"the secret {name}: {what} ended with {asked.returncode}",
            hint="see what it says:  " + " ".join(map(quote, command)),
        )
    return data


def _printed(asked: subprocess.Popen[bytes]) -> bytes | None:
    """What a command prints, no more of it than is needed to say that it is too much; None: it took too long.

    One that has not ended is ended, with all that it has started.
    """
    assert asked.stdout is not None
    data = bytearray()
    deadline = time.monotonic() + COMMAND_S_MAX
    with asked, selectors.DefaultSelector() as ready:
        ready.register(asked.stdout, selectors.EVENT_READ)
        try:
            while len(data) <= SECRET_BYTES_MAX:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    return None
                more = os.read(asked.stdout.fileno(), SECRET_BYTES_MAX)
                if not more:
                    asked.wait(max(0.0, deadline - time.monotonic()))
                    break
                data += more
        except subprocess.TimeoutExpired:
            return None
        finally:
            if asked.returncode is None:  # not reaped: its number is its own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(asked.pid, signal.SIGKILL)
    return bytes(data)


def _keyring_command(name: str, service: str) -> tuple[str, ...]:
    """Reads the password of this service and user, as Python's `keyring` and others store it."""
    if sys.platform == "darwin":
        return ("security", "find-generic-password", "-s", service, "-a", name, "-w")
    if shutil.which("secret-tool") is None:
        raise SecretMissing(
            f"the secret {name} is in the system's keyring, which is read by secret-tool, which is not here",
            hint="install libsecret-tools",
        )
    return ("secret-tool", "lookup", "service", service, "username", name)


def _checked(name: str, data: bytes) -> str:
    if len(data) > SECRET_BYTES_MAX:
        raise SecretMissing(f"the secret {name} has more than {SECRET_BYTES_MAX:,} bytes", hint="store less")
    try:
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretMissing(f"the secret {name} is no text (UTF-8)", hint="store it as base64") from None
    if len(value.strip()) < LENGTH_MIN:
        raise SecretMissing(
            f"the secret {name} has fewer than {LENGTH_MIN} characters: it could not be taken out of what is kept",
            hint="use a longer one",
        )
    return value
