"""Whether what the configuration names to reach people is installed: answer pages, channels. Checks of `pwf doctor`.

They look at programs and packages; whether a channel works is what its test says (`pwf channel test`).
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from pwf.client.finding import Check, fail, ok
from pwf.config import CommandChannel, McpChannel, SlackChannel, load_config
from pwf.errors import PwfError, extra_command
from pwf.places import Places

#: By the kind of a channel: the package that it needs, and the extra that brings it.
NEEDS: dict[type, tuple[str, str]] = {SlackChannel: ("websockets", "slack"), McpChannel: ("mcp", "mcp")}
PAGES_PACKAGES = ("hypercorn", "jinja2", "starlette")


def check_pages(at: Places) -> Check:
    """Whether what serves the answer pages is installed, where the daemon is to keep them."""
    try:
        web = load_config(at.config).web
    except PwfError:
        return ok("pages", "not looked at")  # the check of the configuration says why
    if not web.serve:
        return ok("pages", "served by pwf web, when somebody starts it")
    missing = [name for name in PAGES_PACKAGES if find_spec(name) is None]
    if missing:
        return fail("pages", f"missing: {', '.join(missing)}", extra_command("web"))
    return ok("pages", f"kept at {web.url('/')} by the daemon")


def check_channels(at: Places) -> Check:
    """The program of each channel of the kind command, and the packages that a kind needs."""
    try:
        channels = load_config(at.config).channels
    except PwfError:
        return ok("channels", "not looked at")  # the check of the configuration says why
    for name, channel in channels.items():
        package, extra = NEEDS.get(type(channel), ("", ""))
        if package and find_spec(package) is None:
            return fail("channels", f"{name} needs the package {package}", extra_command(extra))
        if isinstance(channel, CommandChannel) and not _is_program(channel.command[0]):
            return fail(
                "channels",
                f"{name}: there is no program {channel.command[0]}",
                f"mend command in [channels.{name}] of {at.config}, then: pwf channel reload",
            )
    return ok("channels", ", ".join(channels) or "none")


def _is_program(word: str) -> bool:
    return shutil.which(os.path.expanduser(word)) is not None
