"""What an error says of a usage limit, in the words that agents pass on."""

from __future__ import annotations

import pytest

from pwf.runner.kinds.agent_limits import limit_in

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC


@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        ("Claude AI usage limit reached|1800003600", 3_600),
        ('{"type": "usage_limit_reached", "resets_at": 1800007200}', 7_200),
        ('429 {"error": {"message": "Rate limit", "reset_at": "1800000060000"}}', 60),
        ("429 Too Many Requests, Retry-After: 30", 30),
        ("You have hit your usage limit. Try again in 3 hours.", 10_800),
        ("Rate limit reached. Please try again in 1h 30m 5.5s", 5_405.5),
        ("quota exceeded; resets in 2 days and 1 hour", 176_400),
        ("Rate limit exceeded until 2027-01-15T09:00:00Z", 3_600),
        ("usage limit: back at 2027-01-15 10:00:00 +0100", 3_600),
        ("usage limit: back at 2027-99-15 10:00:00Z", None),
        ("RESOURCE_EXHAUSTED", None),
        ("529 overloaded_error", None),
        ("You've hit your weekly limit", None),
        ("usage limit reached|1700000000", None),  # it is over
        ("rate limit, resets_at: 1900000000", None),  # further off than any limit
    ],
)
def test_a_limit_is_known_by_its_words_and_its_end_where_it_is_said(said: str, after_s: float | None) -> None:
    found = limit_in(said, NOW)
    assert found is not None
    assert found.until_ms == (None if after_s is None else round((NOW + after_s) * 1000))


@pytest.mark.parametrize(
    "said",
    [
        "",
        "no credit left",
        "ECONNREFUSED 127.0.0.1:4290",
        "the file limits.py is missing",
        'File "a.py", line 429, in run',
        "Disk quota exceeded",
        "max_steps limit reached",
    ],
)
def test_any_other_error_is_no_limit(said: str) -> None:
    assert limit_in(said, NOW) is None


def test_a_flood_of_words_is_read_in_no_time() -> None:
    assert limit_in("1h " * 10_000_000 + "rate limit, try again in " + "1h " * 4_000, NOW) is not None
