"""How a resource is named on the command line: MANAGER KEY, MANAGER/KEY or a uid."""

from __future__ import annotations

import argparse
import os
from typing import Any

from pwf.cli.commands import Parser
from pwf.cli.out import UsageError

MANAGER_HELP = "a manager's name, or MANAGER/KEY, or a resource's uid (a unique prefix)"


def add_reference(parser: Parser) -> None:
    """MANAGER KEY, as every command on one resource takes them."""
    parser.add_argument("manager", metavar="MANAGER", help=MANAGER_HELP)
    parser.add_argument("key", metavar="KEY", nargs="?", help="the resource's key")


def reference(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a `ResourceRef` that the words mean."""
    manager, key = options.manager, options.key
    if not manager or key == "":
        raise UsageError("MANAGER or KEY is empty", hint="pwf resource ls lists them")
    if key is None and "/" in manager:
        manager, _, key = manager.partition("/")
    if key is None:
        return {"uid": manager}
    return {"manager": manager, "key": key, "cwd": os.getcwd()}
