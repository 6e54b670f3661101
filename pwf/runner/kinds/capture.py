"""What a command writes to one stream: its first bytes up to a cap, its last ones for messages, its lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pwf.runner.base.steps import Step

LINE_BYTES_MAX = 16 * 1024  # of one line as `on_line` sees it
TAIL_BYTES = 4 * 1024


class Capture:
    """Keeps the first `cap` bytes exactly, counts the rest, and hands on bytes and lines if somebody wants them."""

    def __init__(
        self,
        cap: int,
        on_line: Callable[[str], None] | None = None,
        keep: Callable[[bytes | bytearray], None] | None = None,
    ) -> None:
        self._cap = cap
        self._on_line = on_line
        self._keep = keep
        self._line = bytearray()
        self._after_return = False  # the newest byte is a carriage return, which has ended a line
        self._tail = b""
        self.kept = bytearray()
        self.total = 0

    @property
    def dropped(self) -> int:
        """Bytes that came after the cap."""
        return self.total - len(self.kept)

    def feed(self, data: bytes | bytearray) -> None:
        """Take the next bytes."""
        if self._keep is not None:
            self._keep(data)
        room = self._cap - len(self.kept)
        if room > 0:
            self.kept += data[:room]
        self.total += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._on_line is not None:
            *lines, rest = self._plain(data).split(b"\n")
            for line in lines:
                self._extend(line)
                self._emit(self._on_line)
            self._extend(rest)

    def close(self) -> None:
        """No more bytes will come: a last line without a newline counts too."""
        if self._line and self._on_line is not None:
            self._emit(self._on_line)

    def tail(self) -> str:
        """The last bytes as text, from the beginning of a line where there is one."""
        text = self._tail
        if self.total > TAIL_BYTES and 0 <= (cut := text.find(b"\n")) < len(text) - 1:
            text = text[cut + 1 :]
        return text.decode("utf-8", "replace").strip("\r\n")

    def _plain(self, data: bytes | bytearray) -> bytes | bytearray:
        """With newlines alone: what draws over its own line ends it by a carriage return."""
        if self._after_return and data[:1] == b"\n":
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _extend(self, piece: bytes | bytearray) -> None:
        # One byte more than is shown, so that a cut line can be told from one that just fits.
        self._line += piece[: LINE_BYTES_MAX + 1 - len(self._line)]

    def _emit(self, on_line: Callable[[str], None]) -> None:
        line, self._line = self._line, bytearray()
        if len(line) > LINE_BYTES_MAX:
            text = line[:LINE_BYTES_MAX].decode("utf-8", "replace") + "…"
        else:
            text = line.decode("utf-8", "replace")
        on_line(text)


def kept(step: Step, stream: str) -> Callable[[bytes | bytearray], None] | None:
    """A command's output is seen as that of any step, while it runs, too."""
    return None if step.printed is None else partial(step.printed.write, stream)
