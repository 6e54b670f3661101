"""The command line, from the typed words to the exit code.

Reads the words, runs one command, turns every expected error into `pwf: …` with a hint and a stable exit
code, and an interruption into what it means: runs go on. `pwf status` must stay fast: nothing here imports
an event loop or rich.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys

from pwf.cli import exits
from pwf.cli.commands import FOLDER_OPTION, Commands, Help, Parser
from pwf.cli.out import Out, UsageError, print_error
from pwf.errors import PwfError

#: The modules of this package that declare commands, with the names of these, in the order of `pwf --help`.
FAMILIES = {
    "run": ("run",),
    "watch": ("watch", "wait"),
    "look": ("ls", "show", "explain", "events"),
    "step": ("output",),
    "control": ("pause", "resume", "cancel", "restart"),
    "fork": ("retry", "fork"),
    "requests": ("requests", "answer", "submit"),
    "inbox": ("inbox",),
    "agents": ("agents",),
    "agent_loop": ("agent-loop",),
    "mcp": ("mcp",),
    "sessions": ("sessions",),
    "decide": ("decisions", "decide"),
    "channels": ("channel",),
    "settings": ("settings",),
    "follow_up": ("follow-up",),
    "effects": ("effects", "recover"),
    "workflows": ("workflows", "check", "graph"),
    "resources": ("resource",),
    "managers": ("managers",),
    "crashlab": ("crashlab",),
    "daemon": ("daemon", "start", "stop"),
    "web": ("web",),
    "service": ("service",),
    "logs": ("logs",),
    "status": ("status",),
    "state": ("state",),
    "doctor": ("doctor",),
    "completion": ("completion", "version"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    as_json = "--json" in words
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        return _run(words)
    except PwfError as error:
        print_error(error, as_json=as_json)
        return exits.of_error(error.code)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # What was not yet written goes nowhere, instead of failing again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.PIPE_CLOSED


def build_parser(command: str | None = None) -> Parser:
    """The whole command line, which completion scripts are generated from, too; or what of it one command needs."""
    parser = Parser(
        prog="pwf",
        description="Durable workflows for people and agents.",
        epilog="example:\n  pwf run hello --set name=Ada\n\nEvery command has --help and --json.",
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(*FOLDER_OPTION, metavar="DIR", help="act as if typed in DIR")
    subparsers: argparse._SubParsersAction[Parser] = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog=parser.prog
    )
    commands = Commands(subparsers, build_parser)
    for family, names in FAMILIES.items():
        if command is None or command in names:
            importlib.import_module(f"pwf.cli.{family}").add(commands)
    return parser


#: The arguments that name a run or a question.
_NAMES = ("run_id", "run_ids", "request_id", "decision_id")
#: Their values may begin with a minus, which argparse takes for an option.
_TIMES = frozenset({"--at", "--before", "--since", "--timeout", "--drain"})


def _with_negative_times(words: list[str]) -> list[str]:
    """`--at -5m` as `--at=-5m`, so that the command says what is wrong with it."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in _TIMES and word[:1] == "-" and word[1:2].isdecimal():
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _run(words: list[str]) -> int:
    words = _with_negative_times(words)
    parser = build_parser(_command_of(words))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        command = f"pwf {options.command}" if options.command else "pwf"
        raise UsageError(f"{' '.join(unknown)} is not known here", hint=f"{command} --help")
    out = Out(as_json=options.json)
    if options.version:
        from pwf.client.version import version

        out.print(f"pwf {version()}")
        return exits.OK
    if options.command is None:
        parser.print_help()
        return exits.USAGE
    _check_named(options)
    with _in_folder(options.folder):
        _stay_in_the_project(options)
        code: int = options.run(options, out)
    return code


def _check_named(options: argparse.Namespace) -> None:
    """An empty RUN is mostly a variable of a script that is not set."""
    named = [getattr(options, "run_id", None), *getattr(options, "run_ids", ())]
    if "" in named:
        raise UsageError(
            "RUN is empty",
            hint="name a run: pwf ls lists them, @last is the newest",
        )


def _stay_in_the_project(options: argparse.Namespace) -> None:
    """What `@last` means is of the project that one is in; in no project, of all."""
    named = {name: value for name, value in vars(options).items() if name in _NAMES and "@last" in str(value)}
    if not named:
        return
    from pathlib import Path

    from pwf.discovery import project_root

    root = project_root(Path())
    if not any((root / mark).exists() for mark in (".pwf", ".git")):
        return
    for name, value in named.items():
        setattr(
            options, name, [_of(one, root) for one in value] if isinstance(value, list) else _of(value, root)
        )


def _of(reference: str, root: object) -> str:
    return f"{reference}:{root}" if reference.removeprefix("run:") in ("@last", "@last-failed") else reference


def _in_folder(folder: str | None) -> contextlib.AbstractContextManager[object]:
    """Relative paths and settings, and what a name means, are then those of that folder."""
    if folder is None:
        return contextlib.nullcontext()
    if not os.path.isdir(folder):
        raise UsageError(f"-C {folder}: there is no such folder", hint="name a folder that exists")
    return contextlib.chdir(folder)


def _command_of(words: list[str]) -> str | None:
    """The command that is typed. An unknown one is answered with the nearest, where argparse would list them all."""
    not_folders = (
        word for before, word in zip(["", *words], words, strict=False) if before not in FOLDER_OPTION
    )
    name = next((word for word in not_folders if not word.startswith("-")), None)
    known = [command for names in FAMILIES.values() for command in names]
    if name is None or name in known:
        return name
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `pwf {near[0]}`?" if near else "pwf --help"
    raise UsageError(f"there is no command {name!r}", hint=hint)


if __name__ == "__main__":
    sys.exit(main())
