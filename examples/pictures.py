"""`make pictures`: what a person sees in a terminal, recorded from real commands as SVG files in docs/pictures.

Makes a home and a project in a temporary folder, types the commands behind a pseudo terminal, and draws the last screen
of each. Uses a home of its own and leaves nothing running. Needs the development dependencies (pexpect).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pexpect

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 100, 40
PATIENCE_S = 60

WORKFLOWS = {
    "release": """
import msgspec
from pwf import Workflow, idempotent

class ReleaseInput(msgspec.Struct):
    version: str

class Verdict(msgspec.Struct):
    ship: bool
    why: str = ""

flow = Workflow("release", input=ReleaseInput, title=lambda ctx: f"release {ctx.input.version}")

@flow.shell(effect=idempotent("tests"))
def test(ctx):
    return ["sh", "-c", "echo 'collecting 42 tests'; sleep 0.4; echo '42 passed in 0.38 s'"]

@flow.checkpoint(returns=Verdict)
def approve(ctx):
    return f"Ship {ctx.input.version}? The tests ended with {ctx[test].exit_code}."

@flow.compute
def done(ctx):
    return {"shipped": ctx.input.version}

@flow.compute
def dropped(ctx):
    return {"dropped": ctx[approve].why}

flow.graph(test >> approve, approve.switch(on="ship", cases={True: done, False: dropped}))
""",
    "gate": """
from pwf import Choice, Text, Workflow, hours

flow = Workflow("gate", title=lambda ctx: f"gate of {ctx.input}")

@flow.decision(
    audience="operator",
    choices=[Choice("ship", "Ship it"), Choice("stop", "Stop", text=Text("Why?", required=False))],
    timeout=hours(2),
    default="stop",
)
def approve(ctx):
    return ctx.present(f"Ship {ctx.input}?", fields={"version": ctx.input, "tests": "42 passed"})
""",
    "nightly": """
from datetime import timedelta
from pwf import Workflow, Retry, idempotent

flow = Workflow("nightly", title=lambda ctx: f"import of {ctx.input}")

@flow.action(effect=idempotent("import"))
def fetch(ctx):
    print(f"fetching {ctx.input}")
    if ctx.input == "orders":
        raise ConnectionError("orders.example.com answers 503")
    return {"rows": 1204}

@flow.wait
def settle(ctx):
    return timedelta(hours=6)

flow.graph(fetch >> settle)
""",
}


# --- a screen -------------------------------------------------------------------------------------------------

Cell = tuple[str, str]  # a character, and the SGR codes it was written with
_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n\b])|([^\x1b])", re.DOTALL)


class Screen:
    """What stands on a terminal after what was written to it. Knows what pwf writes, and no more."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style = ""

    def write(self, text: str) -> None:
        """Take everything in."""
        for codes, kind, control, char in _TOKEN.findall(text):
            if kind:
                self._sequence(codes, kind)
            elif control:
                self._control(control)
            elif char.isprintable():
                self._put(char)

    def _sequence(self, codes: str, kind: str) -> None:
        count = int(codes) if codes.isdecimal() else 1
        if kind == "m":
            self._style = "" if codes in ("", "0") else codes
        elif kind == "A":
            self._row = max(0, self._row - count)
        elif kind == "K":
            self.lines[self._row] = [] if codes == "2" else self.lines[self._row][: self._column]
        elif kind == "J":
            del self.lines[self._row + 1 :]

    def _control(self, control: str) -> None:
        if control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        else:
            self._row += 1
            while len(self.lines) <= self._row:
                self.lines.append([])

    def _put(self, char: str) -> None:
        line = self.lines[self._row]
        line += [(" ", "")] * (self._column + 1 - len(line))
        line[self._column] = char, self._style
        self._column += 1


# --- a picture ------------------------------------------------------------------------------------------------

CELL, LINE, MARGIN, BAR = 8.4, 18, 14, 30
COLOURS = {
    "31": "#ff6b68",
    "32": "#5ac38b",
    "33": "#e0b84f",
    "34": "#6ca8f7",
    "35": "#c98bdb",
    "36": "#4fc1d0",
}
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def drawn(title: str, lines: list[list[Cell]]) -> str:
    """The lines as an SVG: text that can be read and copied, without fonts or scripts from elsewhere."""
    width = int(MARGIN * 2 + COLUMNS * CELL)
    height = BAR + MARGIN * 2 + len(lines) * LINE
    texts = "\n".join(
        f'<text xml:space="preserve" y="{BAR + MARGIN + (number + 0.75) * LINE:g}">{_spans(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
  role="img" aria-label="{escape(title, {'"': "&quot;"})}">
<style>text {{ font: 14px {FONT}; fill: #d5dae2; white-space: pre }}</style>
<rect width="100%" height="100%" rx="8" fill="#171b22"/>
<g fill="#3a4250"><circle cx="18" cy="16" r="5"/><circle cx="36" cy="16" r="5"/><circle cx="54" cy="16" r="5"/></g>
{texts}
</svg>
"""


def _spans(line: list[Cell]) -> str:
    """Pieces of one style, each at its column, so that no font can shift what follows."""
    spans: list[str] = []
    start = 0
    for column in range(1, len(line) + 1):
        if column < len(line) and line[column][1] == line[start][1]:
            continue
        text = "".join(char for char, _ in line[start:column])
        if text.strip():
            spans.append(
                f'<tspan x="{MARGIN + start * CELL:g}" textLength="{len(text) * CELL:g}"{_fill(line[start][1])}>'
                f"{escape(text)}</tspan>"
            )
        start = column
    return "".join(spans)


def _fill(style: str) -> str:
    codes = style.split(";")
    found = "".join(f' fill="{COLOURS[code]}"' for code in codes if code in COLOURS)
    found += ' font-weight="bold"' if "1" in codes else ""
    return found + (' opacity="0.6"' if "2" in codes else "")


# --- the commands ---------------------------------------------------------------------------------------------


class Recording:
    """A home and a project, in which commands are typed."""

    def __init__(self, folder: Path, out: Path) -> None:
        self._project = folder / "shop"
        self._out = out
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
            "PWF_HOME": str(folder / "home"),
            "TERM": "xterm-256color",
        }
        workflows = self._project / ".pwf" / "workflows"
        workflows.mkdir(parents=True)
        for name, text in WORKFLOWS.items():
            (workflows / f"{name}.py").write_text(text, encoding="utf-8")

    def do(self, *words: str) -> None:
        """A command that nobody looks at."""
        subprocess.run(
            [sys.executable, "-m", "pwf.cli.main", *words],
            env=self._environment,
            cwd=self._project,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def record(
        self, name: str, shown: str, *words: str, meanwhile: Callable[[Any], None] | None = None
    ) -> None:
        """Type a command, and draw what stands on the terminal when it has ended."""
        child = pexpect.spawn(
            sys.executable,
            ["-m", "pwf.cli.main", *words],
            env=self._environment,
            cwd=str(self._project),
            dimensions=(ROWS, COLUMNS),
            encoding="utf-8",
            timeout=PATIENCE_S,
        )
        screen = Screen()
        screen.write(f"\x1b[2m$\x1b[0m \x1b[1m{shown}\x1b[0m\r\n")
        text: list[str] = []
        child.logfile_read = type("Log", (), {"write": text.append, "flush": lambda self: None})()
        if meanwhile is not None:
            meanwhile(child)
        child.expect(pexpect.EOF)
        child.close()
        screen.write("".join(text))
        while screen.lines and not screen.lines[-1]:
            screen.lines.pop()
        path = self._out / f"{name}.svg"
        path.write_text(drawn(shown, screen.lines), encoding="utf-8")
        print(path)

    def all(self) -> None:
        """Every picture, in the order in which its run comes to be."""

        def ship(child: Any) -> None:
            child.expect("answer> ")
            child.sendline("ship=yes")

        def stop(child: Any) -> None:
            child.expect("> ")
            child.sendline("stop not on a Friday")

        self.do("run", "nightly", "--input", '"orders"', "--id", "orders", "--until", "parked")
        self.do("run", "nightly", "--input", '"customers"', "--id", "customers", "--detach")
        self.do("run", "release", "--set", "version=1.3.9", "--id", "r139", "--until", "parked")
        start = ("run", "release", "--set", "version=1.4.0", "--id", "r140")
        self.record("run", "pwf run release --set version=1.4.0", *start, meanwhile=ship)
        time.sleep(0.2)  # the last step of the others is stored
        self.record("ls", "pwf ls", "ls")
        self.record("explain", "pwf explain r139", "explain", "r139")
        self.do("run", "gate", "--input", '"1.4.0"', "--id", "gate", "--until", "parked")
        self.record("decide", "pwf decide run:gate", "decide", "run:gate", meanwhile=stop)
        self.record("logs", "pwf logs r140", "logs", "r140")
        self.do("stop")


def main() -> int:
    """Record everything into docs/pictures, or the folder that is given."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pwf-pictures-"))
    recording = Recording(folder, out)
    try:
        recording.all()
        return 0
    finally:
        recording.do("stop")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
