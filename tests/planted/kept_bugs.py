"""The bugs of processes that are kept from run to run: in the look, in custody between two runs, in the hand-over."""

from __future__ import annotations

from tests.planted.bugs import SUPERVISOR, Bug

GENERATION = "pwf/runner/generation.py"
STAYING_TESTS = ("actors/test_staying.py", "actors/test_run_supervisor.py")

KEPT_BUGS = (
    Bug(
        "kept",
        "a process that is not as before stays",
        "pwf/runner/sameness/keeping.py",
        'return "" if differs is None else f"not as before: {differs}"[:NOT_KEPT_CHARS_MAX]',
        'return ""',
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "a process whose step has failed stays",
        GENERATION,
        "why_not = engine.stained or unanswered",
        "why_not = unanswered",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "a process that stays bears its run's marker",
        GENERATION,
        "        self._become(WAITING_MARKER)",
        "        pass",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "a process has one run more than it may",
        "pwf/runner/sameness/keeping.py",
        "return self._runs < runs_max",
        "return self._runs <= runs_max",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "random numbers go on from run to run",
        GENERATION,
        "            reseed_all()\n",
        "",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "the socket for values closes with the run",
        SUPERVISOR,
        "        while await self._exchange(process):\n            pass\n",
        "        while await self._exchange(process):\n            pass\n        await process.values.aclose()\n",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "an answer that comes late is taken for the next launch",
        "pwf/runner/base/wire.py",
        "        while not isinstance(message := self._receive(blocking=True), Launch):\n            pass\n",
        "        message = self._receive(blocking=True)\n        assert isinstance(message, Launch)\n",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "the next run's messages go on with the last one's numbers",
        "pwf/runner/base/wire.py",
        "        self._seq = self._uploads = 0\n        self._waiting.clear()\n",
        "        self._waiting.clear()\n",
        ("runner/test_keeping.py",),
    ),
    Bug(
        "kept",
        "a process that leaves is launched again",
        SUPERVISOR,
        "if not (last.stays and last.childless and",
        "if not (last.childless and",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "a process goes back whose last word was refused",
        SUPERVISOR,
        "last.childless and self._parted and process",
        "last.childless and process",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "a process goes back though its run was stopped",
        SUPERVISOR,
        "        return self._timed_out is None and not self._is_to_stop()\n",
        "        return True\n",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "a row stays behind when its process goes back",
        SUPERVISOR,
        "        if not self._row_gone:\n            await self._settle(True, None)\n",
        "",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "a stop that comes late is the next run's",
        SUPERVISOR,
        "        self.handle.interrupt = None  # a stop that comes late is not the next run's\n",
        "",
        STAYING_TESTS,
    ),
    Bug(
        "kept",
        "the row goes though the run goes on",
        "pwf/store/transitions.py",
        'gone = command.stays and verdict in ("park", "end")',
        "gone = command.stays",
        ("store/test_staying.py",),
    ),
    Bug(
        "kept",
        "the proof for an earlier run kills the next run's process",
        "pwf/actors/processes/runner_pool.py",
        "held.identity == identity and held.marker != marker",
        "held.identity == identity and held.marker == marker",
        ("actors/test_runner_pool_kept.py",),
    ),
    Bug(
        "kept",
        "a process goes back to a template that is closed",
        "pwf/actors/processes/standing_by.py",
        "        if self._is_closed:\n            process.discard()\n",
        "        if False:\n            process.discard()\n",
        ("actors/test_standing_by.py",),
    ),
)
