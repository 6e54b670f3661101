"""A report on a Git repository: its history, languages, largest and most changed files, whether all of it compiles.

Try it on any repository:

    pwf run examples/workflows/repository_report.py --set repository=. --set output=/tmp/report

It writes report.md with a chart beside it, and a line into deliveries.log. Every step that touches something
outside declares its effect, so that a crash at any instant repeats nothing that must not be repeated.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from pwf import Context, Workflow, applied, idempotent, manual, minutes, not_applied, seconds

LANGUAGES = {
    ".py": "Python", ".sql": "SQL", ".md": "Markdown", ".toml": "TOML", ".json": "JSON", ".sh": "Shell",
    ".c": "C", ".h": "C", ".rs": "Rust", ".go": "Go", ".js": "JavaScript", ".ts": "TypeScript", ".yml": "YAML",
    ".yaml": "YAML", ".html": "HTML", ".css": "CSS", ".txt": "Text",
}  # fmt: skip


class ReportInput(msgspec.Struct, frozen=True, kw_only=True):
    """`top`: lines of each ranking. `pause_s`: how long the durable timer waits before the report is written."""

    repository: str = "."
    output: str = "report"
    top: int = 10
    pause_s: float = 2.0


flow = Workflow(
    "repository_report",
    input=ReportInput,
    title=lambda ctx: f"report on {Path(ctx.input.repository).resolve().name}",
)


@flow.shell(effect=idempotent("git-log"), timeout=minutes(2))
def history(ctx: Context[ReportInput]) -> list[str]:
    """Who changed what, and when: read from git."""
    log = ["log", "--no-renames", "--numstat", "--date=short", "--format=commit\t%h\t%ad\t%an"]
    return ["git", "-C", ctx.input.repository, *log]


@flow.shell(effect=idempotent("git-files"), parse="lines", timeout=minutes(2))
def files(ctx: Context[ReportInput]) -> list[str]:
    """The files that git tracks or would track."""
    return ["git", "-C", ctx.input.repository, "ls-files", "--cached", "--others", "--exclude-standard"]


@flow.action(effect=idempotent("read-files"), timeout=minutes(5))
def measure(ctx: Context[ReportInput]) -> list[dict[str, Any]]:
    """Size and number of lines of each file, with progress."""
    root, names = Path(ctx.input.repository), ctx[files].parsed
    found = []
    for done, name in enumerate(names, 1):
        path = root / name
        if path.is_file():
            data = path.read_bytes()
            found.append({"path": name, "bytes": len(data), "lines": data.count(b"\n")})
        ctx.progress(done, len(names), "files", label="files read")
    return found


@flow.compute
def languages(ctx: Context[ReportInput]) -> dict[str, int]:
    """Lines by language, most first."""
    lines: Counter[str] = Counter()
    for file in ctx[measure]:
        lines[LANGUAGES.get(Path(file["path"]).suffix, "Other")] += file["lines"]
    return dict(lines.most_common())


@flow.compute
def largest(ctx: Context[ReportInput]) -> list[dict[str, Any]]:
    """The largest files."""
    return sorted(ctx[measure], key=lambda file: file["bytes"], reverse=True)[: ctx.input.top]


@flow.compute
def most_changed(ctx: Context[ReportInput]) -> dict[str, Any]:
    """Which files changed most often, and how many commits each author made."""
    changes: Counter[str] = Counter()
    authors: Counter[str] = Counter()
    for line in ctx[history].stdout.splitlines():
        parts = line.split("\t")
        if parts[0] == "commit" and len(parts) == 4:
            authors[parts[3]] += 1
        elif len(parts) == 3:
            changes[parts[2]] += 1
    top = ctx.input.top
    return {
        "files": changes.most_common(top),
        "authors": authors.most_common(top),
        "commits": authors.total(),
    }


@flow.action(effect=idempotent("compile"), timeout=minutes(5))
def compiles(ctx: Context[ReportInput]) -> list[str]:
    """The Python modules that do not compile."""
    modules = [name for name in ctx[files].parsed if name.endswith(".py")]
    broken = []
    for done, name in enumerate(modules, 1):
        path = Path(ctx.input.repository) / name
        if path.is_file():
            try:
                compile(path.read_bytes(), name, "exec")
            except (SyntaxError, ValueError) as error:
                broken.append(f"{name}: {error}")
        ctx.progress(done, len(modules), "modules", label="modules compiled")
    return broken


@flow.wait
def settle(ctx: Context[ReportInput]) -> Any:
    """A durable timer: the run holds no process while it waits."""
    return seconds(ctx.input.pause_s)


@flow.action(effect=idempotent("write-report"))
def report(ctx: Context[ReportInput]) -> dict[str, Any]:
    """Write the report and its chart; writing the same files again changes nothing."""
    folder = Path(ctx.input.output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "languages.svg").write_text(chart(ctx[languages]), encoding="utf-8")
    (folder / "report.md").write_text(markdown(ctx), encoding="utf-8")
    return {"report": str(folder / "report.md"), "files": len(ctx[measure]), "broken": len(ctx[compiles])}


def was_delivered(ctx: Context[ReportInput]) -> Any:
    """Read the outside: is there a line with this effect's key?"""
    log = Path(ctx.input.output) / "deliveries.log"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return (
        applied({"delivery": lines.index(ctx.effect_key) + 1}) if ctx.effect_key in lines else not_applied()
    )


@flow.action(effect=manual("delivery", observe=was_delivered))
def deliver(ctx: Context[ReportInput]) -> dict[str, int]:
    """Tell the world, once: append a line. Doing it twice would be seen, so it is never repeated blindly."""
    log = Path(ctx.input.output) / "deliveries.log"
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{ctx.effect_key}\n")
    return {"delivery": len(log.read_text(encoding="utf-8").splitlines())}


@flow.compute
def summary(ctx: Context[ReportInput]) -> dict[str, Any]:
    """What the run says in the end."""
    return {**ctx[report], "languages": ctx[languages], "commits": ctx[most_changed]["commits"]}


def markdown(ctx: Context[ReportInput]) -> str:
    """The report's text."""
    name = Path(ctx.input.repository).resolve().name
    revision = subprocess.run(
        ["git", "-C", ctx.input.repository, "describe", "--always"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    changed, broken = ctx[most_changed], ctx[compiles]
    parts = [
        f"# {name} at {revision or 'no commit'}",
        f"{len(ctx[measure]):,} files, {sum(ctx[languages].values()):,} lines, {changed['commits']:,} commits.",
        "![Lines by language](languages.svg)",
        "## Largest files",
        table(("file", "bytes", "lines"), [(f["path"], f["bytes"], f["lines"]) for f in ctx[largest]]),
        "## Most changed files",
        table(("file", "changes"), changed["files"]),
        "## Authors",
        table(("author", "commits"), changed["authors"]),
        "## Compilation",
        "Every module compiles." if not broken else "\n".join(f"- {line}" for line in broken),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: tuple[str, ...], rows: Any) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def chart(lines: dict[str, int]) -> str:
    """Bars of lines by language, as SVG."""
    most = max(lines.values(), default=1) or 1
    rows = []
    for index, (language, count) in enumerate(lines.items()):
        y, width = 14 + index * 26, max(1, round(360 * count / most))
        rows.append(
            f'<text x="100" y="{y + 13}" text-anchor="end">{escape(language)}</text>'
            f'<rect x="108" y="{y}" width="{width}" height="18" rx="3" fill="#3b7dd8"/>'
            f'<text x="{116 + width}" y="{y + 13}" fill="#666">{count:,}</text>'
        )
    height = 26 * len(lines) + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="560" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13">{"".join(rows)}</svg>\n'
    )


flow.graph(
    history >> files,
    files >> measure,
    measure >> languages,
    languages >> largest,
    largest >> most_changed,
    most_changed >> compiles,
    compiles >> settle,
    settle >> report,
    report >> deliver,
    deliver >> summary,
)
