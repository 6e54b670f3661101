"""`pwf mcp`: the tools of pwf for an MCP host, and the entry for the host's configuration."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pwf.cli import exits
from pwf.cli.commands import Commands, Parser
from pwf.cli.out import Out, UsageError
from pwf.errors import extra_missing

WAIT_S = 45
PORT = 7394


def add(commands: Commands) -> None:
    group = commands.group(
        "mcp",
        "serve the tools of pwf to an MCP host (Claude Code, Cursor, VS Code, Codex, …)",
        example="pwf mcp install claude-code --write\npwf mcp serve",
    )
    parser = group.add(
        "serve",
        serve,
        "serve an MCP host over stdio, or over HTTP on this machine",
        example="pwf mcp serve\npwf mcp serve --grant operator --wait 20\npwf mcp serve --http",
        more="The host starts this command by itself; pwf mcp install writes the entry for it. A worker may ask for\n"
        "its step, submit, and read; an operator may also start, pause, resume, cancel and restart runs. What only a\n"
        "person may say is in neither. The grant step is for an agent that pwf has started: it hands in the result of\n"
        "that step, and nothing else.",
    )
    _grant(parser, STEP_GRANT)
    parser.add_argument(
        "--wait", metavar="SECONDS", type=_seconds, default=WAIT_S, help=f"no call takes longer ({WAIT_S})"
    )
    parser.add_argument("--session", metavar="ID", help="the session that this is; else one of its own")
    parser.add_argument(
        "--http",
        metavar="PORT",
        nargs="?",
        type=_port,
        const=PORT,
        help=f"serve HTTP at 127.0.0.1:PORT ({PORT}); the token is in the file mcp.token of the state folder",
    )
    parser = group.add(
        "install",
        install,
        "print the entry for a host's configuration, or write it",
        example="pwf mcp install claude-code\npwf mcp install codex --write\npwf mcp install cursor --grant operator",
        more="The entry names this Python, the folder of the project and the pwf home. With --write it is put into\n"
        "the host's file, and what stands there already is kept.",
    )
    parser.add_argument("host", metavar="HOST", choices=HOSTS, help=", ".join(HOSTS))
    parser.add_argument("--write", action="store_true", help="write it into the host's file")
    _grant(parser)


STEP_GRANT = "step"  # for an agent that pwf has started
HOSTS = ("claude-code", "claude-desktop", "cursor", "vscode", "codex")


def _grant(parser: Parser, *more: str) -> None:
    parser.add_argument(
        "--grant", choices=("worker", "operator", *more), default="worker", help="what it may do (worker)"
    )


def _seconds(typed: str) -> int:
    if not typed.isdecimal() or not 1 <= int(typed) <= 3600:
        raise argparse.ArgumentTypeError(f"{typed!r} is not a whole number of seconds between 1 and 3600")
    return int(typed)


def _port(typed: str) -> int:
    if not typed.isdecimal() or int(typed) > 65535:
        raise argparse.ArgumentTypeError(f"{typed!r} is not a port")
    return int(typed)


def serve(options: argparse.Namespace, out: Out) -> int:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise extra_missing("pwf mcp", "mcp", "mcp")
    if options.http is None and os.isatty(0):
        raise UsageError(
            "a host starts this command and speaks to it over stdin", hint="pwf mcp install claude-code"
        )
    if options.grant == STEP_GRANT:
        from pwf.mcp.step import serve_step

        if options.http is not None or options.session is not None:
            raise UsageError(
                "the grant step is served over stdio, and has no session", hint="pwf mcp serve --grant step"
            )
        serve_step()
        return exits.OK
    from pwf.mcp.serving import serve_host, serve_hosts

    if options.http is None:
        serve_host(options.grant, wait_s_max=options.wait, session=options.session)
    else:
        if options.session is not None:
            raise UsageError("over HTTP each host attaches a session of its own", hint="leave --session out")
        serve_hosts(
            options.grant,
            wait_s_max=options.wait,
            port=options.http,
            ready=lambda address, token: out.note(f"serving at {address}; the token is in {token}"),
        )
    return exits.OK


def install(options: argparse.Namespace, out: Out) -> int:
    from pwf.discovery import project_root
    from pwf.mcp.install import entry_for, written

    entry = entry_for(options.host, options.grant, project_root(Path.cwd()), dict(os.environ))
    if options.write:
        written(entry)
    if out.as_json:
        out.emit(
            {"host": options.host, "file": str(entry.file), "text": entry.text, "written": options.write}
        )
    elif options.write:
        out.print(f"written to {entry.file}; restart the host, or let it read its configuration again")
    else:
        out.print(entry.text)
        out.note(f"this belongs into {entry.file}; --write puts it there")
    return exits.OK
