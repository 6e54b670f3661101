"""How a command is declared: a parser with an example, and the function that runs it.

Each family's module has `add(commands)`, imports little at its top, and the rest inside its functions, so
that every command pays only for what it uses.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Container
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from pwf.cli.out import Out, UsageError

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient

COLUMNS = 80  # where nobody says
Run = Callable[[argparse.Namespace, Out], int]


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are errors like all others: with what to type next."""

    alone: Callable[[list[str]], list[str]] = staticmethod(
        lambda words: words
    )  # what the words of a group mean

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, once the words of a group that leave its command out have it."""
        return super().parse_known_args(None if args is None else self.alone(list(args)), namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")


class Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. argparse makes one for each option that is declared, and asks `shutil` how wide."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


@cache
def _columns() -> int:
    typed = os.environ.get("COLUMNS", "")
    if typed.isdecimal() and int(typed) > 0:
        return int(typed)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(1).columns or COLUMNS
    return COLUMNS


class Commands:
    """The table of commands, in the order of `pwf --help`."""

    def __init__(self, subparsers: argparse._SubParsersAction[Parser], whole: Callable[[], Parser]) -> None:
        self._subparsers = subparsers
        self.whole = whole  # makes the parser of the whole line

    def add(self, name: str, run: Run, help: str, *, example: str, more: str = "") -> Parser:
        """Declare one command. `example` is shown by --help as it can be typed."""
        parser = self._subparsers.add_parser(
            name,
            help=help,
            description=_sentence(help) + (f"\n\n{more}" if more else ""),
            epilog=_examples(example),
            formatter_class=Help,
            allow_abbrev=False,
        )
        parser.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs"
        )
        parser.add_argument(
            *FOLDER_OPTION, metavar="DIR", default=argparse.SUPPRESS, help="act as if typed in DIR"
        )
        parser.set_defaults(run=run)
        return parser

    def group(
        self, name: str, help: str, *, example: str, alone: str | None = None, words: int = 0
    ) -> Commands:
        """Declare a command that has commands of its own. `alone`: the one that so many words mean which name none."""
        parser = self._subparsers.add_parser(
            name,
            help=help,
            description=_sentence(help),
            epilog=_examples(example),
            formatter_class=Help,
            allow_abbrev=False,
        )
        inner: argparse._SubParsersAction[Parser] = parser.add_subparsers(
            dest="inner", metavar="COMMAND", required=True, prog=parser.prog
        )
        if alone is not None:
            parser.alone = lambda typed: _with_command(typed, alone, words, inner.choices)
        return Commands(inner, self.whole)


def _with_command(typed: list[str], command: str, words: int, commands: Container[str]) -> list[str]:
    plain = [word for word in typed if not word.startswith("-")]
    asks_help = "-h" in typed or "--help" in typed
    named = bool(plain) and plain[0] in commands
    return typed if named or asks_help or len(plain) != words else [command, *typed]


FOLDER_OPTION = ("-C", "--folder")  # before or after the command
RUN_HELP = "a run's id, a unique prefix of it, @last or @last-failed (of this project)"


def client(*, autostart: bool | None = None, reconnect: bool = True) -> SyncClient:
    """A connected client; the caller closes it."""
    from pwf.client.sync import SyncClient

    return SyncClient(
        autostart=autostart, reconnect=reconnect, tell=lambda words: sys.stderr.write(words + "\n")
    )


def page_limit(typed: str) -> int:
    """The type of a `--limit`: within what one page may hold."""
    from pwf.protocol.operations import LIST_PAGE_MAX

    if not typed.isdecimal() or not 1 <= int(typed) <= LIST_PAGE_MAX:
        raise argparse.ArgumentTypeError(f"{typed!r} is not a whole number between 1 and {LIST_PAGE_MAX:,}")
    return int(typed)


def say_where_a_list_ends(shown: int, limit: int, out: Out) -> None:
    """A list that is as long as it may be has mostly more."""
    if shown >= limit:
        out.note(f"only {shown:,} are shown; see more with --limit N")


def add_cursor(parser: argparse.ArgumentParser) -> None:
    """`--cursor`, of a list that comes in pages."""
    parser.add_argument("--cursor", metavar="N", type=int, help="go on where a page ended, which has said so")


def say_where_a_page_ends(next_cursor: int | None, out: Out) -> None:
    """What to type for the next page, where there is one."""
    if next_cursor is not None:
        out.note(f"there are more; go on with --cursor {next_cursor}, or see more at once with --limit N")


def command_names(parser: argparse.ArgumentParser) -> list[str]:
    """The names of a parser's commands; none when it has no commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    return []


def _sentence(help: str) -> str:
    return help[:1].upper() + help[1:] + "."


def _examples(example: str) -> str:
    lines = example.splitlines()
    head = "example:" if len(lines) == 1 else "examples:"
    return head + "\n" + "\n".join("  " + line for line in lines)
