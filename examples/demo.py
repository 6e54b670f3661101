"""`make demo`: the main job on real input, with the daemon killed in the middle.

Runs examples/workflows/repository_report.py on this repository, kills the daemon with SIGKILL while a step is
executing, lets the client bring it back, and then shows from the store that no committed step ran twice and no
effect was repeated. Then a resource is kept as it is wanted (`examples/demo_resources.py`). Uses a temporary PWF_HOME
and leaves nothing running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from examples.demo_resources import MirrorDemo

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = "examples/workflows/repository_report.py"
KILL_AT = ("measure", "compiles", "settle")  # the first of these that is seen executing
PATIENCE_S = 120


class Demo:
    """One demonstration in a home and an output folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "report"
        self.environment = {**os.environ, "PWF_HOME": str(folder / "home")}
        self.environment.pop("PWF_NO_AUTOSTART", None)

    def pwf(self, *words: str, cwd: Path = ROOT) -> Any:
        """A command's JSON answer."""
        command = [sys.executable, "-m", "pwf.cli.main", *words, "--json"]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"demo: pwf {' '.join(words)} failed: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def run(self) -> int:
        """The whole demonstration; the exit code."""
        say("1. Start the run. The terminal shows it live; each step is committed before the next begins.")
        words = ["run", WORKFLOW, "--id", "demo", "--set", f"output={self.output}"]
        killer = threading.Thread(target=self.kill_in_the_middle, daemon=True)
        started = subprocess.Popen(
            [sys.executable, "-m", "pwf.cli.main", *words], env=self.environment, cwd=ROOT
        )
        killer.start()
        code = started.wait(timeout=PATIENCE_S)
        killer.join(timeout=5)
        say("3. What the store says.")
        ok = self.report()
        say("The report, as the run wrote it:")
        print("\n".join((self.output / "report.md").read_text(encoding="utf-8").splitlines()[:24]))
        home = Path(self.environment["PWF_HOME"])
        ok = MirrorDemo(self.folder, home, self.pwf, say).run() and ok
        return 0 if ok and code == 0 else 1

    def kill_in_the_middle(self) -> None:
        """SIGKILL the daemon once a step of some length executes."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                record = json.loads((Path(self.environment["PWF_HOME"]) / "daemon.lock").read_text())
                view = self.pwf("show", "demo")
            except (OSError, ValueError, SystemExit):
                time.sleep(0.02)
                continue
            node, status = view["summary"]["node"], view["summary"]["status"]
            if status in ("completed", "failed"):
                say("   (the run was over before it could be disturbed)")
                return
            if node in KILL_AT:
                os.kill(record["pid"], signal.SIGKILL)
                say(
                    f"2. The daemon (pid {record['pid']}) was killed with SIGKILL while the run was at {node!r}."
                )
                return
            time.sleep(0.02)

    def report(self) -> bool:
        """Show and check what happened, from the store alone."""
        view = self.pwf("show", "demo")
        completed = Counter((s["node"], s["visit"]) for s in view["steps"] if s["status"] == "completed")
        print(f"   {'node':<14} {'attempts':>8} {'committed':>10}   effect")
        effects = {effect["node"]: effect for effect in view["effects"]}
        for node in [node["id"] for node in view["graph"]["nodes"]]:
            tries = [s for s in view["steps"] if s["node"] == node]
            effect = effects.get(node)
            said = f"{effect['mode']}, {effect['status']}" if effect else ""
            print(f"   {node:<14} {len(tries):>8} {completed[node, 1]:>10}   {said}")
        deliveries = (self.output / "deliveries.log").read_text(encoding="utf-8").splitlines()
        violations = self.pwf("state", "verify")["violations"]
        checks = {
            "the run completed": view["summary"]["status"] == "completed",
            "every node was committed exactly once": set(completed.values()) == {1}
            and len(completed) == len(view["graph"]["nodes"]),
            "the delivery that must not be repeated was made once": len(deliveries) == 1,
            "every effect is settled as applied": all(e["status"] == "applied" for e in view["effects"]),
            "the daemon was replaced": self.pwf("status")["epoch"] >= 2,
            "state verify is clean": not violations,
        }
        print()
        for rule, held in checks.items():
            print(f"   {'ok' if held else 'BROKEN':<7} {rule}")
        return all(checks.values())

    def stop(self) -> None:
        """Leave nothing running."""
        command = [sys.executable, "-m", "pwf.cli.main", "stop", "--json"]
        quiet = {**self.environment, "PWF_NO_AUTOSTART": "1"}
        subprocess.run(command, env=quiet, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False)


def say(text: str) -> None:
    """A line of the story."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def main() -> int:
    """Run the demonstration in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-demo-"))
    demo = Demo(folder)
    try:
        return demo.run()
    finally:
        demo.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
