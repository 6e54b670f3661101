"""Bugs in what makes steps with effects, and commands, cost less."""

from __future__ import annotations

from tests.planted.bug import Bug

SUPERVISOR = "pwf/actors/runs/run_supervisor.py"
SUPERVISOR_TESTS = (
    "actors/test_socket_stream.py",
    "actors/test_deadlines.py",
    "actors/test_run_supervisor.py",
)
COMMAND_TESTS = ("runner/test_shell.py",)

ACTIONS = (
    Bug(
        "actions",
        "a stop that comes while the supervisor writes ends no later wait",
        "pwf/actors/base/socket_stream.py",
        "        self._interrupted = True\n",
        "        self._interrupted = self._at_once < 0\n",
        SUPERVISOR_TESTS,
    ),
    Bug(
        "actions",
        "what arrives with an interruption is not received",
        "pwf/actors/base/socket_stream.py",
        "  # else there may be something to receive all the same\n                raise\n",
        "\n                raise\n            raise Interrupted from None\n",
        SUPERVISOR_TESTS,
    ),
    Bug(
        "actions",
        "a deadline that is nearer than all others is looked at too late",
        "pwf/actors/runs/deadlines.py",
        "            self._look_at = deadline\n            self._earlier.wake()\n",
        "            self._look_at = deadline\n",
        SUPERVISOR_TESTS,
    ),
    Bug(
        "actions",
        "a seat is free when a runner says that it leaves",
        SUPERVISOR,
        "(self.leaves_nothing is not None and self.leaves_nothing.has_left)",
        "(self.leaves_nothing is not None)",
        SUPERVISOR_TESTS,
    ),
    Bug(
        "actions",
        "the revision that a client expects is not compared",
        "pwf/store/change.py",
        "expected_revision=run.revision if expected is None else expected",
        "expected_revision=run.revision",
        ("store/test_control.py", "store/test_change.py"),
    ),
    Bug(
        "actions",
        "a SIGTERM that comes with a command's end is lost",
        "pwf/runner/kinds/command.py",
        "        if owed:",
        "        if owed and self._write < 0:",
        COMMAND_TESTS,
    ),
    Bug(
        "actions",
        "a command is over when its streams are closed",
        "pwf/runner/kinds/command.py",
        "        late = not self._until(self._ended, ",
        "        late = not self._until(lambda: self._quiet() or self._ended(), ",
        COMMAND_TESTS,
    ),
    Bug(
        "actions",
        "a command inherits what a step has made inheritable",
        "pwf/runner/kinds/start.py",
        "        return os.get_inheritable(descriptor)\n",
        "        return os.get_inheritable(descriptor) and descriptor < STREAMS\n",
        COMMAND_TESTS,
    ),
    Bug(
        "actions",
        "a plain command runs in its runner's group",
        "pwf/runner/kinds/start.py",
        "setpgroup=0, ",
        "",
        COMMAND_TESTS,
    ),
    Bug(
        "actions",
        "what is printed passes through the process that may die",
        "pwf/protocol/step_output.py",
        'self._can_splice = hasattr(os, "splice") and not self._fault',
        "self._can_splice = False",
        ("protocol/test_step_output.py", "runner/test_printed.py"),
    ),
    Bug(
        "actions",
        "a survivor is named again while it dies",
        "pwf/runner/spawn/reaping.py",
        "left += name_all(one for one in found if one.pid not in known)",
        "left += [one for one in name_all(found) if one not in left]",
        ("runner/test_survivors.py",),
    ),
)
