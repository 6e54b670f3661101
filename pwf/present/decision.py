"""A decision for people: what is proposed, what has changed since the last proposal, and what there is to choose.

Every line is safe to print. Each comes with a style; whoever can't colour leaves that out. A diff has its signs anyway.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pwf.present import form, text
from pwf.protocol.decision_spec import (
    Block,
    Bullets,
    ChoiceSpec,
    Diff,
    Fields,
    Paragraph,
    Preformatted,
    Section,
    Shown,
)
from pwf.protocol.decisions import AnswerView, DecisionView

StyledLine = tuple[str, str | None]

CONTEXT_LINES = 2


def decision_lines(view: DecisionView, shown: Shown, earlier: Shown | None, now_ms: int) -> list[StyledLine]:
    """The whole of a decision."""
    title = shown.title if shown.title == view.request.node else f"{shown.title} ({view.request.node})"
    of = "" if view.visit == 1 else f", proposal {view.visit}"
    lines: list[StyledLine] = [(f"? {text.line(title)}{of}", "yellow")]
    lines += [(f"  {line}", None) for line in text.block(shown.summary).splitlines()]
    under_heading = False
    for block in shown.blocks:
        lines += [*([] if under_heading else [("", None)]), *block_lines(block)]
        under_heading = isinstance(block, Section)
    if view.earlier is not None and earlier is not None:
        lines += [("", None), *changes(view, earlier, shown)]
    lines.append(("", None))
    if view.request.status == "pending":
        lines += [(f"  {line}", "bold") for line in choice_lines(view)]
        lines.append((f"  {form.waits(view.request, now_ms)}; for {text.line(view.audience)}", "dim"))
    elif view.winner is not None:
        lines.append((f"  {winner_line(view.winner, now_ms)}", "green"))
    return lines


def block_lines(block: Block) -> Iterator[StyledLine]:
    """One block of a presentation, indented."""
    match block:
        case Paragraph(text=words):
            yield from ((f"  {line}", None) for line in text.block(words).splitlines())
        case Section(title=title):
            yield f"  {text.line(title)}", "bold"
        case Bullets(items=items):
            for item in items:
                first, *more = text.block(item).splitlines() or [""]
                yield f"  - {first}", None
                yield from ((f"    {line}", None) for line in more)
        case Fields(fields=fields):
            width = max((len(text.line(name)) for name in fields), default=0)
            for name, value in fields.items():
                yield f"  {text.line(name):<{width}}  {text.line(value)}", None
        case Preformatted(text=words):
            yield from ((f"    {line}", None) for line in text.block(words).splitlines())
        case Diff(text=words):
            yield from _diff_lines(text.block(words).splitlines())


def choice_lines(view: DecisionView) -> list[str]:
    """What there is to choose: the id as it is typed, and what it means."""
    typed = [(choice.id + (" TEXT" if choice.text is not None else ""), choice) for choice in view.choices]
    width = max(len(words) for words, _ in typed)
    return [f"{words:<{width}}  {_meaning(choice, view.default)}" for words, choice in typed]


def _meaning(choice: ChoiceSpec, default: str | None) -> str:
    words = text.line(choice.label, 200)
    if choice.text is not None:
        left_out = "" if choice.text.required else " (may be left out)"
        words += f": {text.line(choice.text.label, 200)}{left_out}"
    return words + (" [default]" if choice.id == default else "")


def winner_line(winner: AnswerView, now_ms: int) -> str:
    """Who has decided, what, and when."""
    when = text.ago(winner.at_ms, now_ms)
    if winner.provenance == "cancelled":
        return f"closed with its run, {when}"
    if winner.provenance == "expired":
        return f"nobody decided in time, {when}"
    choice = text.line(winner.choice or "")
    if winner.provenance == "timeout":
        return f"{choice}, the default: nobody decided in time, {when}"
    words = f": {text.headline(winner.text)}" if winner.text else ""
    return f"{choice}{words}, by {text.line(winner.who)} ({text.line(winner.channel)}), {when}"


def changes(view: DecisionView, earlier: Shown, now: Shown) -> Iterator[StyledLine]:
    """What was answered to the last proposal, and how this one differs from it."""
    before = view.earlier
    assert before is not None
    answer = before.winner
    if answer is not None and answer.choice is not None:
        words = f": {text.headline(answer.text)}" if answer.text else ""
        yield f"  after {text.line(answer.choice)}{words}", "dim"
    changed = list(difflib.unified_diff(_plain(earlier), _plain(now), lineterm="", n=CONTEXT_LINES))[2:]
    if not changed:
        yield "  nothing has changed since the last proposal", "yellow"
        return
    yield "  changed since the last proposal:", "bold"
    yield from _diff_lines(line for line in changed if not line.startswith("@@"))


def _plain(shown: Shown) -> list[str]:
    lines = text.block(shown.summary).splitlines()
    for block in shown.blocks:
        lines += [line.strip() for line, _ in block_lines(block)]
    return lines


def _diff_lines(lines: Iterator[str] | list[str]) -> Iterator[StyledLine]:
    for line in lines:
        yield f"    {line}", diff_style(line)


def diff_style(line: str) -> str | None:
    """What was added, and what was taken away."""
    return {"+": "green", "-": "red"}.get(line[:1])
