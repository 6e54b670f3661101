"""Where a command was typed: what a run takes over from the client that starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pwf.config import load_config, load_project_config
from pwf.errors import InvalidArgument, VariablesWanted
from pwf.places import PROJECT_CONFIG, Places
from pwf.protocol.operations import StartPayload
from pwf.protocol.origin import Origin
from pwf.protocol.resources import ApplyPayload
from pwf.protocol.runner import MARKER_VARIABLE

PayloadT = TypeVar("PayloadT", StartPayload, ApplyPayload)


def origin(
    at: Places,
    workflow: str = "",
    *,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Origin:
    """This process's folder, interpreter and allow-listed variables, and those that a configuration names.

    `workflow`: what is to be started; its project's configuration counts beside the user's. `more`: variables that a
    caller gives for this start, over all others. Raises `ConfigError` for a bad configuration, `InvalidArgument` when
    the working folder is gone or a variable can't be passed.
    """
    from pwf.discovery import client_environment, project_of

    env = os.environ if environment is None else environment
    try:
        folder = os.path.realpath(cwd if cwd is not None else os.getcwd(), strict=True)
    except OSError as error:
        raise InvalidArgument(
            f"the working folder can not be used: {error.strerror}", hint="cd to a folder that exists"
        ) from error
    config = load_config(at.config)
    root = project_of(workflow, Path(folder), at.config.parent)
    project = load_project_config(root / PROJECT_CONFIG, config.trusted_folders)
    names = (*config.environment.passed, *project.environment.passed)
    variables = {**client_environment(env, names), **_checked(more or {})}
    return Origin(cwd=folder, python=sys.executable, environment=variables)


def with_wanted(
    payload: PayloadT, wanted: VariablesWanted, environment: Mapping[str, str] | None = None
) -> PayloadT:
    """The start or apply once more, with what its file declares, as far as it is set here."""
    from pwf.discovery import client_environment

    env = os.environ if environment is None else environment
    details = wanted.details if isinstance(wanted.details, dict) else {}
    names = {str(name) for name in details.get("names", ())}
    found = client_environment({name: env[name] for name in names if name in env}, names)
    whole = msgspec.structs.replace(
        payload.origin, environment={**found, **payload.origin.environment}, whole=True
    )
    return msgspec.structs.replace(payload, origin=whole)


def _checked(more: Mapping[str, str]) -> dict[str, str]:
    """Raises `InvalidArgument` for what no environment can hold."""
    for name, value in more.items():
        if not name or "=" in name or "\0" in name + value or name == MARKER_VARIABLE:
            raise InvalidArgument(
                f"the variable {name!r:.80} can't be given to a run",
                hint="a name has no = and no NUL, and PWF_RUN_MARKER is pwf's own",
            )
    return dict(more)
