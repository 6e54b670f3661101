"""Lines that become progress by a regular expression."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from pwf import Workflow, idempotent
from pwf.errors import GraphError
from pwf.protocol.progress import Progress
from pwf.workflow.context import UPDATE_NAME_MAX
from pwf.workflow.lines import LinePattern


@pytest.mark.parametrize(
    ("pattern", "line", "data"),
    [
        (r"(?P<completed>\d+)/(?P<total>\d+)", "read 3/12 files", {"completed": 3, "total": 12}),
        (r"\d+ (?P<unit>\w+)", "12 files", {"unit": "files"}),
        (r"(?P<percent>[\d.]+)%", "\x1b[32m 42.5%\x1b[0m", {"completed": 42.5, "total": 100, "unit": "%"}),
        (r"(?P<completed>[\d,]+) rows", "1,234,567 rows", {"completed": 1_234_567}),
        (re.compile(r"^(?P<phase>\w+)\.\.\.(?: (?P<label>.+))?$"), "linking...", {"phase": "linking"}),
        (r"\[(?P<key>\w+)\] (?P<completed>\d+)", "[left] 7", {"key": "left", "completed": 7}),
        (r"(?P<completed>[\d.]+)", "...", None),
        (r"(?P<completed>\d+)", "nothing", None),
        (r"(?P<phase>x*)", "nothing", None),
    ],
)
def test_the_groups_of_a_pattern_are_the_fields_of_progress(pattern: Any, line: str, data: object) -> None:
    assert LinePattern(pattern)(None, line, "stdout") == data


@pytest.mark.parametrize("odd", ["-1", "nan", "inf", "1e400", "9" * 400, "9" * 5_000, str(2**53 + 1)])
def test_a_number_that_progress_can_not_have_is_no_update(odd: str) -> None:
    assert LinePattern(r"(?P<completed>\S+)/(?P<total>\d+)")(None, f"{odd}/10", "stdout") is None


def test_a_text_of_a_line_is_cut_to_what_progress_takes() -> None:
    pattern = LinePattern(r"(?P<label>l+) (?P<unit>u+) (?P<key>k+)")
    found = pattern(None, f"{'l' * 900} {'u' * 900} {'k' * 900}", "stdout")
    assert found is not None
    key = found.pop("key")
    assert len(key) == UPDATE_NAME_MAX
    assert msgspec.convert(found, Progress).label == "l" * 200


@pytest.mark.parametrize(
    "wrong", [r"(\d+)", r"(?P<done>\d+)", r"(?P<completed>", re.compile(rb"(?P<total>1)")]
)
def test_a_pattern_without_a_field_of_progress_is_refused_when_the_file_loads(wrong: Any) -> None:
    flow = Workflow("x")
    with pytest.raises(GraphError, match="on_line="):

        @flow.shell(effect=idempotent("x"), on_line=wrong)
        def build(ctx: Any) -> list[str]:
            return ["make"]
