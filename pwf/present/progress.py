"""What a run's view looks like, line by line: shared by the live tree, the plain lines and `pwf show`.

Pure functions from a view and the time to lines of styled pieces; no terminal here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from pwf.present import text
from pwf.present.explained import reason_line
from pwf.present.form import commands
from pwf.present.marks import STATUS_MARK, STATUS_STYLE
from pwf.present.outline import OutlineLine
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.protocol.mounts import is_within, own_id
from pwf.protocol.progress import AMOUNT_MAX, PROGRESS, Estimate
from pwf.protocol.runner import StepError
from pwf.protocol.views import ENDED, RunView, StepView, UpdateView

STEP_MARK = {**STATUS_MARK, "active": "▶", "interrupted": "↻", "limited": "◷", "unknown": "!"}
STEP_STYLE: dict[str, str] = {
    **STATUS_STYLE,
    "active": "blue",
    "interrupted": "yellow",
    "limited": "yellow",
    "unknown": "magenta",
}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_MS = 120
UPDATES_SHOWN = 5
BAR_CELLS = 24
ERROR_LINES, TRACEBACK_LINES, ERROR_CELLS = 12, 30, 500  # of an error on a run's page
SAID_AGAIN_MS = 10_000  # where lines are not drawn over
QUESTION = (
    "question"  # of updates: what an agent asks people in the middle of its step, and nobody has to answer
)
DAY_S = 24 * 3_600
PERIODS = (("s", 1), ("min", 60), ("h", 3_600), ("day", DAY_S))


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
    name = text.line(own_id(at.node), 40)
    current = view.summary.node == at.node and view.summary.status not in ENDED
    mark, style, tail = _state(step, view, current, now_ms)
    if is_within(view.summary.node or "", at.node):  # what it includes goes on, or has ended the run
        mark, style, tail = STATUS_MARK[view.summary.status], STATUS_STYLE[view.summary.status], ""
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
                f"{_why_later(view, step)}{text.until(summary.due_ms, now_ms)} "
                f"(at {text.clock_time(summary.due_ms, now_ms)})",
            )
        return mark, style, "queued"
    if summary.status == "waiting":
        asked = None if view.request is None else REQUESTS[view.request.kind]
        return mark, style, f"waits for {asked.waits_for if asked is not None else 'an answer'}"
    if summary.status == "running":
        return mark, "blue", "starting"
    return mark, style, text.line(summary.hold or summary.status)


def _why_later(view: RunView, step: StepView | None) -> str:
    if view.explanation.code == "limited":
        return "its agent has met a usage limit: "
    if step is None or step.status not in ("failed", "timed_out", "interrupted"):
        return ""
    return try_of(view, step, later=1) + " "


def reason_lines(view: RunView, now_ms: int) -> list[Line]:
    """What it warns of, and why it isn't moving and what can be typed, where a person should know."""
    lines: list[Line] = [[Piece(f"! {text.line(warning)}", "yellow")] for warning in view.warnings]
    if view.summary.status not in ("paused", "ambiguous", "held"):
        return lines
    why = view.explanation
    lines.append([Piece(reason_line(why), STATUS_STYLE[view.summary.status])])
    return lines + [[Piece("  type: ", "dim"), Piece(command)] for command in commands(why, view.request)]


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


def update_lines(updates: tuple[UpdateView, ...], cells: int, now_ms: int) -> list[Line]:
    """The newest updates; progress as a bar."""
    newest = sorted(updates, key=lambda update: update.updated_ms)[-UPDATES_SHOWN:]
    return [_update(update, cells, now_ms) for update in newest]


def is_news(update: UpdateView, said: UpdateView | None) -> bool:
    """Whether a log should have a line of it: for progress a tenth more, other words, or some time since the last."""
    if said is None:
        return True
    if bytes(update.data) == bytes(said.data):
        return False
    now, before = _fields(update), _fields(said)
    if now is None or before is None or update.updated_ms - said.updated_ms >= SAID_AGAIN_MS:
        return True
    words = ("label", "phase", "status", "total", "unit")
    return _tenth(now) != _tenth(before) or any(now.get(name) != before.get(name) for name in words)


def _tenth(data: dict[str, Any]) -> int | None:
    done, total = _number(data.get("completed")), _number(data.get("total"))
    return int(10 * min(1.0, done / total)) if done is not None and total else None


def _fields(update: UpdateView) -> dict[str, Any] | None:
    """Of progress; None for any other update."""
    if update.kind != PROGRESS:
        return None
    try:
        data = msgspec.json.decode(update.data)
    except msgspec.MsgspecError:
        return None
    return data if isinstance(data, dict) else None


def _update(update: UpdateView, cells: int, now_ms: int) -> Line:
    name = text.line(update.key or update.kind, 32)
    if (fields := _fields(update)) is not None:
        return _progress(name, fields, update.estimate, now_ms)
    try:
        data: Any = msgspec.json.decode(update.data)
    except msgspec.MsgspecError:
        data = None
    if update.kind == QUESTION and isinstance(data, dict) and isinstance(data.get(QUESTION), str):
        return [Piece("  asks: ", "yellow"), Piece(text.line(data[QUESTION], max(10, cells - 8)))]
    shown = data if isinstance(data, str) else text.json_line(bytes(update.data))
    return [Piece(f"  {name}: ", "dim"), Piece(text.line(shown, max(10, cells - len(name) - 4)))]


def _progress(name: str, data: dict[str, Any], estimate: Estimate | None, now_ms: int) -> Line:
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
    if estimate is not None:
        pieces.append(Piece(f"  {_estimated(estimate, unit, now_ms)}", "dim"))
    for key in ("phase", "status"):
        if data.get(key):
            pieces.append(Piece(f"  {text.line(str(data[key]), 40)}", "dim"))
    return pieces


def _estimated(estimate: Estimate, unit: str, now_ms: int) -> str:
    """Rate and time left, no more exactly than is known: `12/s  about 3m20s left`, or from … to …."""
    age_ms = now_ms - estimate.at_ms
    if age_ms > estimate.fresh_ms:
        return f"nothing new for {text.duration(age_ms)}"
    per, rate = next(
        ((name, estimate.rate * s) for name, s in PERIODS if estimate.rate * s >= 1),
        ("day", estimate.rate * DAY_S),
    )
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}".removesuffix(".0")
    words = f"{shown}{' ' if unit.isalpha() else ''}{unit}/{per}"
    if estimate.left_ms is None or not estimate.left_ms:
        return words
    if estimate.confidence != "low":
        return f"{words}  about {text.duration(max(0, estimate.left_ms - age_ms))} left"
    low, high = estimate.left_ms_low, estimate.left_ms_high
    if low is None or high is None:
        return words
    if high - low < high / 10:  # no more exactly than is known, and no less
        return f"{words}  perhaps {text.duration(max(0, high - age_ms))} left"
    soon, late = (text.duration(max(0, ms - age_ms)) for ms in (low, high))
    return f"{words}  {soon} to {late} left" if soon != late else f"{words}  perhaps {soon} left"


def _number(value: Any) -> float | None:
    """An amount that can be drawn. Rows may hold others: `publish` takes any JSON under the name of progress."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= AMOUNT_MAX:
        return None
    return float(value)


def plain(line: Line) -> str:
    """A line without styles."""
    return "".join(piece.text for piece in line).rstrip()
