"""Bugs in what a run's code is: planted one at a time, as those of `tests.planted.bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

DEFINITIONS = "pwf/actors/code/definitions.py"

CODE_BUGS = (
    Bug(
        "code",
        "what was resolved is used again although its file was edited",
        DEFINITIONS,
        "if entry is not None and await _is_valid(entry.watch, asked_ns):",
        "if entry is not None:",
        ("actors/test_definitions.py",),
    ),
    Bug(
        "code",
        "a process that stands by has the code of another definition",
        "pwf/actors/processes/standing_by.py",
        "return interpreter, bundle_key, tuple(sorted(environment.items()))",
        'return interpreter, "", tuple(sorted(environment.items()))',
        ("actors/test_runner_pool_kept.py",),
    ),
    Bug(
        "code",
        "a fork with stored code takes the present one",
        "pwf/actors/operations/fork.py",
        'if payload.code == "current":',
        "if payload.code:",
        ("e2e/test_forks.py",),
    ),
)
