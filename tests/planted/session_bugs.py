"""The bugs of sessions: fences that let through, messages sent twice or never, turns that count for too long."""

from tests.planted.bug import Bug

TURNS, MESSAGES = "pwf/store/session_turns.py", "pwf/store/session_messages.py"
TURN_TESTS = ("store/test_session_turns.py",)
TIME_TESTS = ("store/test_session_time.py",)
FOLLOW_UPS = "pwf/store/follow_ups.py"
FOLLOW_UP_TESTS = ("store/test_follow_ups.py",)

SESSION_BUGS = (
    Bug(
        "sessions",
        "a follow-up comes before the end of its run was told",
        "pwf/store/read_sessions.sql",
        "AND t.kind = 'terminal' AND t.is_over = 1)))",
        "AND t.kind = 'terminal')))",
        FOLLOW_UP_TESTS,
    ),
    Bug(
        "sessions",
        "a run that fails leaves its follow-ups",
        MESSAGES,
        'if run.status != "completed":',
        'if run.status == "cancelled":',
        FOLLOW_UP_TESTS,
    ),
    Bug(
        "sessions",
        "a follow-up is removed that was sent",
        FOLLOW_UPS,
        "    if sent_ms is not None:",
        "    if False:",
        FOLLOW_UP_TESTS,
    ),
    Bug(
        "sessions",
        "anybody removes a follow-up",
        FOLLOW_UPS,
        "    if not command.person and queued_by != command.actor:",
        "    if False:",
        FOLLOW_UP_TESTS,
    ),
    Bug(
        "sessions",
        "a connection that was taken over still acts for its session",
        "pwf/store/sessions.py",
        'if tx.one(Q.holds, {"session_no": fence.session_no, "epoch": fence.epoch}) is None:',
        "if False:",
        ("store/test_sessions.py", *TURN_TESTS),
    ),
    Bug(
        "sessions",
        "a session submits for another one's request",
        "pwf/store/submissions.py",
        "if command.session is not None and run.session_no != command.session.session_no:",
        "if False:",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a step that a resume has withdrawn still counts",
        TURNS,
        'row[:2] == ("pending", message.request_revision)',
        'row[0] == "pending"',
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a run that ends does not tell its session",
        MESSAGES,
        '        _add(tx, run, "terminal", f"{run.run_id}.terminal")',
        "        pass",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a session is reminded without end",
        TURNS,
        "if row[2] < REMINDERS_MAX:",
        "if row[2] >= 0:",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a lost turn counts as a reminder",
        TURNS,
        '            _fresh(tx, fence, message, "lost")',
        "            _remind(tx, fence, message)",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a lost turn is not made good",
        TURNS,
        '            _fresh(tx, fence, message, "lost")',
        "            pass",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "a rejection that nobody heard tells nobody",
        "pwf/store/submission_kind.py",
        "        session_messages.rejected(tx, run, request_id, revision_asked, reason)",
        "        pass",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "an abort that comes late is not heard",
        TURNS,
        'late_abort = aborted and known == "ended"',
        "late_abort = False",
        TURN_TESTS,
    ),
    Bug(
        "sessions",
        "time is counted on under a pause",
        MESSAGES,
        'if run.status != "waiting" or run.hold is not None:',
        'if run.status != "waiting":',
        TIME_TESTS,
    ),
    Bug(
        "sessions",
        "time is counted on after the connection has ended",
        "pwf/store/sessions.py",
        "        session_clock.stop_session(tx, fence.session_no)\n        changed",
        "        changed",
        TIME_TESTS,
    ),
    Bug(
        "sessions",
        "a message is named before the session has said what it has",
        "pwf/store/read_sessions.py",
        "tx.one(Q.next_message, which) if reported else None",
        "tx.one(Q.next_message, which)",
        TURN_TESTS,
    ),
)
