"""The bugs of questions: deadlines that pass when they should not, or do not; answers that win when they must not."""

from tests.planted.bug import Bug

DEADLINES = "pwf/store/deadlines.py"
DECISION_TESTS = ("store/test_decisions.py",)
DEADLINE_TESTS = ("store/test_deadlines.py", "actors/test_decision_timeout.py")

DECISION_BUGS = (
    Bug(
        "decisions",
        "a question is closed before its time",
        DEADLINES,
        "if found is None or found[0] > 0:",
        "if found is None:",
        DEADLINE_TESTS,
    ),
    Bug(
        "decisions",
        "somebody answers after the deadline",
        "pwf/store/requests.py",
        "if left_ms is None or left_ms > 0:",
        "if left_ms is None or left_ms > -60_000:",
        DEADLINE_TESTS,
    ),
    Bug(
        "decisions",
        "a question's time passes under a hold",
        "pwf/store/place.py",
        "(request_clock.start if hold is None else request_clock.stop)(tx, run.run_id)",
        "request_clock.start(tx, run.run_id)",
        DEADLINE_TESTS,
    ),
    Bug(
        "decisions",
        "deadlines of an earlier boot are compared with this one's clock",
        "pwf/actors/decisions/decision_timeout.py",
        "await self._store.write(rebase_deadlines, None)",
        "pass",
        DEADLINE_TESTS,
    ),
    Bug(
        "decisions",
        "an answer to another proposal is taken",
        "pwf/store/decisions.py",
        "if command.digest != digest:",
        "if False:",
        DECISION_TESTS,
    ),
    Bug(
        "decisions",
        "a run that ends leaves its decision without a winner",
        "pwf/store/moves.py",
        "        closed_with_run(tx, run.run_id)",
        "        pass",
        DECISION_TESTS,
    ),
    Bug(
        "decisions",
        "a late answer leaves no trace",
        "pwf/store/decisions.py",
        "        _keep_refused(tx, command, done.refusal.message)",
        "        pass",
        DECISION_TESTS,
    ),
    Bug(
        "decisions",
        "the digest forgets the subject",
        "pwf/protocol/decision_spec.py",
        '"subject": subject,',
        '"subject": None,',
        DECISION_TESTS,
    ),
    Bug(
        "decisions",
        "a default takes the place of the way out",
        DEADLINES,
        "        if default is None:\n            tx.run(Q.expire, settle)",
        "        if False:\n            tx.run(Q.expire, settle)",
        DEADLINE_TESTS,
    ),
)
