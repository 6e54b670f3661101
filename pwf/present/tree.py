"""The live tree of one run: its head, its nodes cut to the height at hand, what it published, why it stands still."""

from __future__ import annotations

from pwf.present import progress, text
from pwf.present.marks import STATUS_STYLE
from pwf.present.outline import OutlineLine, outline
from pwf.protocol.views import RunView, StepView


def tree(
    view: RunView, lines: list[OutlineLine], steps: dict[str, StepView], now_ms: int, cells: int, rows: int
) -> list[progress.Line]:
    """All lines of the live tree, cut to the terminal's height around the current node."""
    nodes = [progress.node_line(at, view, steps, now_ms, cells) for at in lines]
    tail = progress.update_lines(view.updates, cells, now_ms) + progress.reason_lines(view, now_ms)
    room = max(3, rows - 4 - len(tail))
    if len(nodes) > room:
        at = next(
            (index for index, item in enumerate(lines) if item.node == view.summary.node), len(nodes) - 1
        )
        first = min(max(0, at - room // 2), len(nodes) - room)
        hidden = len(nodes) - room
        nodes = nodes[first : first + room]
        nodes.append([progress.Piece(f"… and {text.count(hidden, 'more node')}", "dim")])
    return [progress.head(view, now_ms), *nodes, *tail]


class OutlineCache:
    """The outline of the run's graph, and the newest step of each node, over all views of one run."""

    def __init__(self) -> None:
        self._definition = ""
        self.lines: list[OutlineLine] = []
        self.steps: dict[str, StepView] = {}

    def take(self, view: RunView) -> None:
        """Take over a new view."""
        if not self.lines or self._definition != view.definition_id:
            self._definition = view.definition_id
            self.lines = outline(view.graph)
        self.steps = progress.latest_steps(view.steps, self.steps)


def final_lines(view: RunView, now_ms: int) -> list[progress.Line]:
    """How the run ended: the error with its traceback, or nothing (the output is printed by itself)."""
    error = view.error
    if error is None:
        reason = view.summary.reason
        return [[progress.Piece(text.line(reason), STATUS_STYLE[view.summary.status])]] if reason else []
    lines = progress.error_lines(error, view.summary.run_id)
    printed = progress.printed_line(view)
    return [*lines, printed] if printed else lines
