"""The second half of `make demo`: a resource that stays as it is wanted, whatever is done behind its back.

A project in a temporary folder with examples/resources/git-mirror.py. The mirror is made, follows a commit, is repaired
when somebody removes its objects, and all the same when that is done while the daemon is dead.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MANAGER = Path(__file__).parent / "resources" / "git-mirror.py"
PATIENCE_S = 60


class MirrorDemo:
    """`pwf`: runs a command in a folder, and gives its JSON answer. `say`: a line of the story."""

    def __init__(self, folder: Path, home: Path, pwf: Callable[..., Any], say: Callable[[str], None]) -> None:
        self.project, self.mirror = folder / "project", folder / "mirror.git"
        self.upstream = self.project / "upstream"
        self.home = home
        self._pwf = pwf
        self._say = say

    def run(self) -> bool:
        """The whole of it; whether all was as promised."""
        managers = self.project / ".pwf" / "resources"
        managers.mkdir(parents=True)
        shutil.copy(MANAGER, managers)
        self.git("init", "--quiet", "--initial-branch=main", str(self.upstream), at=self.project)
        self.commit("first")
        self._say("4. A resource: a mirror of a git repository, kept in step by a manager of 250 lines.")
        spec = json.dumps({"upstream": str(self.upstream), "mirror": str(self.mirror)})
        self.pwf("resource", "apply", "git-mirror", "demo", "--spec", spec)
        checks = {"the mirror was made": self.comes_into_step()}
        self.commit("second")
        checks["it followed a commit that nobody told it of"] = self.comes_into_step()
        shutil.rmtree(self.mirror / "objects", ignore_errors=True)  # a reconcile may be in there, too
        checks["it was repaired when its objects were removed"] = self.comes_into_step()
        pid = json.loads((self.home / "daemon.lock").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.mirror, ignore_errors=True)
        self.commit("third")
        self.pwf("resource", "ls")  # any command starts a daemon again
        checks["so it was when that was done while the daemon was dead"] = self.comes_into_step()
        view = self.pwf("resource", "get", "git-mirror", "demo")
        made = view["status"]["json"]["made"]
        print(f"   {view['summary']['message']}; made {made} times, {view['reconciles']} reconciles")
        self.pwf("resource", "delete", "git-mirror", "demo")
        checks["deleting it removed the mirror"] = self.until(lambda: not self.mirror.exists())
        for rule, held in checks.items():
            print(f"   {'ok' if held else 'BROKEN':<7} {rule}")
        return all(checks.values())

    def pwf(self, *words: str) -> Any:
        return self._pwf(*words, cwd=self.project)

    def git(self, *words: str, at: Path) -> str:
        command = ["git", "-C", str(at), "-c", "user.name=demo", "-c", "user.email=demo@example.org", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, text: str) -> None:
        self.git("commit", "--quiet", "--allow-empty", "-m", text, at=self.upstream)

    def comes_into_step(self) -> bool:
        """Whether the mirror is whole and at upstream's head within the time."""
        return self.until(self.is_in_step)

    def is_in_step(self) -> bool:
        try:
            wanted = self.git("rev-parse", "HEAD", at=self.upstream)
            self.git("fsck", "--no-progress", at=self.mirror)
            return self.git("rev-parse", "HEAD", at=self.mirror) == wanted
        except (subprocess.CalledProcessError, OSError):
            return False

    def until(self, holds: Callable[[], bool]) -> bool:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if holds():
                return True
            time.sleep(0.1)
        return False
