"""Named queries: what a `.sql` file must look like."""

import pytest

from pwf.store.queries import parse_queries

GOOD = """-- A family.

-- name: first
-- What the first is for.
SELECT 1;

-- name: second
-- What the second is for.
SELECT
    -- a remark
    2
"""


def test_queries_are_attributes_in_the_files_order():
    queries = parse_queries(GOOD, "good.sql")
    assert dict(queries) == {"first": "SELECT 1", "second": "SELECT\n    2"}
    assert queries.first == "SELECT 1"
    assert queries.purpose("second") == "What the second is for."


def test_an_unknown_name_says_which_family_was_asked():
    with pytest.raises(AttributeError, match=r"good\.sql has no query named 'third'"):
        _ = parse_queries(GOOD, "good.sql").third


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("SELECT 1", "bad.sql:1: SQL before"),
        ("-- name: a\nSELECT 1", "bad.sql:1: the line after the name"),
        ("-- name: a\n-- Why it is.\n", "exactly one statement"),
        ("-- name: a\n-- Why it is.\nSELECT 1; SELECT 2", "exactly one statement"),
        (
            "-- name: a\n-- Why it is.\nSELECT 1\n-- name: a\n-- Why it is.\nSELECT 2",
            "bad.sql:4: the name 'a' is taken",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(text, fault):
    with pytest.raises(ValueError, match=fault):
        parse_queries(text, "bad.sql")
