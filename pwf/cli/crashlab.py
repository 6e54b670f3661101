"""`pwf crashlab`: what crashes would do to a workflow's runs, tried in a scratch home."""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import Commands
from pwf.cli.out import Out, UsageError
from pwf.present import text

if TYPE_CHECKING:
    from pwf.crashlab.report import Finding, Report, StepReport, StoodIn

EXIT = {"passed": exits.OK, "faults": exits.NO, "needs_person": exits.NEEDS_PERSON}
STYLE = {"fault": "red", "person": "yellow", "note": "dim"}
WORD = {"fault": "FAULT", "person": "PERSON", "note": "note"}


def add(commands: Commands) -> None:
    parser = commands.add(
        "crashlab",
        crashlab,
        "crash a workflow or a manager at every boundary, in a scratch home, and report what that does",
        example="pwf crashlab release --set version=1.0\n"
        'pwf crashlab ./count.py --output count=\'{"stdout": "3"}\' --answer ask=\'"yes"\'\n'
        "pwf crashlab ./send.py --effects real --set folder='{scratch}'\n"
        "pwf crashlab note --effects real --set path='{scratch}/hello.txt'",
        more="Effects are not done: stand-ins note them. With --effects real they are, each run for itself;\n"
        "{scratch} in the input then stands for an empty folder of each run, whose files are compared.\n"
        "Of a resource manager --input and --set are the spec, and its process is killed at every boundary.\n"
        "Exit codes: 0 passed, 1 work would be lost or repeated, 7 safe, but a run would wait for a person.",
    )
    parser.add_argument(
        "workflow", metavar="WORKFLOW", help="a workflow or a resource manager, by name or path"
    )
    parser.add_argument(
        "--input", metavar="JSON|@FILE|-", help="the input; without one, null or what its type allows"
    )
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="set a part of it")
    parser.add_argument(
        "--answer",
        metavar="NODE=JSON",
        action="append",
        default=[],
        help="what a checkpoint is answered, or an agent submits; repeated: at its next visits",
    )
    parser.add_argument(
        "--output",
        metavar="NODE=JSON",
        action="append",
        default=[],
        help="what the stand-in of an effect gives; repeated: at its next visits",
    )
    parser.add_argument(
        "--effects", choices=("stand-in", "real"), default="stand-in", help="stand-in is the default"
    )
    parser.add_argument(
        "--headless",
        action="store_true",
        help="the steps of agents are done in the runner, as by a configured agent; else they are submitted",
    )
    parser.add_argument("--paths", metavar="N", type=_bound, default=6, help="ways through the graph (6)")
    parser.add_argument("--crashes", metavar="N", type=_bound, default=400, help="crashes at most (400)")
    parser.add_argument("--keep", action="store_true", help="keep the scratch home, and say where it is")


def crashlab(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.reading import run_input
    from pwf.crashlab.lab import Settings, run_lab

    settings = Settings(
        workflow=options.workflow,
        read_input=functools.partial(run_input, options.input, options.set),
        given=_given(options.answer, "--answer") | _given(options.output, "--output"),
        real=options.effects == "real",
        headless=options.headless,
        paths_max=options.paths,
        crashes_max=options.crashes,
        keep=options.keep,
    )
    progress = _Progress(out)
    try:
        report = run_lab(settings, progress.tell)
    finally:
        progress.end()
    if out.as_json:
        out.emit(report)
    else:
        show(report, out)
    return EXIT[report.verdict]


def _bound(typed: str) -> int:
    if not typed.isdecimal() or not 1 <= int(typed) <= 10_000:
        raise argparse.ArgumentTypeError(f"{typed} is not a number between 1 and 10,000")
    return int(typed)


def _given(items: list[str], option: str) -> dict[str, tuple[Any, ...]]:
    from pwf.cli import typed

    found: dict[str, tuple[Any, ...]] = {}
    for item in items:
        node, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{option} {item!r} has no NODE=JSON", hint=f"for example {option} ask='true'")
        found[node] = (*found.get(node, ()), typed.json_argument(value, f"{option} {node}"))
    return found


class _Progress:
    """One line that is written over on a terminal; elsewhere a line now and then. On stderr, silent with --json."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._live = sys.stderr.isatty() and not out.as_json

    def tell(self, words: str) -> None:
        if self._live:
            shown = text.cut(text.line(words), max(20, self._out.width - 1))
            sys.stderr.write(f"\r\x1b[2K{shown}")
            sys.stderr.flush()
        else:
            self._out.note(text.line(words))

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


# --- the report ---------------------------------------------------------------------------------------------


def show(report: Report, out: Out) -> None:
    """The report for people: a table, what was found, and in a few lines what that means."""
    crashes = report.runner_crashes + report.daemon_crashes
    how = "stand-ins for effects" if report.effects == "stand-in" else "real effects"
    given = text.line(bytes(report.input).decode(), 200)
    out.print(f"crash lab: {text.line(report.workflow)}, {how}, input {given}")
    if report.manager:
        out.print(f"{crashes} crashes of a reconciling process in {report.seconds:g} s")
    else:
        _paths(report, crashes, out)
    out.print()
    for finding in report.findings:
        _show_finding(finding, out)
    _summary(report, out)


def _paths(report: Report, crashes: int, out: Out) -> None:
    out.print(
        f"{text.count(len(report.paths), 'path')}, {crashes} crashes ({report.runner_crashes} of a runner, "
        f"{report.daemon_crashes} of the daemon) in {report.seconds:g} s"
    )
    for number, path in enumerate(report.paths, 1):
        answers = f"  [{', '.join(map(text.line, path.answers))}]" if path.answers else ""
        nodes = " > ".join(map(text.line, path.nodes))
        out.print(f"  path {number}: {nodes}: {path.status}{answers}")
    if report.steps:
        out.print()
        out.table(
            ["PATH", "STEP", "KIND", "EFFECT", "CRASHES", "RAN AGAIN", "EFFECT AGAIN", "PERSON"],
            [_row(step) for step in report.steps],
        )


def _row(step: StepReport) -> list[str]:
    visit = f" ({step.visit})" if step.visit > 1 else ""
    counts = (step.crashes, step.ran_again, step.effect_again, step.needs_person)
    return [
        str(step.path),
        text.line(step.node) + visit,
        step.kind,
        step.effect or "-",
        *(str(count) if count else "-" for count in counts),
    ]


def _show_finding(finding: Finding, out: Out) -> None:
    word = out.paint(f"{WORD[finding.severity]:<7}", STYLE[finding.severity])
    out.print(f"{word} {text.block(finding.message)}")
    for after in finding.after:
        out.print(f"        {text.line(after)}")
    if finding.crashes > len(finding.after):
        out.print(f"        and {finding.crashes - len(finding.after)} more times")
    if finding.hint:
        out.print(f"        hint: {text.block(finding.hint)}")


def _summary(report: Report, out: Out) -> None:
    """The four questions, each with its answer."""
    again = list(dict.fromkeys(step.node for step in report.steps if step.ran_again))
    effects = [step for step in report.steps if step.effect_again]
    idempotent = list(dict.fromkeys(step.node for step in effects if step.effect == "idempotent"))
    manual = list(dict.fromkeys(step.node for step in effects if step.effect in ("manual", "parts")))
    lost = [one.node for one in report.findings if one.code in ("decision_lost", "asked_again")]
    stuck = [one.node for one in report.findings if one.code in ("does_not_move", "never_ends")]
    if not report.manager:
        out.print(f"steps that ran again           {_names(again)}")
        more = f" (and {_names(idempotent)}: declared idempotent)" if idempotent else ""
        out.print(f"effects that would repeat      {_names(manual)}{more}")
        out.print(f"decisions that would be lost   {_names(lost)}")
        out.print(f"runs left without a reason     {_names(stuck)}")
    if report.crashes_left_out:
        out.print(f"left out: {report.crashes_left_out} crashes (--crashes)")
    if report.paths_left_out:
        out.print(f"left out: {report.paths_left_out} combinations of answers (--paths)")
    far = ""
    if report.stood_in:
        _say_stood_in(report.stood_in, out)
        far = ", as far as was run"
    verdicts = {
        "passed": ("green", f"passed{far}: nothing is lost, and nothing is repeated blindly"),
        "needs_person": ("yellow", f"safe{far}, but after a crash at a bad moment a run waits for a person"),
        "faults": ("red", "not safe: see above"),
    }
    style, words = verdicts[report.verdict]
    out.print(out.paint(words, style))


def _say_stood_in(stood_in: tuple[StoodIn, ...], out: Out) -> None:
    """What the verdict does not speak of, and what would tell."""
    observes = [one.node for one in stood_in if one.observe]
    also = f"; and observe of {_names(observes)}" if observes else ""
    out.print(f"not run: stand-ins took over   {_names([one.node for one in stood_in])}{also}")
    unknown = []
    if any(one.mode == "idempotent" for one in stood_in):
        unknown.append("whether what is declared idempotent is")
    silent = ("manual", "parts")
    if any(one.mode in silent and not one.observe for one in stood_in) and not unknown:
        unknown.append("what these steps do outside")
    if observes:
        unknown.append("whether observe tells the truth")
    out.print(f"--effects real would show      {', and '.join(unknown)}")


def _names(nodes: list[str]) -> str:
    return ", ".join(text.line(node) for node in dict.fromkeys(nodes)) or "none"
