"""Where a command's words go: results to stdout, errors to stderr, as text or as JSON.

Every text from a run goes through `pwf.present.text` first. Colours only on a terminal, and never with
`NO_COLOR`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from pwf.errors import PwfError
from pwf.present import text
from pwf.present.marks import STATUS_MARK, STATUS_STYLE

if TYPE_CHECKING:
    from pwf.client.core import CallReply

ESC = "\x1b["
STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def _terminal() -> os.terminal_size:
    import shutil  # takes its time, and most commands are no terminal's

    return shutil.get_terminal_size()


class UsageError(PwfError):
    """The command line is wrong."""

    code = "usage"


class Out:
    """Prints for one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty()
        self.color = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Columns to fill; wide enough for anything when nobody looks."""
        return _terminal().columns if self.is_terminal else 10_000

    @property
    def height(self) -> int:
        return _terminal().lines

    def now_ms(self) -> int:
        """The wall clock, to word ages with."""
        return time.time_ns() // 1_000_000

    def print(self, words: str = "") -> None:
        """One or more lines that are safe already."""
        sys.stdout.write(words + "\n")
        sys.stdout.flush()

    def emit(self, result: Any) -> None:
        """A result as one line of JSON."""
        self.print(text.json_line(msgspec.json.encode(result)))

    def emit_reply(self, reply: CallReply) -> None:
        """What a command that changes something was answered, and whether that was so before."""
        self.emit({**msgspec.to_builtins(reply.result), "adopted": reply.outcome == "adopted"})

    def paint(self, words: str, style: str | None) -> str:
        """The words in a colour, where there are colours."""
        if not self.color or not style or not words:
            return words
        return f"{ESC}{STYLES[style]}m{words}{ESC}0m"

    def status(self, status: str) -> str:
        """A run's status with its mark and colour."""
        return self.paint(f"{STATUS_MARK.get(status, ' ')} {status}", STATUS_STYLE.get(status))

    def note(self, words: str) -> None:
        """A remark for people, on stderr; silent with --json."""
        if not self.as_json:
            sys.stderr.write(words + "\n")
            sys.stderr.flush()

    def table(self, heads: list[str], rows: list[list[str]], styles: list[str | None] | None = None) -> None:
        """Columns with blanks between; the last one is cut to the terminal. `styles` colours a row's status
        cell.

        Cells must be safe lines already. A row's style paints the cell under the head STATUS.
        """
        widths = [text.width(head) for head in heads]
        for row in rows:
            for index, cell in enumerate(row):
                widths[index] = max(widths[index], text.width(cell))
        _narrow(widths, self.width)
        painted = heads.index("STATUS") if "STATUS" in heads else -1
        self.print(self.paint(self._row(heads, widths, -1, None), "dim"))
        for number, row in enumerate(rows):
            self.print(self._row(row, widths, painted, styles[number] if styles else None))

    def _row(self, row: list[str], widths: list[int], painted: int, style: str | None) -> str:
        cells: list[str] = []
        room = self.width
        for index, cell in enumerate(row):
            last = index == len(row) - 1
            shown = (
                text.cut(cell, max(1, room))
                if last
                else text.pad(text.cut(cell, widths[index]), widths[index])
            )
            room -= text.width(shown) + 2
            cells.append(self.paint(shown, style) if index == painted else shown)
        return "  ".join(cells).rstrip()


CELLS_MIN = 6  # of a column that is narrowed


def _narrow(widths: list[int], room: int) -> None:
    """Take from the widest columns what a row has too much, so that it stays one line; the last is cut to the rest."""
    while sum(widths[:-1]) + 2 * len(widths) + CELLS_MIN > room:
        widest = max(range(len(widths) - 1), key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= CELLS_MIN:
            return
        widths[widest] -= 1


def print_error(error: PwfError, *, as_json: bool) -> None:
    """`pwf: what was wrong` and `hint: what to type next`, on stderr."""
    if as_json:
        body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        if error.details is not None:
            body["error"]["details"] = error.details  # type: ignore[assignment]
        sys.stderr.write(text.json_line(msgspec.json.encode(body)) + "\n")
        return
    sys.stderr.write(f"pwf: {text.block(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"hint: {text.block(error.hint)}\n")
