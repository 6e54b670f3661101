"""How progress looks: bars, rates and the time left, and how much of it a log is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pwf.cli.follow import PlainScreen
from pwf.cli.out import Out
from pwf.present import progress
from pwf.protocol.progress import Estimate
from pwf.protocol.views import UpdateView
from tests.client import samples

SURE = Estimate(
    rate=4,
    rate_low=3,
    rate_high=5,
    left_ms=200_000,
    left_ms_low=160_000,
    left_ms_high=266_000,
    confidence="medium",
    samples=9,
    at_ms=samples.NOW,
    fresh_ms=10_000,
)


def update(estimate: Estimate | None = None, at_ms: int = samples.NOW, **data: Any) -> UpdateView:
    return UpdateView(
        kind="progress",
        key="copy",
        data=msgspec.Raw(msgspec.json.encode(data)),
        updated_ms=at_ms,
        estimate=estimate,
    )


def shown(estimate: Estimate | None, now_ms: int = samples.NOW, **data: Any) -> str:
    return progress.plain(progress.update_lines((update(estimate, **data),), 200, now_ms)[0]).partition(
        "%  "
    )[2]


def changed(**fields: Any) -> Estimate:
    return msgspec.structs.replace(SURE, **fields)


COUNTS: dict[str, Any] = {"completed": 200, "total": 1_000, "unit": "files"}


@pytest.mark.parametrize(
    ("estimate", "later_ms", "words"),
    [
        (None, 0, ""),
        (SURE, 0, "4 files/s  about 3m20s left"),
        (SURE, 5_000, "4 files/s  about 3m15s left"),
        (SURE, 11_000, "nothing new for 11s"),
        (changed(confidence="low"), 0, "4 files/s  2m40s to 4m26s left"),
        (changed(confidence="low", left_ms_high=160_100), 0, "4 files/s  perhaps 2m40s left"),
        (changed(confidence="low", left_ms_high=161_000), 0, "4 files/s  perhaps 2m41s left"),
        (changed(rate=0.25), 0, "15 files/min  about 3m20s left"),
        (changed(rate=1 / 7_200), 0, "12 files/day  about 3m20s left"),
        (changed(left_ms=None), 0, "4 files/s"),
        (changed(left_ms=0), 0, "4 files/s"),
        (changed(confidence="low", left_ms_high=None), 0, "4 files/s"),
    ],
)
def test_rate_and_time_left_stand_beside_the_bar_no_surer_than_they_are(
    estimate: Estimate | None, later_ms: int, words: str
) -> None:
    assert shown(estimate, samples.NOW + later_ms, **COUNTS) == words


def test_a_log_has_a_line_for_each_tenth_for_other_words_and_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = PlainScreen(Out(as_json=False))
    told: list[int] = []
    for done in range(101):
        phase = "link" if done >= 55 else "build"
        at_ms = samples.NOW + (30_000 if done >= 73 else 0)
        one = update(None, at_ms, completed=done, total=100, phase=phase)
        screen.show(samples.run_view(updates=(one,)), samples.NOW)
        if "copy" in capsys.readouterr().out:
            told.append(done)
    assert told == [0, 10, 20, 30, 40, 50, 55, 60, 70, 73, 80, 90, 100]


@pytest.mark.parametrize(
    "data", [{"completed": 1, "total": 0}, {"completed": 1e308, "total": 1e-308}, {"total": 4}, {}]
)
def test_odd_counts_are_shown_somehow(data: dict[str, Any]) -> None:
    first, second = update(**data), update(**data, label="x")
    assert progress.update_lines((first, second), 80, samples.NOW)
    assert progress.is_news(second, first)


@pytest.mark.parametrize("odd", [int("9" * 400), -1, 2**60])
def test_a_number_that_is_no_amount_is_not_drawn_and_breaks_nothing(odd: int) -> None:
    newest = update(None, completed=odd, total=odd)
    assert progress.plain(progress.update_lines((newest,), 80, samples.NOW)[0]) == "  copy"
    progress.is_news(newest, update(None, completed=1, total=odd))


def test_what_an_agent_asks_people_is_its_words_and_no_json() -> None:
    asked = UpdateView(
        kind="question",
        key="work",
        data=msgspec.Raw(b'{"question":"Which \\u001b[2J branch?"}'),
        updated_ms=samples.NOW,
    )
    assert (
        progress.plain(progress.update_lines((asked,), 80, samples.NOW)[0])
        == "  asks: Which \\x1b[2J branch?"
    )
