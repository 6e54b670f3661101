"""Where a command was typed: what a run takes over from the client that starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pwf.config import load_config
from pwf.errors import InvalidArgument
from pwf.places import Places
from pwf.protocol.origin import Origin


def origin(at: Places, *, cwd: str | Path | None = None, environment: dict[str, str] | None = None) -> Origin:
    """This process's folder, interpreter and allow-listed variables, with those that the config names.

    Raises `ConfigError` for a bad config.toml, `InvalidArgument` when the working folder is gone.
    """
    from pwf.discovery import client_environment

    env = dict(os.environ) if environment is None else environment
    try:
        folder = os.path.realpath(cwd if cwd is not None else os.getcwd(), strict=True)
    except OSError as error:
        raise InvalidArgument(
            f"the working folder can not be used: {error.strerror}", hint="cd to a folder that exists"
        ) from error
    names = load_config(at.config).environment
    return Origin(cwd=folder, python=sys.executable, environment=client_environment(env, names))
