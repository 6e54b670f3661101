"""The bugs of agents that work by themselves: what they used, limits that they met, budgets, conversations."""

from tests.planted.bug import Bug

LIMITS = "pwf/store/agent_limits.py"
WORK = "pwf/store/agent_work.sql"
BUDGETS = "pwf/store/budgets.py"
LIMIT_TESTS = ("store/test_agent_limits.py",)
WORK_TESTS = ("store/test_agent_work.py",)
BUDGET_TESTS = ("store/test_budgets.py",)
ADAPTER_TESTS = ("runner/test_agent_adapters.py",)

AGENT_BUGS = (
    Bug(
        "agents",
        "a limited run asks before its limit ends",
        LIMITS,
        "if tx.now.wall_ms < until:",
        "if until < tx.now.wall_ms:",
        LIMIT_TESTS,
    ),
    Bug(
        "agents", "all who waited for a limit ask at once", LIMITS, "if others_try:", "if False:", LIMIT_TESTS
    ),
    Bug(
        "agents",
        "an unknown limit is waited for as long each time",
        LIMITS,
        '"refusals": refusals + 1',
        '"refusals": refusals',
        LIMIT_TESTS,
    ),
    Bug(
        "agents",
        "a limit that is over is remembered for ever",
        "pwf/store/transitions.py",
        "            lift(tx, agent.account_name)",
        "            pass",
        LIMIT_TESTS,
    ),
    Bug(
        "agents",
        "a conversation in which a try failed is continued",
        WORK,
        "f.status IN ('failed', 'timed_out')",
        "f.status IN ('timed_out')",
        WORK_TESTS,
    ),
    Bug(
        "agents",
        "a report that comes late counts for the attempt after it",
        WORK,
        "WHERE run_no = :run_no AND attempts = :attempt AND status = 'running'",
        "WHERE run_no = :run_no AND status = 'running'",
        WORK_TESTS,
    ),
    Bug(
        "agents",
        "what comes again is counted again on its day",
        "pwf/store/agent_work.py",
        "tokens=now_tokens - tokens",
        "tokens=now_tokens",
        BUDGET_TESTS,
    ),
    Bug(
        "agents",
        "a person's word for a run does not count before its workflow's",
        BUDGETS,
        "said.raised.over(said.at_start).over(written)",
        "written.over(said.raised).over(said.at_start)",
        BUDGET_TESTS,
    ),
    Bug(
        "agents",
        "more budget is counted from nothing, and not from what is used",
        BUDGETS,
        "used.tokens + more.tokens",
        "more.tokens",
        BUDGET_TESTS,
    ),
    Bug(
        "agents",
        "a step goes beyond its budget to its end",
        "pwf/store/updates.py",
        "bool(command.reports) and _is_over(tx, command)",
        "False",
        BUDGET_TESTS,
    ),
    Bug(
        "agents",
        "a line of an agent is cut where it was read",
        "pwf/runner/kinds/agent_program.py",
        "self._rest += first",
        "self._rest = bytearray(first)",
        ADAPTER_TESTS,
    ),
    Bug(
        "agents",
        "an agent that has closed its output is waited for",
        "pwf/runner/kinds/agent_program.py",
        "lines.ready or lines.too_long or self._is_shut() or self._ended()",
        "lines.ready or lines.too_long or self._ended()",
        ADAPTER_TESTS,
    ),
)
