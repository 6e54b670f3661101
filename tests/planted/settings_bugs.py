"""The bugs of settings and progress: changes that pass by the rules, routes by old ones, times that are made up."""

from tests.planted.bug import Bug

PATCH = "pwf/actors/code/settings_patch.py"
PATCH_TESTS = ("actors/test_settings_patch.py",)
ROWS = "pwf/store/settings_rows.py"
STORE = "pwf/store/settings.py"
STORE_TESTS = ("store/test_settings.py",)
CHILD_WORDS = "pwf/store/child_words.py"
CHILD_TESTS = ("store/test_child_words.py",)
ESTIMATE = "pwf/store/estimate.py"
ESTIMATE_TESTS = ("store/test_estimate.py",)

SETTINGS_BUGS = (
    Bug(
        "settings",
        "a change of the whole passes by what is guarded below it",
        PATCH,
        "        if hidden or not _same(was, now):",
        "        if False:",
        PATCH_TESTS,
    ),
    Bug(
        "settings",
        "what may not be read may be copied",
        PATCH,
        '    if op in ("test", "copy"):',
        '    if op in ("test",):',
        PATCH_TESTS,
    ),
    Bug(
        "settings",
        "a shorter path has a word where a longer one decides",
        PATCH,
        "for length in range(len(at), -1, -1)",
        "for length in range(len(at) + 1)",
        PATCH_TESTS,
    ),
    Bug(
        "settings",
        "what may not be read is shown",
        PATCH,
        "    if rules.reads_all(()):",
        "    if True:",
        PATCH_TESTS,
    ),
    Bug(
        "settings", "a change commits on another", STORE, "now.change != command.change", "False", STORE_TESTS
    ),
    Bug(
        "settings",
        "a run that has ended is changed",
        STORE,
        "    if run.status in ENDED:",
        "    if False:",
        STORE_TESTS,
    ),
    Bug(
        "settings",
        "a route goes on by settings that were changed since",
        ROWS,
        "row[0] > message.settings",
        "row[0] > message.settings + 1",
        STORE_TESTS,
    ),
    Bug(
        "settings",
        "an included workflow goes on with the settings of the entry before",
        STORE,
        "changed is not None and changed.entry == entry",
        "changed is not None",
        STORE_TESTS,
    ),
    Bug(
        "settings",
        "a runner is not told of a change",
        ROWS,
        'None if now is None or now.change <= getattr(message, "settings", 0) else now',
        "None",
        STORE_TESTS,
    ),
    Bug(
        "settings",
        "a time left is made of two samples",
        ESTIMATE,
        "RATES_MIN = 3",
        "RATES_MIN = 1",
        ESTIMATE_TESTS,
    ),
    Bug(
        "settings",
        "what stands still has a time left",
        ESTIMATE,
        "    if at_ms - moved[-1][0] > fresh_ms:",
        "    if False:",
        ESTIMATE_TESTS,
    ),
    Bug(
        "settings",
        "a manager's change is made again at each repeat",
        "pwf/actors/resources/questions.py",
        "            receipt=receipt,\n        )\n        return (await",
        "        )\n        return (await",
        ("actors/test_reconcile_questions.py",),
    ),
    Bug(
        "settings",
        "a manager whose lease is another's changes settings of a child",
        CHILD_WORDS,
        "    owned(tx, command.fence)\n    done = change_settings",
        "    done = change_settings",
        CHILD_TESTS,
    ),
    Bug(
        "settings",
        "a refusal of a manager's word is kept under its key",
        CHILD_WORDS,
        "        raise done.refusal\n    return done",
        "        pass\n    return done",
        CHILD_TESTS,
    ),
    Bug(
        "settings",
        "a manager's word under another key is taken for a repeat",
        CHILD_WORDS,
        "/{run_id}/{operation}/{key}",
        "/{run_id}/{operation}",
        CHILD_TESTS,
    ),
    Bug(
        "settings",
        "a manager removes follow-ups of others",
        "pwf/store/follow_ups.py",
        "    if not command.person and queued_by != command.actor:",
        "    if not command.person and not command.manages and queued_by != command.actor:",
        CHILD_TESTS,
    ),
)
