"""Which Python and which pwf an interpreter has: recorded with each run, asked once per interpreter.

Owns a small cache keyed by the file's own state, so that an upgrade is noticed. Never imports a project's
code.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import trio

import pwf
from pwf.errors import EnvironmentMissing
from pwf.watch import Mark, mark_of

ASK_S_MAX = 20.0
_QUESTION = "import platform, pwf; print(platform.python_version()); print(pwf.__version__)"


class Interpreters:
    """Handle; it has no task of its own."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mark | None, tuple[str, str]]] = {}

    async def facts(self, interpreter: str) -> tuple[str, str]:
        """(Python version, pwf version). `EnvironmentMissing` when it has no pwf that can be imported."""
        if interpreter == sys.executable:
            return platform.python_version(), pwf.__version__
        mark = mark_of(interpreter)
        known = self._known.get(interpreter)
        if known is not None and known[0] == mark:
            return known[1]
        facts = await trio.to_thread.run_sync(_ask, interpreter)
        self._known[interpreter] = (mark, facts)
        return facts


def _ask(interpreter: str) -> tuple[str, str]:
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S_MAX,
            check=False,
            text=True,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentMissing(f"{interpreter} can not be asked for its version: {error}") from error
    lines = done.stdout.split()
    if done.returncode != 0 or len(lines) != 2:
        raise EnvironmentMissing(
            f"{interpreter} has no pwf", hint=f"{interpreter} -m pip install pwf-workflows"
        )
    return lines[0], lines[1]
