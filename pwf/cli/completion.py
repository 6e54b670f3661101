"""`pwf completion` and `pwf version`. The scripts are generated from the parser, so they can not lag
behind it.
"""

from __future__ import annotations

import argparse
import functools
from typing import NamedTuple

from pwf.cli import exits
from pwf.cli.commands import Commands, Parser
from pwf.cli.out import Out

FILE_ARGUMENTS = frozenset({"FILE", "WORKFLOW"})


class Words(NamedTuple):
    """What can be typed after a command: options with their help and choices, and choices of its
    arguments.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[tuple[str, str, tuple[str, ...]], ...]
    arguments: tuple[str, ...]
    files: bool


def add(commands: Commands) -> None:
    parser = commands.add(
        "completion",
        functools.partial(completion, commands.root),
        "print a script that completes commands in a shell",
        example="pwf completion bash > ~/.local/share/bash-completion/completions/pwf\n"
        'pwf completion zsh > "${fpath[1]}/_pwf"\npwf completion fish > ~/.config/fish/completions/pwf.fish',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    commands.add("version", version, "print the version", example="pwf version")


def version(options: argparse.Namespace, out: Out) -> int:
    import sys

    from pwf.client.version import version as installed

    if out.as_json:
        out.emit({"pwf": installed(), "python": sys.version.split()[0]})
    else:
        out.print(f"pwf {installed()}")
    return exits.OK


def completion(root: Parser, options: argparse.Namespace, out: Out) -> int:
    words = list(_words(root, ()))
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](words)
    if out.as_json:
        out.emit({"shell": options.shell, "script": script})
    else:
        out.print(script.rstrip("\n"))
    return exits.OK


def _words(parser: argparse.ArgumentParser, path: tuple[str, ...], help: str = "") -> list[Words]:
    options: list[tuple[str, str, tuple[str, ...]]] = []
    arguments: list[str] = []
    below: list[Words] = []
    files = False
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
        else:
            arguments.extend(choices)
            files = files or action.metavar in FILE_ARGUMENTS
    return [Words(path, help, tuple(options), tuple(arguments), files), *below]


def _bash(words: list[Words]) -> str:
    cases: list[str] = []
    for item in words:
        typed = " ".join(item.path)
        offered = " ".join([*item.arguments, *(option for option, _, _ in item.options)])
        files = "; files=1" if item.files else ""
        cases.append(f'    "{typed}") offered="{offered}"{files} ;;')
    values = [
        f'    "{" ".join(item.path)} {option}") offered="{" ".join(choices)}"; values=1 ;;'
        for item in words
        for option, _, choices in item.options
        if choices
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
        if item.files:
            lines.append(f"complete -c pwf -n '{seen}' -F")
        for option, help, choices in item.options:
            extra = f" -x -a '{' '.join(choices)}'" if choices else ""
            lines.append(f"complete -c pwf -n '{seen}' -l {option.lstrip('-')}{extra} -d {_fish_quote(help)}")
    for option, help, _ in top.options:
        lines.append(
            f"complete -c pwf -n __fish_use_subcommand -l {option.lstrip('-')} -d {_fish_quote(help)}"
        )
    return "\n".join(lines) + "\n"


def _fish_quote(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


BASH = """# pwf: completions for bash, written by `pwf completion bash`
_pwf() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local path="" word offered="" files="" values="" known
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    for known in @KNOWN@; do
      if [[ "${path:+$path }$word" == "$known" ]]; then path="$known"; break; fi
    done
  done
  case "$path $previous" in
@VALUES@
  esac
  if [[ -z "$values" ]]; then
    case "$path" in
@CASES@
    esac
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
