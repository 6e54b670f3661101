"""The entry for the configuration of a host, and its file.

Promises: what stands in the file already is kept, and a file that can not be read as what it should be is not
touched. Sources: the hosts' own manuals (Claude Code `.mcp.json`, Claude Desktop `claude_desktop_config.json`, Cursor
`.cursor/mcp.json`, VS Code `.vscode/mcp.json`, Codex `config.toml`), as of 2026.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pwf.errors import Conflict, InvalidArgument

NAME = "pwf"
#: What decides which home is meant: hosts pass few variables on.
PASSED = ("PWF_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")


class Entry(NamedTuple):
    """`section`: the object of the host's JSON that holds servers; None: the file is TOML, `text` goes to its end."""

    file: Path
    text: str
    section: str | None
    server: dict[str, Any]


def entry_for(host: str, grant: str, project: Path, environment: Mapping[str, str]) -> Entry:
    """What makes a host start `pwf mcp serve` for a project."""
    words = ["-m", "pwf", "-C", str(project), "mcp", "serve", "--session", _session(host, project)]
    server: dict[str, Any] = {
        "command": sys.executable,
        "args": words if grant == "worker" else [*words, "--grant", grant],
    }
    if found := {name: environment[name] for name in PASSED if environment.get(name)}:
        server["env"] = found
    file = _file_of(host, project, Path(environment.get("HOME") or os.path.expanduser("~")), environment)
    if host == "codex":
        return Entry(file, _toml(server), None, server)
    if host in ("claude-code", "vscode"):
        server = {"type": "stdio", **server}
    section = "servers" if host == "vscode" else "mcpServers"
    return Entry(file, json.dumps({section: {NAME: server}}, indent=2), section, server)


def _session(host: str, project: Path) -> str:
    """The same whenever the host comes back, so that it goes on with its runs."""
    return f"{host}-{hashlib.sha256(os.fsencode(project)).hexdigest()[:12]}"


def _file_of(host: str, project: Path, user: Path, environment: Mapping[str, str]) -> Path:
    if host == "claude-code":
        return project / ".mcp.json"
    if host == "cursor":
        return project / ".cursor" / "mcp.json"
    if host == "vscode":
        return project / ".vscode" / "mcp.json"
    if host == "codex":
        return Path(environment.get("CODEX_HOME") or user / ".codex") / "config.toml"
    if sys.platform == "darwin":
        return user / "Library" / "Application Support" / "Claude" / "claude_desktop_config.json"
    config = Path(environment.get("XDG_CONFIG_HOME") or user / ".config")
    return config / "Claude" / "claude_desktop_config.json"


def written(entry: Entry) -> None:
    """Put the entry into its file. Raises `Conflict` where a TOML file has another of our name, `InvalidArgument` for
    a file that is not what it should be.
    """
    text = entry.file.read_text("utf-8") if entry.file.exists() else ""
    new = _with_toml(text, entry) if entry.section is None else _with_json(text, entry, entry.section)
    if new == text:
        return
    entry.file.parent.mkdir(parents=True, exist_ok=True)
    real = Path(os.path.realpath(entry.file))  # a link of the user's stays one
    partial = real.with_name(real.name + ".pwf-new")
    partial.write_text(new, "utf-8")
    if real.exists():
        partial.chmod(real.stat().st_mode & 0o777)
    partial.replace(real)


def _with_json(text: str, entry: Entry, section: str) -> str:
    try:
        whole = json.loads(text) if text.strip() else {}
        servers = whole.setdefault(section, {})
        servers[NAME] = entry.server
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"{entry.file} is no plain JSON object (comments?), and is left as it is",
            hint="put the entry in by hand: leave --write out to see it",
        ) from error
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _with_toml(text: str, entry: Entry) -> str:
    try:
        there = tomllib.loads(text).get("mcp_servers", {}).get(NAME)
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise InvalidArgument(
            f"{entry.file} can not be read: {error}", hint="mend it first; it is left as it is"
        ) from error
    if there == entry.server:
        return text
    if there is not None:
        raise Conflict(
            f"{entry.file} has another [mcp_servers.{NAME}] already",
            hint="change it by hand: leave --write out to see the entry",
        )
    return (text.rstrip("\n") + "\n\n" if text.strip() else "") + entry.text + "\n"


def _toml(server: dict[str, Any]) -> str:
    """JSON's strings and lists of strings are TOML's, too."""
    lines = [f"[mcp_servers.{NAME}]", f"command = {json.dumps(server['command'])}"]
    lines.append(f"args = {json.dumps(server['args'])}")
    if "env" in server:
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in server["env"].items())
        lines.append(f"env = {{ {pairs} }}")
    return "\n".join(lines)
