"""`pwf completion` and `pwf version`. The scripts are generated from the parser, so they can not lag
behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pwf.cli import exits
from pwf.cli.commands import Commands, Parser, client
from pwf.cli.out import Out, UsageError

FILE_ARGUMENTS = frozenset({"FILE", "WORKFLOW"})
#: What an argument of this name may be, looked up when somebody completes it.
LOOKED_UP = {
    "RUN": "runs",
    "WORKFLOW": "workflows",
    "W": "workflows",
    "REQUEST": "requests",
    "DECISION": "requests",
}
LOOKED_UP_MAX = 100
LOOK_S_MAX = 2.0


class Words(NamedTuple):
    """What can be typed after a command: options with their help and choices, and choices of its arguments.

    `kind` and `kinds`: what is looked up for the arguments, and for the values of options.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[tuple[str, str, tuple[str, ...]], ...]
    arguments: tuple[str, ...]
    files: bool
    kind: str
    kinds: dict[str, str]


def add(commands: Commands) -> None:
    parser = commands.add(
        "completion",
        functools.partial(completion, commands.whole),
        "print a script that completes commands in a shell",
        example="pwf completion bash > ~/.local/share/bash-completion/completions/pwf\n"
        'pwf completion zsh > "${fpath[1]}/_pwf"\npwf completion fish > ~/.config/fish/completions/pwf.fish',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), nargs="?", help="the shell")
    parser.add_argument("--list", choices=sorted(set(LOOKED_UP.values())), help=argparse.SUPPRESS)
    commands.add("version", version, "print the version", example="pwf version")


def version(options: argparse.Namespace, out: Out) -> int:
    import sys

    from pwf.client.version import version as installed

    if out.as_json:
        out.emit({"pwf": installed(), "python": sys.version.split()[0]})
    else:
        out.print(f"pwf {installed()}")
    return exits.OK


def completion(whole: Callable[[], Parser], options: argparse.Namespace, out: Out) -> int:
    if options.list is not None:
        _print_found(options.list, out)
        return exits.OK
    if options.shell is None:
        raise UsageError("SHELL is missing", hint="pwf completion bash, zsh or fish")
    words = list(_words(whole(), ()))
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](words)
    if out.as_json:
        out.emit({"shell": options.shell, "script": script})
    else:
        out.print(script.rstrip("\n"))
    return exits.OK


def _print_found(kind: str, out: Out) -> None:
    """A name and what it is on each line, for the scripts. Starts nothing, and says nothing of what goes wrong."""
    from pwf.errors import PwfError
    from pwf.present import text

    with contextlib.suppress(PwfError, OSError):
        for name, what in {"runs": _runs, "requests": _requests, "workflows": _workflows}[kind]():
            if not any(mark in name for mark in " \t\n"):
                out.print(f"{text.line(name)}\t{text.line(what, 60)}")


def _workflows() -> Iterator[tuple[str, str]]:
    from pathlib import Path

    from pwf.discovery import list_workflow_files
    from pwf.places import places

    for found in list_workflow_files(Path.cwd(), places().config.parent):
        yield found.name, found.scope


def _runs() -> Iterator[tuple[str, str]]:
    from pwf.protocol.operations import RunListPayload

    yield from (("@last", "the newest run here"), ("@last-failed", "the newest that failed here"))
    with client(autostart=False, reconnect=False) as daemon:
        listed = daemon.call("run.list", RunListPayload(limit=LOOKED_UP_MAX), timeout_s=LOOK_S_MAX)
    for run in listed.runs:
        yield run.run_id, f"{run.status} {run.title or run.workflow}"


def _requests() -> Iterator[tuple[str, str]]:
    from pwf.protocol.operations import RequestListPayload

    yield "@last", "the newest question"
    with client(autostart=False, reconnect=False) as daemon:
        listed = daemon.call("request.list", RequestListPayload(limit=LOOKED_UP_MAX), timeout_s=LOOK_S_MAX)
    for request in listed.requests:
        yield request.request_id, f"{request.kind} of {request.workflow} {request.run_id}"


def _words(parser: argparse.ArgumentParser, path: tuple[str, ...], help: str = "") -> list[Words]:
    options: list[tuple[str, str, tuple[str, ...]]] = []
    arguments: list[str] = []
    below: list[Words] = []
    files, kind = False, ""
    kinds: dict[str, str] = {}
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            helps = {entry.dest: entry.help or "" for entry in action._choices_actions}
            arguments.extend(action.choices)
            for name, child in action.choices.items():
                assert isinstance(child, Parser)
                below += _words(child, (*path, name), helps.get(name, ""))
        elif action.option_strings:
            options.append((action.option_strings[-1], (action.help or "").split(";")[0], choices))
            if looked_up := LOOKED_UP.get(str(action.metavar)):
                kinds[action.option_strings[-1]] = looked_up
        else:
            arguments.extend(choices)
            files = files or action.metavar in FILE_ARGUMENTS
            kind = kind or LOOKED_UP.get(str(action.metavar), "")
    return [Words(path, help, tuple(options), tuple(arguments), files, kind, kinds), *below]


def _bash(words: list[Words]) -> str:
    cases: list[str] = []
    for item in words:
        typed = " ".join(item.path)
        offered = " ".join([*item.arguments, *(option for option, _, _ in item.options)])
        files = "; files=1" if item.files else ""
        kind = f'; kind="{item.kind}"' if item.kind else ""
        cases.append(f'    "{typed}") offered="{offered}"{files}{kind} ;;')
    values = [
        f'    "{" ".join(item.path)} {option}") offered="{" ".join(choices)}"; values=1 ;;'
        for item in words
        for option, _, choices in item.options
        if choices
    ]
    values += [
        f'    "{" ".join(item.path)} {option}") kind="{kind}"; values=1 ;;'
        for item in words
        for option, kind in item.kinds.items()
    ]
    known = " ".join(f'"{" ".join(item.path)}"' for item in words if item.path)
    return (
        BASH.replace("@CASES@", "\n".join(cases))
        .replace("@VALUES@", "\n".join(values))
        .replace("@KNOWN@", known)
    )


def _zsh(words: list[Words]) -> str:
    return ZSH.replace("@BASH@", _bash(words).rstrip("\n"))


def _fish(words: list[Words]) -> str:
    lines = ["# pwf: completions for fish, written by `pwf completion fish`", "complete -c pwf -f"]
    top = next(item for item in words if not item.path)
    for item in words:
        if not item.path:
            continue
        inner = [other for other in words if other.path[:-1] == item.path]
        if len(item.path) == 1:
            lines.append(
                f"complete -c pwf -n __fish_use_subcommand -a {item.path[0]} -d {_fish_quote(item.help)}"
            )
            seen = f"__fish_seen_subcommand_from {item.path[0]}"
        else:
            seen = (
                f"__fish_seen_subcommand_from {item.path[0]}; and __fish_seen_subcommand_from {item.path[1]}"
            )
            names = " ".join(
                other.path[1] for other in words if other.path[:1] == item.path[:1] and len(other.path) == 2
            )
            outer = f"__fish_seen_subcommand_from {item.path[0]}; and not __fish_seen_subcommand_from {names}"
            lines.append(f"complete -c pwf -n '{outer}' -a {item.path[1]} -d {_fish_quote(item.help)}")
        if item.arguments and not inner:
            lines.append(f"complete -c pwf -n '{seen}' -a '{' '.join(item.arguments)}'")
        if item.kind:
            lines.append(f"complete -c pwf -n '{seen}' -a '(pwf completion --list {item.kind} 2>/dev/null)'")
        if item.files:
            lines.append(f"complete -c pwf -n '{seen}' -F")
        for option, help, choices in item.options:
            extra = f" -x -a '{' '.join(choices)}'" if choices else ""
            if option in item.kinds:
                extra = f" -x -a '(pwf completion --list {item.kinds[option]} 2>/dev/null)'"
            lines.append(f"complete -c pwf -n '{seen}' -l {option.lstrip('-')}{extra} -d {_fish_quote(help)}")
    for option, help, _ in top.options:
        lines.append(
            f"complete -c pwf -n __fish_use_subcommand -l {option.lstrip('-')} -d {_fish_quote(help)}"
        )
    return "\n".join(lines) + "\n"


def _fish_quote(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


# Also zsh's, where `path` is the search path, and an offset is no expression by itself.
BASH = """# pwf: completions for bash, written by `pwf completion bash`
_pwf() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local typed="" word offered="" files="" values="" kind="" known
  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do
    for known in @KNOWN@; do
      if [[ "${typed:+$typed }$word" == "$known" ]]; then typed="$known"; break; fi
    done
  done
  case "$typed $previous" in
@VALUES@
  esac
  if [[ -z "$values" ]]; then
    case "$typed" in
@CASES@
    esac
  fi
  if [[ -n "$kind" && "$current" != -* ]]; then
    offered+=" $("${COMP_WORDS[0]}" completion --list "$kind" 2>/dev/null | cut -f1)"
  fi
  COMPREPLY=($(compgen -W "$offered" -- "$current"))
  if [[ -n "$files" && "$current" != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _pwf pwf
"""

ZSH = """#compdef pwf
# pwf: completions for zsh, written by `pwf completion zsh`; they use bash's through bashcompinit
autoload -U +X bashcompinit && bashcompinit
@BASH@
"""
