"""A group of commands whose command is left out."""

from __future__ import annotations

import pytest

from pwf.cli.main import build_parser
from pwf.cli.out import UsageError


def test_words_of_a_group_that_leave_its_command_out_mean_the_one_that_looks() -> None:
    parse = build_parser().parse_args
    assert parse(["settings", "@last", "--json"]).run.__name__ == "get"
    assert parse(["settings", "get", "@last"]).run.__name__ == "get"
    assert parse(["channel"]).run.__name__ == "status"
    with pytest.raises(UsageError):
        parse(["channel", "tset"])
