"""Waiting for a managed resource: where it ends."""

from __future__ import annotations

import pytest

from pwf.actors.operations.resources import has_arrived
from tests.client.samples import resource_summary


@pytest.mark.parametrize("until", ["settled", "gone"])
@pytest.mark.parametrize("state", ["paused", "held", "ambiguous", "gone"])
def test_every_wait_ends_where_a_person_is_needed_or_nothing_is_left(until: str, state: str) -> None:
    assert has_arrived(resource_summary(state), until)


@pytest.mark.parametrize("until", ["settled", "gone"])
@pytest.mark.parametrize("state", ["queued", "reconciling"])
def test_what_goes_on_is_waited_for(until: str, state: str) -> None:
    assert not has_arrived(resource_summary(state), until)


def test_one_that_is_settled_is_waited_for_until_it_is_gone_if_that_was_asked_for() -> None:
    assert has_arrived(resource_summary("settled"), "settled")
    assert not has_arrived(resource_summary("settled"), "gone")
    assert not has_arrived(resource_summary("settled", observed_generation=1), "settled")
    assert not has_arrived(resource_summary("settled", deleting_ms=5), "settled")
