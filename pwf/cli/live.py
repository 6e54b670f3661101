"""The live tree on a terminal, drawn with rich. Texts arrive safe and styled; rich's markup is never
parsed.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pwf.cli.out import Out
from pwf.present import progress, tree
from pwf.protocol.views import RunView

TICK_S = 0.2  # redraws of spinner and times while something runs
CALM_TICK_S = 1.0  # countdowns


class LiveScreen:
    """Redraws in place; leaves the last state standing when closed."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._console = Console(highlight=False, markup=False, emoji=False, no_color=not out.color)
        self._live: Live | None = None
        self._cache = tree.OutlineCache()

    def show(self, view: RunView, now_ms: int) -> None:
        self._cache.take(view)
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        size = self._console.size
        lines = tree.tree(view, self._cache.lines, self._cache.steps, now_ms, size.width - 1, size.height)
        self._live.update(render(lines, styled=self._out.color), refresh=True)

    def tick_s(self, view: RunView) -> float | None:
        if view.summary.status == "running":
            return TICK_S
        return CALM_TICK_S

    def suspend(self) -> None:
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def render(lines: list[progress.Line], *, styled: bool) -> Group:
    """Styled lines as one renderable; each is cut, never wrapped."""
    found: list[Text] = []
    for line in lines:
        words = Text(no_wrap=True, overflow="ellipsis")
        for piece in line:
            words.append(piece.text, style=(piece.style or "") if styled else "")
        found.append(words)
    return Group(*found)
