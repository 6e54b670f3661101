"""Shell nodes: what their function may return, their options, and their result.

Nothing here starts a process: the runner does, with the argv, stdin, folder and variables that are made here.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from pwf.errors import InvalidValue
from pwf.values import parse

MAX_OUTPUT_DEFAULT = 4 * 1024 * 1024  # bytes, for stdout and stderr each

Parse = Callable[["ShellResult"], Any] | Literal["json", "lines"]
OnLine = Callable[[Any, str, str], Mapping[str, Any] | None]  # ctx, line, "stdout" or "stderr"
LineParser = OnLine | str | re.Pattern[str]  # a regular expression has groups that are fields of progress
Stdin = str | bytes | Callable[[Any], str | bytes]
Folder = str | os.PathLike[str] | Callable[[Any], "str | os.PathLike[str]"]
Variables = Mapping[str, str] | Callable[[Any], Mapping[str, str]]


class Captured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The exact bytes of a stream: as `text` when they are UTF-8, else as `base64`. `dropped` bytes over
    the cap.
    """

    text: str | None = None
    base64: str | None = None
    dropped: int = 0

    @classmethod
    def of(cls, data: bytes, dropped: int = 0) -> Captured:
        """Keep `data`. Where the cap cut through a character, its first bytes count as dropped too."""
        try:
            return cls(text=data.decode(), dropped=dropped)
        except UnicodeDecodeError as error:
            cut = len(data) - error.start
            if dropped and error.reason == "unexpected end of data" and cut < 4:
                return cls(text=data[: error.start].decode(), dropped=dropped + cut)
            return cls(base64=base64.b64encode(data).decode(), dropped=dropped)

    @property
    def data(self) -> bytes:
        """The bytes as they came."""
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()

    def __str__(self) -> str:
        return self.text if self.text is not None else self.data.decode(errors="replace")


class ShellResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The output of a shell node. As JSON: `exit_code`, `stdout`, `stderr` (`Captured`), `parsed`, `leftovers`."""

    exit_code: int = 0
    stdout_captured: Captured = msgspec.field(name="stdout", default=Captured(text=""))
    stderr_captured: Captured = msgspec.field(name="stderr", default=Captured(text=""))
    parsed: Any = None
    leftovers: int = 0  # processes that the command left behind, and that were killed when it had ended

    @property
    def stdout(self) -> str:
        """As text; bytes that are not UTF-8 show as U+FFFD."""
        return str(self.stdout_captured)

    @property
    def stderr(self) -> str:
        """As text; bytes that are not UTF-8 show as U+FFFD."""
        return str(self.stderr_captured)

    @property
    def stdout_bytes(self) -> bytes:
        """Exactly what was captured."""
        return self.stdout_captured.data

    @property
    def stderr_bytes(self) -> bytes:
        """Exactly what was captured."""
        return self.stderr_captured.data

    @property
    def stdout_dropped(self) -> int:
        """Bytes that came after the cap and are gone."""
        return self.stdout_captured.dropped

    @property
    def stderr_dropped(self) -> int:
        """Bytes that came after the cap and are gone."""
        return self.stderr_captured.dropped


@dataclass(frozen=True, slots=True)
class LineUpdate:
    """What `on_line` made of a line: arguments for `ctx.publish`."""

    type: str
    key: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOptions:
    """The options of one shell node. The methods turn what the author gave, or functions of ctx, into
    plain data.
    """

    node: str = ""
    cwd: Folder | None = None
    env: Variables | None = None
    stdin: Stdin | None = None
    shell: tuple[str, ...] | None = None  # the words before the command text
    ok_exit_codes: tuple[int, ...] = (0,)
    parse: Parse | None = None
    on_line: OnLine | None = None
    max_output: int = MAX_OUTPUT_DEFAULT

    def argv(self, command: object) -> list[str]:
        """The words to execute, of what the node's function returned. `InvalidValue` says what is wrong
        with it.
        """
        if isinstance(command, str):
            if self.shell is None:
                raise InvalidValue(
                    f"shell node {self.node!r} returned a string, and names no shell to read it",
                    hint='return a list of words, like ["git", "log"], or say @flow.shell(shell="/bin/sh", …)',
                )
            return [*self.shell, check_text(command, f"the command of shell node {self.node!r}")]
        if not isinstance(command, Sequence) or isinstance(command, bytes | bytearray) or not command:
            raise InvalidValue(
                f"shell node {self.node!r} returned {command!r:.80}, which is not a command",
                hint='return a list of words, like ["git", "log"]',
            )
        return [self._word(index, word) for index, word in enumerate(command)]

    def folder(self, ctx: object) -> str | None:
        """The working folder as the author gave it (relative: to the project root), or None for the root."""
        folder = self.cwd(ctx) if callable(self.cwd) else self.cwd
        if folder is None:
            return None
        if not isinstance(folder, str | os.PathLike):
            raise InvalidValue(f"cwd of shell node {self.node!r} is {folder!r:.80}, not a path")
        return check_text(os.fspath(folder), f"cwd of shell node {self.node!r}")

    def variables(self, ctx: object) -> dict[str, str]:
        """The additions to the environment."""
        found = self.env(ctx) if callable(self.env) else self.env
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise InvalidValue(f"env of shell node {self.node!r} is {found!r:.80}, not a mapping of texts")
        what = f"env of shell node {self.node!r}"
        return {
            check_variable(name, what): check_text(value, f"{what}: {name}") for name, value in found.items()
        }

    def input_bytes(self, ctx: object) -> bytes | None:
        """What the command reads from stdin; None: nothing (it is empty)."""
        data = self.stdin(ctx) if callable(self.stdin) else self.stdin
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, str):
            return data.encode()
        raise InvalidValue(
            f"stdin of shell node {self.node!r} is a {type(data).__name__}, not text or bytes",
            hint="for JSON give json.dumps(…)",
        )

    def result(
        self, exit_code: int, stdout: Captured, stderr: Captured, *, leftovers: int = 0
    ) -> ShellResult:
        """The node's output, parsed. `parse` sees nothing that was cut short without knowing it."""
        found = ShellResult(
            exit_code=exit_code, stdout_captured=stdout, stderr_captured=stderr, leftovers=leftovers
        )
        if self.parse is None:
            return found
        return msgspec.structs.replace(found, parsed=self._parsed(self.parse, found))

    def update(self, ctx: object, line: str, stream: str) -> LineUpdate | None:
        """Give a line to `on_line`. Its answer's "type" and "key" default to "progress" and the node's id."""
        answer = self.on_line(ctx, line, stream) if self.on_line is not None else None
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            raise InvalidValue(
                f"on_line of shell node {self.node!r} returned {answer!r:.80}, not a dict or None"
            )
        data = dict(answer)
        return LineUpdate(data.pop("type", "progress"), data.pop("key", self.node), data)

    def _parsed(self, how: Parse, found: ShellResult) -> Any:
        if callable(how):
            return how(found)
        if found.stdout_dropped:
            raise InvalidValue(
                f"stdout of shell node {self.node!r} can not be parsed: it is {found.stdout_dropped:,} bytes "
                f"longer than max_output={self.max_output:,}",
                hint="raise max_output, or let the command print less",
            )
        if how == "json":
            return parse(found.stdout_bytes, what=f"stdout of shell node {self.node!r}")
        lines = found.stdout.split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    def _word(self, index: int, word: object) -> str:
        if isinstance(word, str | os.PathLike):
            return check_text(os.fspath(word), f"word {index} of the command of shell node {self.node!r}")
        raise InvalidValue(
            f"word {index} of the command of shell node {self.node!r} is {word!r:.80}, not text",
            hint=f"write str({word!r:.40})",
        )


def check_variable(name: object, what: str) -> str:
    """Return a text that may name an environment variable, else raise `InvalidValue`."""
    if not isinstance(name, str) or not name or "=" in name:
        raise InvalidValue(f"{what} has the name {name!r:.80}, which no variable can have")
    return check_text(name, f"the name {name!r:.40} in {what}")


def check_text(text: object, what: str) -> str:
    """Return a text that a process can be given, else raise `InvalidValue`."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is {text!r:.80}, not text")
    if "\0" in text:
        raise InvalidValue(f"{what} has a NUL character, which no command can be given")
    return text
