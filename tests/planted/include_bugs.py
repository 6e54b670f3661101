"""Bugs in included workflows: what their code sees, how they count, how they are left, and what is recorded."""

from __future__ import annotations

from tests.planted.bug import Bug

INCLUDE_TESTS = (
    "store/test_included.py",
    "workflow/test_include.py",
    "runner/test_include.py",
    "runner/test_includes.py",
)
COUNTS, SCOPES, FLAT = "pwf/protocol/mounts.py", "pwf/workflow/scopes.py", "pwf/workflow/include.py"
FORKS = "pwf/store/adoption.py"

INCLUDE_BUGS = (
    Bug(
        "include",
        "a child that is entered again goes on counting",
        COUNTS,
        "    return visit if before is None else visit - before.get(node, 0)\n",
        "    return visit if before is None else visit\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "steps of earlier entries count against a child's limit",
        COUNTS,
        "    return taken - sum(entries.get(mount, {}).values())\n",
        "    return taken\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a mount below another one takes what is beside it for its own",
        COUNTS,
        '    return node.startswith(mount + ".")\n',
        "    return node.startswith(mount)\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a child may take a step more than its limit",
        "pwf/store/state.py",
        "mount, spec.max_steps - 1, self.steps):",
        "mount, spec.max_steps, self.steps):",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a new runner is told of a child's earlier entries",
        "pwf/store/launch.py",
        "        if done and spec is not None and spec.mount is not None:",
        "        if not done and spec is not None and spec.mount is not None:",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a runner remembers what a child did at its earlier entry",
        "pwf/runner/engine.py",
        "                forget_within(step.node, self._completed)\n",
        "",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a child sees the input of the run",
        SCOPES,
        "        input = entered\n",
        "        del entered\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "what leads on from all exits hides the way of one",
        "pwf/workflow/ways.py",
        '        return self._exits.get(mount.id, {}).get(name) or self._ways.get(mount.id, {}).get("completed")\n',
        '        return self._ways.get(mount.id, {}).get("completed") or self._exits.get(mount.id, {}).get(name)\n',
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "an exit within two includes leaves the inner one only",
        FLAT,
        "    return msgspec.structs.replace(spec, exits=_below(mount, spec.exits))\n",
        "    return spec\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a fork at an include counts from its earlier entry",
        FORKS,
        "        if mount == node:  # it is entered anew\n",
        "        if mount is node:  # it is entered anew\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a fork within an earlier entry counts from the last one",
        FORKS,
        "        if row is not None:\n",
        "        if False:\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "a circle of files is seen one round late",
        "pwf/workflow/included.py",
        "        if path in chain:\n",
        "        if path in chain[1:]:\n",
        INCLUDE_TESTS,
    ),
    Bug(
        "include",
        "nobody watches for a file that would hide an included one",
        "pwf/runner/load/recorded_includes.py",
        "            snapshot.look_at(candidate)\n",
        "",
        INCLUDE_TESTS,
    ),
)
