"""What a run's view looks like, line by line: shared by the live tree, the plain lines and `pwf show`.

Pure functions from a view and the time to lines of styled pieces; no terminal here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from pwf.present import text
from pwf.present.marks import STATUS_MARK, STATUS_STYLE
from pwf.present.outline import OutlineLine
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.protocol.runner import StepError
from pwf.protocol.views import ENDED, RunView, StepView, UpdateView

STEP_MARK = {**STATUS_MARK, "active": "▶", "interrupted": "↻", "unknown": "!"}
STEP_STYLE: dict[str, str] = {**STATUS_STYLE, "active": "blue", "interrupted": "yellow", "unknown": "magenta"}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_MS = 120
UPDATES_SHOWN = 5
BAR_CELLS = 24
ERROR_LINES, TRACEBACK_LINES, ERROR_CELLS = 12, 30, 500  # of an error on a run's page


class Piece(NamedTuple):
    """Safe text and its style."""

    text: str
    style: str | None = None


Line = list[Piece]


def head(view: RunView, now_ms: int) -> Line:
    """Title, id, status and how long it has been going."""
    summary = view.summary
    name = text.line(summary.title or summary.workflow, 60)
    since = summary.started_ms or summary.created_ms
    passed = (summary.ended_ms or now_ms) - since
    return [
        Piece(name, "bold"),
        Piece(f"  {text.line(summary.run_id)}  ", "dim"),
        Piece(f"{STATUS_MARK.get(summary.status, ' ')} {summary.status}", STATUS_STYLE.get(summary.status)),
        Piece(f"  {text.duration(passed)}", "dim"),
    ]


def latest_steps(steps: tuple[StepView, ...], known: dict[str, StepView]) -> dict[str, StepView]:
    """The newest step of each node; `known` keeps those that have left the page."""
    found = dict(known)
    for step in steps:
        before = found.get(step.node)
        if before is None or before.attempt <= step.attempt:
            found[step.node] = step
    return found


def node_line(at: OutlineLine, view: RunView, steps: dict[str, StepView], now_ms: int, cells: int) -> Line:
    """One node of the tree: mark, name, status, time, summary."""
    step = steps.get(at.node)
    indent = "  " * at.depth
    label = f"{text.line(at.label, 24)} → " if at.label else ""
    name = text.line(at.node, 40)
    current = view.summary.node == at.node and view.summary.status not in ENDED
    mark, style, tail = _state(step, view, current, now_ms)
    pieces = [Piece(f"{indent}{mark} ", style), Piece(label, "dim"), Piece(name, "bold" if current else None)]
    if step is not None and step.visit > 1:
        pieces.append(Piece(f" ×{step.visit}", "dim"))
    if tail:
        pieces.append(Piece(f"  {tail}", style if current else "dim"))
    if step is not None and step.summary and not KINDS[step.kind].sets_timer:
        used = sum(text.width(piece.text) for piece in pieces)
        shown = text.headline(step.summary, max(0, min(100, cells - used - 2)))
        pieces.append(Piece(f"  {shown}", "red" if step.status in ("failed", "timed_out") else "dim"))
    return pieces


def _state(step: StepView | None, view: RunView, current: bool, now_ms: int) -> tuple[str, str | None, str]:
    """Mark, style and words for one node."""
    status = view.summary.status
    if current and (step is None or step.status != "active" or status != "running"):
        return _parked(view, step, now_ms)
    if step is None:
        return "·", "dim", ""
    if step.status == "active":
        mark = SPINNER[now_ms // SPIN_MS % len(SPINNER)]
        tries = f" ({try_of(view, step)})" if step.tries > 1 else ""
        return mark, "blue", text.duration(now_ms - step.started_ms) + tries
    took = text.duration((step.ended_ms or now_ms) - step.started_ms)
    if step.adopted is not None:
        return STEP_MARK[step.status], STEP_STYLE[step.status], "taken over"
    if step.observed:
        took = f"{try_of(view, step)}, {took}"
    words = took if step.status == "completed" else f"{step.status}, {took}"
    return STEP_MARK[step.status], STEP_STYLE[step.status], words


def try_of(view: RunView, step: StepView, later: int = 0) -> str:
    """`try 2 of 6`, where the node says how often it is tried; crashes count as tries, too, an observation doesn't."""
    if step.observed and not later:
        return "it observes" if step.status == "active" else "observed"
    number = step.tries + later
    retry = next((node.retry for node in view.graph.nodes if node.id == step.node), None)
    most = 1 if retry is None else 1 + retry.times
    return f"try {number} of {most}" if number <= most else f"try {number}"


def _parked(view: RunView, step: StepView | None, now_ms: int) -> tuple[str, str | None, str]:
    summary = view.summary
    mark, style = STATUS_MARK.get(summary.status, " "), STATUS_STYLE.get(summary.status)
    if summary.status == "queued":
        if summary.due_ms is not None and summary.due_ms > now_ms:
            return (
                "◷",
                style,
                f"{_next_try(view, step)}{text.until(summary.due_ms, now_ms)} "
                f"(at {text.clock_time(summary.due_ms, now_ms)})",
            )
        return mark, style, "queued"
    if summary.status == "waiting":
        asked = None if view.request is None else REQUESTS[view.request.kind]
        return mark, style, f"waits for {asked.waits_for if asked is not None else 'an answer'}"
    if summary.status == "running":
        return mark, "blue", "starting"
    return mark, style, text.line(summary.hold or summary.status)


def _next_try(view: RunView, step: StepView | None) -> str:
    if step is None or step.status not in ("failed", "timed_out", "interrupted"):
        return ""
    return try_of(view, step, later=1) + " "


def reason_lines(view: RunView, now_ms: int) -> list[Line]:
    """What it warns of, and why it isn't moving and what can be typed, where a person should know."""
    lines: list[Line] = [[Piece(f"! {text.line(warning)}", "yellow")] for warning in view.warnings]
    if view.summary.status not in ("paused", "ambiguous", "held"):
        return lines
    why = view.explanation
    lines.append([Piece(text.line(why.reason), STATUS_STYLE[view.summary.status])])
    return lines + [[Piece("  type: ", "dim"), Piece(text.line(command))] for command in why.commands]


def error_lines(error: StepError, run_id: str | None = None) -> list[Line]:
    """Why a step failed: node, type and message, line by line, then the traceback without saying all that again.

    With `run_id` what is long is cut: the last line then says how all of it is seen.
    """
    kind = f"{text.line(error.type)}: " if error.type else ""
    where = f"{text.line(error.node)}: " if error.node else ""
    traceback = error.traceback.rstrip().removesuffix(f"{error.type}: {error.message}".rstrip()).rstrip()
    said, told = text.block(error.message).splitlines() or [""], text.block(traceback).splitlines()
    cut: list[Line] = []
    if run_id is not None and error.node:
        whole = said, told
        said = [text.cut(line, ERROR_CELLS) for line in said[:ERROR_LINES]]
        told = [text.cut(line, ERROR_CELLS) for line in told[-TRACEBACK_LINES:]]
        if (said, told) != whole:
            command = f"pwf show {text.line(run_id)} {text.line(error.node)}"
            cut = [[Piece("the error is cut here; all of it: ", "dim"), Piece(command)]]
    first, *more = said
    lines: list[Line] = [
        [Piece(f"{where}{kind}{first}", "red"), Piece(f"  ({text.line(error.code)})", "dim")]
    ]
    lines += [[Piece(line, "red")] for line in more]
    return lines + [[Piece(line, "dim")] for line in told] + cut


def printed_line(view: RunView) -> Line:
    """Where to read what the newest step has printed that did not go well; empty when it printed nothing."""
    for step in reversed(view.steps):
        if step.status in ("failed", "timed_out", "unknown", "interrupted") and step.printed_bytes:
            name, run_id = text.line(step.node), text.line(view.summary.run_id)
            size = f"{step.printed_bytes:,} bytes"
            command = f"pwf logs {run_id} --attempt {step.attempt}"
            return [Piece(f"what {name} printed ({size}): ", "dim"), Piece(command)]
    return []


def update_lines(updates: tuple[UpdateView, ...], cells: int) -> list[Line]:
    """The newest updates; progress as a bar."""
    newest = sorted(updates, key=lambda update: update.updated_ms)[-UPDATES_SHOWN:]
    return [_update(update, cells) for update in newest]


def _update(update: UpdateView, cells: int) -> Line:
    name = text.line(update.key or update.kind, 32)
    try:
        data: Any = msgspec.json.decode(update.data)
    except msgspec.MsgspecError:
        data = None
    if update.kind == "progress" and isinstance(data, dict):
        return _progress(name, data)
    shown = data if isinstance(data, str) else text.json_line(bytes(update.data))
    return [Piece(f"  {name}: ", "dim"), Piece(text.line(shown, max(10, cells - len(name) - 4)))]


def _progress(name: str, data: dict[str, Any]) -> Line:
    label = text.line(str(data.get("label") or name), 32)
    pieces = [Piece(f"  {label}  ", "dim")]
    done, total = _number(data.get("completed")), _number(data.get("total"))
    unit = text.line(str(data.get("unit") or ""), 12)
    if done is not None and total:
        share = min(1.0, max(0.0, done / total))
        filled = round(share * BAR_CELLS)
        pieces.append(Piece("━" * filled, "green"))
        pieces.append(Piece("─" * (BAR_CELLS - filled), "dim"))
        pieces.append(Piece(f"  {text.number(done)}/{text.number(total)} {unit}".rstrip() + f"  {share:.0%}"))
    elif done is not None:
        pieces.append(Piece(f"{text.number(done)} {unit}".rstrip()))
    for key in ("phase", "status"):
        if data.get(key):
            pieces.append(Piece(f"  {text.line(str(data[key]), 40)}", "dim"))
    return pieces


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def plain(line: Line) -> str:
    """A line without styles."""
    return "".join(piece.text for piece in line).rstrip()
