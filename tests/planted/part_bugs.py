"""Bugs in effects in mid-step: the ledger's parts, what an attempt leaves of them, and the runner's side."""

from __future__ import annotations

from tests.planted.bug import Bug

PART_TESTS = (
    "store/test_effect_parts.py",
    "store/test_step_parts.py",
    "runner/test_parts.py",
    "store/test_values.py",
)
LEDGER, LEDGER_SQL = "pwf/store/effect_parts.py", "pwf/store/effect_parts.sql"
STEP, RUNNER = "pwf/store/step_parts.py", "pwf/runner/base/parts.py"

PART_BUGS = (
    Bug(
        "parts",
        "another request under a key is no conflict",
        LEDGER,
        "    if row.fingerprint != fingerprint_of(call.request):\n",
        '    if row.status == "applied" and row.fingerprint != fingerprint_of(call.request):\n',
        PART_TESTS,
    ),
    Bug(
        "parts",
        "what an earlier process left open is applied again",
        LEDGER,
        'if row.generation == occasion.generation or not call.observable else "observe"',
        'if row.generation == occasion.generation or not call.observable else "apply"',
        PART_TESTS,
    ),
    Bug(
        "parts",
        "an effect that is begun again keeps the generation of its first try",
        LEDGER_SQL,
        "status = 'applying', generation = :generation,\n",
        "status = 'applying',\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "why a try left an effect unknown is not kept",
        LEDGER_SQL,
        "  AND generation = :generation AND error IS NULL\n",
        "  AND generation < :generation AND error IS NULL\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "one without an observer waits for one",
        STEP,
        "    if could_not_tell or not all(part.observable for part in open_):\n",
        "    if could_not_tell or not any(part.observable for part in open_):\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "a step ends although an effect of an earlier try is open",
        STEP,
        "    return Left.ASK if is_over else Left.NOTHING\n",
        "    return Left.NOTHING\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "the present attempt is not asked for",
        STEP,
        "    if not makes_parts(node) or call.attempt != run.attempts:\n",
        "    if not makes_parts(node):\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "a run goes on when one of its effects is settled",
        "pwf/store/effects.py",
        '    if any(one.status == "ambiguous" for one in unknown_parts(tx, occasion)):\n',
        '    if len([one for one in unknown_parts(tx, occasion) if one.status == "ambiguous"]) > 1:\n',
        PART_TESTS,
    ),
    Bug(
        "parts",
        "what was to be observed stays so when another effect is given up",
        "pwf/store/effects.py",
        "        leave_ambiguous(tx, occasion)  # what was to be observed, which no code does any more\n",
        "        pass\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "any error of apply means that it did not happen",
        "pwf/workflow/effects.py",
        '    return "rejected" if rest is None or isinstance(rest, NotApplied) else "unknown"\n',
        '    return "rejected"\n',
        PART_TESTS,
    ),
    Bug(
        "parts",
        "what was found not to have happened after an error is applied at once",
        RUNNER,
        "            if answer.error is not None:  # nobody gets a retry that they did not ask for\n",
        "            if answer.error is not None and call.mode != 'manual':\n",
        PART_TESTS,
    ),
    Bug(
        "parts",
        "a step that swallows what an observer could not tell completes",
        "pwf/runner/engine.py",
        "            if step.parts is not None and (unsure := step.parts.unsure) is not None:\n",
        "            if step.parts is not None and end is None and (unsure := step.parts.unsure) is not None:\n",
        ("runner/test_parts.py", "runner/test_engine.py"),
    ),
    Bug(
        "parts",
        "a large request may be dropped while its effect is there",
        "pwf/store/values.sql",
        "    OR EXISTS (SELECT 1 FROM effects WHERE request_digest = :digest)\n",
        "",
        PART_TESTS,
    ),
)
