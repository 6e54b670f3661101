"""`pwf show RUN`: the run in sections, the most wanted first; and how any page in sections is printed."""

from __future__ import annotations

from pwf.cli.out import Out
from pwf.present import form, progress, text
from pwf.present.explained import why
from pwf.protocol.runner import StepError
from pwf.protocol.views import AgentUsage, RunView

VALUE_CELLS = 300


def print_run(view: RunView, out: Out) -> None:
    """Identity, why it is where it is, steps, question, effects, result, environment."""
    now_ms = out.now_ms()
    _identity(view, now_ms, out)
    _why(view, now_ms, out)
    _steps(view, now_ms, out)
    _updates(view, out)
    _request(view, now_ms, out)
    _effects(view, out)
    _result(view, out)
    _environment(view, out)


def section(title: str, out: Out) -> None:
    """The title of what follows, below an empty line."""
    out.print()
    out.print(out.paint(title, "bold"))


def fact(name: str, value: str, out: Out) -> None:
    """A line of a name and a safe value."""
    out.print(f"  {name:<12} {value}")


def print_error_lines(error: StepError, out: Out, run_id: str | None = None) -> None:
    """What went wrong, with the traceback that there is; of a run's page cut where it is long."""
    for line in progress.error_lines(error, run_id):
        out.print("  " + "".join(out.paint(piece.text, piece.style) for piece in line))


def agent_usage(used: AgentUsage | None) -> str:
    """What an agent has used, after its name; empty where it has said nothing."""
    if used is None or not (used.input_tokens or used.output_tokens or used.cost_micros):
        return ""
    tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
    return f"  ({tokens}{f', ${used.cost_micros / 1_000_000:,.4f}' if used.cost_micros else ''})"


def _identity(view: RunView, now_ms: int, out: Out) -> None:
    summary = view.summary
    title = out.paint(text.line(summary.title or summary.workflow), "bold")
    out.print(f"{title}  {text.line(summary.run_id)}  {out.status(summary.status)}")
    fact("workflow", f"{text.line(summary.workflow)}  ({text.line(view.graph.file)})", out)
    created = text.clock_time(summary.created_ms, now_ms)
    fact("created", f"{created}  ({text.ago(summary.created_ms, now_ms)})", out)
    if summary.started_ms is not None:
        took = text.duration((summary.ended_ms or now_ms) - summary.started_ms)
        fact("ran" if summary.ended_ms else "running", took, out)
    if summary.node is not None:
        fact("node", text.line(summary.node), out)
    if view.settings_change is not None:
        fact(
            "settings", f"change {view.settings_change}  (pwf settings get {text.line(summary.run_id)})", out
        )
    if summary.restarted_from is not None:
        chain = f"  (number {summary.restart_no} since {text.line(summary.restart_root or '')})"
        fact("restart of", text.line(summary.restarted_from) + chain, out)
    if view.restarts:
        fact("restarted as", ", ".join(map(text.line, view.restarts)), out)
    if summary.forked_from is not None:
        at = f"{text.line(view.fork_node or '')}" + (f"#{view.fork_visit}" if view.fork_visit > 1 else "")
        fact("fork of", f"{text.line(summary.forked_from)}  (it goes on at {at})", out)
    if view.forks:
        fact("forked as", ", ".join(map(text.line, view.forks)), out)
    if view.agent is not None:
        fact("done by", text.line(view.agent) + agent_usage(view.usage), out)
    if view.session is not None:
        left = sum(one.status == "queued" for one in view.follow_ups)
        queued = f"  ({text.count(left, 'follow-up')} queued)" if left else ""
        fact("session", text.line(view.session) + queued, out)
    fact("input", text.brief(view.input, min(VALUE_CELLS, out.width - 16)), out)
    for warning in view.warnings:
        fact("warning", out.paint(text.line(warning), "yellow"), out)
    if view.newer_code:
        fact("code", "the file has newer code; this run goes on with the code it started with", out)


def _why(view: RunView, now_ms: int, out: Out) -> None:
    if view.explanation.code == "ended":
        return
    section("Now", out)
    for name, value in why(view.explanation, now_ms, code=False, request=view.request):
        fact(name, value, out)


def _steps(view: RunView, now_ms: int, out: Out) -> None:
    if not view.steps:
        return
    shown = len(view.steps)
    more = f" (the newest {shown} of {view.steps_total})" if view.steps_total > shown else ""
    section(f"Steps{more}", out)
    rows: list[list[str]] = []
    styles: list[str | None] = []
    for step in view.steps:
        took = text.duration((step.ended_ms or now_ms) - step.started_ms)
        name = text.line(step.node, 32) + (f" ×{step.visit}" if step.visit > 1 else "")
        tries = progress.try_of(view, step) if step.tries > 1 else ""
        if step.adopted is not None:
            tries = f"taken over (#{step.adopted})"
        rows.append(
            [str(step.attempt), name, step.kind, step.status, took, tries, text.headline(step.summary, 200)]
        )
        styles.append(progress.STEP_STYLE.get(step.status))
    out.table(["#", "NODE", "KIND", "STATUS", "TIME", "", "SUMMARY"], rows, styles)
    for step in view.steps:
        for one in step.survivors:
            left = f"{text.line(step.node, 32)} left a process behind, which was ended: {text.line(one.command, 120)}"
            out.print("  " + out.paint(f"{left} (pid {one.pid})", "yellow"))
    if printed := progress.printed_line(view):
        out.print("  " + "".join(out.paint(piece.text, piece.style) for piece in printed))


def _updates(view: RunView, out: Out) -> None:
    if not view.updates:
        return
    section("Updates", out)
    for line in progress.update_lines(view.updates, min(120, out.width), out.now_ms()):
        out.print("".join(out.paint(piece.text, piece.style) for piece in line).rstrip())


def _request(view: RunView, now_ms: int, out: Out) -> None:
    request = view.request
    if request is None or request.status != "pending":
        return
    section("Question", out)
    fact("from", f"{text.line(request.node)} ({request.kind})", out)
    fact("asked", text.ago(request.created_ms, now_ms), out)
    fact("prompt", form.asked(request, min(VALUE_CELLS, out.width - 16)), out)
    fact("waits", form.waits(request, now_ms), out)
    for name, line in form.answer_lines(request):
        fact(name, line, out)


def _effects(view: RunView, out: Out) -> None:
    if not view.effects:
        return
    section("Effects", out)
    rows = [
        [
            text.line(effect.effect_key, 80),
            text.line(effect.type, 32),
            effect.mode,
            effect.status,
            text.count(effect.attempts, "attempt"),
            text.line(effect.ref or "", 80),
        ]
        for effect in view.effects
    ]
    styles = ["magenta" if effect.status == "ambiguous" else None for effect in view.effects]
    out.table(["KEY", "TYPE", "MODE", "STATUS", "", "REF"], rows, list(styles))


def _result(view: RunView, out: Out) -> None:
    if view.output is not None:
        section("Output", out)
        out.print(f"  {text.brief(view.output, min(VALUE_CELLS, out.width - 4))}")
        if view.output.json is None or view.output.size > VALUE_CELLS:
            out.print(out.paint(f"  all of it: pwf output {text.line(view.summary.run_id)}", "dim"))
    if view.error is not None:
        section("Error", out)
        print_error_lines(view.error, out, view.summary.run_id)


def _environment(view: RunView, out: Out) -> None:
    section("Environment", out)
    fact("root", text.line(view.root), out)
    fact(
        "interpreter",
        f"{text.line(view.interpreter)}  (Python {text.line(view.python)}, pwf {text.line(view.pwf)})",
        out,
    )
    if view.definition_id:
        fact("definition", text.line(view.definition_id[:16]), out)
    if view.controls:
        fact("possible", ", ".join(map(text.line, view.controls)), out)
