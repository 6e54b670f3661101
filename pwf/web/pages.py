"""Pages from views: HTML that needs no script, with the words that the terminal has.

Promises: every text of a run goes through `pwf.present`, and is then escaped by the templates. Pure functions from what
was read and the time; nothing is asked here.
"""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pwf.present import form, progress, text
from pwf.present.decision import changes, diff_style, winner_line
from pwf.present.explained import why
from pwf.present.outline import outline
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
from pwf.protocol.decisions import DecisionView
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.notices import NoticeView
from pwf.protocol.views import RequestView, RunSummary, RunView, StepView

LABEL_CELLS = 400
TREE_CELLS = 160
OUTPUT_CHARS = 16_000

_templates = Environment(
    loader=PackageLoader("pwf.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def render(name: str, **facts: Any) -> str:
    """The page of this name."""
    return _templates.get_template(f"{name}.html").render(**facts)


# --- what waits -----------------------------------------------------------------------------------------------


def inbox(
    decisions: tuple[DecisionView, ...],
    requests: tuple[RequestView, ...],
    notices: tuple[NoticeView, ...],
    runs: tuple[RunSummary, ...],
    now_ms: int,
) -> str:
    """All that waits for a person, what was said to people, and the newest runs."""
    others = [one for one in requests if not REQUESTS[one.kind].decided]
    return render(
        "inbox",
        decisions=[_line(one.request, now_ms, for_=one.audience) for one in decisions],
        questions=[_line(one, now_ms) for one in others],
        notices=[_notice(one, now_ms) for one in notices],
        runs=[_run_line(run, now_ms) for run in runs],
    )


def _line(request: RequestView, now_ms: int, for_: str | None = None) -> dict[str, Any]:
    return {
        "id": request.request_id,
        "asked": form.asked(request, LABEL_CELLS) or request.node,
        "run_id": request.run_id,
        "node": f"{text.line(request.workflow)}.{text.line(request.node)}",
        "age": text.age(request.created_ms, now_ms),
        "waits": form.waits(request, now_ms),
        "for": None if for_ is None else text.line(for_),
        "plain": REQUESTS[request.kind].plain,
        "how": form.answer_lines(request)[-1][1],
    }


def _notice(one: NoticeView, now_ms: int) -> dict[str, Any]:
    return {
        "run_id": one.run_id,
        "title": text.line(one.title or one.workflow, LABEL_CELLS),
        "node": text.line(one.node),
        "text": text.block(one.text),
        "age": text.age(one.at_ms, now_ms),
    }


def _run_line(run: RunSummary, now_ms: int) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "title": text.line(run.title or run.workflow, LABEL_CELLS),
        "status": run.status,
        "node": text.line(run.node or ""),
        "age": text.age(run.created_ms, now_ms),
        "reason": text.headline(run.reason or "", LABEL_CELLS),
    }


# --- a decision -----------------------------------------------------------------------------------------------


def decision(
    view: DecisionView,
    shown: Shown,
    earlier: Shown | None,
    now_ms: int,
    *,
    form_token: str | None,
    error: str | None = None,
    typed: tuple[str, str] | None = None,
) -> str:
    """The proposal, what has changed, and a form for each choice. `form_token` None: the holder of a link looks.

    `typed`: a choice and the text that was typed for it, when it was not taken.
    """
    request = view.request
    is_open = request.status == "pending"
    return render(
        "proposal",
        title=text.line(shown.title),
        visit=view.visit,
        node=f"{text.line(request.workflow)}.{text.line(request.node)}",
        run_id=request.run_id,
        summary=text.block(shown.summary),
        blocks=[_block(block) for block in shown.blocks],
        changes=None if earlier is None else [_styled(*line) for line in changes(view, earlier, shown)],
        choices=[_choice(one, view.default, typed) for one in view.choices] if is_open else [],
        waits=form.waits(request, now_ms),
        audience=text.line(view.audience),
        winner=None if view.winner is None else winner_line(view.winner, now_ms),
        form_token=form_token,
        digest=view.digest,
        error=error,
    )


def _block(block: Block) -> dict[str, Any]:
    match block:
        case Paragraph(text=words):
            return {"kind": "paragraph", "text": text.block(words)}
        case Section(title=title):
            return {"kind": "section", "text": text.line(title)}
        case Bullets(items=items):
            return {"kind": "bullets", "texts": [text.block(item) for item in items]}
        case Fields(fields=fields):
            return {"kind": "fields", "pairs": [(text.line(k), text.line(v)) for k, v in fields.items()]}
        case Preformatted(text=words):
            return {"kind": "preformatted", "text": text.block(words)}
        case Diff(text=words):
            lines = text.block(words).splitlines()
            return {"kind": "diff", "lines": [_styled(line, diff_style(line)) for line in lines]}


def _styled(line: str, style: str | None) -> dict[str, str]:
    return {"text": line, "style": style or "plain"}


def _choice(choice: ChoiceSpec, default: str | None, typed: tuple[str, str] | None) -> dict[str, Any]:
    wanted = choice.text
    return {
        "id": choice.id,
        "label": text.line(choice.label, LABEL_CELLS),
        "is_default": choice.id == default,
        "text": None
        if wanted is None
        else {
            "label": text.line(wanted.label, LABEL_CELLS),
            "required": wanted.required,
            "multiline": wanted.multiline,
            "max_chars": wanted.max_chars,
            "typed": typed[1] if typed is not None and typed[0] == choice.id else "",
        },
    }


# --- a question -----------------------------------------------------------------------------------------------


def question(
    request: RequestView,
    prompt: str,
    now_ms: int,
    *,
    form_token: str,
    error: str | None = None,
    typed: str = "",
) -> str:
    """A checkpoint's question, and a form where it can be answered here."""
    return render(
        "question",
        line=_line(request, now_ms),
        prompt=prompt,
        takes=[text.line(line) for line in form.form_lines(request.schema)],
        is_open=request.status == "pending",
        answer=None if request.answer is None else text.brief(request.answer, LABEL_CELLS),
        answered_by=text.line(request.answered_by or ""),
        form_token=form_token,
        error=error,
        typed=typed,
    )


# --- a run ----------------------------------------------------------------------------------------------------


def run(view: RunView, now_ms: int) -> str:
    """State, why it isn't moving, its nodes, its steps with their outputs, and how it ended."""
    summary = view.summary
    steps = progress.latest_steps(view.steps, {})
    nodes = [progress.node_line(at, view, steps, now_ms, TREE_CELLS) for at in outline(view.graph)]
    open_request = view.request if view.request is not None and view.request.status == "pending" else None
    return render(
        "run",
        title=text.line(summary.title or summary.workflow, LABEL_CELLS),
        run_id=summary.run_id,
        head=progress.plain(progress.head(view, now_ms)),
        status=summary.status,
        why=list(why(view.explanation, now_ms, code=False, request=view.request)),
        warnings=[text.line(warning) for warning in view.warnings],
        nodes=[[_styled(piece.text, piece.style) for piece in line] for line in nodes],
        updates=[progress.plain(line) for line in progress.update_lines(view.updates, TREE_CELLS, now_ms)],
        asked=None if open_request is None else _line(open_request, now_ms),
        decides=open_request is not None and REQUESTS[open_request.kind].decided,
        steps=[_step(step, view, now_ms) for step in reversed(view.steps)],
        steps_total=view.steps_total,
        output=None if view.output is None else _value(view.output),
        error=None
        if view.error is None
        else [progress.plain(one) for one in progress.error_lines(view.error)],
    )


def _step(step: StepView, view: RunView, now_ms: int) -> dict[str, Any]:
    return {
        "node": text.line(step.node) + (f" ×{step.visit}" if step.visit > 1 else ""),
        "kind": step.kind,
        "status": step.status,
        "took": text.duration((step.ended_ms or now_ms) - step.started_ms),
        "tries": progress.try_of(view, step) if step.tries > 1 else "",
        "summary": text.headline(step.summary, LABEL_CELLS),
        "output": None if step.output is None else _value(step.output),
        "error": None
        if step.error is None
        else "\n".join(progress.plain(line) for line in progress.error_lines(step.error)),
    }


def _value(value: Any) -> str:
    if value.json is None:
        return text.brief(value)
    shown = text.pretty(bytes(value.json))
    return shown if len(shown) <= OUTPUT_CHARS else shown[:OUTPUT_CHARS] + "\n…"
