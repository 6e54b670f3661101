"""A kind of node is a row of `pwf/protocol/kinds.py`: nothing else names one, and no row lacks what a kind needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pwf.present import graph_mermaid, graph_svg
from pwf.protocol.kinds import KINDS, REQUESTS
from pwf.runner.kinds import RUN
from pwf.workflow.decorators import Decorators
from tests.tidy.texts import tree_of

ROOT = Path(__file__).parents[2]
TEXTS = sorted([*(ROOT / "pwf").rglob("*.py"), *(ROOT / "tests" / "sim").rglob("*.py")])
#: Where a kind's name may stand in the text, and why.
ALLOWED = {
    "pwf/protocol/kinds.py": "the table itself",
    "pwf/workflow/decorators.py": "authoring: one decorator for each kind",
    "pwf/runner/kinds/agent_pi.py": "who speaks, in the words of its protocol",
    "pwf/channels/ntfy.py": "a field of the service's API",
    "pwf/workflow/shell_options.py": "`shell=` is an option, too",
    "pwf/cli/completion.py": "the shell that a person types in",
    "pwf/cli/json_output.py": "the command `pwf wait`",
    "pwf/cli/main.py": "the names of commands",
    "pwf/cli/resources.py": "the option `--wait`",
    "pwf/cli/watch.py": "the command `pwf wait`",
    "tests/sim/branches.py": "SQLite's checkpoint of the WAL",
    "tests/sim/clients.py": "a client that waits for a run",
    "tests/sim/test_auditor.py": "the cases that are planted",
}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Every string in the code, docstrings and parts of f-strings among them."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_the_name_of_a_kind_stands_in_its_row_its_execution_and_its_decorator_only() -> None:
    named = []
    for path in TEXTS:
        relative = str(path.relative_to(ROOT))
        if relative not in ALLOWED:
            own = path.stem if relative.startswith("pwf/runner/kinds/") else None
            named += [
                f"{relative}:{line}: {text!r}"
                for line, text in literals(path)
                if text in KINDS and text != own
            ]
    assert not named, f"ask for a fact of pwf/protocol/kinds.py instead: {named}"


def test_every_exception_is_still_needed() -> None:
    needless = [name for name in ALLOWED if not any(text in KINDS for _, text in literals(ROOT / name))]
    assert not needless


def test_no_sql_names_a_kind_but_the_check_that_repeats_the_table_of_requests() -> None:
    names = "|".join([*KINDS, *REQUESTS])
    for path in sorted((ROOT / "pwf" / "store").rglob("*.sql")):
        text = path.read_text()
        checks = re.findall(r"CHECK \(kind IN \(('checkpoint'[^)]*)\)\)", text)
        assert all(re.findall(r"'(\w+)'", check) == list(REQUESTS) for check in checks), path
        rest = re.sub(r"CHECK \(kind IN \([^)]*\)\)", "", text)
        assert not re.search(rf"'({names})'", rest), path


def test_every_kind_is_executed_written_and_drawn() -> None:
    assert RUN.keys() == KINDS.keys()
    for kind, facts in KINDS.items():
        assert (ROOT / "pwf" / "runner" / "kinds" / f"{kind}.py").exists()
        assert callable(getattr(Decorators, facts.decorator or kind))
        assert facts.shape in graph_mermaid._SHAPES
        assert graph_svg._STYLE.count(f".{facts.colour} {{") == 2, "in light and in dark"


def test_a_kind_has_one_way_to_end_and_what_parks_begins_nothing_outside() -> None:
    for kind, facts in KINDS.items():
        ways = (facts.returns_output, facts.runs_command, facts.sets_timer, facts.asks is not None)
        assert ways.count(True) == 1, kind
        assert not (facts.parks and (facts.has_effect or facts.pure or facts.publishes)), kind
